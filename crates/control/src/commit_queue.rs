//! A queue of change requests, which are committed in groups.
//!
//! A client's thread puts its change requests into the queue and then locks the daemon. The thread that gets the lock commits all requests
//! in the queue, also those of other threads. While a policy is published, further requests gather for the next commit. So a single change
//! is in force at once, and many changes cause only as many publications as there is time for.

use crate::change::{CommitError, CommittedChange, Submission};
use crate::daemon::Daemon;
use mmb_base::lock;
use std::sync::{Arc, Mutex};

/// The outcome of a change request; empty until it was committed.
type CommitOutcome = Arc<Mutex<Option<Result<CommittedChange, CommitError>>>>;

/// The change requests of all clients that are not committed yet.
#[derive(Debug, Default)]
pub(crate) struct CommitQueue(Mutex<Vec<(Submission, CommitOutcome)>>);

impl CommitQueue {
    /// Commits the requests in order; returns the outcome of each.
    pub(crate) fn submit(
        &self,
        daemon: &Mutex<Daemon>,
        requests: Vec<Submission>,
    ) -> Vec<Result<CommittedChange, CommitError>> {
        let outcomes: Vec<CommitOutcome> = requests.iter().map(|_| CommitOutcome::default()).collect();
        lock(&self.0).extend(requests.into_iter().zip(outcomes.iter().cloned()));
        let mut daemon = lock(daemon);
        // The requests of one call are consecutive, so that the thread that took one took all of them.
        if outcomes.last().is_some_and(|last| lock(last).is_none()) {
            let (requests, outcomes): (Vec<_>, Vec<_>) =
                std::mem::take(&mut *lock(&self.0)).into_iter().unzip();
            for (outcome, result) in outcomes.iter().zip(daemon.commit(requests)) {
                *lock(outcome) = Some(result);
            }
        }
        drop(daemon);
        // Only a thread that panicked leaves an outcome empty.
        outcomes.iter().map(|outcome| lock(outcome).take().unwrap_or(Err(CommitError::Internal))).collect()
    }
}
