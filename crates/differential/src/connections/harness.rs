//! An engine with its workers and a clock, as a host has them.

use crate::two_steps;
use mmb_engine::{
    ConnectionEvent, ConnectionInfo, ConnectionWatch, Connections, Engine, Forward, LoadSummary, NoCycles,
    Origin, PortSpec, PortTable, SavedState, StateWriter, Verdict, WatchedEvent, Worker,
};
use mmb_packet::{LinkType, Packet, PortId};
use mmb_policy::{ConnectionFilter, Policy, RuleId};
use mmb_random::SeedTree;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What comes in by a port.
pub(super) type Arrival = (u16, Vec<u8>);

/// An engine whose ports 0 and 1, `a` and `b`, are a wire.
pub(super) struct Harness {
    pub(super) engine: Engine,
    /// Shared with `connections`, by which they are asked on this thread: threads of their own would take most of the time.
    workers: Arc<Mutex<Vec<Worker>>>,
    now_ms: Arc<AtomicU64>,
    connections: Connections,
    watch: ConnectionWatch,
    /// Packets given to it.
    pub(super) received: u64,
    /// Packets that workers had held and gave out, with their workers.
    pub(super) released: VecDeque<(usize, Arrival)>,
    /// When a packet was held last.
    pub(super) held_ms: u64,
}

/// Events of one step that are noted, and more.
const EVENTS: usize = 256;
/// Fragments that wait at once, and their bytes.
const HELD: u16 = 32;
const HELD_BYTES: usize = 16 << 10;

/// Locks the workers; a panic while they are locked ends the script.
fn locked(workers: &Mutex<Vec<Worker>>) -> MutexGuard<'_, Vec<Worker>> {
    workers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Harness {
    pub(super) fn new(workers: usize, now_ms: u64, policy: &Policy) -> Result<Harness, String> {
        let port = |name: &str, peer| PortSpec {
            name: name.to_owned(),
            mtu: None,
            forward: Forward::Wire(PortId(peer)),
        };
        let table = PortTable(vec![port("a", 1), port("b", 0)]);
        let (mut engine, mut workers) = Engine::new(table, workers, &SeedTree::repeatable(1));
        // What an engine gets memory for is most of what a short script costs.
        workers.iter_mut().for_each(|worker| worker.limit_held(HELD, HELD_BYTES));
        engine.publish(policy).map_err(|error| error.to_string())?;
        let (workers, now_ms) = (Arc::new(Mutex::new(workers)), Arc::new(AtomicU64::new(now_ms)));
        let connections = {
            let (workers, now_ms) = (Arc::clone(&workers), Arc::clone(&now_ms));
            engine.connections().driven_by(Arc::new(move |worker| {
                let now_ns = now_ms.load(Ordering::Relaxed) * 1_000_000;
                locked(&workers)[worker].process(now_ns, &NoCycles, &mut [], &mut []);
            }))
        };
        let watch = connections.watch_with_capacity(EVENTS).map_err(|error| error.to_string())?;
        let (received, released, held_ms) = (0, VecDeque::new(), 0);
        Ok(Harness { engine, workers, now_ms, connections, watch, received, released, held_ms })
    }

    /// What happened to connections since this was asked last.
    pub(super) fn events(&self) -> impl Iterator<Item = ConnectionEvent> {
        self.watch.try_iter().filter_map(|event| match event {
            WatchedEvent::Connection(event) => Some(event),
            WatchedEvent::Stream(_) | WatchedEvent::Packet(_) | WatchedEvent::Suppressed(_) => None,
        })
    }

    pub(super) fn workers(&self) -> usize {
        locked(&self.workers).len()
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    /// Lets time pass.
    pub(super) fn wait(&mut self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Lets all workers see the time, and do what they are asked.
    pub(super) fn run_workers(&mut self) {
        for worker in &mut *locked(&self.workers) {
            worker.process(self.now_ms() * 1_000_000, &NoCycles, &mut [], &mut []);
        }
        self.collect_released();
    }

    fn collect_released(&mut self) {
        for (number, worker) in locked(&self.workers).iter_mut().enumerate() {
            while let Some(Origin::Held) = worker.return_packets(|returned| {
                self.released.push_back((number, (returned.port.0, returned.bytes.to_vec())));
                true
            }) {}
        }
    }

    /// Takes a vector through the worker that gets it, and what is to be handed over through the others.
    pub(super) fn pass(&mut self, first: usize, arrivals: &[Arrival]) -> Vec<(Verdict, Vec<u8>)> {
        self.received += arrivals.len() as u64;
        self.carry(first, arrivals, Origin::Wire)
    }

    /// The next packet that a worker gave out again, and what becomes of it.
    pub(super) fn pass_released(&mut self) -> Option<(Arrival, Verdict, Vec<u8>)> {
        let (worker, arrival) = self.released.pop_front()?;
        let (verdict, left) = self.carry(worker, std::slice::from_ref(&arrival), Origin::Held).pop()?;
        Some((arrival, verdict, left))
    }

    fn carry(&mut self, first: usize, arrivals: &[Arrival], origin: Origin) -> Vec<(Verdict, Vec<u8>)> {
        const HEADROOM: usize = 64;
        let (now_ms, shared) = (self.now_ms(), Arc::clone(&self.workers));
        let (now_ns, mut workers) = (now_ms * 1_000_000, locked(&shared));
        let mut buffers: Vec<_> =
            arrivals.iter().map(|(_, frame)| [&[0; HEADROOM][..], frame].concat()).collect();
        let packets = buffers.iter_mut().zip(arrivals).filter_map(|(buffer, (port, frame))| {
            Packet::new(buffer, HEADROOM, frame.len(), PortId(*port), LinkType::Ethernet)
        });
        let mut packets: Vec<Packet<'_>> = packets.collect();
        let mut verdicts = vec![Verdict::Send(PortId(u16::MAX)); packets.len()];
        let worker = &mut workers[first];
        // A host may have packets rewritten in a stage of its own.
        if origin == Origin::Wire && packets.len() % 2 == 1 {
            two_steps::process(worker, (origin, now_ns), &mut packets, &mut verdicts);
        } else {
            worker.process_from(origin, now_ns, &NoCycles, &mut packets, &mut verdicts);
        }
        for (packet, verdict) in packets.iter_mut().zip(&mut verdicts) {
            // Fragments go by where their datagram comes together.
            for _ in 0..2 {
                let Verdict::Hand(other) = *verdict else { break };
                let (packet, verdict) = (std::slice::from_mut(packet), std::slice::from_mut(verdict));
                workers[usize::from(other)].process_from(Origin::Worker, now_ns, &NoCycles, packet, verdict);
            }
            if let Verdict::Held(_) = *verdict {
                self.held_ms = now_ms;
            }
        }
        drop(workers);
        let passed = verdicts.into_iter().zip(&packets);
        let passed = passed.map(|(verdict, packet)| (verdict, packet.bytes().to_vec())).collect();
        self.collect_released();
        passed
    }

    /// Asks about connections; the workers answer on this thread.
    pub(super) fn ask<R>(&mut self, ask: impl FnOnce(&Connections) -> R) -> R {
        let answer = ask(&self.connections);
        self.run_workers();
        answer
    }

    /// Saves the connections; returns also their number.
    pub(super) fn save(&mut self) -> Result<(Vec<u8>, u64), String> {
        let header = self.engine.state_header(self.now_ms());
        let mut file = Vec::new();
        let saved = self.ask(|connections| {
            let mut writer = StateWriter::new(&mut file, &header)?;
            let saved = connections.save(&mut writer)?;
            writer.end(&[]).map(|()| saved)
        });
        saved.map(|(saved, _)| (file, saved)).map_err(|error: io::Error| error.to_string())
    }

    /// Loads a state at once, whose rules are those in force.
    pub(super) fn load(&mut self, mut file: &[u8]) -> Result<LoadSummary, String> {
        let max = self.connections.summary().max;
        let state = SavedState::read(&mut file, max)?;
        let rules = (0..=u32::from(u8::MAX)).map(|id| (RuleId(id), RuleId(id))).collect();
        let map = self.engine.state_map(&state.header, state.header.saved_at_ms, rules);
        self.ask(|connections| connections.load(&state, || map, &mut |_| {}))
            .map_err(|error| error.to_string())
    }

    pub(super) fn list(&mut self) -> Result<Vec<ConnectionInfo>, String> {
        self.ask(|connections| {
            let mut all = Vec::new();
            let asked = connections.list(&ConnectionFilter::ALL, &mut |info| {
                all.push(info);
                true
            });
            asked.map(|()| all).map_err(|error| error.to_string())
        })
    }
}
