//! Connection tracking in the pipeline: finds the connection of each packet, applies its rules and translation, creates and ends
//! connections.
//!
//! Purpose: [`Conntrack`] is a worker's connection table and the state that belongs to it. The connections stage looks up the flow state of
//! each packet of a vector ([`Conntrack::lookup`]); the verdict stage then creates connections ([`Conntrack::create`]), updates their state
//! and timeouts ([`Conntrack::touch`]) and asks how to translate packets ([`Conntrack::transform`]).
//!
//! A connection refers to the stateful rules that its first packet matched (`sets`). Its translation follows from them: the reply tuple
//! differs from the reversed forward tuple, and changes that no tuple expresses (sequence numbers, identification, flow label) are in an
//! extension (`extra`). A later policy may take rules away from connections, but never a translation: without it the two ends could not
//! communicate any more.
//!
//! Life-cycle: owned by one worker, which alone accesses it. The control thread sends it tasks, which run between vectors (`connections`).

mod backoff;
mod cache;
mod checked;
mod create;
mod extension;
mod fragments;
mod icmp;
mod isn;
mod key;
mod lookup;
mod nat_ports;
mod neighbours;
mod owner_map;
mod rule_sets;
pub(crate) mod save;
mod shared;
mod sources;
mod validity;

pub(crate) use cache::CachedVerdict;
pub(crate) use key::is_link_scope;
pub(crate) use shared::{SharedState, WorkerState};
pub(crate) use validity::Assessment;

use crate::cells::WorkerCells;
use crate::compiled::Snapshot;
use crate::drop::DropReason;
use crate::verdict::VECTOR;
use backoff::SearchBackoffs;
use cache::FlowCache;
use extension::Extensions;
use isn::SequenceNumbers;
use lookup::Lookups;
use mmb_conn::fragment::{Complete, FragmentKey, FragmentTable, HeldFragments, HeldLosses};
use mmb_conn::{
    CloseReason, ConnId, Connection, ConnectionTable, Direction, Invalid, ReclaimCursor, TcpOutcome,
    TcpSegment, TrackedHeader, proto,
};
use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_packet::{Layout, Packet};
use mmb_policy::CtState;
use mmb_policy::policy::InvalidPackets;
use mmb_random::{Purpose, SeedTree};
use mmb_rewrite::Translation;
use rule_sets::StatefulRuleSets;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

/// Datagrams whose fragments are tracked at once, and the longest time that each is tracked (RFC 8200 section 4.5 has a host wait a minute;
/// fragments that separate on one path arrive within seconds).
const DATAGRAMS: usize = 4096;
const FRAGMENT_AGE_MS: u64 = 15_000;
/// Fragments that may wait for their first one at once, and the bytes of all of them.
const HELD: u16 = 4096;
const HELD_BYTES: usize = 4 << 20;

/// The connection that ends when the packet's connection is created, and why.
pub(crate) type Replaced = Option<(ConnId, CloseReason)>;

/// The state of a packet relative to the connection table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlowState {
    /// Of no connection, and creates none.
    Untracked,
    /// Of no connection, but may create one.
    New,
    /// Of no connection, and unable to create one.
    Invalid(Invalid),
    /// A packet of this connection.
    Existing(ConnId, Direction),
    /// A fragment without a transport header of this connection; the last field is that of
    /// [`PacketKind::Fragment`](key::PacketKind::Fragment).
    Fragment(ConnId, Direction, Option<Complete>),
    /// An ICMP error about a packet of this connection that went the other way.
    Error(ConnId, Direction, QuotedOffsets),
    /// A packet for another worker, by number.
    OtherWorker(usize),
    /// Must be dropped.
    Refused(DropReason),
    /// Held until the first fragment of its datagram arrives; the number is its slot.
    Held(u16),
}

/// Offsets of the packet that an ICMP error quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotedOffsets {
    pub(crate) proto: u8,
    pub(crate) ip: u16,
    pub(crate) l4: u16,
}

/// The changes that NAT makes to a packet of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NatTransform {
    pub(crate) translation: Translation,
    /// The packet leaves by the port that it came in by, for this destination MAC address.
    pub(crate) hairpin: Option<[u8; 6]>,
}

/// A subscriber to connection events.
pub(crate) struct Watcher {
    pub(crate) events: SyncSender<crate::connections::ConnectionEvent>,
    /// Events lost because its queue was full. The pointer also identifies the watcher.
    pub(crate) lost: Arc<AtomicU64>,
}

/// A worker's connections.
pub(crate) struct Conntrack {
    pub(crate) table: ConnectionTable,
    pub(crate) state: WorkerState,
    fragments: FragmentTable,
    /// Fragments that came before the first one of their datagram.
    held: HeldFragments,
    lookups: Lookups,
    flow_states: Box<[FlowState; VECTOR]>,
    /// The `ct` state of each packet, if some rule matches on it.
    ct_states: Box<[CtState; VECTOR]>,
    pub(crate) cache: FlowCache,
    /// The cached verdict of each packet by number; 0 for none.
    cached: Box<[u32; VECTOR]>,
    /// The lookup result of each entry of `lookups`.
    found: Vec<Option<(ConnId, Direction)>>,
    /// A connection was created or ended since the vector was looked up: results in `found` may be out of date.
    stale: bool,
    /// Datagrams whose first fragment arrived in this vector and was dropped.
    refused: Vec<FragmentKey>,
    /// TCP datagrams whose first fragment was believed in this vector, with the sequence number of the byte at offset 0.
    numbered: Vec<(FragmentKey, u32)>,
    /// Held packets that were lost since the host last read these counts.
    pub(crate) lost: HeldLosses,
    /// Some packets of the vector need no classification.
    some_cached: bool,
    /// Back-off after searches that found no port to reclaim from another connection.
    pauses: SearchBackoffs,
    /// Where the last such search stopped.
    cursor: ReclaimCursor,
    /// This worker is counted in `SharedState::busy`.
    busy: bool,
    /// `set conn invalid drop`.
    drops_invalid: bool,
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
                extras: Extensions::new(
                    seed(Purpose::HeaderChoices),
                    SequenceNumbers::new(seeds.shared(Purpose::SequenceNumbers)),
                ),
                cells,
                watchers: Vec::new(),
                per_source: None,
                now_ms: 0,
            },
            fragments: FragmentTable::new(seed(Purpose::FragmentIndex), DATAGRAMS, FRAGMENT_AGE_MS),
            held: HeldFragments::new(seed(Purpose::HeldFragmentIndex), FRAGMENT_AGE_MS, HELD, HELD_BYTES),
            lookups: Lookups::new(),
            flow_states: Box::new([FlowState::Untracked; VECTOR]),
            ct_states: Box::new([CtState::Untracked; VECTOR]),
            cache: FlowCache::default(),
            cached: Box::new([0; VECTOR]),
            found: Vec::with_capacity(VECTOR),
            stale: false,
            refused: Vec::with_capacity(VECTOR),
            numbered: Vec::with_capacity(VECTOR),
            lost: HeldLosses::default(),
            some_cached: false,
            pauses: SearchBackoffs::new(),
            cursor: ReclaimCursor::default(),
            busy: false,
            drops_invalid: false,
        }
    }

    /// Applies the settings of a policy.
    pub(crate) fn configure(&mut self, snapshot: &Snapshot) {
        self.cache.begin_epoch(snapshot.generation);
        self.configure_share(snapshot);
        let settings = &snapshot.connections;
        self.state.per_source = settings.per_source;
        self.drops_invalid = settings.invalid == InvalidPackets::Drop;
        self.state.shared.nat().configure(settings);
        if snapshot.stateful_rules > 0 {
            self.held.prepare();
        } else {
            // No rule needs their ports any more.
            self.held.release_all();
        }
    }

    /// Sizes the table for this worker's share of the connection limit.
    pub(crate) fn configure_share(&mut self, snapshot: &Snapshot) {
        let settings = &snapshot.connections;
        let SharedState { memory, owners, .. } = &*self.state.shared;
        let max = memory.load(Ordering::Relaxed).min(settings.max as usize).div_ceil(owners.sharing());
        self.table.configure(max, settings.timeouts, settings.pickup);
    }

    /// Publishes to all workers which of this worker's connections a prepared change of the hash distribution would assign to others. Scans
    /// at most `most` slots from `first`, and returns where to continue.
    pub(crate) fn claim_strays(&mut self, first: u32, most: usize) -> Option<u32> {
        let Conntrack { table, state, .. } = self;
        table.scan(first, most, &mut |_, connection| {
            // If another worker has created a connection with this tuple meanwhile, the tuple stays with that worker.
            let _ = state.shared.claim(connection, state.worker);
        })
    }

    /// Advances the clock: ends connections that timed out and drops fragments that were held for too long.
    #[inline]
    pub(crate) fn advance(&mut self, now_ns: u64) {
        self.state.extras.numbers.advance(now_ns);
        let now_ms = now_ns / 1_000_000;
        // Several threads may read the host's clock; ours never goes back.
        self.state.now_ms = self.state.now_ms.max(now_ms);
        if !self.table.is_empty() {
            let Conntrack { table, state, .. } = self;
            table.advance(state.now_ms, &mut |connection, reason| state.closed(connection, reason));
            self.count();
        }
        if !self.held.is_empty() {
            self.held.age(self.state.now_ms);
            self.count_held();
        }
    }

    fn count(&mut self) {
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
            [self.table.len(), self.table.half_open(), self.table.places()].map(|count| count as u64);
        self.state.cells.connections_now(now, half_open, places);
    }

    /// A connection as listings show it.
    pub(crate) fn info(&self, id: ConnId, connection: &Connection) -> crate::connections::ConnectionInfo {
        self.state.info(id, connection, self.table.expires_ms(id, self.state.now_ms))
    }

    /// Whether packets must be looked up under a policy. They must as long as any worker has connections: a packet may belong to one of
    /// them.
    #[inline]
    pub(crate) fn is_needed(&self, snapshot: &Snapshot) -> bool {
        snapshot.stateful_rules > 0
            || snapshot.ct_rules > 0
            || self.state.shared.busy.load(Ordering::Relaxed) > 0
    }

    /// The slots of the connection's rules that the current policy still contains.
    #[inline]
    pub(crate) fn rules(&mut self, snapshot: &Snapshot, id: ConnId) -> &[u32] {
        let number = sources::rule_set(self.table.get(id));
        self.state.sets.live(snapshot, number)
    }

    /// Updates a connection for a packet that passes.
    ///
    /// # Errors
    /// The packet is out of window or otherwise invalid. It changed no state and is counted by kind only: see [`Conntrack::pass_invalid`].
    #[inline]
    pub(crate) fn touch(
        &mut self,
        id: ConnId,
        direction: Direction,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<(), Invalid> {
        let now = (self.state.now_ms, packet.len());
        let segment = key::segment(packet, layout).map(|segment| self.shifted(id, direction, segment));
        if self.table.touch_if_goes_on(id, direction, now, segment.as_ref()) {
            self.table.get_mut(id).arrivals.note(direction, packet.port);
            return Ok(());
        }
        self.touch_if_sound((id, direction), packet, layout)
    }

    #[inline(never)]
    fn touch_if_sound(
        &mut self,
        (id, direction): (ConnId, Direction),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<(), Invalid> {
        let signal = self.signal(id, direction, packet, layout);
        let now = (self.state.now_ms, packet.len());
        let soundness = || transport_soundness(packet.bytes(), layout);
        match self.table.touch_if_sound(id, direction, now, signal.as_ref(), soundness) {
            TcpOutcome::Invalid(kind) => {
                self.state.cells.count_invalid(kind);
                Err(kind)
            }
            TcpOutcome::Moves(_) | TcpOutcome::Stays => {
                self.table.get_mut(id).arrivals.note(direction, packet.port);
                Ok(())
            }
            TcpOutcome::Reopens | TcpOutcome::Noted => Ok(()),
        }
    }

    /// Counts a packet that passes although it is invalid for its connection.
    pub(crate) fn pass_invalid(&mut self, (id, direction): (ConnId, Direction), packet: &Packet<'_>) {
        self.table.count_invalid(id, direction, packet.len());
    }

    /// Records that a fragment without a transport header passes; it may complete its datagram. A fragment of TCP or SCTP is only counted: it
    /// has no sequence number or tag to check. A complete TCP datagram tells how far its sender came, if its header was valid. Fragments of
    /// other protocols keep their connection alive, but do not count as a reply: their checksum is that of the datagram.
    pub(crate) fn touch_fragment(
        &mut self,
        (id, direction): (ConnId, Direction),
        (at, complete): (usize, Option<Complete>),
        packet: &Packet<'_>,
        layout: &Layout,
    ) {
        let proto = self.table.get(id).proto();
        if matches!(proto, proto::TCP | proto::SCTP) {
            if let Some(Complete { len, seq }) = complete
                && let Some(seq) = seq.or_else(|| self.seq_of(at, packet, layout))
                && proto == proto::TCP
            {
                self.table.extend_sent(id, direction, seq, len);
            }
            return self.table.count_invalid(id, direction, packet.len());
        }
        let now = (self.state.now_ms, packet.len());
        self.table.touch_if_sound(id, direction, now, None, || Soundness::Unknown);
    }

    /// The header that tracking inspects. TCP numbers are as both ends count them.
    fn signal(
        &self,
        id: ConnId,
        direction: Direction,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Option<TrackedHeader> {
        Some(match key::signal(packet, layout)? {
            TrackedHeader::Tcp(segment) => TrackedHeader::Tcp(self.shifted(id, direction, segment)),
            other => other,
        })
    }

    /// A TCP header with the numbers that both ends count by: the acknowledgment is shifted back if the connection shifts sequence numbers.
    #[inline(always)]
    fn shifted(&self, id: ConnId, direction: Direction, mut segment: TcpSegment) -> TcpSegment {
        let extra = self.table.get(id).extra;
        if extra != 0 {
            segment.ack = segment.ack.wrapping_add(self.state.extras.get(extra).ack(direction));
        }
        segment
    }

    /// Ends a connection.
    pub(crate) fn end(&mut self, id: ConnId, reason: CloseReason) {
        let connection = self.table.remove(id);
        self.state.closed(&connection, reason);
        self.stale = true;
        self.count();
    }

    /// Ends the connection that a new one would replace, if it has timed out anyway.
    pub(crate) fn end_if_expired(&mut self, ends: Replaced) -> Replaced {
        let (id, reason) = ends?;
        if self.table.expires_ms(id, self.state.now_ms) > 0 {
            return ends;
        }
        self.end(id, reason);
        None
    }

    /// Whether packets of a connection are rewritten.
    #[inline]
    pub(crate) fn transforms(&self, id: ConnId) -> bool {
        let connection = self.table.get(id);
        connection.is_translated() || connection.extra != 0
    }

    /// How packets of a connection are rewritten in one direction.
    #[inline]
    pub(crate) fn transform(&self, id: ConnId, direction: Direction) -> NatTransform {
        let connection = self.table.get(id);
        let to = connection.translated(direction);
        let mut transform = NatTransform::default();
        if let Some(to) = to {
            let from = connection.tuple(direction);
            for side in 0..2 {
                transform.translation.addresses[side] =
                    (from.addresses[side] != to.addresses[side]).then_some(to.addresses[side]);
                transform.translation.ports[side] =
                    (from.ports[side] != to.ports[side]).then_some(to.ports[side]);
            }
        }
        if connection.extra != 0 {
            let extra = self.state.extras.get(connection.extra);
            extra.add_to(&mut transform.translation, direction);
            transform.hairpin = extra.hairpin.map(|macs| macs[direction as usize]);
        }
        transform
    }
}
