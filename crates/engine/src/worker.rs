//! The packet side of the engine.

use crate::cells::WorkerCells;
use crate::connections::WorkerTask;
use crate::conntrack::SharedState;
use crate::counters::Count;
use crate::drop::DropReason;
use crate::pipeline::{PacketTrace, Pipeline, RewriteTicket};
use crate::snapshot::Snapshot;
use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use mmb_conn::fragment::{HeldLosses, Released};
use mmb_packet::{Packet, PortId};
use mmb_random::SeedTree;
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
pub enum Origin {
    /// Ports.
    Wire,
    /// Another worker: see [`Worker::process_handed`].
    Worker,
    /// This worker held them: see [`Worker::process_released`].
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
/// It uses one snapshot of the policy a vector, and looks for a newer one before each, unless tickets wait: an atomic load and a
/// comparison. It frees nothing: what it lets go of, the control side holds as well.
pub struct Worker {
    /// The published policy, and the reference that the worker uses.
    policy: Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>,
    /// The snapshot that `pipeline` was made to fit, and that tickets belong to.
    snapshot: Arc<Snapshot>,
    pipeline: Pipeline,
    /// What the control side asks about connections.
    tasks: Receiver<WorkerTask>,
}

impl Worker {
    pub(crate) fn new(
        published: &Arc<ArcSwap<Snapshot>>,
        worker: usize,
        common: Arc<SharedState>,
        cells: Arc<WorkerCells>,
        tasks: Receiver<WorkerTask>,
        seeds: &SeedTree,
    ) -> Worker {
        let snapshot = published.load_full();
        let mut pipeline = Pipeline::new(worker, common, cells, seeds);
        pipeline.configure(&snapshot);
        Worker { policy: Cache::new(Arc::clone(published)), snapshot, pipeline, tasks }
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

    /// [`Worker::process`] for a host that has packets rewritten in a stage of its own, by [`Worker::rewrite`]: decides only. Where
    /// `tickets[i]` is a ticket, `packets[i]` is to be rewritten before its verdict is carried out; it is counted then. Until all tickets are
    /// done, the policy by which they were made stays in use. `tell`, if given, hears about each packet in turn.
    ///
    /// # Panics
    /// If there are fewer verdicts or tickets than packets.
    #[expect(clippy::too_many_arguments, reason = "a vector's columns, which the host lays out as it likes")]
    pub fn decide(
        &mut self,
        origin: Origin,
        now_ns: u64,
        cycles: &impl Cycles,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
        tickets: &mut [Option<RewriteTicket>],
        mut tell: Option<&mut dyn FnMut(PacketTrace)>,
    ) {
        let vector = self.begin(now_ns);
        let columns = packets.chunks(vector).zip(verdicts.chunks_mut(vector)).zip(tickets.chunks_mut(vector));
        for ((packets, verdicts), tickets) in columns {
            let (verdicts, tickets) = (&mut verdicts[..packets.len()], &mut tickets[..packets.len()]);
            let by = (origin, &*self.snapshot);
            let tell = tell.as_mut().map(|tell| &mut **tell as &mut dyn FnMut(PacketTrace));
            self.pipeline.run_to_tickets(by, cycles, packets, verdicts, tickets, tell);
        }
    }

    /// Rewrites packets that [`Worker::decide`] gave tickets for, each once. A verdict to send may become one to drop: the packet may have
    /// grown beyond an MTU.
    ///
    /// # Panics
    /// If there are fewer tickets or verdicts than packets.
    pub fn rewrite(
        &mut self,
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        tickets: &[RewriteTicket],
        verdicts: &mut [Verdict],
    ) {
        let columns = packets.chunks_mut(VECTOR).zip(tickets.chunks(VECTOR)).zip(verdicts.chunks_mut(VECTOR));
        for ((packets, tickets), verdicts) in columns {
            let (tickets, verdicts) = (&tickets[..packets.len()], &mut verdicts[..packets.len()]);
            self.pipeline.redeem_tickets(&self.snapshot, cycles, packets, tickets, verdicts);
        }
    }

    /// Forgets the tickets that were not done: whoever had their packets lost them.
    pub fn discard_tickets(&mut self) {
        self.pipeline.discard_tickets();
    }

    /// Gives out packets that were held and can go on, [`VECTOR`] at most, in the order in which they came; returns how many. A host
    /// asks after each call that processes packets or none, when it has sent what was to be sent, again and again until there is
    /// none. It copies them to buffers of its own, and has them processed by [`Worker::process_released`] as one vector. `out` says
    /// false of a packet for which there is no buffer: it is counted as dropped.
    #[inline]
    pub fn release(&mut self, mut out: impl FnMut(Released<'_>) -> bool) -> usize {
        let flows = self.pipeline.conntrack();
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

    /// Packets that were held and are dropped since this was asked last, with the reasons, which are counted already: for hosts
    /// that count by reason themselves, since no verdict tells of these.
    pub fn take_lost(&mut self) -> [(DropReason, u64); 2] {
        let HeldLosses { aged, crowded_out } = std::mem::take(&mut self.pipeline.conntrack().lost);
        [(DropReason::FragmentEarly, aged), (DropReason::FragmentNoRoom, crowded_out)]
    }

    /// Bounds how many fragments are held, and their bytes together: 4096 and 4 MiB unless a host with less memory says less before its
    /// first policy.
    pub fn limit_held(&mut self, packets: u16, bytes: usize) {
        self.pipeline.conntrack().limit_held(packets, bytes);
    }

    /// Counts what is held as dropped: no packets will come any more.
    pub fn give_up_held(&mut self) {
        self.pipeline.conntrack().give_up_held();
    }

    /// Whether more connections may be due than the last call came to: a host that would sleep calls again first, without packets if
    /// there are none.
    #[inline]
    pub fn is_behind(&mut self) -> bool {
        self.pipeline.conntrack().table.is_behind()
    }

    fn run(
        &mut self,
        now_ns: u64,
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
        origin: Origin,
    ) {
        let vector = self.begin(now_ns);
        let verdicts = &mut verdicts[..packets.len()];
        for (packets, verdicts) in packets.chunks_mut(vector).zip(verdicts.chunks_mut(vector)) {
            self.pipeline.run(origin, &self.snapshot, cycles, packets, verdicts);
        }
    }

    /// Picks up a newer policy, does what is due and what was asked. Returns how many packets make a vector now.
    fn begin(&mut self, now_ns: u64) -> usize {
        if !self.pipeline.has_tickets() {
            let newest = self.policy.load();
            if !Arc::ptr_eq(newest, &self.snapshot) {
                self.snapshot = Arc::clone(newest);
                self.pipeline.configure(newest);
            }
        }
        self.pipeline.conntrack().advance(now_ns);
        while let Ok(task) = self.tasks.try_recv() {
            task(&mut self.pipeline, &self.snapshot);
        }
        self.pipeline.vector()
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
