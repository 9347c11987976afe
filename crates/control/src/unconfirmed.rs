//! A change that waits for its confirmation: meanwhile others are refused, and without a confirmation the policy before it is in force again.
//!
//! The policy before is held as it was, so that it needs nothing from the disk. Clients that end have no effect on the wait.

use crate::author::{Author, UserNames};
use crate::change::{ChangeOrigin, CommitError};
use mmb_engine::CompiledPatterns;
use mmb_policy::Policy;
use mmb_protocol::answer::UnconfirmedLine;
use mmb_protocol::request::ConnectionFate;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A change that waits.
#[derive(Clone, Debug)]
pub(crate) struct UnconfirmedChange {
    /// The policy before it, and its version.
    pub(crate) before: (Arc<Policy>, u64),
    /// The patterns of the policy before. They stay in the cache, so that taking the change back needs no compiler.
    _patterns: CompiledPatterns,
    /// The version that it has made.
    pub(crate) version: u64,
    /// The fate of the connections of rules that it removes, and of those that go when it is taken back.
    pub(crate) fate: ConnectionFate,
    pub(crate) author: Author,
    pub(crate) command: String,
    /// The seconds that it waits in all, and when these are over.
    pub(crate) seconds: u32,
    pub(crate) deadline: Instant,
}

impl UnconfirmedChange {
    /// A change that was committed on this policy, if it has to be confirmed.
    pub(crate) fn begin(
        origin: &ChangeOrigin,
        (before, before_version): (&Arc<Policy>, u64),
        fate: ConnectionFate,
        patterns: CompiledPatterns,
    ) -> Option<UnconfirmedChange> {
        let seconds = origin.confirm?;
        Some(UnconfirmedChange {
            before: (Arc::clone(before), before_version),
            _patterns: patterns,
            version: before_version + 1,
            fate,
            author: origin.author,
            command: origin.command.clone(),
            seconds,
            deadline: Instant::now() + Duration::from_secs(seconds.into()),
        })
    }

    /// The lines of answers about it.
    pub(crate) fn line(&self) -> UnconfirmedLine {
        let Author { uid, pid } = self.author;
        let left = self.deadline.saturating_duration_since(Instant::now());
        UnconfirmedLine {
            version: self.version,
            before: self.before.1,
            seconds: left.as_secs() + u64::from(left.subsec_nanos() > 0),
            uid,
            user: uid.and_then(|uid| UserNames::default().name(uid)),
            pid,
            command: self.command.clone(),
        }
    }

    /// The reason why another change is refused.
    pub(crate) fn refusal(&self) -> CommitError {
        CommitError::Unconfirmed(Box::new(self.line()))
    }
}
