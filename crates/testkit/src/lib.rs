//! What tests are made of: packets built field by field, generators of packets and policies.
//!
//! Purpose: every room's tests speak of packets in the same words. [`frame`] builds one, right or wrong on purpose;
//! [`strategy`] makes many, from small pools of addresses, ports and options, so that random rules and random
//! packets meet. For tests only; nothing else depends on it.
#![forbid(unsafe_code)]

pub mod frame;
pub mod strategy;

pub use frame::{
    Checksum, Dccp, Extension, FragmentHeader, Frame, Icmp, Ip4, Ip6, Network, Sctp, Tcp, Udp, UdpLite,
    Upper, gre,
};
