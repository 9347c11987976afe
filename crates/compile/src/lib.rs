//! Compiles patterns within a budget, so that no list of patterns delays or harms anything else.
//!
//! Purpose: Vectorscan's compiler cannot be interrupted, and its time grows with up to the cube of the number of
//! regexes. A client that may send a policy could keep it busy for minutes. Therefore a [`PatternCompiler`]
//! compiles the patterns before the daemon is locked:
//!
//! - **One policy at a time.** A [`Turn`] is the right to compile. Root and the daemon's own user share one turn,
//!   all other users share a second one (`turns`), so that other users never delay root. The return of an
//!   unconfirmed change has a third one.
//! - **A thread that can be given up.** [`PatternCompiler::run`] compiles on a thread of its own. It stops waiting
//!   for that thread when the applicant disconnects, the program ends or the time is over. A thread that was
//!   given up keeps its turn until it ends.
//! - **A process that can be killed.** `mmb` runs itself as `mmb compile-patterns`: databases are compiled in a
//!   child process (`process`) with limits of processor time and memory. The child is killed when its thread is
//!   given up. If the child crashes, only the policy is refused. When it ends, the system frees all its memory.
//!
//! Without such a program (VPP's plugin, tests) databases are compiled on the thread itself. The wait for that
//! thread is limited, but its memory is not, and a compilation that was given up runs to its end.
//!
//! Life-cycle: one compiler for each program, shared by all threads; [`PatternCompiler::stop`] before the program
//! ends.
#![forbid(unsafe_code)]

mod compiler;
mod process;
mod turns;

pub use compiler::{CompileBudget, CompileError, JobRunner, PatternCompiler};
pub use process::{CompilerProgram, serve};
pub use turns::{Applicant, Turn};
