//! DPDK, made safe: the environment, pools, and ports with their queues.
//!
//! Life-cycle: [`Eal::start`] once a process; pools and [`EthPort`]s from it; each port gives its [`EthQueue`]s away,
//! one to a thread at a time; dropping a port after its queues came back closes it. Buffers may cross threads and ports.
//!
//! All unsafe code for DPDK is in this module and in [`crate::mbuf`]; each block names its preconditions.

pub(crate) mod eal;
mod ethdev;
pub(crate) mod ffi;
pub(crate) mod queues;

pub use eal::{Eal, EalOptions, EalThread};
pub use ethdev::{DeviceInfo, DeviceStats, EthPort, EthQueue};
