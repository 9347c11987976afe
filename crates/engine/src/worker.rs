//! The packet side of the engine.

use crate::cells::WorkerCells;
use crate::connections::Task;
use crate::counters::Count;
use crate::drop::DropReason;
use crate::flows::Common;
use crate::pipeline::Pipeline;
use crate::snapshot::Snapshot;
use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use mmb_conn::fragment::Released;
use mmb_packet::{Packet, PortId};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// The most packets of one vector.
pub const VECTOR: usize = mmb_classify::VECTOR;

/// What is to become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it by that port.
    Send(PortId),
    /// Drop it; it is counted already.
    Drop(DropReason),
    /// Give it to that worker's [`Worker::process_handed`]: it is of a connection that the worker has, or of a datagram whose
    /// fragments come together there.
    Hand(u16),
    /// Free its buffer, and count it neither as sent nor as dropped: it is a fragment that came before its datagram's first one, and
    /// the worker has a copy. [`Worker::release`] gives it out again under this number, which no other has until then, or it is
    /// counted as dropped in time.
    Held(u16),
}

/// Where the packets of a vector come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Ports.
    Wire,
    /// Another worker.
    Worker,
    /// This worker held them.
    Held,
}

/// Reads a cycle counter; the engine has no clock of its own.
pub trait Cycles {
    /// The counter now. Constant where nothing is to be measured.
    fn now(&self) -> u64;
}

/// A cycle counter that measures nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCycles;

impl Cycles for NoCycles {
    fn now(&self) -> u64 {
        0
    }
}

/// One packet thread's part of the engine.
///
/// It uses one snapshot of the policy a vector, and looks for a newer one before each: an atomic load and a
/// comparison. It frees nothing: what it lets go of, the control side holds as well.
pub struct Worker {
    /// The published policy, and the reference that the worker uses.
    policy: Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>,
    /// The snapshot that `pipeline` was made to fit.
    generation: Option<u64>,
    pipeline: Pipeline,
    /// What the control side asks about connections.
    tasks: Receiver<Task>,
}

impl Worker {
    pub(crate) fn new(
        published: &Arc<ArcSwap<Snapshot>>,
        worker: usize,
        common: Arc<Common>,
        cells: Arc<WorkerCells>,
        tasks: Receiver<Task>,
        seed: u64,
    ) -> Worker {
        Worker {
            policy: Cache::new(Arc::clone(published)),
            generation: None,
            pipeline: Pipeline::new(worker, common, cells, seed),
            tasks,
        }
    }

    /// Decides on a vector of packets and rewrites them. `verdicts[i]` is for `packets[i]`. More than [`VECTOR`]
    /// packets, or packets of which each can match very many rules, are worked on as several vectors under one
    /// policy. With no packets it only picks up a newer policy, which lets the control side free the old one: a
    /// worker that waits for packets should call it so now and then.
    ///
    /// `now_ns` is the time, which only grows: connections that were idle for too long end, also in a call without packets.
    ///
    /// # Panics
    /// If there are fewer verdicts than packets.
    pub fn process(
        &mut self,
        now_ns: u64,
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        self.run(now_ns, cycles, packets, verdicts, Origin::Wire);
    }

    /// [`Worker::process`] for packets that another worker was told to hand over to this one. Only fragments are handed on, once:
    /// from where their datagram comes together to where its connection is.
    ///
    /// # Panics
    /// If there are fewer verdicts than packets.
    pub fn process_handed(
        &mut self,
        now_ns: u64,
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        self.run(now_ns, cycles, packets, verdicts, Origin::Worker);
    }

    /// Gives out packets that were held and can go on, [`VECTOR`] at most, in the order in which they came; returns how many. A host
    /// asks after each call that processes packets or none, when it has sent what was to be sent, again and again until there is
    /// none. It copies them to buffers of its own, and has them processed by [`Worker::process_released`] as one vector. `out` says
    /// false of a packet for which there is no buffer: it is counted as dropped.
    #[inline]
    pub fn release(&mut self, mut out: impl FnMut(Released<'_>) -> bool) -> usize {
        let flows = self.pipeline.flows();
        if !flows.has_released() {
            return 0;
        }
        let (mut given, mut lost) = (0, 0);
        while given + lost < VECTOR
            && flows.take_released(|released| if out(released) { given += 1 } else { lost += 1 })
        {}
        self.count_dropped(DropReason::NoBuffer, lost as u64);
        given
    }

    /// [`Worker::process`] for packets that [`Worker::release`] gave out.
    ///
    /// # Panics
    /// If there are fewer verdicts than packets.
    pub fn process_released(
        &mut self,
        now_ns: u64,
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        self.run(now_ns, cycles, packets, verdicts, Origin::Held);
    }

    /// Counts what is held as dropped: no packets will come any more.
    pub fn give_up_held(&mut self) {
        self.pipeline.flows().give_up_held();
    }

    fn run(
        &mut self,
        now_ns: u64,
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
        origin: Origin,
    ) {
        let snapshot = self.policy.load();
        if self.generation != Some(snapshot.generation) {
            self.pipeline.fit(snapshot);
            self.generation = Some(snapshot.generation);
        }
        let flows = self.pipeline.flows();
        flows.advance(now_ns / 1_000_000);
        while let Ok(task) = self.tasks.try_recv() {
            task(flows, snapshot);
        }
        let verdicts = &mut verdicts[..packets.len()];
        let vector = self.pipeline.vector();
        for (packets, verdicts) in packets.chunks_mut(vector).zip(verdicts.chunks_mut(vector)) {
            self.pipeline.run(origin, snapshot, cycles, packets, verdicts);
        }
    }

    /// Counts packets that [`Worker::process`] said to send by `port`, but the host could not: they count as dropped,
    /// no longer as sent.
    pub fn count_unsent(&mut self, port: PortId, reason: DropReason, unsent: Count) {
        self.pipeline.cells().unsent(usize::from(port.0), unsent);
        self.pipeline.cells().count_drop(reason, unsent.packets);
    }

    /// Counts packets that the host had to drop, and that were neither to be sent nor new to the engine.
    pub fn count_dropped(&mut self, reason: DropReason, packets: u64) {
        self.pipeline.cells().count_drop(reason, packets);
    }

    /// Counts packets that came in by `port`, but that the host had to drop before [`Worker::process`] saw them.
    pub fn count_unprocessed(&mut self, port: PortId, reason: DropReason, received: Count) {
        self.pipeline.cells().rx(usize::from(port.0), received);
        self.pipeline.cells().count_drop(reason, received.packets);
    }
}
