//! The engine against the linear oracle, and what the fuzzers run.
//!
//! Purpose: [`DifferentialTest`] gives the same policies and packets to a worker of the engine and to the oracle and reports the
//! first difference in verdicts, bytes and counters. [`witness()`] describes a packet so that rules can be drawn for
//! it. [`fuzz`] holds the bodies of the fuzz targets, so that the fuzzers (nightly, under `fuzz/`) and `cargo test`
//! (stable, over the corpora) run the same code. For tests only.
#![forbid(unsafe_code)]

pub mod connections;
pub mod differential;
pub mod fuzz;
pub mod oracle;
mod two_steps;
pub mod witness;

pub use differential::{Difference, DifferentialTest, Incoming};
pub use witness::witness;
