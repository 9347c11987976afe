//! Open ports.

use crate::condition::{Condition, Health};
use crate::device::Device;
use crate::dpdk::{DeviceInfo, DeviceStats};
use crate::driver::{PortDriver, WorkerQueues};
use crate::error::PortError;
use crate::kernel::{InterfaceClaim, KernelInterface};
use crate::link::PortLink;
use crate::mbuf::MbufPool;
use crate::pools::LINK_HEADER;
use std::sync::Arc;

/// One open port. Dropping it closes it.
#[derive(Debug)]
pub struct Port {
    pub(crate) name: String,
    pub(crate) device: Device,
    pub(crate) info: DeviceInfo,
    pub(crate) interface: Option<KernelInterface>,
    pub(crate) mtu: u32,
    pub(crate) driver: Box<dyn PortDriver>,
    /// The pool of its buffers.
    pub(crate) pool: MbufPool,
    pub(crate) _claim: Option<InterfaceClaim>,
    pub(crate) condition: Arc<Condition>,
}

impl Port {
    /// Its name in rules.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The driver, the address and so on, as they were when it was opened.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The largest IP packet that it sends, in bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// True if its link is up.
    pub fn link(&self) -> bool {
        match &self.interface {
            Some(interface) => interface.state().running,
            None => self.driver.info().is_ok_and(|info| info.link),
        }
    }

    /// The device's counters.
    pub fn stats(&self) -> DeviceStats {
        self.driver.stats(self.condition.health() == Health::Gone)
    }

    /// Reads the state of the device; returns it if it is new. While the device is down nothing is sent to it; once it
    /// is gone nothing is received from it either, even if a device of the same name is made.
    pub fn look(&self) -> Option<Health> {
        let health = match &self.interface {
            Some(interface) if !interface.exists() => Health::Gone,
            _ if self.link() => Health::Up,
            _ => Health::Down,
        };
        self.condition.note(health).then_some(health)
    }

    /// The queues of each worker. If the device has fewer queues than there are workers, some
    /// workers receive nothing from it and share a queue for sending.
    ///
    /// # Errors
    /// A refusal by the kernel.
    pub fn links(&self, workers: u16) -> Result<Vec<PortLink>, PortError> {
        let link = |queues: WorkerQueues| PortLink {
            receive: queues.receive,
            send: queues.send,
            descriptors: queues.descriptors,
            kernel: self.interface.is_some(),
            largest: (self.mtu + LINK_HEADER) as usize,
            pool: self.pool.clone(),
            condition: Arc::clone(&self.condition),
        };
        Ok(self.driver.queues(workers)?.into_iter().map(link).collect())
    }
}
