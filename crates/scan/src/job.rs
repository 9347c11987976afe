//! The input and the result of Vectorscan's compiler as bytes, so that another process can compile.
//!
//! Purpose: Vectorscan's compiler cannot be interrupted, and a few kilobytes of regexes can keep it busy for minutes and
//! take gigabytes. A [`CompileJob`] has everything that the compiler needs, so that a process that can be killed may
//! run it. A [`DatabaseCompiler`] decides where a job runs: [`InProcess`] runs it on the calling thread, without limits.
//!
//! Format: numbers are little-endian. A job has for each expression its flags (one byte: 1 if it ignores case), its id
//! (four bytes), the length of its source (four bytes) and the source. A result is [`DATABASE`] and the database, or a
//! byte for the kind of failure and the fields of that failure. Both ends are the same program, so the format has no
//! version.

use crate::ffi::{CompileFailure, Database, Expression};
use std::ffi::CString;
use std::sync::Arc;

/// The first byte of a result that is a database.
const DATABASE: u8 = 0;
/// The first bytes of failures.
const UNSUPPORTED: u8 = 1;
const NO_MEMORY: u8 = 2;
const REFUSED: u8 = 3;
const NO_LIBRARY: u8 = 4;

/// The index of the expression in a failure that is about no single expression.
const NONE: u32 = u32::MAX;

/// Expressions that become one database.
#[derive(Debug)]
pub struct CompileJob {
    pub(crate) expressions: Vec<Expression>,
}

/// A database that was compiled.
#[derive(Clone, Debug)]
pub struct CompiledJob(pub(crate) Arc<Database>);

/// Why a job failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobFailure {
    /// The library refuses the expressions.
    Refused(JobRefusal),
    /// The job exceeds its budget.
    OverBudget {
        /// The part of the budget that was exceeded: "20 s of processor time".
        budget: String,
        /// The index of the expression that takes the most time alone, if known.
        costliest: Option<usize>,
    },
    /// The job was given up, or the compiler failed.
    Unfinished(String),
}

/// The library's reason for which it refuses expressions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRefusal(pub(crate) CompileFailure);

/// Compiles jobs.
pub trait DatabaseCompiler {
    /// Compiles a job. Takes as long as the budget allows.
    ///
    /// # Errors
    /// The library refuses the expressions, the job exceeds its budget, or it was given up.
    fn compile(&self, job: &CompileJob) -> Result<CompiledJob, JobFailure>;
}

/// Compiles on the calling thread, without limits of time and memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl DatabaseCompiler for InProcess {
    fn compile(&self, job: &CompileJob) -> Result<CompiledJob, JobFailure> {
        Ok(job.run()?)
    }
}

impl CompileJob {
    /// The number of expressions.
    #[expect(clippy::len_without_is_empty, reason = "a job has expressions")]
    pub fn len(&self) -> usize {
        self.expressions.len()
    }

    /// Writes the job as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for Expression { source, ignores_case, id } in &self.expressions {
            bytes.push(u8::from(*ignores_case));
            bytes.extend(id.to_le_bytes());
            bytes.extend((source.as_bytes().len() as u32).to_le_bytes());
            bytes.extend(source.as_bytes());
        }
        bytes
    }

    /// Reads a job. Returns `None` if the bytes are not a job.
    pub fn from_bytes(bytes: &[u8]) -> Option<CompileJob> {
        let mut rest = bytes;
        let mut expressions = Vec::new();
        while let Some((flags, after)) = rest.split_first() {
            let (id, after) = number(after)?;
            let (length, after) = number(after)?;
            let (source, after) = after.split_at_checked(length as usize)?;
            let source = CString::new(source).ok()?;
            expressions.push(Expression { source, ignores_case: *flags != 0, id });
            rest = after;
        }
        Some(CompileJob { expressions })
    }

    /// Compiles the job on this thread.
    ///
    /// # Errors
    /// The library refuses it.
    pub fn run(&self) -> Result<CompiledJob, JobRefusal> {
        let database = Database::compile(&self.expressions).map_err(JobRefusal)?;
        Ok(CompiledJob(Arc::new(database)))
    }

    /// Compiles each expression alone on this thread and drops the result. Calls `done` with the index of each
    /// expression after it is compiled.
    pub fn run_each(&self, mut done: impl FnMut(usize)) {
        for (place, expression) in self.expressions.iter().enumerate() {
            let _ = Database::compile(std::slice::from_ref(expression));
            done(place);
        }
    }
}

/// Writes the outcome of [`CompileJob::run`] as bytes.
pub fn outcome_to_bytes(outcome: &Result<CompiledJob, JobRefusal>) -> Vec<u8> {
    let failure = match outcome {
        Ok(CompiledJob(database)) => match database.to_bytes() {
            Ok(bytes) => return [&[DATABASE], &bytes[..]].concat(),
            Err(failure) => failure,
        },
        Err(JobRefusal(failure)) => failure.clone(),
    };
    match failure {
        CompileFailure::NoLibrary => vec![NO_LIBRARY],
        CompileFailure::UnsupportedProcessor => vec![UNSUPPORTED],
        CompileFailure::NoMemory => vec![NO_MEMORY],
        CompileFailure::Refused { index, message } => {
            let index = index.and_then(|index| u32::try_from(index).ok()).unwrap_or(NONE);
            [&[REFUSED], &index.to_le_bytes()[..], message.as_bytes()].concat()
        }
    }
}

/// Reads the outcome of a job that another process of this program ran. Returns `None` if the bytes are not an outcome.
pub fn outcome_from_bytes(bytes: &[u8]) -> Option<Result<CompiledJob, JobRefusal>> {
    let (kind, rest) = bytes.split_first()?;
    let failure = match *kind {
        DATABASE => match Database::from_bytes(rest) {
            Ok(database) => return Some(Ok(CompiledJob(Arc::new(database)))),
            Err(failure) => failure,
        },
        NO_LIBRARY => CompileFailure::NoLibrary,
        UNSUPPORTED => CompileFailure::UnsupportedProcessor,
        NO_MEMORY => CompileFailure::NoMemory,
        REFUSED => {
            let (index, message) = number(rest)?;
            let index = Some(index).filter(|index| *index != NONE).map(|index| index as usize);
            CompileFailure::Refused { index, message: String::from_utf8_lossy(message).into_owned() }
        }
        _ => return None,
    };
    Some(Err(JobRefusal(failure)))
}

impl From<JobRefusal> for JobFailure {
    fn from(refusal: JobRefusal) -> JobFailure {
        JobFailure::Refused(refusal)
    }
}

impl JobRefusal {
    /// Whether the compiler ran out of memory.
    pub fn is_lack_of_memory(&self) -> bool {
        matches!(self.0, CompileFailure::NoMemory)
    }
}

/// Splits a number off the start of some bytes.
fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(sources: &[&str]) -> CompileJob {
        let expression = |(id, source): (u32, &&str)| Expression {
            source: CString::new(*source).expect("no zero byte"),
            ignores_case: id == 1,
            id,
        };
        CompileJob { expressions: (0..).zip(sources).map(expression).collect() }
    }

    #[test]
    fn a_job_survives_as_bytes() {
        let bytes = job(&["a+b", "", "x{3}"]).to_bytes();
        let read = CompileJob::from_bytes(&bytes).expect("a job");
        assert_eq!(read.to_bytes(), bytes);
        assert_eq!(read.expressions.len(), 3);
        assert!(read.expressions[1].ignores_case);
        assert!(CompileJob::from_bytes(&bytes[..bytes.len() - 1]).is_none());
    }

    #[test]
    fn outcomes_survive_as_bytes() {
        for wrong in [job(&["a+b", "(x"]), job(&["a{2,1}"])] {
            let outcome = wrong.run().expect_err("not an expression");
            let read = outcome_from_bytes(&outcome_to_bytes(&Err(outcome.clone())));
            assert_eq!(read.expect("an outcome").expect_err("a failure"), outcome);
        }
        let refused = |index| CompileFailure::Refused { index, message: "too large".to_owned() };
        let failures = [
            CompileFailure::NoLibrary,
            CompileFailure::UnsupportedProcessor,
            CompileFailure::NoMemory,
            refused(None),
            refused(Some(3)),
        ];
        for outcome in failures.map(JobRefusal) {
            let read = outcome_from_bytes(&outcome_to_bytes(&Err(outcome.clone())));
            assert_eq!(read.expect("an outcome").expect_err("a failure"), outcome);
        }
        assert!(outcome_from_bytes(&[]).is_none());
        assert!(outcome_from_bytes(&[200]).is_none());
        let cut = outcome_to_bytes(&job(&["a+b"]).run());
        assert!(outcome_from_bytes(&cut[..cut.len() - 1]).is_none_or(|read| read.is_err()));
        assert!(outcome_from_bytes(&cut).is_some_and(|read| read.is_ok() || cfg!(not(vectorscan))));
    }
}
