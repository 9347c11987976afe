//! Changes that the daemon makes by itself: it applies the policy file on SIGHUP, takes back unconfirmed changes, and
//! deletes rules that have drained.
//!
//! Hosts call [`Housekeeper::look`] a few times a second on the thread that also monitors their ports. That thread
//! never waits for the compiler of patterns: a change whose patterns have to be compiled is made on a [`JobThread`].
//! The return of an unconfirmed change has a thread and a turn of its own, so that no other job delays it.

use crate::author::Author;
use crate::change::{ChangeOrigin, ChangeRequest, CommitError, CommittedChange, Submission};
use crate::commit_queue::CommitQueue;
use crate::compiling::PatternJobs;
use crate::daemon::{Daemon, Return};
use crate::history::entry::EntryAction;
use crate::unconfirmed::UnconfirmedChange;
use mmb_base::lock;
use mmb_compile::{Applicant, CompileBudget};
use mmb_policy::Policy;
use mmb_protocol::request::ConnectionFate;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
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
        let mut jobs = PatternJobs::of_daemon(daemon, Applicant::Trusted, CompileBudget::CHANGE);
        let outcome = CommitQueue::default().submit(&mut jobs, vec![Submission { request, origin }]).pop();
        let change = outcome.unwrap_or(Err(CommitError::Internal))?;
        let history = lock(daemon).history();
        let marked = history.mark_applied(&change.after);
        Ok((change, marked))
    }
}

/// Makes the changes of the daemon itself. When it is dropped, it waits for the jobs that run.
pub struct Housekeeper {
    daemon: Arc<Mutex<Daemon>>,
    /// Takes back an unconfirmed change.
    rollback: JobThread,
    /// Applies the policy file, or deletes rules that have drained.
    change: JobThread,
}

impl Housekeeper {
    /// The housekeeper of a daemon.
    pub fn new(daemon: &Arc<Mutex<Daemon>>) -> Housekeeper {
        Housekeeper {
            daemon: Arc::clone(daemon),
            rollback: JobThread::default(),
            change: JobThread::default(),
        }
    }

    /// Takes back a change that was not confirmed in time, and deletes draining rules that have no connections left.
    /// Never waits for the compiler of patterns.
    pub fn look(&mut self) {
        self.take_back_unconfirmed();
        self.delete_drained();
    }

    /// Starts a change of the host on a thread of its own. Returns false if another change is being made, or if no
    /// thread could be started; the host then tries again later.
    pub fn start(&mut self, change: impl FnOnce(&Mutex<Daemon>) + Send + 'static) -> bool {
        self.change.start(&self.daemon, change)
    }

    fn take_back_unconfirmed(&mut self) {
        if self.rollback.is_running() {
            return;
        }
        let taken_back = lock(&self.daemon).take_back(Author::daemon(), None, &overdue);
        match taken_back {
            None => {}
            Some(Return::Done(outcome, fate)) => end_connections(&self.daemon, &outcome, fate),
            Some(Return::Uncompiled(..)) => {
                let is_started = self.rollback.start(&self.daemon, |daemon| {
                    let mut jobs = PatternJobs::of_daemon(daemon, Applicant::Rollback, CompileBudget::START);
                    if let Some((outcome, fate)) = take_back(&mut jobs, Author::daemon(), None, &overdue) {
                        end_connections(daemon, &outcome, fate);
                    }
                });
                if !is_started {
                    lock(&self.daemon).postpone_return();
                }
            }
        }
    }

    fn delete_drained(&mut self) {
        // A change that is being made may already delete them.
        if self.change.is_running() {
            return;
        }
        let Some(policy) = lock(&self.daemon).delete_drained() else { return };
        let is_started = self.start(move |daemon| {
            let mut jobs = PatternJobs::of_daemon(daemon, Applicant::Trusted, CompileBudget::CHANGE);
            let compiled = jobs.compile(&policy);
            let mut daemon = lock(daemon);
            if compiled.is_err() || daemon.delete_drained().is_some() {
                daemon.postpone_deletion();
            }
        });
        if !is_started {
            lock(&self.daemon).postpone_deletion();
        }
    }
}

/// A thread for jobs that wait for the compiler of patterns; it runs one job at a time.
#[derive(Debug, Default)]
struct JobThread(Option<JoinHandle<()>>);

impl JobThread {
    fn is_running(&self) -> bool {
        self.0.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Starts a job. Returns false if another one runs, or if no thread could be started.
    fn start(
        &mut self,
        daemon: &Arc<Mutex<Daemon>>,
        job: impl FnOnce(&Mutex<Daemon>) + Send + 'static,
    ) -> bool {
        if self.is_running() {
            return false;
        }
        let daemon = Arc::clone(daemon);
        let thread = thread::Builder::new().name("mmb-change".to_owned()).spawn(move || job(&daemon));
        self.0 = thread.ok();
        self.0.is_some()
    }
}

impl Drop for JobThread {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // A job that panicked has reported it.
            let _ = thread.join();
        }
    }
}

/// The reason to take back a change that was not confirmed in time.
fn overdue(waiting: &UnconfirmedChange) -> Option<String> {
    let reason = || format!(" (version {} was not confirmed within {} s)", waiting.version, waiting.seconds);
    (waiting.deadline <= Instant::now()).then(reason)
}

/// Ends the connections of rules that a return has removed, if that is their fate.
fn end_connections(
    daemon: &Mutex<Daemon>,
    outcome: &Result<CommittedChange, CommitError>,
    fate: ConnectionFate,
) {
    let (Ok(change), ConnectionFate::Kill) = (outcome, fate) else { return };
    let connections = lock(daemon).engine().connections();
    // A worker that does not answer has stopped.
    let _ = connections.kill_removed(&change.stateful);
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
