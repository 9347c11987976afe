//! The state of a daemon outside the process: its connections, and the rules and counters that they refer to.
//!
//! A state names rules by their text and ports by their name. A daemon that loads it finds its own by [`successors`] and by name, so that a
//! policy file that was changed meanwhile, or whose rules have no ids, and ports in another order mean what they say.

use crate::daemon::Daemon;
use crate::memory::MemoryShortage;
use mmb_base::lock;
use mmb_engine::{
    Connections, LeftOutConnection, LoadSummary, NoAnswer, RuleCount, SavedRule, SavedState, StateWriter,
};
use mmb_language::{Command, parse_command, with_id};
use mmb_log::lines::connection_line;
use mmb_policy::{Policy, PolicyDiff, successors};
use mmb_protocol::answer::{LeftOutLine, LoadedLine};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// Rules whose counters are read while the daemon is locked once.
const RULES_AT_ONCE: usize = 512;

/// The memory that the text of rules takes while it is parsed, in multiples of its length.
const PARSED: u64 = 3;

/// The reason why a state cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A worker has stopped.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] MemoryShortage),
}

/// Writes the state of a daemon, whose connections these are; returns the number of connections, and of those among them that are over then:
/// edits of their bytes are in flight, or a rule has ended them. The daemon is locked for short times.
///
/// # Errors
/// An error of `out`, or a worker does not answer.
pub fn save(
    daemon: &Mutex<Daemon>,
    connections: &Connections,
    out: &mut dyn Write,
) -> io::Result<(u64, u64)> {
    connections.fold_counters().map_err(io::Error::other)?;
    let header = lock(daemon).engine().state_header(now_ms());
    let mut writer = StateWriter::new(out, &header)?;
    let saved = connections.save(&mut writer)?;
    let policy = Arc::clone(lock(daemon).policy());
    let mut rules = policy.rules.iter();
    loop {
        let chunk: Vec<_> = rules.by_ref().take(RULES_AT_ONCE).collect();
        if chunk.is_empty() {
            break;
        }
        let counts: Vec<RuleCount> = {
            let daemon = lock(daemon);
            chunk
                .iter()
                .map(|rule| rule.id.map_or(RuleCount::default(), |id| daemon.engine().rule_count(id)))
                .collect()
        };
        for (rule, RuleCount { matched, dropped, .. }) in chunk.iter().zip(counts) {
            let Some(id) = rule.id else { continue };
            let text = with_id(rule).to_string();
            writer.rule(&SavedRule { id, matched, dropped, text })?;
        }
    }
    let counters = lock(daemon).engine().saved_counters();
    writer.end(&counters)?;
    Ok(saved)
}

/// Restores the connections of a state in a daemon, whose connections are `connections`. `left_out` gets the connections that are left out,
/// but for those that the table has no room for.
///
/// # Errors
/// A worker does not answer, or there is no memory for the state's rules.
pub fn load(
    daemon: &Mutex<Daemon>,
    connections: &Connections,
    state: &SavedState,
    left_out: &mut dyn FnMut(LeftOutConnection),
) -> Result<LoadedLine, LoadError> {
    let stateful = state.rules.iter().filter(|rule| is_stateful(&rule.text));
    let bytes: u64 = stateful.map(|rule| rule.text.len() as u64).sum();
    lock(daemon).check_memory_for(bytes * PARSED)?;
    let following = Arc::clone(lock(daemon).policy());
    let before = parsed(state, &following, is_stateful);
    let map = || {
        let policy = Arc::clone(lock(daemon).policy());
        let rules = successors(&before.rules, &policy.rules);
        lock(daemon).engine().state_map(&state.header, now_ms(), rules)
    };
    let LoadSummary { connections, lost_rules, left_out } = connections.load(state, map, left_out)?;
    let left_out = left_out.into_iter().map(|(reason, count)| (reason.to_owned(), count.into()));
    Ok(LoadedLine { connections, lost_rules, left_out: left_out.collect() })
}

/// Describes a connection that was left out.
pub fn left_out_line(LeftOutConnection { info, reason }: &LeftOutConnection) -> LeftOutLine {
    LeftOutLine { reason: (*reason).to_owned(), connection: connection_line(info, false) }
}

/// Returns a policy as it follows the one whose state this is: rules without ids have those that they had, and rules that were draining go on
/// to drain.
pub fn followed(state: &SavedState, policy: Policy) -> Policy {
    let has_assigned_ids = policy.has_assigned_ids();
    let before = parsed(state, &policy, |text| has_assigned_ids || is_stateful(text));
    PolicyDiff::new(&before, policy).policy
}

fn is_stateful(text: &str) -> bool {
    text.starts_with("add-stateful ")
}

/// Parses the rules of a state with a certain text. Those that are no rules of this version of the language are left out, and those that name
/// lists or sets which the policy that follows does not have.
fn parsed(state: &SavedState, following: &Policy, is_wanted: impl Fn(&str) -> bool) -> Policy {
    let mut policy = Policy::default();
    policy.lists.clone_from(&following.lists);
    policy.sets.clone_from(&following.sets);
    for SavedRule { id, text, .. } in state.rules.iter().filter(|rule| is_wanted(&rule.text)) {
        if let Ok((Command::Add(rule), _)) = parse_command(text)
            && rule.id == Some(*id)
        {
            // Of two rules of one id the first is taken.
            let _ = policy.add(&rule);
        }
    }
    policy
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
