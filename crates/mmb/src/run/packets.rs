//! The packet threads: receive, decide, send, for ever.
//!
//! A thread owns its part of the engine and its queues of every port, and shares nothing with other threads but
//! [`ThreadOrders`]. A turn goes through the ports: what a port has is one vector, is decided on together, and has been
//! sent or dropped when the turn goes on.

use super::exchange::HandoverRings;
use super::idle::Idle;
use crate::tsc::Tsc;
use arrayvec::ArrayVec;
use mmb_engine::VECTOR;
use mmb_engine::{Count, DropReason, Verdict, Worker};
use mmb_io::dpdk::EalThread;
use mmb_io::{BURST, Burst, Health, LostFrames, OpenPorts, PortError, PortLink, kernel};
use mmb_packet::{Packet, PortId};
use mmb_policy::policy::Poll;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const _: () = assert!(BURST == VECTOR);

/// How often sending is tried again while a device has no room. Devices with a ring of their own empty it
/// meanwhile; one that still has no room is slower than its traffic.
const SEND_TRIES: usize = 64;

/// What the engine is to do with packets that came in just now, or were handed over, or were held.
type LiveProcess = fn(&mut Worker, u64, &Tsc, &mut [Packet<'_>], &mut [Verdict]);

/// What the control side tells every packet thread.
#[derive(Debug, Default)]
pub(super) struct ThreadOrders {
    /// End after the vector in hand.
    pub(super) stop: AtomicBool,
    /// Never sleep.
    pub(super) spin: AtomicBool,
}

impl ThreadOrders {
    fn poll(&self) -> Poll {
        if self.spin.load(Ordering::Relaxed) { Poll::Spin } else { Poll::Adaptive }
    }
}

/// Every worker's ends of all ports, by port number.
///
/// # Errors
/// What the kernel refused.
pub(super) fn links_by_worker(ports: &OpenPorts, workers: u16) -> Result<Vec<Vec<PortLink>>, PortError> {
    let mut by_worker: Vec<Vec<PortLink>> = (0..workers).map(|_| Vec::new()).collect();
    for port in ports.ports() {
        for (mine, link) in by_worker.iter_mut().zip(port.links(workers)?) {
            mine.push(link);
        }
    }
    Ok(by_worker)
}

/// A core for each worker; none if there are more workers than cores, since threads that share a core had better
/// be moved.
pub(super) fn cores(workers: u16) -> Vec<Option<usize>> {
    let cores = kernel::cores();
    let enough = cores.len() >= usize::from(workers);
    (0..usize::from(workers)).map(|worker| if enough { cores.get(worker).copied() } else { None }).collect()
}

/// One packet thread.
pub(super) struct PacketThread {
    number: usize,
    worker: Worker,
    exchange: Arc<HandoverRings>,
    links: Vec<PortLink>,
    core: Option<usize>,
    /// What came in at one port, or was handed over, or was held.
    arrived: Burst,
    /// The ports that it came in by.
    ports: ArrayVec<PortId, VECTOR>,
    /// What is to leave, by port.
    leaving: Vec<Burst>,
    started: Instant,
}

impl PacketThread {
    pub(super) fn new(
        (number, worker): (usize, Worker),
        exchange: Arc<HandoverRings>,
        links: Vec<PortLink>,
        core: Option<usize>,
    ) -> PacketThread {
        let leaving = links.iter().map(|_| Burst::new()).collect();
        let (arrived, ports) = (Burst::new(), ArrayVec::new());
        PacketThread {
            number,
            worker,
            exchange,
            links,
            core,
            arrived,
            ports,
            leaving,
            started: Instant::now(),
        }
    }

    /// Moves packets until told to stop.
    pub(super) fn run(mut self, orders: &ThreadOrders) {
        if let Some(core) = self.core {
            kernel::pin(core);
        }
        let _member = EalThread::join();
        let mut waiter = PortLink::waiter(&self.links);
        waiter.watch(self.exchange.bell(self.number));
        let mut idle = Idle::new(waiter);
        while !orders.stop.load(Ordering::Relaxed) {
            if self.turn() {
                idle.worked();
            } else {
                let exchange = &self.exchange;
                if !self.worker.is_behind() {
                    idle.rest(orders.poll(), || exchange.sleep(self.number));
                    exchange.wake(self.number);
                }
                // A newer policy is picked up even if no packet comes, so that the old one can be freed, and the counters
                // of rules that went can be used again; connections end in time; and whoever asks about them is answered.
                self.worker.process(self.now_ns(), &Tsc, &mut [], &mut []);
                self.take_released();
            }
        }
        self.worker.give_up_held();
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Looks at every port once. False if there was nothing.
    fn turn(&mut self) -> bool {
        let mut worked = self.take_handed();
        for port in 0..self.links.len() {
            let received = self.links[port].receive(&mut self.arrived);
            let id = PortId(port as u16);
            for (lost, reason) in
                [(received.oversized, DropReason::Oversized), (received.no_buffer, DropReason::NoBuffer)]
            {
                if lost.frames > 0 {
                    self.worker.count_unprocessed(id, reason, count(lost));
                }
            }
            if received.frames > 0 {
                worked = true;
                self.ports.clear();
                self.ports.extend(self.arrived.iter().map(|_| id));
                self.work(Worker::process);
            }
        }
        worked
    }

    /// Works on what other workers handed over. False if there was nothing.
    fn take_handed(&mut self) -> bool {
        self.ports.clear();
        while !self.arrived.is_full()
            && let Some((packet, port)) = self.exchange.take(self.number)
        {
            self.arrived.push(packet);
            self.ports.push(port);
        }
        if self.arrived.is_empty() {
            return false;
        }
        self.work(Worker::process_handed);
        true
    }

    /// Decides on what arrived, sends it, and then what that lets go on.
    fn work(&mut self, process: LiveProcess) {
        self.decide(process);
        self.send();
        self.take_released();
    }

    /// Works on what the worker held and gives out.
    fn take_released(&mut self) {
        loop {
            self.ports.clear();
            let PacketThread { worker, links, arrived, ports, .. } = self;
            worker.release(|released| {
                let link = links.get(usize::from(released.port.0));
                let Some(copy) = link.and_then(|link| link.copy(released.bytes)) else { return false };
                arrived.push(copy);
                ports.push(released.port);
                true
            });
            if self.arrived.is_empty() {
                return;
            }
            self.decide(Worker::process_released);
            self.send();
        }
    }

    /// Has the engine decide on what arrived, and sorts it by the ports that it leaves by.
    fn decide(&mut self, process: LiveProcess) {
        let now_ns = self.now_ns();
        let mut verdicts = [Verdict::Drop(DropReason::NoWire); VECTOR];
        let verdicts = &mut verdicts[..self.arrived.len()];
        let mut places = [(0, 0); VECTOR];
        {
            let mut packets: ArrayVec<Packet<'_>, VECTOR> =
                self.arrived.iter_mut().zip(&self.ports).map(|(mbuf, port)| mbuf.packet(*port)).collect();
            process(&mut self.worker, now_ns, &Tsc, &mut packets, verdicts);
            for (place, packet) in places.iter_mut().zip(&packets) {
                *place = (packet.headroom(), packet.len());
            }
        }
        let arrived = self.arrived.drain(..).zip(&self.ports);
        for (((mut mbuf, port), verdict), (start, len)) in arrived.zip(verdicts).zip(places) {
            let to = match *verdict {
                Verdict::Send(to) => to,
                Verdict::Drop(_) | Verdict::Held(_) => continue,
                Verdict::Hand(worker) => {
                    if !self.exchange.give(worker, mbuf, *port) {
                        self.worker.count_dropped(DropReason::HandoverFull, 1);
                    }
                    continue;
                }
            };
            if len > self.links[usize::from(to.0)].largest() {
                let unsent = Count { packets: 1, bytes: len as u64 };
                self.worker.count_unsent(to, DropReason::Oversized, unsent);
                continue;
            }
            mbuf.place(start, len);
            self.leaving[usize::from(to.0)].push(mbuf);
        }
    }

    /// Sends what is to leave; what finds no room in a while is dropped and counted.
    fn send(&mut self) {
        for (port, (link, burst)) in self.links.iter_mut().zip(&mut self.leaving).enumerate() {
            let port = PortId(port as u16);
            let mut tries = 0;
            let mut down = false;
            while !burst.is_empty() && tries < SEND_TRIES && !down {
                let sent = link.send(burst);
                down = sent.down;
                if sent.oversized.frames > 0 {
                    self.worker.count_unsent(port, DropReason::Oversized, count(sent.oversized));
                } else if sent.frames == 0 {
                    tries += 1;
                    std::hint::spin_loop();
                }
            }
            if !burst.is_empty() {
                let down = down || link.health() != Health::Up;
                let reason = if down { DropReason::PortDown } else { DropReason::TxFull };
                let mut lost = LostFrames::default();
                burst.drain(..).for_each(|mbuf| lost.add(mbuf.len()));
                self.worker.count_unsent(port, reason, count(lost));
            }
        }
    }
}

fn count(lost: LostFrames) -> Count {
    Count { packets: lost.frames, bytes: lost.bytes }
}
