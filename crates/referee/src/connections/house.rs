//! An engine with its workers and a clock, as a host has them.

use crate::two_steps;
use mmb_engine::{
    ConnectionInfo, Connections, Engine, Event, Forward, NoCycles, Origin, PortSpec, PortTable, Verdict,
    Worker,
};
use mmb_packet::{LinkType, Packet, PortId};
use mmb_policy::{Filter, Policy};
use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

/// What comes in by a port.
pub(super) type Arrival = (u16, Vec<u8>);

/// An engine whose ports 0 and 1, `a` and `b`, are a wire.
pub(super) struct House {
    pub(super) engine: Engine,
    workers: Vec<Worker>,
    pub(super) now_ms: u64,
    pub(super) events: Receiver<Event>,
    /// Packets given to it.
    pub(super) received: u64,
    /// Packets that workers had held and gave out, with their workers.
    pub(super) released: VecDeque<(usize, Arrival)>,
    /// When a packet was held last.
    pub(super) held_ms: u64,
}

/// How a vector comes to its first worker.
enum Way {
    In,
    Again,
}

impl House {
    pub(super) fn new(workers: usize, now_ms: u64, policy: &Policy) -> Result<House, String> {
        let port = |name: &str, peer| PortSpec {
            name: name.to_owned(),
            mtu: None,
            forward: Forward::Wire(PortId(peer)),
        };
        let (mut engine, workers) = Engine::new(PortTable(vec![port("a", 1), port("b", 0)]), workers, 1);
        engine.publish(policy).map_err(|error| error.to_string())?;
        let (_, events) = std::sync::mpsc::channel();
        let mut house =
            House { engine, workers, now_ms, events, received: 0, released: VecDeque::new(), held_ms: 0 };
        house.events = house.ask(|connections| connections.watch()).map_err(|error| error.to_string())?;
        Ok(house)
    }

    pub(super) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Lets all workers see the time, and do what they are asked.
    pub(super) fn turn_over(&mut self) {
        for worker in &mut self.workers {
            worker.process(self.now_ms * 1_000_000, &NoCycles, &mut [], &mut []);
        }
        self.ask_for_released();
    }

    fn ask_for_released(&mut self) {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            while worker.release(|released| {
                self.released.push_back((number, (released.port.0, released.bytes.to_vec())));
                true
            }) > 0
            {}
        }
    }

    /// Takes a vector through the worker that gets it, and what is to be handed over through the others.
    pub(super) fn pass(&mut self, first: usize, arrivals: &[Arrival]) -> Vec<(Verdict, Vec<u8>)> {
        self.received += arrivals.len() as u64;
        self.carry(first, arrivals, &Way::In)
    }

    /// The next packet that a worker gave out again, and what becomes of it.
    pub(super) fn pass_released(&mut self) -> Option<(Arrival, Verdict, Vec<u8>)> {
        let (worker, arrival) = self.released.pop_front()?;
        let (verdict, left) = self.carry(worker, std::slice::from_ref(&arrival), &Way::Again).pop()?;
        Some((arrival, verdict, left))
    }

    fn carry(&mut self, first: usize, arrivals: &[Arrival], way: &Way) -> Vec<(Verdict, Vec<u8>)> {
        const HEADROOM: usize = 64;
        let now_ns = self.now_ms * 1_000_000;
        let mut buffers: Vec<_> =
            arrivals.iter().map(|(_, frame)| [&[0; HEADROOM][..], frame].concat()).collect();
        let packets = buffers.iter_mut().zip(arrivals).filter_map(|(buffer, (port, frame))| {
            Packet::new(buffer, HEADROOM, frame.len(), PortId(*port), LinkType::Ethernet)
        });
        let mut packets: Vec<Packet<'_>> = packets.collect();
        let mut verdicts = vec![Verdict::Send(PortId(u16::MAX)); packets.len()];
        let worker = &mut self.workers[first];
        match way {
            // A host may have packets rewritten in a stage of its own.
            Way::In if packets.len() % 2 == 1 => {
                two_steps::process(worker, (Origin::Wire, now_ns), &mut packets, &mut verdicts);
            }
            Way::In => worker.process(now_ns, &NoCycles, &mut packets, &mut verdicts),
            Way::Again => worker.process_released(now_ns, &NoCycles, &mut packets, &mut verdicts),
        }
        for (packet, verdict) in packets.iter_mut().zip(&mut verdicts) {
            // Fragments go by where their datagram comes together.
            for _ in 0..2 {
                let Verdict::Hand(other) = *verdict else { break };
                let (packet, verdict) = (std::slice::from_mut(packet), std::slice::from_mut(verdict));
                self.workers[usize::from(other)].process_handed(now_ns, &NoCycles, packet, verdict);
            }
            if let Verdict::Held(_) = *verdict {
                self.held_ms = self.now_ms;
            }
        }
        let passed = verdicts.into_iter().zip(&packets);
        let passed = passed.map(|(verdict, packet)| (verdict, packet.bytes().to_vec())).collect();
        self.ask_for_released();
        passed
    }

    /// Asks about connections, with the workers answering meanwhile.
    pub(super) fn ask<R: Send>(&mut self, ask: impl FnOnce(&Connections) -> R + Send) -> R {
        let connections = self.engine.connections();
        std::thread::scope(|scope| {
            let asking = scope.spawn(move || ask(&connections));
            while !asking.is_finished() {
                self.turn_over();
                std::thread::yield_now();
            }
            asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    pub(super) fn list(&mut self) -> Result<Vec<ConnectionInfo>, String> {
        self.ask(|connections| {
            let mut all = Vec::new();
            let asked = connections.list(&Filter::ALL, &mut |info| {
                all.push(info);
                true
            });
            asked.map(|()| all).map_err(|error| error.to_string())
        })
    }
}
