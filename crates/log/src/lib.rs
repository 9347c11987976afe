//! The log: what workers tell of connections, streams and packets, and changes of the policy, with the time at which it happened.
//!
//! Clients of `monitor` and files get the lines of [`lines`]. [`EventLog`] writes events to the sinks of `mmb run --log` ([`SinkSpec`]): files, syslog, the
//! journal and IPFIX collectors. The engine tells events with the time of its workers, which a [`WorkerClock`] translates to the time of day.
#![forbid(unsafe_code)]

pub mod audit;
pub mod clock;
mod event_log;
mod fields;
mod json;
pub mod lines;
mod queue;
mod record;
mod sink;
pub mod spec;
#[cfg(test)]
mod tests;

pub use audit::AuditEvent;
pub use clock::WorkerClock;
pub use event_log::{EventLog, LogHandle, OpenError, Report, SinkStatus};
pub use spec::SinkSpec;
