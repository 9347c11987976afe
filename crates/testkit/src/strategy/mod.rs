//! Generators of random packets and policies.
//!
//! Values come from small pools that both sides share ([`pool`]), so that a random rule is likely to match a random packet, and
//! two rules to write the same field.

pub mod packet;
pub mod policy;
pub mod pool;
pub mod sets;

pub use packet::{PacketBytes, frame, repair_ip4_checksum, wire};
pub use policy::{policy, rule};
