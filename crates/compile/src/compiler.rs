//! [`PatternCompiler`]: waits for a turn, compiles on a thread of its own, and enforces the budget.

use crate::process::{CompilerProgram, ProcessEnd};
use crate::turns::{Applicant, LOOK, Turn, Turns};
use mmb_scan::{CompileJob, CompiledJob, DatabaseCompiler, JobFailure};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Limits on the compilation of one policy's patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileBudget {
    /// Processor time of all compiling processes of the policy together.
    pub processor_time: Duration,
    /// Bytes of memory of each compiling process.
    pub memory: u64,
    /// Elapsed time of the compilation. The wait for the turn has a separate limit of the same length.
    pub time: Duration,
}

impl CompileBudget {
    /// The budget of changes, dry runs and checks.
    pub const CHANGE: CompileBudget = CompileBudget {
        processor_time: Duration::from_secs(20),
        memory: 512 << 20,
        time: Duration::from_secs(60),
    };

    /// The budget of a start. It is larger, so that a policy that was accepted before also starts on a busier machine.
    pub const START: CompileBudget = CompileBudget {
        processor_time: Duration::from_secs(120),
        memory: 1 << 30,
        time: Duration::from_secs(300),
    };
}

/// Why patterns were not compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The turn to compile did not come in time: other policies are being compiled.
    #[error("the patterns of other changes are being compiled; try again")]
    Busy,
    /// Compiling took longer than this.
    #[error("the patterns take more than {} s to compile; use fewer regexes, or lower counts in repetitions", .0.as_secs())]
    Late(Duration),
    /// The client that asked has disconnected.
    #[error("the client has disconnected; its patterns were not compiled")]
    Abandoned,
    /// The program ends.
    #[error("mmb is stopping; the patterns were not compiled")]
    Stopping,
    /// The thread to compile on could not be started.
    #[error("no thread could be started to compile patterns; try again")]
    NoThread,
    /// The compiling thread panicked.
    #[error("the compiler of patterns failed; see the standard error of mmb")]
    Failed,
}

/// Compiles the patterns of all policies of a program. Shared by its threads.
#[derive(Debug, Default)]
pub struct PatternCompiler {
    /// The program whose processes compile databases. `None`: databases are compiled on the thread of [`PatternCompiler::run`].
    program: Option<CompilerProgram>,
    turns: Turns,
    is_stopping: AtomicBool,
}

impl PatternCompiler {
    /// Creates a compiler that compiles databases in processes of `program`.
    pub fn with_program(program: CompilerProgram) -> PatternCompiler {
        PatternCompiler { program: Some(program), ..PatternCompiler::default() }
    }

    /// Gives up all compilations and refuses new ones: the program is about to end.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Waits for a turn. The wait ends early when `is_gone` returns true: the applicant has disconnected.
    ///
    /// # Errors
    /// No turn came within `budget.time`, the applicant is gone, or the compiler was stopped.
    pub fn turn(
        &self,
        applicant: Applicant,
        budget: CompileBudget,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<Turn, CompileError> {
        let deadline = Instant::now() + budget.time;
        let turn = self.turns.take(applicant, deadline, &|| self.given_up(is_gone).is_some());
        match (self.given_up(is_gone), turn) {
            (Some(error), _) => Err(error),
            (None, Some(turn)) => Ok(turn),
            (None, None) => Err(CompileError::Busy),
        }
    }

    /// Runs `work`, which compiles the patterns of one policy, on a thread of its own, and waits for its result.
    /// The thread keeps the turn until it ends, also if it was given up.
    ///
    /// # Errors
    /// `work` took longer than `budget.time`, the applicant is gone, or the compiler was stopped.
    pub fn run<T: Send + 'static>(
        &self,
        turn: &Turn,
        budget: CompileBudget,
        is_gone: &dyn Fn() -> bool,
        work: impl FnOnce(&JobRunner) -> T + Send + 'static,
    ) -> Result<T, CompileError> {
        let is_canceled = Arc::new(AtomicBool::new(false));
        let runner = JobRunner {
            program: self.program.clone(),
            memory: budget.memory,
            left: Cell::new(budget.processor_time),
            total: budget.processor_time,
            is_canceled: Arc::clone(&is_canceled),
            began: Instant::now(),
            time: budget.time,
        };
        let (sender, receiver) = channel();
        let turn = turn.clone();
        let compile = move || {
            let _ = sender.send(work(&runner));
            drop(turn);
        };
        let thread = thread::Builder::new().name("mmb-compile".to_owned()).spawn(compile);
        thread.map_err(|_| CompileError::NoThread)?;
        let deadline = Instant::now() + budget.time;
        let outcome = loop {
            match receiver.recv_timeout(LOOK) {
                Ok(result) => break Ok(result),
                Err(RecvTimeoutError::Disconnected) => break Err(CompileError::Failed),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(error) = self.given_up(is_gone) {
                break Err(error);
            }
            if Instant::now() >= deadline {
                break Err(CompileError::Late(budget.time));
            }
        };
        is_canceled.store(true, Ordering::Relaxed);
        outcome
    }

    /// Takes a turn as [`PatternCompiler::turn`] does and runs `work` as [`PatternCompiler::run`] does, for a
    /// trusted applicant.
    ///
    /// # Errors
    /// As [`PatternCompiler::turn`] and [`PatternCompiler::run`].
    pub fn run_once<T: Send + 'static>(
        &self,
        budget: CompileBudget,
        is_gone: &dyn Fn() -> bool,
        work: impl FnOnce(&JobRunner) -> T + Send + 'static,
    ) -> Result<T, CompileError> {
        let turn = self.turn(Applicant::Trusted, budget, is_gone)?;
        self.run(&turn, budget, is_gone, work)
    }

    fn given_up(&self, is_gone: &dyn Fn() -> bool) -> Option<CompileError> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Some(CompileError::Stopping);
        }
        is_gone().then_some(CompileError::Abandoned)
    }
}

/// Compiles the databases of one policy within its budget.
#[derive(Debug)]
pub struct JobRunner {
    program: Option<CompilerProgram>,
    memory: u64,
    /// The part of the processor time that is left.
    left: Cell<Duration>,
    total: Duration,
    is_canceled: Arc<AtomicBool>,
    began: Instant,
    /// The elapsed time of the whole compilation.
    time: Duration,
}

/// The processor time of the search for the costliest expression.
const SEARCH_TIME: Duration = Duration::from_secs(3);
/// The most elapsed time at the end of the budget that is reserved for that search and for its answer.
const MAX_RESERVED: Duration = Duration::from_secs(10);

impl DatabaseCompiler for JobRunner {
    fn compile(&self, job: &CompileJob) -> Result<CompiledJob, JobFailure> {
        let Some(program) = &self.program else {
            return Ok(job.run()?);
        };
        let left = self.left.get();
        if left.is_zero() {
            // The jobs before have used it up, and perhaps none of this one's expressions is costly.
            return Err(JobFailure::OverBudget { budget: self.processor_budget(), costliest: None });
        }
        let reserved = (self.time / 4).min(MAX_RESERVED);
        let is_canceled = || self.is_canceled.load(Ordering::Relaxed);
        let ends_by = |deadline: Duration| is_canceled() || self.began.elapsed() >= deadline;
        let (end, used) = program.compile(job, left, self.memory, &|| ends_by(self.time - reserved));
        // The kernel's own count reaches the limit a little earlier than the time that it reports.
        let used = if matches!(end, ProcessEnd::OutOfTime) { left } else { used };
        self.left.set(left.saturating_sub(used));
        let budget = match end {
            ProcessEnd::Outcome(Ok(compiled)) => return Ok(compiled),
            ProcessEnd::Outcome(Err(refusal)) if refusal.is_lack_of_memory() => {
                format!("{} MB of memory", self.memory >> 20)
            }
            ProcessEnd::Outcome(Err(refusal)) => return Err(refusal.into()),
            ProcessEnd::OutOfTime => self.processor_budget(),
            ProcessEnd::Killed if is_canceled() => {
                return Err(JobFailure::Unfinished("nobody waits for them".to_owned()));
            }
            ProcessEnd::Killed => self.time_budget(),
            ProcessEnd::Failed(reason) => return Err(JobFailure::Unfinished(reason)),
        };
        // The answer needs some time, too.
        let costliest =
            program.costliest(job, SEARCH_TIME, self.memory, &|| ends_by(self.time - reserved / 2));
        Err(JobFailure::OverBudget { budget, costliest })
    }
}

impl JobRunner {
    fn processor_budget(&self) -> String {
        format!("{} s of processor time", self.total.as_secs())
    }

    /// The elapsed time, which is over. The machine is busy if the processes ran during less than half of it.
    fn time_budget(&self) -> String {
        let used = self.total.saturating_sub(self.left.get());
        let is_busy = used < self.began.elapsed() / 2;
        format!("{} s{}", self.time.as_secs(), if is_busy { " on this busy machine" } else { "" })
    }
}
