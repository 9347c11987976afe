//! A worker's connection tracking: its parts, its settings, its clock.
//!
//! Life-cycle: one worker owns it and alone accesses it. The control thread sends tasks, which run between
//! vectors (`control`).

use super::backoff::SearchBackoffs;
use super::cached_unreplied::CachedUnreplied;
use super::extension::Extensions;
use super::flow_state::FlowState;
use super::fold_rounds::FoldRounds;
use super::isn::SequenceNumbers;
use super::lookup_keys::LookupKeys;
use super::offloaded_flows::OffloadedFlows;
use super::packet_event::SuppressedRules;
use super::rule_sets::StatefulRuleSets;
use super::shared::{SharedState, WorkerState};
use super::streams::Streams;
use super::verdict_cache::{VerdictCache, VerdictId};
use crate::cells::{RuleCells, WorkerCells};
use crate::compiled::Snapshot;
use crate::generated::{GeneratedPacket, GeneratedQueue};
use crate::rate::RateLimit;
use crate::server_cells::ServerCells;
use crate::verdict::VECTOR;
use mmb_classify::RuleSlot;
use mmb_conn::fragment::{FragmentKey, FragmentTable, HeldFragments, HeldLosses};
use mmb_conn::{
    CloseReason, ConnId, ConnectionTable, Direction, QuickPort, QuickResult, ReclaimCursor, TableOwner,
};
use mmb_policy::CtState;
use mmb_policy::settings::InvalidPackets;
use mmb_random::{Purpose, Seed, SeedTree};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The most datagrams whose fragments are tracked at once, and the longest time for which each is tracked.
/// RFC 8200, section 4.5, lets a host wait a minute; fragments that separate on one path arrive within
/// seconds.
const DATAGRAMS: usize = 4096;
const FRAGMENT_AGE_MS: u64 = 15_000;
/// The most fragments that may wait for the first fragment of their datagram, and the most bytes of all of
/// them.
const HELD: u16 = 4096;
const HELD_BYTES: usize = 4 << 20;
/// The size of the largest packet that a stream generates, in bytes.
const MAX_GENERATED_BYTES: usize = 66 << 10;

/// A worker's connections.
pub(crate) struct Conntrack {
    pub(super) table: ConnectionTable,
    pub(super) state: WorkerState,
    pub(super) fragments: FragmentTable,
    /// Fragments that arrived before the first fragment of their datagram.
    pub(super) held: HeldFragments,
    pub(super) lookup_keys: LookupKeys,
    pub(super) flow_states: Box<[FlowState; VECTOR]>,
    /// The `ct` state of each packet, if some rule matches on it.
    pub(super) ct_states: Box<[CtState; VECTOR]>,
    /// What the quick pass did with the vector's packets.
    pub(super) quick: QuickResult,
    /// By port: how the quick pass looks up packets that arrive there.
    pub(super) quick_ports: Vec<QuickPort>,
    pub(super) folding: FoldRounds,
    /// The cached verdict of each packet.
    pub(super) cached: Box<[Option<VerdictId>; VECTOR]>,
    /// The lookup result of each entry of `lookup_keys`.
    pub(super) found: Vec<Option<(ConnId, Direction)>>,
    /// A connection was created or ended since the vector was looked up: results in `found` may be outdated.
    pub(super) stale: bool,
    /// Datagrams whose first fragment arrived in this vector and was dropped.
    pub(super) refused: Vec<FragmentKey>,
    /// TCP datagrams whose first fragment was valid in this vector, with the sequence number of the byte at
    /// offset 0.
    pub(super) noted_seqs: Vec<(FragmentKey, u32)>,
    /// Held packets that were lost since the host last read these counts.
    pub(super) lost: HeldLosses,
    /// Unreplied connections on which cached verdicts of the vector rely.
    pub(super) cached_unreplied: CachedUnreplied,
    /// Some packets of the vector need no classification.
    pub(super) some_cached: bool,
    /// Back-off after searches that found no port to reclaim from another connection.
    pub(super) backoffs: SearchBackoffs,
    /// Where the last such search ended.
    pub(super) cursor: ReclaimCursor,
    /// This worker is counted in `SharedState::busy`.
    pub(super) busy: bool,
    /// [`Snapshot::enabled_at`] of the last snapshot.
    enabled_at: u64,
    /// Packets that mmb generated and that wait for buffers of the host.
    pub(super) generated: GeneratedQueue,
    /// The limit for RSTs of streams, which all workers share.
    pub(super) reset_limit: Option<RateLimit>,
    /// A buffer for the packet that a stream generates.
    pub(super) generated_bytes: Vec<u8>,
    /// `set conn invalid drop`.
    pub(super) drops_invalid: bool,
    /// The rules whose events were suppressed.
    pub(super) suppressed: SuppressedRules,
}

impl Conntrack {
    pub(crate) fn new(
        worker: usize,
        common: Arc<SharedState>,
        cells: Arc<WorkerCells>,
        seeds: &SeedTree,
    ) -> Conntrack {
        let seed = |purpose| seeds.of_worker(purpose, worker);
        Conntrack {
            table: ConnectionTable::new(seed(Purpose::ConnectionIndex)),
            state: WorkerState {
                worker,
                sets: StatefulRuleSets::default(),
                shared: common,
                extensions: Extensions::new(
                    seed(Purpose::HeaderChoices),
                    SequenceNumbers::new(seeds.shared(Purpose::SequenceNumbers)),
                ),
                cells,
                cache: VerdictCache::default(),
                rule_cells: RuleCells::default(),
                server_cells: ServerCells::default(),
                watchers: Vec::new(),
                streams: Streams::new(seed(Purpose::ExpectedConnections)),
                flows: OffloadedFlows::default(),
                per_source: None,
                now_ns: 0,
                now_ms: 0,
            },
            fragments: FragmentTable::new(seed(Purpose::FragmentIndex), DATAGRAMS, FRAGMENT_AGE_MS),
            held: HeldFragments::new(seed(Purpose::HeldFragmentIndex), FRAGMENT_AGE_MS, HELD, HELD_BYTES),
            lookup_keys: LookupKeys::new(),
            flow_states: Box::new([FlowState::Untracked; VECTOR]),
            ct_states: Box::new([CtState::Untracked; VECTOR]),
            quick: QuickResult::default(),
            quick_ports: Vec::new(),
            folding: FoldRounds::default(),
            cached: Box::new([None; VECTOR]),
            found: Vec::with_capacity(VECTOR),
            stale: false,
            refused: Vec::with_capacity(VECTOR),
            noted_seqs: Vec::with_capacity(VECTOR),
            lost: HeldLosses::default(),
            cached_unreplied: CachedUnreplied::default(),
            some_cached: false,
            backoffs: SearchBackoffs::new(),
            cursor: ReclaimCursor::default(),
            busy: false,
            enabled_at: 0,
            generated: GeneratedQueue::new(),
            reset_limit: None,
            generated_bytes: Vec::with_capacity(MAX_GENERATED_BYTES),
            drops_invalid: false,
            suppressed: SuppressedRules::default(),
        }
    }

    /// Applies the settings of a policy. `previous` is the previous policy.
    pub(crate) fn configure(&mut self, snapshot: &Arc<Snapshot>, previous: Option<Arc<Snapshot>>) {
        self.configure_offload(snapshot);
        self.begin_epoch(snapshot, previous);
        self.suppressed.configure(snapshot.log_rules);
        self.configure_share(snapshot);
        let settings = &snapshot.connections;
        if snapshot.enabled_at > self.enabled_at {
            self.enabled_at = snapshot.enabled_at;
            self.table.resync(self.state.now_ms);
        }
        self.state.per_source = settings.per_source;
        self.reset_limit = snapshot.answers.rate.map(RateLimit::for_answers);
        self.state.server_cells = snapshot.server_cells[self.state.worker].clone();
        self.drops_invalid = settings.invalid == InvalidPackets::Drop;
        self.state.shared.nat().configure(settings);
        self.configure_streams(snapshot);
        if snapshot.stateful_rules > 0 {
            self.held.prepare();
        } else {
            // No rule needs the ports of held fragments now.
            self.held.release_all();
        }
    }

    /// Adopts the memory for streams that the control side has allocated.
    fn configure_streams(&mut self, snapshot: &Snapshot) {
        let WorkerState { shared, streams, worker, .. } = &mut self.state;
        // A worker that owns no connections has no streams.
        if let Some(exchange) = shared.pools.get(*worker) {
            streams.configure(snapshot, shared.owners.sharing(), &mut exchange.open());
        }
    }

    /// Sizes the table for this worker's share of the connection limit.
    pub(crate) fn configure_share(&mut self, snapshot: &Snapshot) {
        let settings = &snapshot.connections;
        let SharedState { memory, owners, .. } = &*self.state.shared;
        let max = memory.load(Ordering::Relaxed).min(settings.max as usize).div_ceil(owners.sharing());
        self.table.configure(max, settings.timeouts, settings.pickup);
    }

    /// Advances the clock: ends connections that have timed out, drops fragments that were held too long, and
    /// does other work that is due. A call without packets ends more connections.
    #[inline]
    pub(crate) fn advance(&mut self, now_ns: u64, is_idle: bool) {
        self.state.extensions.numbers.advance(now_ns);
        // Several threads may read the host's clock. The clock of this worker never goes back.
        self.state.now_ns = self.state.now_ns.max(now_ns);
        self.state.now_ms = self.state.now_ns / 1_000_000;
        self.log_suppressed();
        if !self.state.streams.closed.is_empty() {
            self.finish_streams();
        }
        if self.state.streams.can_adopt_payload() {
            let WorkerState { shared, streams, worker, .. } = &mut self.state;
            shared.pools.get(*worker).into_iter().for_each(|pools| streams.adopt_payload(&mut pools.open()));
        }
        if self.state.streams.tools.helpers.expectations.is_due(self.state.now_ms) {
            self.remove_expired();
        }
        self.walk_flows();
        if !self.table.is_empty() {
            let Conntrack { table, state, .. } = self;
            match is_idle {
                true => table.advance_idle(state.now_ms, state),
                false => table.advance(state.now_ms, state),
            }
            self.count();
        }
        if !self.held.is_empty() {
            self.held.age(self.state.now_ms);
            self.count_held();
        }
    }

    pub(super) fn count(&mut self) {
        let busy = !self.table.is_empty();
        if std::mem::replace(&mut self.busy, busy) != busy {
            let workers = &self.state.shared.busy;
            _ = if busy {
                workers.fetch_add(1, Ordering::Relaxed)
            } else {
                workers.fetch_sub(1, Ordering::Relaxed)
            };
        }
        let [now, half_open, places] =
            [self.table.len(), self.table.half_open(), self.table.records()].map(|count| count as u64);
        self.state.cells.connections_now(now, half_open, places);
        if self.state.streams.has_pools {
            self.state.cells.streams_now(self.state.streams.taken());
        }
    }

    /// Whether packets must be looked up under a policy. They must be looked up as long as any worker has
    /// connections, because a packet may belong to one of them.
    #[inline]
    pub(crate) fn is_needed(&self, snapshot: &Snapshot) -> bool {
        snapshot.stateful_rules > 0
            || snapshot.ct_rules > 0
            || self.state.shared.busy.load(Ordering::Relaxed) > 0
    }

    /// Ends a connection.
    pub(super) fn end(&mut self, id: ConnId, reason: CloseReason) {
        self.end_flows(id);
        let connection = self.table.remove(id);
        self.state.closed(&connection, reason);
        self.stale = true;
        self.count();
    }

    /// Takes the oldest generated packet.
    #[inline]
    pub(crate) fn take_generated(&mut self) -> Option<GeneratedPacket> {
        self.generated.pop()
    }

    /// Reseeds the generator of header choices: its future numbers are independent of earlier ones.
    pub(crate) fn reseed(&mut self, fresh: Seed) {
        self.state.extensions.reseed(fresh);
    }

    /// Whether connections may have timed out that the last [`Conntrack::advance`] did not visit.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.table.is_behind()
    }

    /// The counts of held packets that were lost since the last call.
    pub(crate) fn take_lost(&mut self) -> HeldLosses {
        std::mem::take(&mut self.lost)
    }

    /// The slots of the connection's rules that the current policy still contains.
    #[inline]
    pub(crate) fn rules(&mut self, snapshot: &Snapshot, id: ConnId) -> &[RuleSlot] {
        match self.table.ids(id).rule_set {
            Some(set) => self.state.sets.live(snapshot, set),
            None => &[],
        }
    }
}
