//! VPP's interfaces as the engine's ports.
//!
//! Rules name interfaces, and VPP gives the number of an interface that went to the next one that comes. So a *name* has a port
//! number, whether an interface of that name is there or not; and the numbers of the interfaces that are there lead to
//! the ports. When [`MOST`] names were seen, those are forgotten that no interface and no rule has ([`InterfacePorts::recycle`]), and
//! their numbers given again. VPP's main thread writes; packet threads look a port up by its
//! interface, without a lock.

use mmb_packet::PortId;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most names.
pub(crate) const MOST: usize = 4096;

/// Interfaces with larger numbers have no port.
const INTERFACES: usize = 1 << 16;

/// The port of an interface that has none; no rule knows it.
pub(crate) const NO_PORT: PortId = PortId(u16::MAX);

const _: () = assert!(MOST <= NO_PORT.0 as usize);

/// The names, and which interface has which.
pub(crate) struct InterfacePorts {
    /// By the interface's number; [`NO_PORT`] where there is none.
    by_interface: Box<[AtomicU16]>,
    names: Mutex<PortNames>,
}

#[derive(Default)]
struct PortNames {
    /// By number; empty where a name was forgotten.
    in_order: Vec<String>,
    numbers: HashMap<String, PortId>,
    /// Numbers whose names were forgotten.
    free: Vec<PortId>,
    /// Counts names that were put in the place of others.
    changes: u64,
}

impl InterfacePorts {
    /// No names.
    pub(crate) fn new() -> InterfacePorts {
        let by_interface = (0..INTERFACES).map(|_| AtomicU16::new(NO_PORT.0)).collect();
        InterfacePorts { by_interface, names: Mutex::default() }
    }

    /// The port of that name, a new one if there was none; `None`: there are [`MOST`] already.
    pub(crate) fn reserve(&self, name: &str) -> Option<PortId> {
        self.lock().reserve(name)
    }

    /// An interface of that name is there. Its port; `None`: there is no room for it.
    pub(crate) fn on_add(&self, interface: u32, name: &str) -> Option<PortId> {
        let place = self.by_interface.get(interface as usize)?;
        let port = self.reserve(name)?;
        place.store(port.0, Ordering::Relaxed);
        Some(port)
    }

    /// Whether there is no room for another name.
    pub(crate) fn is_full(&self) -> bool {
        let names = self.lock();
        names.in_order.len() >= MOST && names.free.is_empty()
    }

    /// Forgets the names that no interface has and that nobody wants kept.
    pub(crate) fn recycle(&self, is_kept: impl Fn(&str) -> bool) {
        let mut names = self.lock();
        let used: HashSet<u16> =
            self.by_interface.iter().map(|place| place.load(Ordering::Relaxed)).collect();
        let PortNames { in_order, numbers, free, changes } = &mut *names;
        for (number, name) in (0u16..).zip(in_order) {
            if !name.is_empty() && !used.contains(&number) && !is_kept(name) {
                numbers.remove(name);
                name.clear();
                free.push(PortId(number));
                *changes += 1;
            }
        }
    }

    /// How often a number was given to another name.
    pub(crate) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// The interface of that number is gone.
    pub(crate) fn on_delete(&self, interface: u32) {
        if let Some(place) = self.by_interface.get(interface as usize) {
            place.store(NO_PORT.0, Ordering::Relaxed);
        }
    }

    /// The port of the interface of that number, or [`NO_PORT`].
    #[inline]
    pub(crate) fn port_of(&self, interface: u32) -> PortId {
        let place = self.by_interface.get(interface as usize);
        place.map_or(NO_PORT, |place| PortId(place.load(Ordering::Relaxed)))
    }

    /// The names from that port number on.
    pub(crate) fn names(&self, from: usize) -> Vec<String> {
        self.lock().in_order.get(from..).unwrap_or_default().to_vec()
    }

    fn lock(&self) -> MutexGuard<'_, PortNames> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
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
        if self.in_order.len() >= MOST {
            return None;
        }
        let port = PortId(self.in_order.len() as u16);
        self.in_order.push(name.to_owned());
        self.numbers.insert(name.to_owned(), port);
        Some(port)
    }
}
