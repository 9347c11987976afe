//! VPP's interfaces as the engine's ports.
//!
//! Rules name interfaces, and VPP gives the number of an interface that went to the next one that comes. So a *name* has a port
//! number, for ever, whether an interface of that name is there or not; and the numbers of the interfaces that are there lead to
//! the ports. The table of names only grows, up to [`MOST`]. VPP's main thread writes; packet threads look a port up by its
//! interface, without a lock.

use mmb_packet::PortId;
use std::collections::HashMap;
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
pub(crate) struct Ports {
    /// By the interface's number; [`NO_PORT`] where there is none.
    by_interface: Box<[AtomicU16]>,
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    in_order: Vec<String>,
    numbers: HashMap<String, PortId>,
}

impl Ports {
    /// No names.
    pub(crate) fn new() -> Ports {
        let by_interface = (0..INTERFACES).map(|_| AtomicU16::new(NO_PORT.0)).collect();
        Ports { by_interface, names: Mutex::default() }
    }

    /// The port of that name, a new one if there was none; `None`: there are [`MOST`] already.
    pub(crate) fn reserve(&self, name: &str) -> Option<PortId> {
        self.lock().reserve(name)
    }

    /// An interface of that name is there. Its port; `None`: there is no room for it.
    pub(crate) fn came(&self, interface: u32, name: &str) -> Option<PortId> {
        let place = self.by_interface.get(interface as usize)?;
        let port = self.reserve(name)?;
        place.store(port.0, Ordering::Relaxed);
        Some(port)
    }

    /// The interface of that number is gone.
    pub(crate) fn went(&self, interface: u32) {
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

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
    fn reserve(&mut self, name: &str) -> Option<PortId> {
        if let Some(&port) = self.numbers.get(name) {
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
