//! DPDK, made safe: the environment, pools, and ports with their queues.
//!
//! Life-cycle: [`Eal::start`] once a process; pools and [`EthPort`]s from it; each port gives its [`EthQueue`]s away,
//! one to a thread at a time; dropping a port after its queues came back closes it. Buffers may cross threads and ports.
//!
//! Everything unsafe of DPDK is in this module and in [`crate::mbuf`]; what they rely on is said beside each block.

pub(crate) mod eal;
mod ethdev;
pub(crate) mod ffi;
pub(crate) mod queues;

pub use eal::{Eal, EalOptions, EalThread};
pub use ethdev::{DeviceInfo, DeviceStats, EthPort, EthQueue};
