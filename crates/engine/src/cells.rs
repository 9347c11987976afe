//! Counters that one worker writes and any thread reads.
//!
//! A [`CounterCell`] is changed by a plain load and store, without a locked instruction. This is correct
//! because only its worker writes it. Readers see each cell's value at some moment; a sum over cells is not a
//! snapshot of one moment.
//!
//! Ownership: every worker's [`WorkerCells`] and rule cells are shared with the control side by `Arc`. Rule
//! cells are allocated in chunks that are never freed, so that a slot keeps its address while rules are added
//! and removed. The module `slots` assigns slots to rules.

use crate::counters::{Count, FlowCacheCount, PortCount, RuleCount, StageCount};
use crate::drop::DropReason;
use crate::generated::GeneratedKind;
use crate::offload::{NotOffloadedReason, OffloadSummary};
use mmb_base::{Id, SharedSlice};
use mmb_classify::{BypassReason, FlowCounts, RuleSlot};
use mmb_conn::{CloseReason, Invalid};
use mmb_rewrite::NotApplied;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct CounterCell(AtomicU64);

impl CounterCell {
    /// Adds to the counter. Only the worker that owns the cell calls this.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// Sets the counter. Only the worker that owns the cell calls this.
    fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Resets the counter. No worker may use the cell.
    pub(crate) fn reset(&self) {
        self.set(0);
    }

    /// The current value.
    pub(crate) fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Packets and bytes.
#[derive(Debug, Default)]
pub(crate) struct CountCell {
    packets: CounterCell,
    bytes: CounterCell,
}

impl CountCell {
    /// Adds to the counters. Only the worker that owns the cell calls this.
    #[inline]
    pub(crate) fn add(&self, more: Count) {
        self.packets.add(more.packets);
        self.bytes.add(more.bytes);
    }

    /// Resets the counters. No worker may use the cell.
    pub(crate) fn reset(&self) {
        self.packets.reset();
        self.bytes.reset();
    }

    pub(crate) fn read(&self) -> Count {
        Count { packets: self.packets.read(), bytes: self.bytes.read() }
    }
}

/// A stage of the pipeline, by its index in [`STAGES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Parse = 0,
    Classify = 1,
    Connections = 2,
    Streams = 3,
    /// Includes verdicts.
    Rewrite = 4,
    Forward = 5,
}

/// The stages' names, in the order of the pipeline.
pub(crate) const STAGES: [&str; 6] = ["parse", "classify", "connections", "streams", "rewrite", "forward"];

#[derive(Debug, Default)]
struct StageCells {
    calls: CounterCell,
    vectors: CounterCell,
    packets: CounterCell,
    cycles: CounterCell,
}

#[derive(Debug, Default)]
struct ConnectionCells {
    now: CounterCell,
    half_open: CounterCell,
    places: CounterCell,
    stream_places: CounterCell,
    stream_pools: CounterCell,
    created: CounterCell,
    closed: [CounterCell; CloseReason::ALL.len()],
    invalid: [CounterCell; Invalid::ALL.len()],
    events_lost: CounterCell,
    handed: CounterCell,
    held: CounterCell,
    unfolded: CounterCell,
}

/// A worker's connection counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionCounts {
    pub(crate) now: u64,
    pub(crate) half_open: u64,
    pub(crate) places: u64,
    pub(crate) created: u64,
    pub(crate) events_lost: u64,
    pub(crate) handed: u64,
    pub(crate) held: u64,
}

impl std::ops::Add for ConnectionCounts {
    type Output = ConnectionCounts;

    fn add(self, more: ConnectionCounts) -> ConnectionCounts {
        ConnectionCounts {
            now: self.now + more.now,
            half_open: self.half_open + more.half_open,
            places: self.places + more.places,
            created: self.created + more.created,
            events_lost: self.events_lost + more.events_lost,
            handed: self.handed + more.handed,
            held: self.held + more.held,
        }
    }
}

/// A worker's counts of flows that its host forwards.
#[derive(Debug, Default)]
struct OffloadCells {
    flows: CounterCell,
    capacity: CounterCell,
    installed: CounterCell,
    evicted: CounterCell,
    forwarded: CountCell,
    missed: CounterCell,
    not_offloaded: [CounterCell; NotOffloadedReason::ALL.len()],
}

/// A worker's counts of its flow cache.
#[derive(Debug, Default)]
struct FlowCacheCells {
    hits: CounterCell,
    misses: CounterCell,
    bypassed: [CounterCell; BypassReason::ALL.len()],
}

#[derive(Debug, Default)]
struct PortCells {
    rx: CountCell,
    /// Packets that verdicts send on this port.
    forwarded: CountCell,
    /// Of these, the packets that the host could not send.
    unsent: CountCell,
}

/// One worker's counters except those of rules. Shares no cache line with other data.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerCells {
    drops: [CounterCell; DropReason::ALL.len()],
    generated: [CounterCell; GeneratedKind::ALL.len()],
    absorbed: CounterCell,
    not_applied: [CounterCell; NotApplied::ALL.len()],
    stages: [StageCells; STAGES.len()],
    connections: ConnectionCells,
    offload: OffloadCells,
    flow_cache: FlowCacheCells,
    ports: Box<[PortCells]>,
}

impl WorkerCells {
    pub(crate) fn new(ports: usize) -> WorkerCells {
        WorkerCells {
            drops: std::array::from_fn(|_| CounterCell::default()),
            generated: Default::default(),
            absorbed: CounterCell::default(),
            not_applied: Default::default(),
            stages: Default::default(),
            connections: ConnectionCells::default(),
            offload: OffloadCells::default(),
            flow_cache: FlowCacheCells::default(),
            ports: (0..ports).map(|_| PortCells::default()).collect(),
        }
    }

    pub(crate) fn count_drop(&self, reason: DropReason, packets: u64) {
        self.drops[reason.index()].add(packets);
    }

    pub(crate) fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason.index()].read()
    }

    pub(crate) fn count_generated(&self, kind: GeneratedKind) {
        self.generated[kind as usize].add(1);
    }

    pub(crate) fn generated(&self, kind: GeneratedKind) -> u64 {
        self.generated[kind as usize].read()
    }

    pub(crate) fn count_absorbed(&self, packets: u64) {
        self.absorbed.add(packets);
    }

    pub(crate) fn absorbed(&self) -> u64 {
        self.absorbed.read()
    }

    /// Counts a target that was not applied.
    pub(crate) fn count_not_applied(&self, reason: NotApplied) {
        self.not_applied[reason as usize].add(1);
    }

    /// Adds the counts of targets not applied, by their index in [`NotApplied::ALL`].
    pub(crate) fn not_applied_add(&self, counts: &[u64; NotApplied::ALL.len()]) {
        for (cell, &count) in self.not_applied.iter().zip(counts).filter(|(_, count)| **count > 0) {
            cell.add(count);
        }
    }

    pub(crate) fn not_applied(&self, reason: NotApplied) -> u64 {
        self.not_applied[reason as usize].read()
    }

    /// Sets the current numbers of connections, half-open connections, and allocated records.
    pub(crate) fn connections_now(&self, now: u64, half_open: u64, places: u64) {
        self.connections.now.set(now);
        self.connections.half_open.set(half_open);
        self.connections.places.set(places);
    }

    /// Sets the highest number of simultaneous streams, and the used bytes of their pools.
    pub(crate) fn streams_now(&self, [places, pools]: [u64; 2]) {
        self.connections.stream_places.set(places);
        self.connections.stream_pools.set(pools);
    }

    /// The values that [`WorkerCells::streams_now`] has set.
    pub(crate) fn streams(&self) -> [u64; 2] {
        [self.connections.stream_places.read(), self.connections.stream_pools.read()]
    }

    /// Sets the number of connections with packets that are not yet in the counters of rules.
    pub(crate) fn unfolded(&self, connections: u64) {
        self.connections.unfolded.set(connections);
    }

    /// Whether the counters of rules lack packets of some connections.
    pub(crate) fn has_unfolded(&self) -> bool {
        self.connections.unfolded.read() > 0
    }

    pub(crate) fn connection_created(&self) {
        self.connections.created.add(1);
    }

    pub(crate) fn connection_closed(&self, reason: CloseReason) {
        self.connections.closed[reason as usize].add(1);
    }

    pub(crate) fn count_invalid(&self, kind: Invalid) {
        self.connections.invalid[kind as usize].add(1);
    }

    pub(crate) fn invalid(&self, kind: Invalid) -> u64 {
        self.connections.invalid[kind as usize].read()
    }

    pub(crate) fn handed(&self, packets: u64) {
        self.connections.handed.add(packets);
    }

    /// Sets the current number of held fragments.
    pub(crate) fn held_now(&self, packets: u64) {
        self.connections.held.set(packets);
    }

    pub(crate) fn event_lost(&self) {
        self.connections.events_lost.add(1);
    }

    pub(crate) fn closed(&self, reason: CloseReason) -> u64 {
        self.connections.closed[reason as usize].read()
    }

    pub(crate) fn connections(&self) -> ConnectionCounts {
        let ConnectionCells { now, half_open, places, created, events_lost, handed, held, .. } =
            &self.connections;
        ConnectionCounts {
            now: now.read(),
            half_open: half_open.read(),
            places: places.read(),
            created: created.read(),
            events_lost: events_lost.read(),
            handed: handed.read(),
            held: held.read(),
        }
    }

    /// Sets the current number of offloaded flows, and the maximum.
    pub(crate) fn flows_now(&self, flows: u64, capacity: u64) {
        self.offload.flows.set(flows);
        self.offload.capacity.set(capacity);
    }

    /// Whether the host forwards flows of this worker.
    pub(crate) fn has_flows(&self) -> bool {
        self.offload.flows.read() > 0
    }

    pub(crate) fn flow_installed(&self) {
        self.offload.installed.add(1);
    }

    pub(crate) fn flow_evicted(&self) {
        self.offload.evicted.add(1);
    }

    /// Counts a flow that was not installed, by reason.
    pub(crate) fn flow_not_offloaded(&self, reason: NotOffloadedReason) {
        self.offload.not_offloaded[reason as usize].add(1);
    }

    /// Counts packets that the host forwarded or dropped.
    pub(crate) fn offloaded(&self, more: Count) {
        self.offload.forwarded.add(more);
    }

    /// Counts packets that the worker received while flow offload is on.
    pub(crate) fn flows_missed(&self, packets: usize) {
        self.offload.missed.add(packets as u64);
    }

    /// Adds this worker's counts of offloaded flows.
    pub(crate) fn add_offload(&self, sum: &mut OffloadSummary) {
        let OffloadCells { flows, capacity, installed, evicted, forwarded, missed, not_offloaded } =
            &self.offload;
        let Count { packets, bytes } = forwarded.read();
        sum.flows += flows.read();
        sum.capacity += capacity.read();
        sum.installed += installed.read();
        sum.evicted += evicted.read();
        sum.packets += packets;
        sum.bytes += bytes;
        sum.missed += missed.read();
        sum.not_offloaded.resize(NotOffloadedReason::ALL.len(), (NotOffloadedReason::Device, 0));
        for ((sum, reason), cell) in
            sum.not_offloaded.iter_mut().zip(NotOffloadedReason::ALL).zip(not_offloaded)
        {
            *sum = (reason, sum.1 + cell.read());
        }
    }

    /// Adds the results of the flow cache for a vector's keys.
    #[inline]
    pub(crate) fn flow_cache(&self, FlowCounts { hits, misses, bypassed }: FlowCounts) {
        self.flow_cache.hits.add(hits as u64);
        self.flow_cache.misses.add(misses as u64);
        if let Some((keys, reason)) = bypassed {
            self.flow_cache.bypassed[reason as usize].add(keys as u64);
        }
    }

    /// This worker's counts of its flow cache.
    pub(crate) fn flow_cache_counts(&self) -> FlowCacheCount {
        let FlowCacheCells { hits, misses, bypassed } = &self.flow_cache;
        FlowCacheCount {
            hits: hits.read(),
            misses: misses.read(),
            bypassed: std::array::from_fn(|reason| bypassed[reason].read()),
        }
    }

    /// Counts one call of a stage with `packets` packets.
    #[inline]
    pub(crate) fn stage(&self, stage: Stage, packets: usize, cycles: u64) {
        let cells = &self.stages[stage as usize];
        cells.calls.add(1);
        cells.vectors.add(u64::from(packets > 0));
        cells.packets.add(packets as u64);
        cells.cycles.add(cycles);
    }

    pub(crate) fn stages(&self) -> [StageCount; STAGES.len()] {
        std::array::from_fn(|stage| {
            let cells = &self.stages[stage];
            StageCount {
                name: STAGES[stage],
                calls: cells.calls.read(),
                vectors: cells.vectors.read(),
                packets: cells.packets.read(),
                cycles: cells.cycles.read(),
            }
        })
    }

    /// Counts received packets of a port; unknown port numbers are ignored.
    #[inline]
    pub(crate) fn rx(&self, port: usize, more: Count) {
        if let Some(port) = self.ports.get(port) {
            port.rx.add(more);
        }
    }

    /// Counts packets that verdicts send on a port.
    #[inline]
    pub(crate) fn forwarded(&self, port: usize, more: Count) {
        if let Some(port) = self.ports.get(port) {
            port.forwarded.add(more);
        }
    }

    /// Counts packets of a port that the host could not send.
    pub(crate) fn unsent(&self, port: usize, more: Count) {
        if let Some(port) = self.ports.get(port) {
            port.unsent.add(more);
        }
    }

    pub(crate) fn port(&self, port: usize) -> PortCount {
        let Some(cells) = self.ports.get(port) else { return PortCount::default() };
        let (unsent, forwarded) = (cells.unsent.read(), cells.forwarded.read());
        let tx = Count {
            packets: forwarded.packets.saturating_sub(unsent.packets),
            bytes: forwarded.bytes.saturating_sub(unsent.bytes),
        };
        PortCount { rx: cells.rx.read(), tx }
    }
}

/// Slots per chunk.
const CHUNK: usize = 4096;

/// A worker's counters of one rule, on one cache line.
#[derive(Debug, Default)]
#[repr(align(32))]
struct RuleCell {
    matched: CountCell,
    dropped: CountCell,
}

/// One worker's counters of [`CHUNK`] rule slots.
#[derive(Clone, Debug)]
struct CellChunk {
    cells: SharedSlice<RuleCell>,
    /// Hits of rules on streams. Allocated when the chunk gets its first such rule.
    hits: Arc<OnceLock<Box<[CounterCell]>>>,
}

/// One worker's rule counters, by slot. A clone shares the counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleCells(Arc<Vec<CellChunk>>);

impl RuleCells {
    /// The number of slots that have cells.
    pub(crate) fn slots(&self) -> usize {
        self.0.len() * CHUNK
    }

    /// Adds cells for [`CHUNK`] more slots.
    pub(crate) fn grow(&mut self) {
        let cells = SharedSlice::from_fn(CHUNK, |_| RuleCell::default());
        Arc::make_mut(&mut self.0).push(CellChunk { cells, hits: Arc::default() });
    }

    /// The cell of the packets that a slot's rule matched. The slot must have cells.
    #[inline]
    pub(crate) fn slot(&self, slot: RuleSlot) -> &CountCell {
        &self.0[slot.index() / CHUNK].cells[slot.index() % CHUNK].matched
    }

    /// The cell of the packets that a slot's rule dropped. The slot must have cells.
    #[inline]
    pub(crate) fn dropped(&self, slot: RuleSlot) -> &CountCell {
        &self.0[slot.index() / CHUNK].cells[slot.index() % CHUNK].dropped
    }

    /// Provides cells for hits, for the rule of a slot.
    pub(crate) fn allocate_hits(&self, slot: RuleSlot) {
        let cells = || (0..CHUNK).map(|_| CounterCell::default()).collect();
        self.0[slot.index() / CHUNK].hits.get_or_init(cells);
    }

    /// The cell of the hits of a slot's rule; `None` if the slot's chunk has no cells for hits.
    #[inline]
    pub(crate) fn hits(&self, slot: RuleSlot) -> Option<&CounterCell> {
        Some(&self.0[slot.index() / CHUNK].hits.get()?[slot.index() % CHUNK])
    }

    /// Resets the cells of a slot, which no worker may use.
    pub(crate) fn reset(&self, slot: RuleSlot) {
        self.slot(slot).reset();
        self.dropped(slot).reset();
        self.hits(slot).into_iter().for_each(CounterCell::reset);
    }

    /// The counters of a slot's rule.
    pub(crate) fn read(&self, slot: RuleSlot) -> RuleCount {
        // Workers count a match before its drop. Drops are read first, so that they do not exceed the
        // matches.
        let dropped = self.dropped(slot).read();
        let hits = self.hits(slot).map_or(0, CounterCell::read);
        RuleCount { matched: self.slot(slot).read(), dropped, hits }
    }
}
