//! SIGHUP: the policy file is applied again.

use super::policy::policy;
use crate::cli::{Global, RunArgs};
use crate::output;
use mmb_base::lock;
use mmb_control::{CommittedChange, Daemon};
use mmb_engine::AffectedConnections;
use mmb_policy::RuleChange;
use std::sync::Mutex;

/// Applies the policy file, and reports the change; on an error the policy in force stays.
pub(super) fn reload(args: &RunArgs, global: &Global, daemon: &Mutex<Daemon>) {
    let Some(path) = &args.policy else {
        output::report_error("SIGHUP: there is no policy file to apply; see -c");
        return;
    };
    let name = path.display();
    let refused = |error: &dyn std::fmt::Display| {
        output::report_error(&format!("{name}: {error}; the policy in force stays"));
    };
    // A stream has no second reading, and opening a pipe may wait for ever.
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() && path.as_os_str() != "-" => {}
        Err(error) if path.as_os_str() != "-" => return refused(&error),
        _ => return refused(&"SIGHUP applies a regular file only; use `mmb apply`"),
    }
    let file = match policy(args, global) {
        Ok(Some(file)) => file,
        Ok(None) => return refused(&"not applied"),
        Err(error) => return refused(&format!("{error:#}")),
    };
    match Daemon::apply_file(daemon, file, format!("SIGHUP: apply {name}")) {
        Ok((change, marked)) => {
            let mut text = describe(&change);
            let connections = lock(daemon).engine().connections();
            match connections.affected(&change.stateful) {
                Ok(affected) => text += &effects(affected),
                Err(error) => text += &format!("; the connections that it affects were not counted: {error}"),
            }
            output::report_error(&format!("{name}: {text}"));
            if let Err(error) = marked {
                output::report_error(&format!("a restart takes this policy for unconfirmed: {error}"));
            }
        }
        Err(error) => refused(&error),
    }
}

fn describe(change: &CommittedChange) -> String {
    let (mut added, mut removed) = (0, 0);
    change.diff().for_each(|change| match change {
        RuleChange::Added(_) => added += 1,
        RuleChange::Removed(_) => removed += 1,
    });
    let kept = change.before.rules.len() - removed;
    let lists = &change.after.lists;
    let read = lists.iter().filter(|(name, list)| change.before.lists.get(*name) != Some(list));
    let read: String =
        read.map(|(name, list)| format!("; @{name} has {} patterns", list.patterns.len())).collect();
    format!("{added} added, {removed} removed, {kept} kept{read}")
}

/// Describes the connections that a change affects.
fn effects(affected: AffectedConnections) -> String {
    let AffectedConnections { handed_over, kept, lose_rules, lose_accept } = affected;
    let numbers = [
        ("follow their rules' successors", handed_over),
        ("keep rules that drain", kept),
        ("lose rules", lose_rules),
        ("lose their accept", lose_accept),
    ];
    let text = |(effect, connections): (&str, u64)| format!("; connections that {effect}: {connections}");
    numbers.into_iter().filter(|(_, connections)| *connections > 0).map(text).collect()
}
