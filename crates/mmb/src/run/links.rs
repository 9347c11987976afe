//! Changes of the ports while packets flow: the control thread closes the queues of an interface that is gone, and opens an interface that
//! is back.
//!
//! A packet thread owns its links of all ports. The control thread sends it new ones through a channel, and [`super::orders::ThreadOrders`]
//! tells that there are some, so that a thread without changes pays for one load per iteration. A device is closed only when every
//! thread has confirmed that it has closed its links.

use super::offload::FlowInterfaces;
use super::orders::ThreadOrders;
use crate::output;
use mmb_base::lock;
use mmb_control::Daemon;
use mmb_io::{Health, OpenPorts, PortLink};
use mmb_packet::PortId;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// The longest time that a packet thread needs to follow an order; an idle one looks every 20 ms.
const PATIENCE: Duration = Duration::from_secs(2);

/// A change of a thread's links.
pub(super) enum LinkOrder {
    /// Close the link of the port of that number.
    Close(usize),
    /// Use this link for the port of that number from now on.
    Replace(usize, PortLink),
}

/// One packet thread's end of the orders.
pub(super) struct LinkInbox {
    orders: Receiver<(u32, LinkOrder)>,
    /// The numbers of the orders that were followed.
    done: Sender<u32>,
}

impl LinkInbox {
    /// Follows all orders that have arrived.
    pub(super) fn follow(&self, links: &mut [PortLink]) {
        for (order_number, order) in self.orders.try_iter() {
            match order {
                LinkOrder::Close(port) => links[port].close(),
                LinkOrder::Replace(port, link) => links[port] = link,
            }
            // The control thread may be past waiting.
            let _ = self.done.send(order_number);
        }
    }
}

/// The control thread's view of the ports.
pub(super) struct PortMonitor {
    ports: Arc<Mutex<OpenPorts>>,
    orders: Arc<ThreadOrders>,
    inboxes: Vec<Sender<(u32, LinkOrder)>>,
    done: Receiver<u32>,
    /// The interfaces of flows.
    interfaces: FlowInterfaces,
    /// The last failure to open a port again, by port, which is reported once.
    failures: Vec<Option<String>>,
}

impl PortMonitor {
    /// Makes a monitor, and the inbox of each worker.
    pub(super) fn new(
        ports: &Arc<Mutex<OpenPorts>>,
        orders: &Arc<ThreadOrders>,
        interfaces: &FlowInterfaces,
        workers: u16,
    ) -> (PortMonitor, Vec<LinkInbox>) {
        let (done_sender, done) = mpsc::channel();
        let (inboxes, threads) = (0..workers)
            .map(|_| {
                let (sender, orders) = mpsc::channel();
                (sender, LinkInbox { orders, done: done_sender.clone() })
            })
            .unzip();
        let failures = vec![None; lock(ports).ports().len()];
        let (ports, orders, interfaces) = (Arc::clone(ports), Arc::clone(orders), interfaces.clone());
        (PortMonitor { ports, orders, inboxes, done, interfaces, failures }, threads)
    }

    /// Looks at every port: reports changes, takes up MTUs, closes ports whose interfaces are gone and opens those that are back.
    pub(super) fn look(&mut self, daemon: &Mutex<Daemon>) {
        let mut has_returned = false;
        let mut has_changed = false;
        let mut mtus = Vec::new();
        for number in 0..self.failures.len() {
            has_returned |= self.look_at(number);
            let mut ports = lock(&self.ports);
            let port = &mut ports.ports_mut()[number];
            let before = port.mtu();
            if let Some(mtu) = port.take_up_mtu() {
                let beyond = port.mtu_beyond_buffers().map_or_else(String::new, |beyond| {
                    format!("; its interface has {beyond}, for which the packet buffers are too small: start mmb again")
                });
                output::report_error(&format!(
                    "port {}: {} has MTU {mtu} now, after {before}{beyond}",
                    port.name(),
                    port.device()
                ));
            }
            mtus.push(port.mtu());
            has_changed |= self.interfaces.take_up(&ports, number);
        }
        // The daemon locks the ports: they are not locked here.
        let mut daemon = lock(daemon);
        for (number, mtu) in mtus.into_iter().enumerate() {
            let known = daemon.engine().ports().0[number].mtu;
            if known != Some(mtu) {
                daemon.set_port_mtu(PortId(number as u16), mtu);
            }
        }
        if has_changed {
            daemon.renew_flows();
        }
        if has_returned {
            daemon.engine().resync();
        }
    }

    /// Looks at a port; true if it is up again.
    fn look_at(&mut self, number: usize) -> bool {
        let report = |ports: &OpenPorts, change: &str| {
            let port = &ports.ports()[number];
            output::report_error(&format!("port {}: {} {change}", port.name(), port.device()));
        };
        let ports = Arc::clone(&self.ports);
        let mut ports = lock(&ports);
        let has_returned = match ports.ports()[number].look() {
            None => false,
            Some(Health::Up) => {
                report(&ports, "is up");
                true
            }
            Some(Health::Down) => {
                report(&ports, "is down; packets for it are dropped");
                false
            }
            Some(Health::Gone) => {
                report(&ports, "is gone; packets for it are dropped until it is back");
                if self.order(|_| LinkOrder::Close(number)) {
                    ports.ports_mut()[number].close();
                }
                false
            }
        };
        match ports.reopen(number) {
            Ok(false) => has_returned,
            Ok(true) => self.connect(&ports, number),
            Err(error) => {
                let error = error.to_string();
                if self.failures[number].as_ref() != Some(&error) {
                    output::report_error(&format!("{error}; it is not opened again yet"));
                    self.failures[number] = Some(error);
                }
                has_returned
            }
        }
    }

    /// Gives the packet threads the links of a port that is open again; returns whether they have them.
    fn connect(&mut self, ports: &OpenPorts, number: usize) -> bool {
        let port = &ports.ports()[number];
        let links = match port.links(self.inboxes.len() as u16) {
            Ok(links) => links,
            Err(error) => {
                output::report_error(&format!("port {}: {error}", port.name()));
                return false;
            }
        };
        let mut links = links.into_iter();
        self.order(|_| {
            links.next().map_or(LinkOrder::Close(number), |link| LinkOrder::Replace(number, link))
        });
        self.failures[number] = None;
        let (name, device, driver) = (port.name(), port.device(), &port.info().driver);
        output::report_error(&format!("port {name}: {device} is back ({driver}), MTU {}", port.mtu()));
        true
    }

    /// Sends each packet thread an order and waits until all have followed. False if one did not.
    fn order(&self, mut order: impl FnMut(usize) -> LinkOrder) -> bool {
        let number = self.orders.links.load(Ordering::Relaxed).wrapping_add(1);
        let mut sent = 0;
        for (worker, inbox) in self.inboxes.iter().enumerate() {
            sent += usize::from(inbox.send((number, order(worker))).is_ok());
        }
        self.orders.links.store(number, Ordering::Release);
        let mut missing = self.inboxes.len();
        while sent == self.inboxes.len() && missing > 0 {
            match self.done.recv_timeout(PATIENCE) {
                Ok(done) if done == number => missing -= 1,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        missing == 0
    }
}
