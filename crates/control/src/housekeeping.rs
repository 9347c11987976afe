//! Changes that the daemon makes by itself: it applies the policy file on SIGHUP, takes back unconfirmed changes, and
//! deletes rules that have drained. Hosts call these functions on a signal, or a few times a second.

use crate::author::Author;
use crate::change::{ChangeOrigin, ChangeRequest, CommitError, CommittedChange, Submission};
use crate::commit_queue::CommitQueue;
use crate::compiling::PatternJobs;
use crate::daemon::{Daemon, Return};
use crate::history::entry::EntryAction;
use crate::unconfirmed::UnconfirmedChange;
use mmb_base::lock;
use mmb_compile::CompileBudget;
use mmb_policy::Policy;
use mmb_protocol::request::ConnectionFate;
use std::io;
use std::sync::Mutex;
use std::time::Instant;

impl Daemon {
    /// Replaces the policy with that of a policy file, as a client's `apply` does. `command` is the command that the
    /// history shows. Returns the change, and the result of marking it in the history as applied: after a restart, a
    /// marked change waits for no confirmation.
    ///
    /// # Errors
    /// The policy is refused. The policy in force stays.
    pub fn apply_file(
        daemon: &Mutex<Daemon>,
        file: Policy,
        command: String,
    ) -> Result<(CommittedChange, io::Result<()>), CommitError> {
        let request = ChangeRequest::Apply(Box::new(file), ConnectionFate::Release);
        let author = Author::daemon();
        let origin = ChangeOrigin { author, action: EntryAction::Change, command, confirm: None };
        let mut jobs = PatternJobs::of_daemon(daemon, CompileBudget::CHANGE);
        let outcome = CommitQueue::default().submit(&mut jobs, vec![Submission { request, origin }]).pop();
        let change = outcome.unwrap_or(Err(CommitError::Internal))?;
        let history = lock(daemon).history();
        let marked = history.mark_applied(&change.after);
        Ok((change, marked))
    }
}

/// Takes back a change that was not confirmed in time.
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

/// Restores the policy before the unconfirmed change, if `reason` returns a reason for it. Connections whose rules are
/// removed get `fate`, or without it the fate that the change itself gave. Returns the outcome and that fate; `None` if
/// no such change waits.
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
        // The patterns of the policy before are in the cache. With rules that drain, the policy has more patterns than these.
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

/// Deletes the draining rules that have no connections left.
pub fn delete_drained(daemon: &Mutex<Daemon>) {
    let Some(policy) = lock(daemon).delete_drained() else { return };
    let mut jobs = PatternJobs::of_daemon(daemon, CompileBudget::CHANGE);
    let compiled = jobs.compile(&policy);
    let mut daemon = lock(daemon);
    if compiled.is_err() || daemon.delete_drained().is_some() {
        daemon.postpone_deletion();
    }
}
