//! VPP's interfaces as the engine's ports.
//!
//! Rules name interfaces, and VPP reuses the number of a deleted interface for the next one. So a *name* has a port number, whether an
//! interface of that name exists or not, and a table maps the numbers of existing interfaces to ports. When there are [`MAX_PORTS`] names,
//! those without an interface and a rule are forgotten ([`InterfacePorts::recycle`]), and their numbers reused. VPP's main thread writes;
//! packet threads read the table without a lock.

use mmb_base::lock;
use mmb_packet::PortId;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The most names.
pub(crate) const MAX_PORTS: usize = 4096;

/// Interfaces with larger numbers have no port.
const INTERFACES: usize = 1 << 16;

/// Stands for no port; no rule matches it.
pub(crate) const NO_PORT: PortId = PortId(u16::MAX);

const _: () = assert!(MAX_PORTS <= NO_PORT.0 as usize);

/// The names of ports, and the ports of interfaces.
pub(crate) struct InterfacePorts {
    /// By the interface's number; [`NO_PORT`] without an interface.
    by_interface: Box<[AtomicU16]>,
    names: Mutex<PortNames>,
}

#[derive(Default)]
struct PortNames {
    /// By port number; empty if the name was forgotten.
    in_order: Vec<String>,
    numbers: HashMap<String, PortId>,
    /// Ports whose names were forgotten.
    free: Vec<PortId>,
    /// Counts forgotten names and reused numbers.
    changes: u64,
}

impl InterfacePorts {
    /// A table without names.
    pub(crate) fn new() -> InterfacePorts {
        let by_interface = (0..INTERFACES).map(|_| AtomicU16::new(NO_PORT.0)).collect();
        InterfacePorts { by_interface, names: Mutex::default() }
    }

    /// The port of a name, which is added if necessary; `None` if there are [`MAX_PORTS`] names already.
    pub(crate) fn reserve(&self, name: &str) -> Option<PortId> {
        self.lock().reserve(name)
    }

    /// An interface of that name exists now. Returns its port; `None` if there is no room.
    pub(crate) fn on_add(&self, interface: u32, name: &str) -> Option<PortId> {
        let place = self.by_interface.get(interface as usize)?;
        let port = self.reserve(name)?;
        place.store(port.0, Ordering::Relaxed);
        Some(port)
    }

    /// True if there is no room for another name.
    pub(crate) fn is_full(&self) -> bool {
        let names = self.lock();
        names.in_order.len() >= MAX_PORTS && names.free.is_empty()
    }

    /// Forgets the names without an interface, except those for which `is_used` is true.
    pub(crate) fn recycle(&self, is_used: impl Fn(&str) -> bool) {
        let mut names = self.lock();
        let used: HashSet<u16> =
            self.by_interface.iter().map(|place| place.load(Ordering::Relaxed)).collect();
        let PortNames { in_order, numbers, free, changes } = &mut *names;
        for (number, name) in (0u16..).zip(in_order) {
            if !name.is_empty() && !used.contains(&number) && !is_used(name) {
                numbers.remove(name);
                name.clear();
                free.push(PortId(number));
                *changes += 1;
            }
        }
    }

    /// The number of changes of names.
    pub(crate) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// The interface was deleted.
    pub(crate) fn on_delete(&self, interface: u32) {
        if let Some(place) = self.by_interface.get(interface as usize) {
            place.store(NO_PORT.0, Ordering::Relaxed);
        }
    }

    /// The port of an interface, or [`NO_PORT`].
    #[inline]
    pub(crate) fn port_of(&self, interface: u32) -> PortId {
        let place = self.by_interface.get(interface as usize);
        place.map_or(NO_PORT, |place| PortId(place.load(Ordering::Relaxed)))
    }

    /// The interface of a port, if it has one. Reads the whole table.
    pub(crate) fn interface_of(&self, port: PortId) -> Option<u32> {
        let mut places = (0..).zip(&self.by_interface);
        places.find(|(_, place)| place.load(Ordering::Relaxed) == port.0).map(|(interface, _)| interface)
    }

    /// The names of all ports from that number on.
    pub(crate) fn names(&self, from: usize) -> Vec<String> {
        self.lock().in_order.get(from..).unwrap_or_default().to_vec()
    }

    fn lock(&self) -> MutexGuard<'_, PortNames> {
        lock(&self.names)
    }
}

impl PortNames {
    fn reserve(&mut self, name: &str) -> Option<PortId> {
        if let Some(&port) = self.numbers.get(name) {
            return Some(port);
        }
        if let Some(port) = self.free.pop() {
            name.clone_into(&mut self.in_order[usize::from(port.0)]);
            self.numbers.insert(name.to_owned(), port);
            self.changes += 1;
            return Some(port);
        }
        if self.in_order.len() >= MAX_PORTS {
            return None;
        }
        let port = PortId(self.in_order.len() as u16);
        self.in_order.push(name.to_owned());
        self.numbers.insert(name.to_owned(), port);
        Some(port)
    }
}
