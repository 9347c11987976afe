//! Compiles patterns within a budget, so that no list of patterns delays or harms anything else.
//!
//! Purpose: Vectorscan's compiler cannot be interrupted, and its time grows with up to the cube of the number of regexes. Whoever may send a
//! policy could keep it busy for minutes. So patterns are compiled before the daemon is locked, by a [`PatternCompiler`]:
//!
//! - **One policy at a time.** A [`Turn`] is the right to compile; applicants wait for theirs ([`turns`]), root before none of them but
//!   beside them.
//! - **A thread that can be given up.** [`PatternCompiler::run`] compiles on a thread of its own and waits for it, until the applicant is
//!   gone, the program ends or the time is over. A thread that was given up keeps its turn until it ends.
//! - **A process that can be ended.** Where the program has one (`mmb` runs itself as `mmb compile-patterns`), databases are compiled in a
//!   child process ([`process`]) whose processor time and memory are limited. It is killed when its thread is given up. Its crash is an
//!   error of the policy and nothing else, and its memory is returned as a whole.
//!
//! Without such a program (VPP's plugin, tests) databases are compiled on the thread itself: its time is limited, its memory is not, and the
//! compiler runs to its end though its result is no longer wanted.
//!
//! Life-cycle: one compiler for each program, shared by all threads; [`PatternCompiler::stop`] when the program ends.
#![forbid(unsafe_code)]

mod compiler;
mod process;
mod turns;

pub use compiler::{CompileBudget, CompileError, JobRunner, PatternCompiler};
pub use process::{CompilerProgram, serve};
pub use turns::{Applicant, Turn};
