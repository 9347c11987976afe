//! Open ports.

use crate::condition::{Condition, Health};
use crate::device::Device;
use crate::dpdk::{DeviceInfo, DeviceStats};
use crate::driver::{PortDriver, WorkerQueues};
use crate::error::PortError;
use crate::flows::FlowHook;
use crate::kernel::{InterfaceClaim, KernelInterface};
use crate::link::PortLink;
use crate::mbuf::MbufPool;
use crate::pools::{self, LINK_HEADER};
use std::sync::Arc;

/// One open port. Dropping it closes it.
#[derive(Debug)]
pub struct Port {
    pub(crate) name: String,
    pub(crate) device: Device,
    pub(crate) info: DeviceInfo,
    pub(crate) interface: Option<KernelInterface>,
    pub(crate) mtu: u32,
    /// `None` once the interface is gone and no packet thread has queues of it.
    pub(crate) driver: Option<Box<dyn PortDriver>>,
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

    /// Where the program of its interface forwards flows, if there is one.
    pub fn flow_hook(&self) -> Option<FlowHook> {
        self.driver.as_ref()?.flow_hook()
    }

    /// The name of the kernel interface behind it.
    pub fn interface_name(&self) -> Option<&str> {
        self.interface.as_ref().map(KernelInterface::name)
    }

    /// The number of the kernel interface behind it, while it is open.
    pub fn interface_index(&self) -> Option<u32> {
        let interface = self.interface.as_ref().filter(|_| self.driver.is_some())?;
        u32::try_from(interface.index()).ok()
    }

    /// The present state of its device.
    pub fn health(&self) -> Health {
        if self.condition.health() == Health::Gone {
            return Health::Gone;
        }
        let is_up = match &self.interface {
            Some(interface) if !interface.exists() => return Health::Gone,
            Some(interface) => interface.state().running,
            None => self.driver.as_ref().is_some_and(|driver| driver.info().is_ok_and(|info| info.link)),
        };
        if is_up { Health::Up } else { Health::Down }
    }

    /// The device's counters; zeros if it is gone.
    pub fn stats(&self) -> DeviceStats {
        let gone = self.condition.health() == Health::Gone;
        self.driver.as_ref().map(|driver| driver.stats(gone)).unwrap_or_default()
    }

    /// Reads the state of the device; returns it if it is new. While the device is down nothing is sent to it; once it
    /// is gone nothing is received from it either, until [`crate::OpenPorts::reopen`].
    pub fn look(&self) -> Option<Health> {
        let health = self.health();
        self.condition.note(health).then_some(health)
    }

    /// Takes up the MTU of the interface, as far as the port's buffers allow; returns the MTU of the port if it changed.
    pub fn take_up_mtu(&mut self) -> Option<u32> {
        let interface = self.interface.as_ref().filter(|interface| interface.exists())?;
        let mtu = interface.mtu().ok()?.min(pools::largest_mtu(&self.pool));
        if mtu == self.mtu {
            return None;
        }
        self.mtu = mtu;
        self.condition.set_largest(mtu + LINK_HEADER);
        Some(mtu)
    }

    /// The MTU of the interface, if it is larger than the port's buffers allow.
    pub fn mtu_beyond_buffers(&self) -> Option<u32> {
        let interface = self.interface.as_ref().filter(|interface| interface.exists())?;
        interface.mtu().ok().filter(|mtu| *mtu > self.mtu)
    }

    /// Closes the device. The packet threads must have closed their links ([`PortLink::close`]).
    pub fn close(&mut self) {
        self.driver = None;
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
            pool: self.pool.clone(),
            condition: Arc::clone(&self.condition),
        };
        let queues = self.driver.as_ref().map_or(Ok(Vec::new()), |driver| driver.queues(workers))?;
        Ok(queues.into_iter().map(link).collect())
    }
}
