//! Opening ports together.
//!
//! It goes in two steps. Every device is looked at first (does it exist, what is its MTU), so that mistakes are
//! reported before anything is changed and the memory for all packets is known; then DPDK is started, and the
//! ports one after the other.

use crate::device::{Device, Memif};
use crate::dpdk::{Eal, EalOptions, EthPort};
use crate::error::PortError;
use crate::kernel::{self, InterfaceClaim, KernelInterface};
use crate::mbuf::{HEADROOM, MbufPool};
use crate::packet::{self, PacketPort};
use crate::port::{Driver, LINK_HEADER, Port};
use crate::{wait, xdp};
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Room that the kernel wants in front of frames that it receives into our buffers (XDP_PACKET_HEADROOM).
const XDP_HEADROOM: u32 = 256;
/// Room for a packet to grow at its end.
const TAILROOM: u32 = 64;
/// The largest MTU of any port.
const MAX_MTU: u32 = 9216;
/// Descriptors of a queue.
const DESCRIPTORS: u16 = 2048;
/// Buffers that a queue pair may hold: those being received, those to be sent, and with AF_XDP those that were sent
/// and not yet taken back.
const QUEUE_BUFFERS: u32 = 3 * DESCRIPTORS as u32;
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
pub struct OpenPorts {
    ports: Vec<Port>,
    eal: Eal,
    notes: Vec<String>,
}

/// What a port was found to be before anything is started.
struct PortPlan {
    name: String,
    device: Device,
    interface: Option<KernelInterface>,
    claim: Option<InterfaceClaim>,
    mtu: u32,
}

impl OpenPorts {
    /// Opens ports by name and device.
    ///
    /// # Errors
    /// The first thing that keeps a port from working; nothing stays open then.
    pub fn open(wanted: &[(String, Device)], options: &OpenOptions) -> Result<OpenPorts, PortError> {
        if cfg!(not(dpdk)) {
            return Err(PortError::NoDpdk);
        }
        no_clashes(wanted)?;
        let plans = wanted
            .iter()
            .map(|(name, device)| PortPlan::new(name, device, options))
            .collect::<Result<Vec<_>, _>>()?;
        let sizes = PoolSizes::for_plans(&plans, options);
        let pci = plans.iter().filter_map(|plan| match &plan.device {
            Device::Pci(address) => Some(address.clone()),
            _ => None,
        });
        let eal =
            Eal::start(&EalOptions { memory: sizes.memory(), pci: pci.collect(), cores: kernel::cores() })?;
        let pools = sizes.create(&eal)?;
        let mut ports = OpenPorts { ports: Vec::new(), eal, notes: Vec::new() };
        for (number, plan) in plans.into_iter().enumerate() {
            let mut opening =
                Opening { eal: &ports.eal, pools: &pools, workers: options.workers, notes: &mut ports.notes };
            let port = opening.open(plan, number)?;
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

impl PortPlan {
    fn new(name: &str, device: &Device, options: &OpenOptions) -> Result<PortPlan, PortError> {
        let interface = device.interface().map(KernelInterface::find).transpose()?;
        if let Some(interface) = &interface {
            let unfit = |why| Err(PortError::UnfitInterface { name: interface.name().into(), why });
            if interface.state().loopback {
                return unfit("it is the loopback device");
            }
            if interface.mac().is_none() {
                return unfit("it carries no Ethernet frames");
            }
        }
        if let Device::Memif(memif) = device {
            clear_socket(memif)?;
        }
        let claim = interface.as_ref().map(KernelInterface::claim).transpose()?;
        let mtu = match (&interface, options.mtu) {
            (_, Some(mtu)) => mtu,
            (Some(interface), None) => interface.mtu()?.min(MAX_MTU),
            (None, None) => DEFAULT_MTU,
        };
        Ok(PortPlan { name: name.into(), device: device.clone(), interface, claim, mtu })
    }
}

/// Removes the socket that a memif server left behind when it was killed: nobody answers there.
fn clear_socket(memif: &Memif) -> Result<(), PortError> {
    if !memif.server {
        return Ok(());
    }
    match UnixStream::connect(&memif.path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(&memif.path)
            .map_err(|_| PortError::system(format!("removing the unused socket {}", memif.path))),
        // Whatever else it says, somebody is there, if only to say that this is the wrong kind of socket.
        _ => Err(PortError::MemifTaken(memif.path.clone())),
    }
}

/// What opening a port needs of the others.
struct Opening<'a> {
    eal: &'a Eal,
    pools: &'a MbufPools,
    workers: u16,
    notes: &'a mut Vec<String>,
}

impl Opening<'_> {
    fn open(&mut self, plan: PortPlan, number: usize) -> Result<Port, PortError> {
        if let Some(interface) = &plan.interface {
            if interface.mtu()? != plan.mtu {
                interface.set_mtu(plan.mtu)?;
            }
            if !interface.state().up {
                interface.set_up()?;
                self.notes.push(format!(
                    "port {}: interface {} was down; set up",
                    plan.name,
                    interface.name()
                ));
            }
        }
        let driver = match &plan.device {
            Device::AfPacket(_) => self.packet(&plan)?,
            Device::Interface(_) | Device::AfXdp(_) => match self.xdp(&plan, number) {
                Ok(driver) => driver,
                Err(why) => {
                    self.notes.push(format!(
                        "port {}: using AF_PACKET, since AF_XDP does not work: {why}",
                        plan.name
                    ));
                    self.packet(&plan)?
                }
            },
            Device::Pci(devargs) | Device::Dpdk(devargs) => self.eth(&plan, devargs)?,
            Device::Memif(memif) => self.eth(&plan, &memif.devargs(number))?,
        };
        self.finish(plan, driver)
    }

    fn packet(&self, plan: &PortPlan) -> Result<Driver, PortError> {
        let interface =
            plan.interface.as_ref().unwrap_or_else(|| unreachable!("an interface stands behind it"));
        Ok(Driver::Packet(PacketPort::open(interface, self.workers, self.pools.for_mtu(plan.mtu))?))
    }

    /// # Errors
    /// Why the interface cannot be used through AF_XDP, in words.
    fn xdp(&mut self, plan: &PortPlan, number: usize) -> Result<Driver, String> {
        let interface =
            plan.interface.as_ref().unwrap_or_else(|| unreachable!("an interface stands behind it"));
        let pool = self.pools.for_mtu(plan.mtu);
        if !pool.fits_xdp() {
            return Err(format!("an MTU of {} does not fit in its buffers", plan.mtu));
        }
        xdp::permitted()?;
        let queues = xdp::queues(interface)?;
        let tags = xdp::VlanTagHandling::keep(interface)?;
        let words = |error: PortError| error.to_string();
        let devargs = format!("net_af_xdp{number},iface={},queue_count={queues}", interface.name());
        let before = wait::xdp_sockets();
        let mut port = EthPort::attach(self.eal, &devargs).map_err(words)?;
        port.start(queues, DESCRIPTORS, plan.mtu as u16, pool).map_err(words)?;
        let descriptors: Vec<_> = wait::xdp_sockets().into_iter().filter(|fd| !before.contains(fd)).collect();
        let hold = xdp::InterfaceGuard::new(interface, tags, &descriptors)?;
        self.note_queues(&plan.name, queues);
        Ok(Driver::Eth { port, queues, descriptors, _hold: Some(hold) })
    }

    fn eth(&mut self, plan: &PortPlan, devargs: &str) -> Result<Driver, PortError> {
        let mut port =
            EthPort::attach(self.eal, devargs).map_err(|error| with_remedy(error, &plan.device))?;
        let queues = self.workers.min(port.info()?.max_queues).max(1);
        port.start(queues, DESCRIPTORS, plan.mtu as u16, self.pools.for_mtu(plan.mtu))?;
        port.promiscuous();
        self.note_queues(&plan.name, queues);
        Ok(Driver::Eth { port, queues, descriptors: Vec::new(), _hold: None })
    }

    fn note_queues(&mut self, name: &str, queues: u16) {
        let workers = self.workers;
        if queues < workers {
            let queues = if queues == 1 { "one queue".into() } else { format!("{queues} queues") };
            self.notes.push(format!(
                "port {name}: its device has {queues} for {workers} workers, so that not all of them receive from it"
            ));
        }
    }

    fn finish(&self, plan: PortPlan, driver: Driver) -> Result<Port, PortError> {
        let info = match &driver {
            Driver::Eth { port, .. } => port.info()?,
            Driver::Packet(_) => crate::dpdk::DeviceInfo {
                driver: packet::DRIVER.into(),
                mac: plan.interface.as_ref().and_then(KernelInterface::mac).unwrap_or_default(),
                max_queues: self.workers,
                max_mtu: MAX_MTU,
                link: true,
            },
        };
        let PortPlan { name, device, interface, claim, mtu } = plan;
        Ok(Port {
            name,
            device,
            info,
            interface,
            mtu,
            driver,
            pool: self.pools.for_mtu(mtu).clone(),
            _claim: claim,
            condition: Arc::default(),
        })
    }
}

/// Says what may help when a device cannot be added.
fn with_remedy(error: PortError, device: &Device) -> PortError {
    let PortError::Dpdk { .. } = error else { return error };
    let remedy = match device {
        Device::Pci(_) => {
            "see that it exists (lspci) and is bound to vfio-pci or to a driver that DPDK shares with the kernel \
             (dpdk-devbind.py --status)"
        }
        Device::Memif(_) => {
            "see that the directory of the socket exists, and that both ends agree on id and options"
        }
        _ => {
            "a device of DPDK is a driver and a number, for instance net_null0, and its arguments; drivers come with \
             the packages librte-net-*"
        }
    };
    PortError::Device { device: device.to_string(), why: error.to_string(), remedy }
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
struct MbufPools {
    pages: Option<MbufPool>,
    large: Option<MbufPool>,
}

impl PoolSizes {
    fn for_plans(plans: &[PortPlan], options: &OpenOptions) -> PoolSizes {
        let (large, small): (Vec<&PortPlan>, Vec<&PortPlan>) =
            plans.iter().partition(|plan| data_room(plan.mtu) > MbufPool::page_room());
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
        MbufPool::memory(self.pages, 0) + MbufPool::memory(self.large, self.large_room) + (24 << 20)
    }

    fn create(&self, eal: &Eal) -> Result<MbufPools, PortError> {
        let pool =
            |name, count, room| (count > 0).then(|| MbufPool::create(eal, name, count, room)).transpose();
        Ok(MbufPools {
            pages: pool("mmb_pages", self.pages, MbufPool::page_room())?,
            large: pool("mmb_large", self.large, self.large_room)?,
        })
    }
}

impl MbufPools {
    fn for_mtu(&self, mtu: u32) -> &MbufPool {
        let fits = |pool: &&MbufPool| data_room(mtu) <= pool.data_room();
        let fitting = self.pages.iter().filter(fits).chain(self.large.iter()).next();
        // `PoolSizes::for_plans` counted every port in.
        fitting.unwrap_or_else(|| unreachable!("a pool for every port"))
    }
}
