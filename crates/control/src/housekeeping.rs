//! What the daemon changes by itself; hosts call it a few times a second.

use crate::author::Author;
use crate::change::{CommitError, CommittedChange};
use crate::compiling::PatternJobs;
use crate::daemon::{Daemon, Return};
use crate::unconfirmed::UnconfirmedChange;
use mmb_base::lock;
use mmb_compile::CompileBudget;
use mmb_protocol::request::ConnectionFate;
use std::sync::Mutex;
use std::time::Instant;

/// Takes back a change whose confirmation has not come in time.
pub fn take_back_unconfirmed(daemon: &Mutex<Daemon>) {
    let is_overdue = |waiting: &UnconfirmedChange| waiting.deadline <= Instant::now();
    if !lock(daemon).waiting().is_some_and(is_overdue) {
        return;
    }
    let reason = |waiting: &UnconfirmedChange| {
        let is_due = is_overdue(waiting);
        is_due
            .then(|| format!(" (version {} was not confirmed within {} s)", waiting.version, waiting.seconds))
    };
    let mut jobs = PatternJobs::of_daemon(daemon, CompileBudget::START);
    let taken_back = take_back(&mut jobs, Author::daemon(), None, &reason);
    let connections = lock(daemon).engine().connections();
    if let Some((Ok(change), ConnectionFate::Kill)) = taken_back {
        // A worker that does not answer has stopped.
        let _ = connections.kill_removed(&change.stateful);
    }
}

/// Puts the policy before the change that waits in force again, if `reason` gives one. `fate` is that of connections whose rules go, if it is not
/// that of the change; it is returned too. `None`: no such change waits.
pub(crate) fn take_back(
    jobs: &mut PatternJobs<'_>,
    author: Author,
    mut fate: Option<ConnectionFate>,
    reason: &dyn Fn(&UnconfirmedChange) -> Option<String>,
) -> Option<(Result<CommittedChange, CommitError>, ConnectionFate)> {
    loop {
        let outcome = lock(jobs.daemon()).take_back(author, fate, reason)?;
        let (policy, of_change) = match outcome {
            Return::Done(outcome, fate) => return Some((outcome, fate)),
            Return::Uncompiled(policy, fate) => (policy, fate),
        };
        // The patterns of the policy before are known; with those of rules that drain they are others.
        match jobs.compile(&policy) {
            Ok(()) => {}
            Err(_) if of_change == ConnectionFate::Keep => fate = Some(ConnectionFate::Release),
            Err(refusal) => {
                lock(jobs.daemon()).postpone_return();
                return Some((Err(refusal), of_change));
            }
        }
    }
}

/// Deletes the draining rules that no connection has any more.
pub fn delete_drained(daemon: &Mutex<Daemon>) {
    let Some(policy) = lock(daemon).delete_drained() else { return };
    let mut jobs = PatternJobs::of_daemon(daemon, CompileBudget::CHANGE);
    let compiled = jobs.compile(&policy);
    let mut daemon = lock(daemon);
    if compiled.is_err() || daemon.delete_drained().is_some() {
        daemon.postpone_deletion();
    }
}
