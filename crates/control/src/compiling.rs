//! Compiles the patterns of a change before the daemon is locked for it.
//!
//! A change is tried first. If its patterns are not known, the daemon refuses it with the policy that it would make
//! ([`CommitError::Uncompiled`]); the thread that asked has that policy compiled, without any lock, and tries again. Meanwhile another change
//! may have come first, so that the policy is another one; the [`Turn`] of the thread, which it keeps until the change is committed, allows
//! only those whose patterns are known, and [`MOST_TRIES`] bounds the rest.

use crate::change::CommitError;
use crate::daemon::Daemon;
use mmb_base::lock;
use mmb_compile::{Applicant, CompileBudget, CompileError, Turn};
use mmb_engine::{CompiledPatterns, SetSource, compile_patterns};
use mmb_policy::Policy;
use std::sync::{Arc, Mutex};

/// How often the patterns of one change are compiled, because other changes came first.
const MOST_TRIES: usize = 8;

/// What is compiled for one client, or for the daemon itself.
pub(crate) struct PatternJobs<'a> {
    daemon: &'a Mutex<Daemon>,
    applicant: Applicant,
    budget: CompileBudget,
    is_gone: &'a dyn Fn() -> bool,
    turn: Option<Turn>,
    /// The patterns that were compiled last, so that they are still known when the change is tried again.
    compiled: Option<CompiledPatterns>,
    tries: usize,
}

impl<'a> PatternJobs<'a> {
    /// Jobs of an applicant, who no longer waits for them when `is_gone` returns true.
    pub(crate) fn new(
        daemon: &'a Mutex<Daemon>,
        applicant: Applicant,
        is_gone: &'a dyn Fn() -> bool,
    ) -> PatternJobs<'a> {
        let budget = CompileBudget::CHANGE;
        PatternJobs { daemon, applicant, budget, is_gone, turn: None, compiled: None, tries: 0 }
    }

    /// Jobs of the daemon itself, with this budget.
    pub(crate) fn of_daemon(daemon: &'a Mutex<Daemon>, budget: CompileBudget) -> PatternJobs<'a> {
        PatternJobs { budget, ..PatternJobs::new(daemon, Applicant::Trusted, &|| false) }
    }

    /// The daemon whose changes they are for.
    pub(crate) fn daemon(&self) -> &'a Mutex<Daemon> {
        self.daemon
    }

    /// The next change is another one.
    pub(crate) fn begin_change(&mut self) {
        self.tries = 0;
    }

    /// Compiles the patterns of a policy, so that a change to it can be tried again; to be called without the daemon's lock.
    ///
    /// # Errors
    /// The policy's patterns are refused, or they are given up.
    pub(crate) fn compile(&mut self, policy: &Arc<Policy>) -> Result<(), CommitError> {
        let (compiler, sets) = {
            let daemon = lock(self.daemon);
            (Arc::clone(daemon.compiler()), Arc::clone(daemon.engine().pattern_sets()))
        };
        self.tries += 1;
        if self.tries > MOST_TRIES {
            return Err(CompileError::Busy.into());
        }
        let turn = match &self.turn {
            Some(turn) => turn,
            None => {
                let turn = compiler.turn(self.applicant, self.budget, self.is_gone)?;
                let has_waited = turn.has_waited();
                let turn = self.turn.insert(turn);
                if has_waited {
                    // The one before may have compiled the same patterns, or changed the policy.
                    return Ok(());
                }
                turn
            }
        };
        let policy = Arc::clone(policy);
        let compiled = compiler.run(turn, self.budget, self.is_gone, move |runner| {
            compile_patterns(&policy, SetSource::compiling(&sets, runner))
        })?;
        self.compiled = Some(compiled?);
        Ok(())
    }
}
