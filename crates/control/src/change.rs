//! Changes of the policy: what clients request, who requests it, and what becomes of it.

use crate::author::Author;
use crate::history::entry::EntryAction;
use crate::host::UnsupportedRule;
use crate::memory::MemoryShortage;
use mmb_compile::CompileError;
use mmb_engine::{PublishError, StatefulChange};
use mmb_language::Command;
use mmb_policy::printable::printable;
use mmb_policy::{Policy, RuleChange, RuleStore};
use mmb_protocol::answer::UnconfirmedLine;
use mmb_protocol::request::ConnectionFate;
use std::sync::Arc;

/// A change that a client requests, which is committed as a whole or not at all.
#[derive(Debug)]
pub(crate) enum ChangeRequest {
    /// Executes the commands that change something; other commands are ignored.
    Run(Vec<Command>),
    /// Replaces the policy with that of a policy file. Rules that are in force already stay, with their ids and counters.
    Apply(Box<Policy>, ConnectionFate),
    /// Puts a version of the policy in force again, with its ids and switches of ports.
    Restore(Box<Policy>, ConnectionFate),
}

/// A change request, and who makes it.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) request: ChangeRequest,
    pub(crate) origin: ChangeOrigin,
}

/// What is recorded of a change.
#[derive(Clone, Debug)]
pub(crate) struct ChangeOrigin {
    pub(crate) author: Author,
    pub(crate) action: EntryAction,
    /// The command; shortened.
    pub(crate) command: String,
    /// The seconds within which it has to be confirmed.
    pub(crate) confirm: Option<u32>,
}

/// A change that was committed.
#[derive(Clone, Debug)]
pub struct CommittedChange {
    /// The policy before the change.
    pub before: Arc<Policy>,
    /// The policy after the change.
    pub after: Arc<Policy>,
    /// The stateful rules that it removed or replaced.
    pub stateful: StatefulChange,
    /// The version that it has made; `None`: the policy is as it was.
    pub version: Option<u64>,
}

/// The reason why a change was not committed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// A command does not fit the policy in force.
    #[error("{error}")]
    Command {
        /// The index of the command.
        index: usize,
        /// The fault of the command.
        error: mmb_language::CommandRefusal,
    },
    /// The engine cannot execute the policy.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// There is not enough memory for the policy.
    #[error(transparent)]
    Memory(#[from] MemoryShortage),
    /// There is not enough memory for what a setting sizes.
    #[error("set {setting} {value}: {short}; {} would fit", if *.fits == 0 { "no value".to_owned() } else { .fits.to_string() })]
    Sized {
        /// The setting to lower.
        setting: &'static str,
        /// Its value.
        value: u64,
        /// The value that fits.
        fits: u64,
        /// The missing memory.
        short: MemoryShortage,
    },
    /// The host does not support the policy.
    #[error(transparent)]
    Host(#[from] UnsupportedRule),
    /// Another change waits for its confirmation.
    #[error(
        "version {} of the policy waits for its confirmation, for another {} s ({}, process {}: {}); `confirm` keeps it, `rollback` takes it back",
        .0.version, .0.seconds, who(.0), .0.pid.unwrap_or_default(), printable(&.0.command)
    )]
    Unconfirmed(Box<UnconfirmedLine>),
    /// The patterns of this policy must be compiled before the change is tried again. Clients never see this error.
    #[error("the patterns of the policy are not compiled yet")]
    Uncompiled(Arc<Policy>),
    /// The patterns of the policy were not compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The thread that committed the change panicked.
    #[error("an internal error; see the daemon's standard error")]
    Internal,
}

/// The outcomes of the change requests of a client.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    /// The outcomes of the first requests.
    pub(crate) outcomes: Vec<Result<CommittedChange, CommitError>>,
    /// The other requests: the patterns of the first of these must be compiled.
    pub(crate) rest: Option<UncompiledChanges>,
}

/// Change requests that wait for the patterns of the first one.
#[derive(Debug)]
pub(crate) struct UncompiledChanges {
    /// The policy that the first request results in.
    pub(crate) policy: Arc<Policy>,
    pub(crate) submissions: Vec<Submission>,
}

/// The user who made a change, for people.
fn who(line: &UnconfirmedLine) -> String {
    match (&line.user, line.uid) {
        (Some(user), _) => user.clone(),
        (None, Some(uid)) => format!("user {uid}"),
        (None, None) => "an unknown user".to_owned(),
    }
}

impl ChangeRequest {
    /// The fate of the connections of rules that a policy removes.
    pub(crate) fn fate(&self) -> ConnectionFate {
        match self {
            ChangeRequest::Run(_) => ConnectionFate::Release,
            ChangeRequest::Apply(_, fate) | ChangeRequest::Restore(_, fate) => *fate,
        }
    }
}

/// Returns whether a command changes the policy.
pub(crate) fn is_change(command: &Command) -> bool {
    match command {
        Command::List { .. } | Command::Show(_) | Command::ShowSet(_) | Command::Monitor => false,
        Command::Trace(_) | Command::Capture(_) => false,
        Command::Kill(_) | Command::Server(_) | Command::ClearCounters => false,
        // A rollback is a change of its own, when it is answered.
        Command::Confirm(_) | Command::Rollback(..) | Command::History(_) | Command::Diff(..) => false,
        Command::Add(_) | Command::Replace(_) | Command::Flush => true,
        Command::Del(_) | Command::DelKill(_) | Command::DelKeep(_) | Command::DelNamed(..) => true,
        Command::Enable(_) | Command::Disable(_) | Command::Set(_) | Command::Patterns(..) => true,
        Command::ChangeSet(..) | Command::DelSet(_) => true,
    }
}

impl CommittedChange {
    /// Returns the rules that were added and removed, in the order of their ids. A replaced rule is removed, and then the new one is added.
    pub fn diff(&self) -> impl Iterator<Item = RuleChange> + '_ {
        RuleStore::diff(&self.before.rules, &self.after.rules)
    }
}
