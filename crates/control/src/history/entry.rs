//! Entries of the history, as they are handed over to it, and the reasons why a version is not at hand.

use crate::author::Author;
use mmb_policy::Policy;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::SystemTime;

/// What an entry tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EntryAction {
    /// The daemon started with this policy.
    Start,
    /// The policy was changed.
    Change,
    /// An earlier version was put in force again.
    Rollback,
    /// A change was confirmed.
    Confirm,
    /// Connections were ended.
    Kill,
    /// Counters begin at zero.
    Clear,
    /// A server was taken out of service or back.
    Server,
    /// Connections of a saved state were added.
    LoadState,
}

impl EntryAction {
    /// Its name in answers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            EntryAction::Start => "start",
            EntryAction::Change => "change",
            EntryAction::Rollback => "rollback",
            EntryAction::Confirm => "confirm",
            EntryAction::Kill => "kill",
            EntryAction::Clear => "clear",
            EntryAction::Server => "server",
            EntryAction::LoadState => "load-state",
        }
    }
}

/// An entry, as it is handed over.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) at: SystemTime,
    pub(crate) author: Author,
    pub(crate) action: EntryAction,
    /// By which command.
    pub(crate) command: String,
    /// The version that it has made.
    pub(crate) version: Option<u64>,
    pub(crate) content: EntryContent,
    /// The reason why it was refused.
    pub(crate) refused: Option<String>,
    /// Connections that were ended.
    pub(crate) connections: Option<u64>,
}

impl Entry {
    /// An entry of this time, without a version.
    pub(crate) fn new(author: Author, action: EntryAction, command: String) -> Entry {
        let at = SystemTime::now();
        Entry {
            at,
            author,
            action,
            command,
            version: None,
            content: EntryContent::None,
            refused: None,
            connections: None,
        }
    }
}

/// The policies of an entry.
#[derive(Debug)]
pub(crate) enum EntryContent {
    /// The policy is as it was.
    None,
    /// The first policy of a run.
    Start(Arc<Policy>),
    /// The policies before and after.
    Change(Arc<Policy>, Arc<Policy>),
    /// The policies are part of the next change.
    Merged,
}

/// The reason why a version is not at hand.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HistoryError {
    /// There is no such version, or it is too old, or could not be written.
    #[error("version {0} of the policy is not kept; `history` lists those that are")]
    NotKept(u64),
    /// The stored version is broken.
    #[error("version {version} of the policy is broken in {file}: {reason}")]
    Broken {
        /// The version.
        version: u64,
        /// Where it is stored.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The thread does not come to an end.
    #[error("the history is still being written; try again")]
    Busy,
}
