//! Connections under any sequence of packets, time, policies, requests and restarts.
//!
//! Purpose: [`connections()`] reads bytes as a script of steps, takes an engine through them, and checks the invariants of
//! connections after each step (`model`). For the fuzzer, and for property tests.
//!
//! A script's first byte selects the number of workers and the policy; then each step has [`STEP`] bytes, of which
//! the first selects the action and the others its parameters.

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
