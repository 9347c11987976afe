//! An open port, whatever drives it.

use crate::condition::{Condition, Health};
use crate::device::Device;
use crate::dpdk::{DeviceInfo, DeviceStats, EthPort};
use crate::error::PortError;
use crate::kernel::{InterfaceClaim, KernelInterface};
use crate::link::{PortLink, ReceiveQueues, SendQueue};
use crate::mbuf::MbufPool;
use crate::packet::PacketPort;
use crate::xdp::{self, InterfaceGuard};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

/// What an Ethernet frame has around its IP packet at most: its header and four VLAN tags.
pub(crate) const LINK_HEADER: u32 = 14 + 16;

/// One open port. Dropping it closes it.
#[derive(Debug)]
pub struct Port {
    pub(crate) name: String,
    pub(crate) device: Device,
    pub(crate) info: DeviceInfo,
    pub(crate) interface: Option<KernelInterface>,
    pub(crate) mtu: u32,
    pub(crate) driver: Driver,
    /// Where its buffers come from.
    pub(crate) pool: MbufPool,
    pub(crate) _claim: Option<InterfaceClaim>,
    pub(crate) condition: Arc<Condition>,
}

/// What moves the frames of a port.
#[derive(Debug)]
pub(crate) enum Driver {
    /// A port of DPDK.
    Eth {
        port: EthPort,
        queues: u16,
        /// What to wait on, by queue; empty if the device has nothing to wait on.
        descriptors: Vec<RawFd>,
        /// Keeps a kernel interface as AF_XDP needs it; let go after the port is closed.
        _hold: Option<InterfaceGuard>,
    },
    /// Packet sockets.
    Packet(PacketPort),
}

impl Port {
    /// Its name in rules.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What stands behind it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The driver, the address and so on, as they were when it was opened.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The largest IP packet that may leave by it, in bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Whether its link is up.
    pub fn link(&self) -> bool {
        match (&self.interface, &self.driver) {
            (Some(interface), _) => interface.state().running,
            (None, Driver::Eth { port, .. }) => port.info().is_ok_and(|info| info.link),
            (None, Driver::Packet(_)) => false,
        }
    }

    /// What its device counts.
    pub fn stats(&self) -> DeviceStats {
        match &self.driver {
            // The sockets of an interface that is gone only complain.
            Driver::Eth { .. } if self.condition.health() == Health::Gone => DeviceStats::default(),
            Driver::Eth { port, descriptors, .. } => {
                let stats = port.stats();
                let no_room: u64 = descriptors.iter().map(|&socket| xdp::no_room(socket)).sum();
                DeviceStats { rx_missed: stats.rx_missed + no_room, ..stats }
            }
            Driver::Packet(port) => DeviceStats { rx_missed: port.missed(), ..DeviceStats::default() },
        }
    }

    /// Looks how the device is; what it has become, if that is new. While it is down nothing is sent to it; once it
    /// is gone nothing is received from it either, even if a device of the same name is made.
    pub fn look(&self) -> Option<Health> {
        let health = match &self.interface {
            Some(interface) if !interface.exists() => Health::Gone,
            _ if self.link() => Health::Up,
            _ => Health::Down,
        };
        self.condition.note(health).then_some(health)
    }

    /// The queues for each of so many workers. Where the device has fewer queues than there are workers, some
    /// workers receive nothing from it and share a queue for sending.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn links(&self, workers: u16) -> Result<Vec<PortLink>, PortError> {
        let halves = match &self.driver {
            Driver::Eth { port, queues, descriptors, .. } => eth_halves(port, *queues, descriptors, workers),
            Driver::Packet(port) => packet_halves(port, workers)?,
        };
        let link = |(receive, send, descriptors)| PortLink {
            receive,
            send,
            descriptors,
            kernel: self.interface.is_some(),
            largest: (self.mtu + LINK_HEADER) as usize,
            pool: self.pool.clone(),
            condition: Arc::clone(&self.condition),
        };
        Ok(halves.into_iter().map(link).collect())
    }
}

type Halves = (ReceiveQueues, SendQueue, Vec<RawFd>);

fn eth_halves(port: &EthPort, queues: u16, descriptors: &[RawFd], workers: u16) -> Vec<Halves> {
    let locks: Vec<_> = (0..queues).map(|_| Arc::new(Mutex::new(()))).collect();
    let halves = |worker: u16| {
        let own = || (worker..queues).step_by(workers.into());
        let sending = worker % queues;
        let lock = (workers > queues).then(|| Arc::clone(&locks[usize::from(sending)]));
        let descriptors = own().filter_map(|queue| descriptors.get(usize::from(queue)).copied());
        let receive = ReceiveQueues::Eth(own().map(|queue| port.queue(queue)).collect());
        (receive, SendQueue::Eth(port.queue(sending), lock), descriptors.collect())
    };
    (0..workers).map(halves).collect()
}

fn packet_halves(port: &PacketPort, workers: u16) -> Result<Vec<Halves>, PortError> {
    let halves = |worker| {
        let receive = ReceiveQueues::Packet(Box::new(port.receiver(worker)));
        Ok((receive, SendQueue::Packet(port.sender()?), vec![port.descriptor(worker)]))
    };
    (0..workers).map(halves).collect()
}
