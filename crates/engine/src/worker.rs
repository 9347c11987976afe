//! The data plane side of the engine.

use crate::answer::Answer;
use crate::cells::WorkerCells;
use crate::compiled::Snapshot;
use crate::conntrack::{EditTotals, SharedState, TracedEdit};
use crate::counters::Count;
use crate::drop::DropReason;
use crate::made::MadePacket;
use crate::offload::FlowOffload;
use crate::pipeline::{PacketTrace, Pipeline, RewriteTicket};
use crate::verdict::{Cycles, Origin, ProcessedPacket, ReturnedPacket, TranslatedPackets, VECTOR, Verdict};
use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use arrayvec::ArrayVec;
use mmb_conn::fragment::{HeldLosses, Released};
use mmb_packet::{Packet, PortId};
use mmb_random::SeedTree;
use mmb_stream::AckSpace;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// A task that a worker runs between two vectors.
pub(crate) type WorkerTask = Box<dyn FnOnce(&mut Pipeline, &Snapshot) + Send>;

/// The engine's state for one packet thread.
///
/// It uses one policy snapshot per vector, and checks for a newer one before each, unless tickets are outstanding: an atomic load and a
/// comparison. It frees no snapshot: the control side holds a reference to each one that a worker releases.
pub struct Worker {
    /// The published policy, and the reference that the worker uses.
    policy: Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>,
    /// The snapshot that `pipeline` was configured for, and that outstanding tickets refer to.
    snapshot: Arc<Snapshot>,
    pipeline: Pipeline,
    /// Tasks from the control side.
    tasks: Receiver<WorkerTask>,
    /// When the last one ran.
    last_task_ns: u64,
    now_ns: u64,
}

/// The control side asks for thousands of things one after the other: for as long after each the worker waits awake for the next one.
const NEXT_TASK_NS: u64 = 1_000_000;

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
        pipeline.configure(&snapshot, None);
        Worker {
            policy: Cache::new(Arc::clone(published)),
            snapshot,
            pipeline,
            tasks,
            last_task_ns: 0,
            now_ns: 0,
        }
    }

    /// Decides on a vector of packets and rewrites them. `verdicts[i]` is for `packets[i]`. More than [`VECTOR`] packets, or packets that
    /// can each match very many rules, are processed as several vectors under one policy. Without packets it only picks up a newer policy,
    /// which lets the control side free the old one: a worker that waits for packets should call it regularly.
    ///
    /// `now_ns` is the time and must not go back: connections time out, also in a call without packets.
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
        self.process_from(Origin::Wire, now_ns, cycles, packets, verdicts);
    }

    /// [`Worker::process`] for packets of any origin.
    ///
    /// # Panics
    /// If there are fewer verdicts than packets.
    pub fn process_from(
        &mut self,
        origin: Origin,
        now_ns: u64,
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        let vector = self.begin(now_ns, packets.is_empty());
        let verdicts = &mut verdicts[..packets.len()];
        let vectors = packets.chunks_mut(vector).zip(verdicts.chunks_mut(vector));
        for (number, (packets, verdicts)) in vectors.enumerate() {
            self.pipeline.conntrack().trace_vector(number * vector);
            self.pipeline.run(origin, &self.snapshot, cycles, packets, verdicts);
        }
        self.fold(verdicts.len());
    }

    /// [`Worker::process_from`] for a host that needs its packets' buffers back: takes views of them, at most [`VECTOR`], and returns each
    /// one's verdict and place.
    ///
    /// # Panics
    /// If there are more packets than [`VECTOR`].
    #[inline]
    pub fn process_views<'p>(
        &mut self,
        origin: Origin,
        now_ns: u64,
        cycles: &impl Cycles,
        views: impl Iterator<Item = Packet<'p>>,
    ) -> ArrayVec<ProcessedPacket, VECTOR> {
        let mut packets: ArrayVec<Packet<'p>, VECTOR> = views.collect();
        let mut verdicts = [Verdict::Drop(DropReason::NoWire); VECTOR];
        self.process_from(origin, now_ns, cycles, &mut packets, &mut verdicts);
        let processed = |(packet, verdict): (&Packet<'_>, Verdict)| ProcessedPacket {
            verdict,
            headroom: packet.headroom(),
            len: packet.len(),
        };
        packets.iter().zip(verdicts).map(processed).collect()
    }

    /// Decides on packets without rewriting them, for a host that rewrites in a later stage with [`Worker::rewrite`]. If `tickets[i]` is a
    /// ticket, `packets[i]` must be rewritten before its verdict is carried out; it is counted then. The policy stays in use until all of
    /// its tickets are redeemed. `trace_hook`, if given, receives the trace of each packet in order.
    ///
    /// Taps see nothing of these packets.
    ///
    /// Packets in the middle of a connection whose addresses and ports NAT changes, and nothing else, are rewritten at once: they need no ticket.
    /// Returns which.
    ///
    /// # Panics
    /// If there are fewer verdicts or tickets than packets.
    #[expect(clippy::too_many_arguments, reason = "a vector's columns, which the host lays out as it likes")]
    pub fn decide(
        &mut self,
        origin: Origin,
        now_ns: u64,
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
        tickets: &mut [Option<RewriteTicket>],
        mut trace_hook: Option<&mut dyn FnMut(PacketTrace)>,
    ) -> TranslatedPackets {
        let (vector, count) = (self.begin(now_ns, packets.is_empty()), packets.len());
        let columns =
            packets.chunks_mut(vector).zip(verdicts.chunks_mut(vector)).zip(tickets.chunks_mut(vector));
        let mut translated = TranslatedPackets::default();
        for (number, ((packets, verdicts), tickets)) in columns.enumerate() {
            let (verdicts, tickets) = (&mut verdicts[..packets.len()], &mut tickets[..packets.len()]);
            let by = (origin, &*self.snapshot);
            let hook = trace_hook.as_mut().map(|hook| &mut **hook as &mut dyn FnMut(PacketTrace));
            let of_vector = self.pipeline.run_to_tickets(by, cycles, packets, verdicts, tickets, hook);
            translated.add_all(number * vector, of_vector);
        }
        self.fold(count);
        translated
    }

    /// Rewrites packets that [`Worker::decide`] issued tickets for, each once. A verdict to send may become a verdict to drop: the packet
    /// may have grown beyond an MTU.
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
            self.pipeline.rewrite_by_tickets(&self.snapshot, cycles, packets, tickets, verdicts);
        }
    }

    /// Gives settled flows to the host from now on. At the end, the host keeps them until the last counts are read
    /// ([`Worker::fold_counters`]).
    pub fn set_offload(&mut self, host: Box<dyn FlowOffload>) {
        let conntrack = self.pipeline.conntrack();
        conntrack.set_offload(host);
        conntrack.configure_offload(&self.snapshot);
    }

    /// Has the kernel give the memory of tables of a fixed size, some 15 MB, before packets would wait for it. For hosts of live ports.
    pub fn populate(&mut self) {
        self.pipeline.populate();
    }

    /// Sets which bytes the acknowledgments of edited bytes are about: for a host whose packets answer what was sent once, not what this worker
    /// sends.
    pub fn set_ack_space(&mut self, acks: AckSpace) {
        self.pipeline.conntrack().set_ack_space(acks);
    }

    /// Tells from now on what edits of streams change, one by one: at most `most` of them. For a host that explains a run: it allocates memory for
    /// each.
    pub fn trace_edits(&mut self, most: usize) {
        self.pipeline.conntrack().trace_edits(most);
    }

    /// The edits that were decided since the last call, if they are told. Their packets are those of the last [`Worker::process`].
    pub fn take_edits(&mut self) -> Vec<TracedEdit> {
        self.pipeline.conntrack().take_edits()
    }

    /// All edits since [`Worker::trace_edits`], those that are not told included.
    pub fn edit_totals(&mut self) -> EditTotals {
        self.pipeline.conntrack().edit_totals()
    }

    /// Discards outstanding tickets, for a host that lost their packets.
    pub fn discard_tickets(&mut self) {
        self.pipeline.discard_tickets();
    }

    /// Gives out packets that were held and that can go on, or packets that were made, at most [`VECTOR`], in their order; returns their origin,
    /// `None` if there are none. The host copies the packets to its own buffers and has them processed as one vector: see
    /// [`drive`](crate::host::drive). `out` returns false for a packet without a free buffer: it is counted as dropped if it was held, and not
    /// counted if it was made.
    #[inline]
    pub fn give_back(&mut self, mut out: impl FnMut(ReturnedPacket<'_>) -> bool) -> Option<Origin> {
        self.give_held(&mut out).or_else(|| self.give_made(&mut out)).or_else(|| self.give_answers(&mut out))
    }

    fn give_held(&mut self, out: &mut impl FnMut(ReturnedPacket<'_>) -> bool) -> Option<Origin> {
        let conntrack = self.pipeline.conntrack();
        if !conntrack.has_released() {
            return None;
        }
        let (mut given, mut lost) = (0, 0);
        let mut give = |Released { place, port, link, bytes }: Released<'_>| {
            let taken = out(ReturnedPacket { held: Some(place), port, link, bytes });
            if taken { given += 1 } else { lost += 1 }
        };
        for _ in 0..VECTOR {
            if !conntrack.take_released(&mut give) {
                break;
            }
        }
        self.count_dropped(DropReason::NoBuffer, lost);
        (given > 0).then_some(Origin::Held)
    }

    fn give_made(&mut self, out: &mut impl FnMut(ReturnedPacket<'_>) -> bool) -> Option<Origin> {
        let mut given = None;
        let mut left = VECTOR;
        while left > 0
            && let Some(kind) = self.pipeline.conntrack().give_segment(out)
        {
            if let Some(kind) = kind {
                self.pipeline.cells().count_made(kind);
                given = Some(Origin::Made);
                left -= 1;
            }
        }
        for _ in 0..left {
            let Some(made) = self.pipeline.conntrack().take_made() else { break };
            let MadePacket { kind, port, link, ref bytes } = made;
            if out(ReturnedPacket { held: None, port, link, bytes }) {
                self.pipeline.cells().count_made(kind);
                given = Some(Origin::Made);
            }
        }
        given
    }

    fn give_answers(&mut self, out: &mut impl FnMut(ReturnedPacket<'_>) -> bool) -> Option<Origin> {
        let mut given = None;
        for _ in 0..VECTOR {
            let answer = self.pipeline.answers().give(|Answer { kind, port, link, bytes }| {
                out(ReturnedPacket { held: None, port, link, bytes }).then_some(kind)
            });
            let Some(answer) = answer else { break };
            if let Some(kind) = answer {
                self.pipeline.cells().count_made(kind);
                given = Some(Origin::Answer);
            }
        }
        given
    }

    /// Held packets that were dropped since the last call, by reason. They are counted already; this is for hosts with drop counters of
    /// their own, since no verdict reports these drops.
    pub fn take_lost(&mut self) -> [(DropReason, u64); 2] {
        let HeldLosses { aged, crowded_out } = self.pipeline.conntrack().take_lost();
        [(DropReason::FragmentEarly, aged), (DropReason::FragmentNoRoom, crowded_out)]
    }

    /// Limits the number of held fragments, and their total bytes. The defaults are 4096 and 4 MiB; a host with less memory calls this
    /// before its first policy.
    pub fn limit_held(&mut self, packets: u16, bytes: usize) {
        self.pipeline.conntrack().limit_held(packets, bytes);
    }

    /// Counts all held packets as dropped, when no more packets will come.
    pub fn drop_held(&mut self) {
        self.pipeline.conntrack().drop_held();
    }

    /// True if connections may have timed out that the last call did not process, if counters of rules lack packets, or if the control side has
    /// just asked for something, as it does for each thousand connections of a list. A host then calls again before it sleeps, without
    /// packets if there are none.
    #[inline]
    pub fn is_behind(&mut self) -> bool {
        let is_asked = self.last_task_ns > 0 && self.now_ns.saturating_sub(self.last_task_ns) < NEXT_TASK_NS;
        let conntrack = self.pipeline.conntrack();
        is_asked || conntrack.is_behind() || conntrack.folding().1 > 0
    }

    /// When this worker has something to do without packets, beside what idle workers do anyway: streams let go what they have held back for long
    /// enough. For a host whose clock is not the time of day.
    pub fn due_ns(&mut self) -> Option<u64> {
        self.pipeline.conntrack().streams_due_ms().map(|due_ms| due_ms * 1_000_000)
    }

    /// Picks up a newer policy, unless tickets of the current one are outstanding.
    #[inline]
    fn pick_up_policy(&mut self) {
        if !self.pipeline.has_tickets() {
            let newest = self.policy.load();
            if !Arc::ptr_eq(newest, &self.snapshot) {
                let before = std::mem::replace(&mut self.snapshot, Arc::clone(newest));
                self.pipeline.configure(&self.snapshot, Some(before));
            }
        }
    }

    /// Picks up a newer policy, ends connections that timed out, and runs pending tasks. Returns the number of packets per vector.
    fn begin(&mut self, now_ns: u64, is_idle: bool) -> usize {
        self.pick_up_policy();
        self.pipeline.conntrack().advance(now_ns, is_idle);
        self.pipeline.answers().advance(now_ns);
        self.pipeline.conntrack().release_streams(&self.snapshot);
        self.now_ns = now_ns;
        while let Ok(task) = self.tasks.try_recv() {
            task(&mut self.pipeline, &self.snapshot);
            self.last_task_ns = now_ns;
        }
        self.pipeline.vector()
    }

    /// Adds all packets that connections counted to the counters of their rules, for a host that reads counters when its packets are
    /// processed. The workers of other hosts do it in small steps: see [`Connections::fold_counters`](crate::Connections::fold_counters).
    pub fn fold_counters(&mut self) {
        // A rule's successor, which has its counter, does not count what connections counted for the rule.
        self.pick_up_policy();
        self.pipeline.conntrack().collect_last_flows();
        self.pipeline.conntrack().fold_all();
    }

    /// Adds packets that connections counted to the counters of their rules, after a call with this number of packets.
    #[inline]
    fn fold(&mut self, packets: usize) {
        self.pipeline.conntrack().fold_some(packets);
    }

    /// Counts packets that [`Worker::process`] decided to send by `port`, but that the host could not send: they count as dropped, not as
    /// sent.
    pub fn count_unsent(&mut self, port: PortId, reason: DropReason, unsent: Count) {
        self.pipeline.cells().unsent(usize::from(port.0), unsent);
        self.pipeline.cells().count_drop(reason, unsent.packets);
    }

    /// Counts packets that the host had to drop after they were counted as received, and before a verdict to send them.
    pub fn count_dropped(&mut self, reason: DropReason, packets: u64) {
        self.pipeline.cells().count_drop(reason, packets);
    }

    /// Counts packets that came in by `port`, but that the host had to drop before [`Worker::process`].
    pub fn count_unprocessed(&mut self, port: PortId, reason: DropReason, received: Count) {
        self.pipeline.cells().rx(usize::from(port.0), received);
        self.pipeline.cells().count_drop(reason, received.packets);
    }
}
