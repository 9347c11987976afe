//! Drivers of open ports, as the control side uses them.

use crate::dpdk::{DeviceInfo, DeviceStats};
use crate::error::PortError;
use crate::flows::FlowHook;
use crate::link::{ReceiveQueues, SendQueues};
use std::fmt;
use std::os::fd::RawFd;

/// The device of an open port. Dropping it closes the device.
pub(crate) trait PortDriver: fmt::Debug + Send {
    /// The driver's name, the address and so on.
    ///
    /// # Errors
    /// The device is gone.
    fn info(&self) -> Result<DeviceInfo, PortError>;

    /// Where the program of its interface forwards flows, if there is one.
    fn flow_hook(&self) -> Option<FlowHook> {
        None
    }

    /// The device's counters; `gone` if the interface behind it does not exist any more.
    fn stats(&self, gone: bool) -> DeviceStats;

    /// The queues of each worker.
    ///
    /// # Errors
    /// A refusal by the kernel.
    fn queues(&self, workers: u16) -> Result<Vec<WorkerQueues>, PortError>;
}

/// One worker's queues of a port.
pub(crate) struct WorkerQueues {
    pub(crate) receive: ReceiveQueues,
    pub(crate) send: SendQueues,
    /// Descriptors that become readable when frames arrive, one per receiving queue; none if the thread has to look by itself.
    pub(crate) descriptors: Vec<RawFd>,
}
