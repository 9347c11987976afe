//! The common parts of tests: packets built field by field, generators of packets and policies.
//!
//! Purpose: the tests of all crates describe packets in the same way. [`frame`] builds one packet, with intentional errors if
//! requested; [`strategy`] generates many, from small pools of addresses, ports and options, so that random rules match random
//! packets. For tests only; nothing else depends on it.
#![forbid(unsafe_code)]

pub mod frame;
pub mod strategy;

pub use frame::{
    Checksum, Dccp, Extension, FragmentHeader, Frame, Icmp, Ip4, Ip6, Network, Sctp, Tcp, Udp, UdpLite,
    Upper, gre,
};
