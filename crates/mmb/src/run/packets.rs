//! The packet threads: a loop that receives, processes and sends.
//!
//! A thread owns its part of the engine and its queues of every port, and shares only [`ThreadOrders`] with other
//! threads. An iteration visits all ports: it receives one vector from a port, processes it, and sends or drops all its
//! packets before the next port.

use super::exchange::HandoverRings;
use super::idle::Idle;
use super::links::LinkInbox;
use super::orders::ThreadOrders;
use crate::tsc::Tsc;
use arrayvec::ArrayVec;
use mmb_engine::{
    Count, DropReason, Origin, PacketHost, ProcessedPacket, ReturnedPacket, VECTOR, Verdict, Worker, drive,
};
use mmb_io::dpdk::EalThread;
use mmb_io::{BURST, Burst, Health, LostFrames, OpenPorts, PortError, PortLink, kernel};
use mmb_packet::PortId;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

const _: () = assert!(BURST == VECTOR);

/// The number of attempts to send while a device has no room. Devices with a ring of their own empty it meanwhile; a
/// device that still has no room is slower than its traffic.
const SEND_TRIES: usize = 64;

/// Returns each worker's queues of all ports, by port number.
///
/// # Errors
/// The kernel refused.
pub(super) fn links_by_worker(ports: &OpenPorts, workers: u16) -> Result<Vec<Vec<PortLink>>, PortError> {
    let mut by_worker: Vec<Vec<PortLink>> = (0..workers).map(|_| Vec::new()).collect();
    for port in ports.ports() {
        for (mine, link) in by_worker.iter_mut().zip(port.links(workers)?) {
            mine.push(link);
        }
    }
    Ok(by_worker)
}

/// Assigns a core to each worker; none if there are more workers than cores, so that the kernel can move threads that
/// share a core.
pub(super) fn cores(workers: u16) -> Vec<Option<usize>> {
    let cores = kernel::cores();
    let enough = cores.len() >= usize::from(workers);
    (0..usize::from(workers)).map(|worker| if enough { cores.get(worker).copied() } else { None }).collect()
}

/// One packet thread.
pub(super) struct PacketThread {
    worker: Worker,
    host: ThreadHost,
    inbox: LinkInbox,
    core: Option<usize>,
}

/// The queues and packets of a thread.
struct ThreadHost {
    /// The worker's number.
    number: usize,
    exchange: Arc<HandoverRings>,
    /// The queues, by port.
    links: Vec<PortLink>,
    /// The next vector.
    arrived: Burst,
    /// The ingress port of each packet of `arrived`.
    ports: ArrayVec<PortId, VECTOR>,
    /// Packets to send, by port.
    leaving: Vec<Burst>,
    started: Instant,
}

impl PacketThread {
    pub(super) fn new(
        (number, worker): (usize, Worker),
        exchange: Arc<HandoverRings>,
        (links, inbox): (Vec<PortLink>, LinkInbox),
        (core, started): (Option<usize>, Instant),
    ) -> PacketThread {
        let leaving = links.iter().map(|_| Burst::new()).collect();
        let (arrived, ports) = (Burst::new(), ArrayVec::new());
        let host = ThreadHost { number, exchange, links, arrived, ports, leaving, started };
        PacketThread { worker, host, inbox, core }
    }

    /// Processes packets until the order to stop; returns the worker.
    pub(super) fn run(mut self, orders: &ThreadOrders) -> Worker {
        if let Some(core) = self.core {
            kernel::pin(core);
        }
        // On its own core: the memory is near it.
        self.worker.populate();
        let _member = EalThread::join();
        let (exchange, number) = (Arc::clone(&self.host.exchange), self.host.number);
        let mut idle = self.idle();
        let mut followed = 0;
        while !orders.stop.load(Ordering::Relaxed) {
            let ordered = orders.links.load(Ordering::Acquire);
            if ordered != followed {
                followed = ordered;
                self.inbox.follow(&mut self.host.links);
                idle = self.idle();
            }
            if self.poll_queues() {
                idle.worked();
            } else {
                if !self.worker.is_behind() && !self.host.links.iter().any(PortLink::is_urgent) {
                    idle.rest(orders.poll(), || exchange.sleep(number));
                    exchange.mark_awake(number);
                }
                // An idle worker too picks up the newest policy, so that the old one can be freed and the counters of removed rules
                // reused; it also ends connections in time and answers questions about them.
                self.drive(Origin::Wire);
            }
        }
        self.worker.drop_held();
        self.worker.fold_counters();
        self.worker
    }

    /// Returns the waiting of a thread with the present links.
    fn idle(&self) -> Idle {
        let mut waiter = PortLink::waiter(&self.host.links);
        waiter.watch(self.host.exchange.wake_descriptor(self.host.number));
        Idle::new(waiter)
    }

    /// Polls the handover ring and every port once. Returns false if there was no packet.
    fn poll_queues(&mut self) -> bool {
        let mut worked = self.host.take_handed();
        if worked {
            self.drive(Origin::Worker);
        }
        for port in 0..self.host.links.len() {
            if self.host.receive(&mut self.worker, port) {
                worked = true;
                self.drive(Origin::Wire);
                self.host.links[port].sent();
            }
        }
        worked
    }

    fn drive(&mut self, origin: Origin) {
        let Ok(()) = drive(&mut self.worker, &mut self.host, origin);
    }
}

impl ThreadHost {
    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Receives from a port. Returns false if there was nothing to process.
    fn receive(&mut self, worker: &mut Worker, port: usize) -> bool {
        let received = self.links[port].receive(&mut self.arrived);
        let id = PortId(port as u16);
        for (lost, reason) in
            [(received.oversized, DropReason::Oversized), (received.no_buffer, DropReason::NoBuffer)]
        {
            if lost.frames > 0 {
                worker.count_unprocessed(id, reason, count(lost));
            }
        }
        self.ports.extend(self.arrived.iter().map(|_| id));
        received.frames > 0
    }

    /// Takes packets that other workers handed over. Returns false if there were none.
    fn take_handed(&mut self) -> bool {
        while !self.arrived.is_full()
            && let Some((packet, port)) = self.exchange.take(self.number)
        {
            self.arrived.push(packet);
            self.ports.push(port);
        }
        !self.arrived.is_empty()
    }

    /// Sends packets; those for which there is no room after all attempts are dropped and counted.
    fn send(&mut self, worker: &mut Worker) {
        for (port, (link, burst)) in self.links.iter_mut().zip(&mut self.leaving).enumerate() {
            let port = PortId(port as u16);
            let mut tries = 0;
            let mut down = false;
            while !burst.is_empty() && tries < SEND_TRIES && !down {
                let sent = link.send(burst);
                down = sent.down;
                if sent.oversized.frames > 0 {
                    worker.count_unsent(port, DropReason::Oversized, count(sent.oversized));
                } else if sent.frames == 0 {
                    tries += 1;
                    std::hint::spin_loop();
                }
            }
            if burst.is_empty() {
                continue;
            }
            let mut lost = LostFrames::default();
            if !down {
                // The queue may be full, or a filter may drop one of the frames: the kernel tells no difference.
                let sent = link.send_last(burst);
                if sent.oversized.frames > 0 {
                    worker.count_unsent(port, DropReason::Oversized, count(sent.oversized));
                }
                (lost, down) = (sent.lost, sent.down);
            }
            let down = down || link.health() != Health::Up;
            let reason = if down { DropReason::PortDown } else { DropReason::TxFull };
            burst.drain(..).for_each(|mbuf| lost.add(mbuf.len()));
            if lost.frames > 0 {
                worker.count_unsent(port, reason, count(lost));
            }
        }
    }
}

impl PacketHost for ThreadHost {
    type Error = Infallible;

    fn process(&mut self, worker: &mut Worker, origin: Origin) -> Result<(), Infallible> {
        let now_ns = self.now_ns();
        let views = self.arrived.iter_mut().zip(&self.ports).map(|(mbuf, port)| mbuf.packet(*port));
        let processed = worker.process_views(origin, now_ns, &Tsc, views);
        let arrived = self.arrived.drain(..).zip(self.ports.drain(..));
        for ((mut mbuf, port), ProcessedPacket { verdict, headroom, len }) in arrived.zip(processed) {
            let to = match verdict {
                Verdict::Send(to) => to,
                Verdict::Drop(_) | Verdict::Held(_) | Verdict::Absorbed => continue,
                Verdict::Hand(owner) => {
                    if !self.exchange.give(owner, mbuf, port) {
                        worker.count_dropped(DropReason::HandoverFull, 1);
                    }
                    continue;
                }
            };
            if len > self.links[usize::from(to.0)].largest() {
                let unsent = Count { packets: 1, bytes: len as u64 };
                worker.count_unsent(to, DropReason::Oversized, unsent);
                continue;
            }
            mbuf.place(headroom, len);
            self.leaving[usize::from(to.0)].push(mbuf);
        }
        self.send(worker);
        Ok(())
    }

    fn accept_returned(&mut self, ReturnedPacket { port, bytes, .. }: ReturnedPacket<'_>) -> bool {
        let link = self.links.get(usize::from(port.0));
        let Some(copy) = link.and_then(|link| link.copy(bytes)) else { return false };
        self.arrived.push(copy);
        self.ports.push(port);
        true
    }
}

fn count(lost: LostFrames) -> Count {
    Count { packets: lost.frames, bytes: lost.bytes }
}
