//! The data plane side of the engine.

use crate::answer::Answer;
use crate::cells::WorkerCells;
use crate::compiled::Snapshot;
use crate::conntrack::{EditTotals, SharedState, TracedEdit};
use crate::counters::Count;
use crate::drop::DropReason;
use crate::generated::GeneratedPacket;
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
/// A worker uses one policy snapshot per vector. Before each vector it checks for a newer snapshot, unless
/// tickets are outstanding; the check is an atomic load and a comparison. A worker frees no snapshot: the
/// control side keeps a reference to each snapshot that a worker releases.
pub struct Worker {
    /// The published policy, and the reference that the worker uses.
    policy: Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>,
    /// The snapshot that `pipeline` was configured for, and that outstanding tickets refer to.
    snapshot: Arc<Snapshot>,
    pipeline: Pipeline,
    /// Tasks from the control side.
    tasks: Receiver<WorkerTask>,
    /// When the last task ran.
    last_task_ns: u64,
    now_ns: u64,
}

/// The control side may send thousands of tasks, each after the answer to the one before. For this time after
/// a task, the worker asks its host not to sleep ([`Worker::is_behind`]).
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

    /// Decides on a vector of packets and rewrites them. `verdicts[i]` is for `packets[i]`. If there are more
    /// than [`VECTOR`] packets, or if a packet can match very many rules, the call processes several vectors
    /// under one policy. A call without packets picks up a newer policy, which lets the control side free the
    /// old one; it also ends connections and runs tasks. A host that waits for packets should call it
    /// regularly.
    ///
    /// `now_ns` is the time and must not go back. Connections time out by it, also in a call without packets.
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

    /// [`Worker::process_from`] for a host that uses its packets' buffers after the call. Takes at most
    /// [`VECTOR`] views of packets. Returns the verdict on each packet, and where the packet is in its
    /// buffer.
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

    /// Decides on packets without rewriting them, for a host that rewrites in a later stage with
    /// [`Worker::rewrite`]. If `tickets[i]` is a ticket, the host must rewrite `packets[i]` before it carries
    /// out the verdict; the packet is counted as sent or dropped only then. The policy stays in use until all
    /// of its tickets are redeemed. `trace_hook`, if given, receives the trace of each packet in order.
    ///
    /// Taps do not see these packets.
    ///
    /// If NAT changes only addresses and ports of a packet in the middle of a connection, the packet is
    /// rewritten at once and needs no ticket. Returns these packets, and those that their streams may have
    /// changed.
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
            let vector_context = (origin, &*self.snapshot);
            let hook = trace_hook.as_mut().map(|hook| &mut **hook as &mut dyn FnMut(PacketTrace));
            let vector_translated =
                self.pipeline.run_to_tickets(vector_context, cycles, packets, verdicts, tickets, hook);
            translated.add_all(number * vector, vector_translated);
        }
        self.fold(count);
        translated
    }

    /// Rewrites packets for which [`Worker::decide`] issued tickets, each packet once. A verdict to send may
    /// become a verdict to drop, because the packet may have grown beyond an MTU.
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

    /// Offloads settled flows to this host from now on. At the end, the host keeps its counts until they are
    /// read for the last time ([`Worker::fold_counters`]).
    pub fn set_offload(&mut self, host: Box<dyn FlowOffload>) {
        let conntrack = self.pipeline.conntrack();
        conntrack.set_offload(host);
        conntrack.configure_offload(&self.snapshot);
    }

    /// Prefaults the fixed-size tables, some 21 MB, so that packets do not wait for page faults. For hosts
    /// with live ports.
    pub fn populate(&mut self) {
        self.pipeline.populate();
    }

    /// Sets which bytes the receivers of edited bytes acknowledge. For a host that replays packets: they
    /// acknowledge what was sent originally, not what this worker sends.
    pub fn set_ack_space(&mut self, acks: AckSpace) {
        self.pipeline.conntrack().set_ack_space(acks);
    }

    /// Records from now on each edit of streams, at most `max` edits. For a host that explains a run: each
    /// record allocates memory.
    pub fn trace_edits(&mut self, max: usize) {
        self.pipeline.conntrack().trace_edits(max);
    }

    /// Takes the edits that were recorded since the last call. Their packets are those of the last
    /// [`Worker::process`].
    pub fn take_edits(&mut self) -> Vec<TracedEdit> {
        self.pipeline.conntrack().take_edits()
    }

    /// The totals of all edits since [`Worker::trace_edits`], including those that were not recorded.
    pub fn edit_totals(&mut self) -> EditTotals {
        self.pipeline.conntrack().edit_totals()
    }

    /// Discards outstanding tickets, for a host that lost their packets.
    pub fn discard_tickets(&mut self) {
        self.pipeline.discard_tickets();
    }

    /// Returns packets to the host through `out`, in order and at most [`VECTOR`]: held packets that may
    /// continue, or generated packets, or answers. Returns their origin; `None` if no packet is left. The
    /// host copies the packets to its own buffers and processes them as one vector: see
    /// [`drive`](crate::host::drive). `out` returns false if no buffer is free. A held packet is then counted
    /// as dropped; a generated packet is not counted.
    #[inline]
    pub fn return_packets(&mut self, mut out: impl FnMut(ReturnedPacket<'_>) -> bool) -> Option<Origin> {
        self.return_held(&mut out)
            .or_else(|| self.return_generated(&mut out))
            .or_else(|| self.return_answers(&mut out))
    }

    fn return_held(&mut self, out: &mut impl FnMut(ReturnedPacket<'_>) -> bool) -> Option<Origin> {
        let conntrack = self.pipeline.conntrack();
        if !conntrack.has_released() {
            return None;
        }
        let (mut returned, mut lost) = (0, 0);
        let mut give = |Released { slot, port, link, bytes }: Released<'_>| {
            let taken = out(ReturnedPacket { held: Some(slot), port, link, bytes });
            if taken { returned += 1 } else { lost += 1 }
        };
        for _ in 0..VECTOR {
            if !conntrack.take_released(&mut give) {
                break;
            }
        }
        self.count_dropped(DropReason::NoBuffer, lost);
        (returned > 0).then_some(Origin::Held)
    }

    fn return_generated(&mut self, out: &mut impl FnMut(ReturnedPacket<'_>) -> bool) -> Option<Origin> {
        let mut returned = None;
        let mut left = VECTOR;
        while left > 0
            && let Some(kind) = self.pipeline.conntrack().return_segment(out)
        {
            if let Some(kind) = kind {
                self.pipeline.cells().count_generated(kind);
                returned = Some(Origin::Generated);
                left -= 1;
            }
        }
        for _ in 0..left {
            let Some(packet) = self.pipeline.conntrack().take_generated() else { break };
            let GeneratedPacket { kind, port, link, ref bytes } = packet;
            if out(ReturnedPacket { held: None, port, link, bytes }) {
                self.pipeline.cells().count_generated(kind);
                returned = Some(Origin::Generated);
            }
        }
        returned
    }

    fn return_answers(&mut self, out: &mut impl FnMut(ReturnedPacket<'_>) -> bool) -> Option<Origin> {
        let mut returned = None;
        for _ in 0..VECTOR {
            let answer = self.pipeline.answers().pop(|Answer { kind, port, link, bytes }| {
                out(ReturnedPacket { held: None, port, link, bytes }).then_some(kind)
            });
            let Some(answer) = answer else { break };
            if let Some(kind) = answer {
                self.pipeline.cells().count_generated(kind);
                returned = Some(Origin::Answer);
            }
        }
        returned
    }

    /// Held packets that were dropped since the last call, by reason. The worker has already counted them.
    /// For hosts with drop counters of their own, since no verdict reports these drops.
    pub fn take_lost(&mut self) -> [(DropReason, u64); 2] {
        let HeldLosses { aged, evicted } = self.pipeline.conntrack().take_lost();
        [(DropReason::FragmentEarly, aged), (DropReason::FragmentNoRoom, evicted)]
    }

    /// Limits the number of held fragments, and their total bytes. The defaults are 4096 and 4 MiB. A host
    /// with less memory calls this before its first policy.
    pub fn limit_held(&mut self, packets: u16, bytes: usize) {
        self.pipeline.conntrack().limit_held(packets, bytes);
    }

    /// Drops and counts all held packets. To be called when no more packets will arrive.
    pub fn drop_held(&mut self) {
        self.pipeline.conntrack().drop_held();
    }

    /// Whether the host must call the worker again before it sleeps, even without packets. This
    /// is so in three cases:
    ///
    /// - Connections may have timed out that the last call did not process.
    /// - Counters of rules lack packets.
    /// - A task ran a moment ago, so that the next one may follow: the control side sends one for each
    ///   thousand connections of a list.
    #[inline]
    pub fn is_behind(&mut self) -> bool {
        let is_asked = self.last_task_ns > 0 && self.now_ns.saturating_sub(self.last_task_ns) < NEXT_TASK_NS;
        let conntrack = self.pipeline.conntrack();
        is_asked || conntrack.is_behind() || conntrack.folding().1 > 0
    }

    /// When a stream next has work without a packet, in addition to what idle workers do: it sends bytes that
    /// it has held for long enough. `None` if no stream has such work. For a host whose clock is not the
    /// time of day.
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

    /// Picks up a newer policy, ends connections that timed out, and runs pending tasks. Returns the most
    /// packets per vector.
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

    /// Adds all packets that connections counted to the counters of their rules. For a host that reads
    /// counters after its packets are processed. The workers of other hosts do this in small steps: see
    /// [`Connections::fold_counters`](crate::Connections::fold_counters).
    pub fn fold_counters(&mut self) {
        // The newest policy comes first: a rule that has replaced another one in its slot must not count
        // packets that connections counted for the old rule.
        self.pick_up_policy();
        self.pipeline.conntrack().collect_last_flows();
        self.pipeline.conntrack().fold_all();
    }

    /// Adds packets that connections counted to the counters of their rules, after a call with `packets`
    /// packets.
    #[inline]
    fn fold(&mut self, packets: usize) {
        self.pipeline.conntrack().fold_some(packets);
    }

    /// Counts packets that [`Worker::process`] decided to send on `port`, but that the host could not send.
    /// They count as dropped, not as sent.
    pub fn count_unsent(&mut self, port: PortId, reason: DropReason, unsent: Count) {
        self.pipeline.cells().unsent(usize::from(port.0), unsent);
        self.pipeline.cells().count_drop(reason, unsent.packets);
    }

    /// Counts packets that the host had to drop after they were counted as received, and before a verdict to
    /// send them.
    pub fn count_dropped(&mut self, reason: DropReason, packets: u64) {
        self.pipeline.cells().count_drop(reason, packets);
    }

    /// Counts packets that arrived on `port`, but that the host had to drop before [`Worker::process`].
    pub fn count_unprocessed(&mut self, port: PortId, reason: DropReason, received: Count) {
        self.pipeline.cells().rx(usize::from(port.0), received);
        self.pipeline.cells().count_drop(reason, received.packets);
    }
}
