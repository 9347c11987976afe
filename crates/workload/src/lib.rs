//! Seeded rule sets and packets that suit them: what measurements are made with.
//!
//! A [`Workload`] makes rules, one after the other, always the same for the same seed; it can be asked again, so that
//! nobody has to hold a million of them beside the policy that they become. A [`Traffic`] makes frames: some drawn from the
//! rules of any policy ([`fulfil()`]), the others from a [`Background`]. Rules are made without the parser, but keep what the
//! checker promises: printed, they parse to themselves.
//!
//! Nothing here measures, and nothing in mmb's way of a packet depends on it.
#![forbid(unsafe_code)]

mod allocation;
mod established;
mod fulfil;
mod header;
pub mod pcap;
mod random;
mod rules;
mod traffic;
mod workload;

pub use established::establish;
pub use fulfil::fulfil;
pub use header::PacketHeader;
pub use random::WorkloadRandom;
pub use traffic::{Background, Frames, Traffic};
pub use workload::{SizeError, Workload, WorkloadKind};
