//! Seeded rule sets and suitable packets, for measurements.
//!
//! A [`Workload`] generates rules, one after the other, always the same for the same seed. It can generate them repeatedly, so
//! that a caller need not store a million of them beside its policy. A [`Traffic`] generates frames: some match rules of any
//! policy ([`fulfil()`]), the others come from a [`Background`]. Rules are generated without the parser, but keep the guarantees
//! of the checker: printed, they parse to themselves.
//!
//! Nothing here measures, and the packet path does not depend on this crate.
#![forbid(unsafe_code)]

mod allocation;
mod established;
mod fulfil;
mod header;
pub mod pcap;
mod rules;
mod traffic;
mod workload;
mod zipf;

pub use established::establish;
pub use fulfil::fulfil;
pub use header::PacketHeader;
pub use traffic::{Background, FlowPattern, Frames, Traffic};
pub use workload::{SizeError, Workload, WorkloadKind};
