//! Opening ports together, in two steps.
//!
//! First every device is checked (does it exist, what is its MTU), so that errors are reported before anything is changed and the memory
//! for all packets is known. Then DPDK is started, and the ports are opened one after the other.

use crate::condition::Condition;
use crate::device::Device;
use crate::device::kind::Opening;
use crate::dpdk::{Eal, EalOptions};
use crate::error::PortError;
use crate::flows::FlowPrograms;
use crate::kernel::{self, InterfaceClaim, KernelInterface, MAX_MTU};
use crate::pools::{LINK_HEADER, MbufPools, PoolSizes};
use crate::port::Port;
use std::sync::Arc;

/// The MTU of devices that have none of their own.
const DEFAULT_MTU: u32 = 1500;

/// Options of all ports.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Packet threads, each of which gets queues of its own where the device has as many.
    pub workers: u16,
    /// The MTU of every port; `None`: that of the interface, 1500 for other devices.
    pub mtu: Option<u32>,
    /// The most flows that the kernel forwards by itself; 0: workers see every packet.
    pub flows: u32,
}

/// An open set of ports.
#[derive(Debug)]
pub struct OpenPorts {
    ports: Vec<Port>,
    pools: MbufPools,
    options: OpenOptions,
    /// The devices opened so far, for names in DPDK that no other one had.
    opened: usize,
    eal: Eal,
    notes: Vec<String>,
    /// The programs that forward flows, or why there are none.
    flows: Result<FlowPrograms, String>,
}

/// A checked device, before anything is started.
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
    /// The first error that keeps a port from working; nothing stays open then.
    pub fn open(wanted: &[(String, Device)], options: &OpenOptions) -> Result<OpenPorts, PortError> {
        if cfg!(not(dpdk)) {
            return Err(PortError::NoDpdk);
        }
        check_clashes(wanted)?;
        let plans = wanted
            .iter()
            .map(|(name, device)| PortPlan::new(name, device, options).map_err(|error| error.of_port(name)))
            .collect::<Result<Vec<_>, _>>()?;
        let mtus: Vec<u32> = plans.iter().map(|plan| plan.mtu).collect();
        let sizes = PoolSizes::for_mtus(&mtus, options.workers);
        let pci = plans.iter().filter_map(|plan| plan.device.kind().pci().map(str::to_owned)).collect();
        let eal = Eal::start(&EalOptions { memory: sizes.memory(), pci, cores: kernel::cores() })?;
        let pools = sizes.create(&eal)?;
        let flows = if options.flows == 0 {
            Err("`set offload` was off when mmb started; start mmb again to load the programs".to_owned())
        } else if plans.iter().all(|plan| plan.interface.is_none()) {
            Err("no port is a kernel interface".to_owned())
        } else {
            FlowPrograms::load(options.flows, options.workers)
        };
        let mut notes = Vec::new();
        if let (Err(why), 1..) = (&flows, options.flows)
            && plans.iter().any(|plan| plan.interface.is_some())
        {
            notes.push(format!("workers see every packet, since flow offload does not work: {why}"));
        }
        let (ports, options) = (Vec::new(), *options);
        let mut ports = OpenPorts { ports, pools, options, opened: 0, eal, notes, flows };
        for plan in plans {
            let name = plan.name.clone();
            let port = ports.open_one(plan).map_err(|error| error.of_port(&name))?;
            ports.ports.push(port);
        }
        Ok(ports)
    }

    /// The ports, in the order of their opening.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// The programs that forward flows.
    ///
    /// # Errors
    /// Why there are none, in words.
    pub fn flows(&self) -> Result<&FlowPrograms, &str> {
        self.flows.as_ref().map_err(String::as_str)
    }

    /// Takes the messages for the user about the opening.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// The ports, for [`Port::take_up_mtu`] and [`Port::close`].
    pub fn ports_mut(&mut self) -> &mut [Port] {
        &mut self.ports
    }

    /// Opens a closed port again if there is an interface of its name. False if there is none.
    ///
    /// # Errors
    /// The interface cannot be used yet; the port stays closed.
    pub fn reopen(&mut self, port: usize) -> Result<bool, PortError> {
        let Port { name, device, interface: Some(interface), driver: None, .. } = &self.ports[port] else {
            return Ok(false);
        };
        let Ok(interface) = KernelInterface::find(interface.name()) else { return Ok(false) };
        let (name, device) = (name.clone(), device.clone());
        let mtu = self.options.mtu.map_or_else(|| interface.mtu(), Ok)?.min(self.pools.largest_mtu());
        let plan = PortPlan { name: name.clone(), device, interface: Some(interface), claim: None, mtu };
        let opened = self.open_one(plan).map_err(|error| error.of_port(&name))?;
        let claim = self.ports[port]._claim.take();
        self.ports[port] = Port { _claim: claim, ..opened };
        Ok(true)
    }

    fn open_one(&mut self, plan: PortPlan) -> Result<Port, PortError> {
        let (workers, number) = (self.options.workers, self.opened);
        self.opened += 1;
        let PortPlan { name, device, interface, claim, mtu } = plan;
        if let Some(interface) = &interface {
            self.notes.extend(notes_about(&name, interface));
            let present = interface.mtu()?;
            if present > MAX_MTU || self.options.mtu.is_some() && present != mtu {
                interface.set_mtu(mtu)?;
            }
            if !interface.state().up {
                interface.set_up()?;
                self.notes.push(format!("port {name}: interface {} was down; set up", interface.name()));
            }
        }
        let mut opening = Opening {
            eal: &self.eal,
            pools: &self.pools,
            workers,
            name: &name,
            number,
            mtu,
            flows: self.flows.as_mut().ok(),
            notes: &mut self.notes,
        };
        let driver = device.kind().open(&mut opening, interface.as_ref())?;
        Ok(Port {
            info: driver.info()?,
            pool: self.pools.for_mtu(mtu).clone(),
            name,
            device,
            interface,
            mtu,
            driver: Some(driver),
            _claim: claim,
            condition: Arc::new(Condition::new(mtu + LINK_HEADER)),
        })
    }
}

/// Messages about an interface that the kernel uses too.
fn notes_about(port: &str, interface: &KernelInterface) -> Vec<String> {
    let mut notes = Vec::new();
    let addresses: Vec<String> = interface.addresses().iter().map(ToString::to_string).collect();
    if !addresses.is_empty() {
        notes.push(format!(
            "port {port}: interface {0} has the address {1}, for which the kernel answers too; to remove it: ip addr flush dev {0}",
            interface.name(),
            addresses.join(", ")
        ));
    }
    if let Some(master) = interface.master() {
        notes.push(format!(
            "port {port}: interface {0} belongs to {master}, which forwards its packets too; to take it out: ip link set {0} nomaster",
            interface.name()
        ));
    }
    notes
}

fn check_clashes(wanted: &[(String, Device)]) -> Result<(), PortError> {
    for (i, (second, device)) in wanted.iter().enumerate() {
        let key = device.kind().key();
        if let Some((first, _)) = wanted[..i].iter().find(|(_, other)| other.kind().key() == key) {
            let (first, second) = (first.clone(), second.clone());
            return Err(PortError::Clash { device: key, first, second });
        }
    }
    Ok(())
}

impl PortPlan {
    fn new(name: &str, device: &Device, options: &OpenOptions) -> Result<PortPlan, PortError> {
        let interface = device.kind().interface().map(KernelInterface::find).transpose()?;
        if let Some(interface) = &interface {
            let unfit = |why| Err(PortError::UnfitInterface { name: interface.name().into(), why });
            if interface.state().loopback {
                return unfit("it is the loopback device");
            }
            if interface.mac().is_none() {
                return unfit("it carries no Ethernet frames");
            }
        }
        device.kind().prepare()?;
        let claim = interface.as_ref().map(KernelInterface::claim).transpose()?;
        let mtu = match (&interface, options.mtu) {
            (_, Some(mtu)) => mtu,
            (Some(interface), None) => interface.mtu()?.min(MAX_MTU),
            (None, None) => DEFAULT_MTU,
        };
        Ok(PortPlan { name: name.into(), device: device.clone(), interface, claim, mtu })
    }
}
