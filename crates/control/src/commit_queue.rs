//! Changes that come together are put in force together.
//!
//! A client's thread lays what it wants changed on the desk, and then takes the daemon. Whoever has that carries out all
//! that lies there, its own and others' wishes: while one policy is put in force, the changes that come meanwhile gather
//! for the next. So a change that comes alone is in force at once, and many cost the packets no more publications than
//! there is time for.

use crate::daemon::{ChangeRequest, CommitError, Committed, Daemon};
use mmb_base::lock;
use std::sync::{Arc, Mutex};

/// What became of a wish; empty until it was carried out.
type CommitOutcome = Arc<Mutex<Option<Result<Committed, CommitError>>>>;

/// Wishes of all clients that nobody has taken yet.
#[derive(Debug, Default)]
pub(crate) struct CommitQueue(Mutex<Vec<(ChangeRequest, CommitOutcome)>>);

impl CommitQueue {
    /// Has the wishes carried out, in order; returns what became of each.
    pub(crate) fn submit(
        &self,
        daemon: &Mutex<Daemon>,
        requests: Vec<ChangeRequest>,
    ) -> Vec<Result<Committed, CommitError>> {
        let outcomes: Vec<CommitOutcome> = requests.iter().map(|_| CommitOutcome::default()).collect();
        lock(&self.0).extend(requests.into_iter().zip(outcomes.iter().cloned()));
        let mut daemon = lock(daemon);
        // Those of one call lie together, so that whoever took one took all of them.
        if outcomes.last().is_some_and(|last| lock(last).is_none()) {
            let (requests, outcomes): (Vec<_>, Vec<_>) =
                std::mem::take(&mut *lock(&self.0)).into_iter().unzip();
            for (outcome, became) in outcomes.iter().zip(daemon.commit(requests)) {
                *lock(outcome) = Some(became);
            }
        }
        drop(daemon);
        // Only a thread that failed leaves one empty.
        outcomes.iter().map(|outcome| lock(outcome).take().unwrap_or(Err(CommitError::Lost))).collect()
    }
}
