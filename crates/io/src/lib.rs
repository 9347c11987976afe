//! Ports: DPDK through a C shim and a safe wrapper, and capture files.
#![deny(unsafe_code)]

pub mod cycles;
pub mod pcap;
