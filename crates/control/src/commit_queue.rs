//! A queue of change requests, which are committed in groups.
//!
//! A client's thread puts its change requests into the queue and then locks the daemon. The thread that gets the lock commits all requests
//! in the queue, also those of other threads. While a policy is published, further requests gather for the next commit. So a single change
//! is in force at once, and many changes cause only as many publications as there is time for.
//!
//! A request whose patterns are not compiled, and the later requests of the same client, are returned to the client's
//! thread. It compiles the patterns and queues the requests again.

use crate::change::{CommitError, Committed, CommittedChange, Submission, UncompiledChanges};
use crate::compiling::PatternJobs;
use crate::daemon::Daemon;
use mmb_base::lock;
use std::sync::{Arc, Mutex};

/// The outcome of the change requests of a client; empty until they were committed.
type CommitOutcome = Arc<Mutex<Option<Committed>>>;

/// The change requests of all clients that are not committed yet.
#[derive(Debug, Default)]
pub(crate) struct CommitQueue(Mutex<Vec<(Vec<Submission>, CommitOutcome)>>);

impl CommitQueue {
    /// Commits the requests in order; returns the outcome of each.
    pub(crate) fn submit(
        &self,
        jobs: &mut PatternJobs<'_>,
        requests: Vec<Submission>,
    ) -> Vec<Result<CommittedChange, CommitError>> {
        let mut outcomes = Vec::with_capacity(requests.len());
        let mut requests = requests;
        while !requests.is_empty() {
            let Some(committed) = self.commit(jobs.daemon(), requests) else { break };
            if !committed.outcomes.is_empty() {
                jobs.begin_change();
            }
            outcomes.extend(committed.outcomes);
            let Some(UncompiledChanges { policy, submissions }) = committed.rest else { break };
            requests = submissions;
            if let Err(refusal) = jobs.compile(&policy) {
                let refused = requests.remove(0);
                let outcome = Err(refusal);
                lock(jobs.daemon()).record_change(&outcome, refused.origin);
                outcomes.push(outcome);
                jobs.begin_change();
            }
        }
        outcomes
    }

    /// Commits requests, and those of other threads. `None` after a panic.
    fn commit(&self, daemon: &Mutex<Daemon>, requests: Vec<Submission>) -> Option<Committed> {
        let outcome = CommitOutcome::default();
        lock(&self.0).push((requests, Arc::clone(&outcome)));
        let mut daemon = lock(daemon);
        if lock(&outcome).is_none() {
            let (requests, outcomes): (Vec<_>, Vec<_>) =
                std::mem::take(&mut *lock(&self.0)).into_iter().unzip();
            for (outcome, result) in outcomes.iter().zip(daemon.commit(requests)) {
                *lock(outcome) = Some(result);
            }
        }
        drop(daemon);
        // Only a thread that panicked leaves an outcome empty.
        lock(&outcome).take()
    }
}
