//! The log: what workers tell of connections, streams and packets, as lines for clients, with the time at which it happened.
//!
//! The engine tells events with the time of its workers, which a [`WorkerClock`] translates to the time of day. [`lines`] has the lines of events, which
//! are the same for the clients of `monitor` and in files.
#![forbid(unsafe_code)]

pub mod clock;
pub mod lines;

pub use clock::WorkerClock;
