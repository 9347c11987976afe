//! Ports of every kind, opened together, and their queues as the packet threads hold them.
//!
//! Opening goes in two steps: every device is looked at first (does it exist, what is its MTU), so that mistakes are
//! reported before anything is changed and the memory for all packets is known; then DPDK is started and the ports
//! one after the other.

use crate::device::Device;
use crate::dpdk::{DeviceInfo, DeviceStats, Eal, EalOptions, EthPort, EthQueue};
use crate::error::PortError;
use crate::kernel::{self, Interface};
use crate::mbuf::{Burst, HEADROOM, Pool};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// What an Ethernet frame has around its IP packet at most: its header and four VLAN tags.
const LINK_HEADER: u32 = 14 + 16;
/// Room that the kernel wants in front of frames that it receives into our buffers (XDP_PACKET_HEADROOM).
const XDP_HEADROOM: u32 = 256;
/// Room for a packet to grow at its end.
const TAILROOM: u32 = 64;
/// The largest MTU of any port.
const MAX_MTU: u32 = 9216;
/// Descriptors of a queue.
const DESCRIPTORS: u16 = 1024;
/// Buffers that a queue pair may hold: AF_XDP's fill ring (2048), its completions (2048), and the two rings.
const QUEUE_BUFFERS: u32 = 2048 + 2048 + 2 * DESCRIPTORS as u32;
/// The MTU of devices that have none of their own.
const DEFAULT_MTU: u32 = 1500;

/// What all ports have in common.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Packet threads, each of which gets queues of its own where the device has as many.
    pub workers: u16,
    /// The MTU of every port; `None`: that of the interface, 1500 for what has none.
    pub mtu: Option<u32>,
}

/// An open set of ports.
#[derive(Debug)]
pub struct Ports {
    // Closed before the environment ends: fields are dropped in this order.
    ports: Vec<Port>,
    eal: Eal,
    notes: Vec<String>,
}

/// What a port was found to be before anything is started.
struct Plan {
    name: String,
    device: Device,
    interface: Option<Interface>,
    mtu: u32,
}

impl Ports {
    /// Opens ports by name and device.
    ///
    /// # Errors
    /// The first thing that keeps a port from working; nothing stays open then.
    pub fn open(wanted: &[(String, Device)], options: &OpenOptions) -> Result<Ports, PortError> {
        if cfg!(not(dpdk)) {
            return Err(PortError::NoDpdk);
        }
        no_clashes(wanted)?;
        let plans =
            wanted.iter().map(|(name, device)| plan(name, device, options)).collect::<Result<Vec<_>, _>>()?;
        let sizes = PoolSizes::for_plans(&plans, options);
        let pci = plans.iter().filter_map(|plan| match &plan.device {
            Device::Pci(address) => Some(address.clone()),
            _ => None,
        });
        let eal = Eal::start(&EalOptions { memory: sizes.memory(), pci: pci.collect(), cores: kernel::cores() })?;
        let pools = sizes.create(&eal)?;
        let mut ports = Ports { ports: Vec::new(), eal, notes: Vec::new() };
        for (number, plan) in plans.into_iter().enumerate() {
            let port = start(&ports.eal, plan, number, options, &pools, &mut ports.notes)?;
            ports.ports.push(port);
        }
        Ok(ports)
    }

    /// The ports, in the order of their opening.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// What the user should know about how they were opened, since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Closes every port and gives the devices back. Every [`Link`] must be back, or at least unused.
    pub fn close(mut self) {
        for port in self.ports.drain(..) {
            port.close();
        }
    }
}

/// One open port.
#[derive(Debug)]
pub struct Port {
    name: String,
    device: Device,
    info: DeviceInfo,
    interface: Option<Interface>,
    mtu: u32,
    queues: u16,
    eth: EthPort,
    gone: Arc<AtomicBool>,
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

    /// The driver, the address and so on.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The largest IP packet that may leave by it, in bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Whether its link is up.
    pub fn link(&self) -> bool {
        match &self.interface {
            Some(interface) => interface.state().running,
            None => self.eth.info().is_ok_and(|info| info.link),
        }
    }

    /// What its device counts.
    pub fn stats(&self) -> DeviceStats {
        self.eth.stats()
    }

    /// Looks whether the device is still there. True the first time that it is not: from then on nothing is
    /// received from it or sent to it.
    pub fn check_gone(&self) -> bool {
        match &self.interface {
            Some(interface) => !interface.exists() && !self.gone.swap(true, Ordering::Relaxed),
            None => false,
        }
    }

    /// Whether the device went away.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// The queues for each of so many workers. Where the device has fewer queues than there are workers, some
    /// workers receive nothing from it and share a queue for sending.
    pub fn links(&self, workers: u16) -> Vec<Link> {
        let shared = workers > self.queues;
        let locks: Vec<_> = (0..self.queues).map(|_| Arc::new(Mutex::new(()))).collect();
        let link = |worker: u16| Link {
            receive: (worker..self.queues)
                .step_by(workers.into())
                .map(|queue| self.eth.queue(queue))
                .collect(),
            send: self.eth.queue(worker % self.queues),
            lock: shared.then(|| locks[usize::from(worker % self.queues)].clone()),
            largest: (self.mtu + LINK_HEADER) as usize,
            gone: self.gone.clone(),
        };
        (0..workers).map(link).collect()
    }

    fn close(self) {
        self.eth.close();
    }
}

/// One worker's end of a port.
#[derive(Debug)]
pub struct Link {
    receive: Vec<EthQueue>,
    send: EthQueue,
    /// Held while sending on a queue that other workers use as well.
    lock: Option<Arc<Mutex<()>>>,
    /// The longest frame that may be sent, in bytes.
    largest: usize,
    gone: Arc<AtomicBool>,
}

/// What came in, besides the frames that were appended to the burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Frames appended.
    pub frames: usize,
    /// Frames that were larger than a buffer, and are lost.
    pub oversized: u64,
}

impl Link {
    /// Whether anything can come in here.
    pub fn receives(&self) -> bool {
        !self.receive.is_empty()
    }

    /// Whether the device went away.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// The longest frame that may be sent, in bytes.
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// Appends what has arrived to the burst, as far as there is room.
    pub fn receive(&mut self, burst: &mut Burst) -> Received {
        let mut received = Received::default();
        if self.is_gone() {
            return received;
        }
        let before = burst.len();
        for queue in &mut self.receive {
            queue.receive(burst);
        }
        let mut i = before;
        while i < burst.len() {
            if burst[i].is_partial() {
                burst.swap_remove(i);
                received.oversized += 1;
            } else {
                restore_tag(&mut burst[i]);
                i += 1;
            }
        }
        received.frames = burst.len() - before;
        received
    }

    /// Sends the burst from its front and takes what was sent out of it. What stays found no room; trying again
    /// soon may help.
    pub fn send(&mut self, burst: &mut Burst) -> usize {
        match &self.lock {
            Some(lock) => {
                let _held = lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                self.send.send(burst)
            }
            None => self.send.send(burst),
        }
    }
}

/// Puts a VLAN tag that the driver took out of a frame back into it.
fn restore_tag(mbuf: &mut crate::mbuf::Mbuf) {
    let Some(tci) = mbuf.take_vlan() else { return };
    let [high, low] = tci.to_be_bytes();
    mbuf.insert(12, &[0x81, 0x00, high, low]);
}

fn no_clashes(wanted: &[(String, Device)]) -> Result<(), PortError> {
    for (i, (second, device)) in wanted.iter().enumerate() {
        if let Some((first, _)) = wanted[..i].iter().find(|(_, other)| other.key() == device.key()) {
            let (first, second) = (first.clone(), second.clone());
            return Err(PortError::Clash { device: device.key(), first, second });
        }
    }
    Ok(())
}

fn plan(name: &str, device: &Device, options: &OpenOptions) -> Result<Plan, PortError> {
    let interface = device.interface().map(Interface::find).transpose()?;
    let mtu = match (&interface, options.mtu) {
        (_, Some(mtu)) => mtu,
        (Some(interface), None) => interface.mtu()?.min(MAX_MTU),
        (None, None) => DEFAULT_MTU,
    };
    if let Some(interface) = &interface {
        let unfit = |why| Err(PortError::UnfitInterface { name: interface.name().into(), why });
        if interface.state().loopback {
            return unfit("it is the loopback device");
        }
        if interface.mac().is_none() {
            return unfit("it carries no Ethernet frames");
        }
    }
    Ok(Plan { name: name.into(), device: device.clone(), interface, mtu })
}

/// Size of a buffer that holds any frame of a port with that MTU, with room to grow at both ends.
fn data_room(mtu: u32) -> u16 {
    let room = HEADROOM as u32 + XDP_HEADROOM + LINK_HEADER + mtu + TAILROOM;
    room.next_multiple_of(64).min(u16::MAX.into()) as u16
}

/// How many buffers of which size: pages for ports whose frames fit in them, larger ones for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PoolSizes {
    pages: u32,
    large: u32,
    large_room: u16,
}

/// The buffers of all ports.
#[derive(Debug)]
struct Pools {
    pages: Option<Pool>,
    large: Option<Pool>,
}

impl PoolSizes {
    fn for_plans(plans: &[Plan], options: &OpenOptions) -> PoolSizes {
        let (large, small): (Vec<&Plan>, Vec<&Plan>) =
            plans.iter().partition(|plan| data_room(plan.mtu) > Pool::page_room());
        // What the rings of the queues hold, then what the workers have in hand and in their caches.
        let workers = u32::from(options.workers);
        let count = |ports: usize| match ports as u32 {
            0 => 0,
            ports => ports * workers * QUEUE_BUFFERS + workers * 1024,
        };
        PoolSizes {
            pages: count(small.len()),
            large: count(large.len()),
            large_room: large.iter().map(|plan| data_room(plan.mtu)).max().unwrap_or_default(),
        }
    }

    /// Bytes of memory for the pools and what the drivers themselves need.
    fn memory(&self) -> usize {
        Pool::memory(self.pages, 0) + Pool::memory(self.large, self.large_room) + (24 << 20)
    }

    fn create(&self, eal: &Eal) -> Result<Pools, PortError> {
        let pool = |name, count, room| (count > 0).then(|| Pool::create(eal, name, count, room)).transpose();
        Ok(Pools {
            pages: pool("mmb_pages", self.pages, Pool::page_room())?,
            large: pool("mmb_large", self.large, self.large_room)?,
        })
    }
}

impl Pools {
    fn for_mtu(&self, mtu: u32) -> &Pool {
        let fits = |pool: &&Pool| data_room(mtu) <= pool.data_room();
        let fitting = self.pages.iter().filter(fits).chain(self.large.iter()).next();
        // `PoolSizes::for_plans` counted every port in.
        fitting.unwrap_or_else(|| unreachable!("a pool for every port"))
    }
}

fn start(
    eal: &Eal,
    plan: Plan,
    number: usize,
    options: &OpenOptions,
    pools: &Pools,
    notes: &mut Vec<String>,
) -> Result<Port, PortError> {
    let queues = options.workers;
    let (devargs, queues) = match &plan.device {
        Device::Interface(name) | Device::AfXdp(name) => {
            (format!("net_af_xdp{number},iface={name},queue_count=1"), 1)
        }
        Device::AfPacket(name) => (format!("net_af_packet{number},iface={name}"), 1),
        Device::Pci(devargs) | Device::Dpdk(devargs) => (devargs.clone(), queues),
        Device::Memif(memif) => (memif.devargs(number), queues),
    };
    let mut eth = EthPort::attach(eal, &devargs)?;
    let info = eth.info()?;
    let queues = queues.min(info.max_queues).max(1);
    if queues < options.workers {
        notes.push(format!("port {}: {queues} queue for {} workers", plan.name, options.workers));
    }
    eth.start(queues, DESCRIPTORS, plan.mtu as u16, pools.for_mtu(plan.mtu))?;
    eth.promiscuous();
    Ok(Port {
        name: plan.name,
        device: plan.device,
        info,
        interface: plan.interface,
        mtu: plan.mtu,
        queues,
        eth,
        gone: Arc::default(),
    })
}
