//! Differential tests: the engine against a linear oracle and against a model of connections.
//!
//! Purpose: [`DifferentialTest`] gives the same stateless policies and packets to a worker of the engine and to the [`oracle`], and
//! reports the first difference in verdicts, bytes and counters. [`connections`](mod@connections) takes an engine through scripts of
//! packets, time and policies, and checks its connections against a model after each step. [`fuzz`] holds the bodies of the fuzz
//! targets, so that the fuzzers (nightly, under `fuzz/`) and `cargo test` (stable, over the corpora) run the same code.
//! [`scan`](mod@scan) compares the matches of patterns in streams with those of other matchers, [`edit_patterns`](mod@edit_patterns) those that are
//! edited; [`stream`](mod@stream) holds a stream table to a record of what it scanned and passed; [`http`](mod@http) compares the reader of HTTP
//! with a model of the grammar. [`packet_spec()`] describes a packet, so
//! that tests can draw rules that match it. For tests only.
#![forbid(unsafe_code)]

pub mod connections;
pub mod edit_patterns;
pub mod fuzz;
pub mod http;
pub mod oracle;
mod packet_spec;
pub mod scan;
pub mod stateless;
pub mod stream;
mod two_steps;

pub use packet_spec::packet_spec;
pub use stateless::{Difference, DifferentialTest, Incoming};
