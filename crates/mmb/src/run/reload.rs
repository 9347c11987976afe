//! SIGHUP: the policy file is applied again.

use super::policy;
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
    if path.as_os_str() == "-" || !path.is_file() {
        return refused(&"SIGHUP applies a regular file only; use `mmb apply`");
    }
    let file = match policy(args, global) {
        Ok(Some(file)) => file,
        Ok(None) => return refused(&"not applied"),
        Err(error) => return refused(&format!("{error:#}")),
    };
    let (applied, connections) = {
        let mut daemon = lock(daemon);
        (daemon.apply_file(file), daemon.engine().connections())
    };
    match applied {
        Ok(change) => {
            let affected = connections.affected(&change.stateful).unwrap_or_default();
            output::report_error(&format!("{name}: {}", describe(&change, affected)));
        }
        Err(error) => refused(&error),
    }
}

fn describe(change: &CommittedChange, affected: AffectedConnections) -> String {
    let (mut added, mut removed) = (0, 0);
    change.diff().for_each(|change| match change {
        RuleChange::Added(_) => added += 1,
        RuleChange::Removed(_) => removed += 1,
    });
    let kept = change.before.rules.len() - removed;
    let mut text = format!("{added} added, {removed} removed, {kept} kept");
    let AffectedConnections { handed_over, lose_rules, lose_accept, kept: _ } = affected;
    for (connections, change) in
        [(handed_over, "change hands"), (lose_rules, "lose a rule"), (lose_accept, "lose their `accept`")]
    {
        if connections > 0 {
            text += &format!("; {connections} connections {change}");
        }
    }
    text
}
