//! Connections under any sequence of packets, time, policies, requests and restarts.
//!
//! Purpose: [`connections()`] reads bytes as a script of steps, takes an engine through them, and holds what connections look like
//! after each step against what must be true whatever came (`model`). For the fuzzer, and for property tests.
//!
//! A script's first byte says how many workers there are and which policy is in force; then each step has [`STEP`] bytes, of which
//! the first says what and the others say how.

mod ensure;
mod errors;
mod fragments;
mod harness;
mod model;
mod packets;
mod policies;
mod script;
mod state;

pub use errors::errors;
pub use fragments::fragments;
pub use script::{STEP, connections};
pub use state::state;
