//! Compiles the patterns of a change before the daemon is locked for it.
//!
//! A client's thread tries a change first. If the patterns of the resulting policy are not in the engine's cache, the
//! daemon refuses the change and returns that policy ([`CommitError::Uncompiled`]). The thread compiles the policy
//! without holding the daemon's lock, then tries again. Meanwhile another change may have been committed, so that the
//! second try results in another policy. The thread keeps its [`Turn`] until its change is committed, so only changes
//! that need no compiler, or that have the other turn, can come between. [`MAX_TRIES`] bounds the tries.

use crate::change::CommitError;
use crate::daemon::Daemon;
use mmb_base::lock;
use mmb_compile::{Applicant, CompileBudget, CompileError, Turn};
use mmb_engine::{CompiledPatterns, SetSource, compile_patterns};
use mmb_policy::Policy;
use std::sync::{Arc, Mutex};

/// How often the patterns of one change are compiled if other changes are committed first.
const MAX_TRIES: usize = 8;

/// The compilations for one client, or for the daemon itself.
pub(crate) struct PatternJobs<'a> {
    daemon: &'a Mutex<Daemon>,
    applicant: Applicant,
    budget: CompileBudget,
    is_gone: &'a dyn Fn() -> bool,
    turn: Option<Turn>,
    /// The patterns that were compiled last. This clone keeps them in the cache until the change is tried again.
    compiled: Option<CompiledPatterns>,
    tries: usize,
}

impl<'a> PatternJobs<'a> {
    /// Jobs of an applicant. They are given up when `is_gone` returns true.
    pub(crate) fn new(
        daemon: &'a Mutex<Daemon>,
        applicant: Applicant,
        is_gone: &'a dyn Fn() -> bool,
    ) -> PatternJobs<'a> {
        let budget = CompileBudget::CHANGE;
        PatternJobs { daemon, applicant, budget, is_gone, turn: None, compiled: None, tries: 0 }
    }

    /// Jobs of the daemon itself, with this budget.
    pub(crate) fn of_daemon(
        daemon: &'a Mutex<Daemon>,
        applicant: Applicant,
        budget: CompileBudget,
    ) -> PatternJobs<'a> {
        PatternJobs { budget, ..PatternJobs::new(daemon, applicant, &|| false) }
    }

    /// The daemon that the changes are for.
    pub(crate) fn daemon(&self) -> &'a Mutex<Daemon> {
        self.daemon
    }

    /// Begins another change, with all its tries.
    pub(crate) fn begin_change(&mut self) {
        self.tries = 0;
    }

    /// Compiles the patterns of a policy; the caller then tries its change again. The caller must not hold the
    /// daemon's lock. Returns without compiling if the turn did not come at once: the policy may have changed.
    ///
    /// # Errors
    /// The patterns are refused, or the compilation was given up.
    pub(crate) fn compile(&mut self, policy: &Arc<Policy>) -> Result<(), CommitError> {
        let (compiler, sets) = {
            let daemon = lock(self.daemon);
            (Arc::clone(daemon.compiler()), Arc::clone(daemon.engine().pattern_sets()))
        };
        self.tries += 1;
        if self.tries > MAX_TRIES {
            return Err(CompileError::Busy.into());
        }
        let turn = match &self.turn {
            Some(turn) => turn,
            None => {
                let turn = compiler.turn(self.applicant, self.budget, self.is_gone)?;
                let has_waited = turn.has_waited();
                let turn = self.turn.insert(turn);
                if has_waited {
                    // The applicant before may have compiled the same patterns, or changed the policy.
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
