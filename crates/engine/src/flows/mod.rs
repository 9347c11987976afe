//! Connections in the pipeline: which packet is of which connection, what it gets for that, and what ends one.
//!
//! Purpose: [`Flows`] is a worker's table of connections with all that hangs on them. The connections stage tells of each packet of
//! a vector how it stands to them ([`Flows::relate`]); the verdict stage then makes connections ([`Flows::open`]), keeps them
//! going ([`Flows::touch`]) and asks how packets are translated ([`Flows::turn`]).
//!
//! A connection has the stateful rules that its first packet matched (`sets`), and from them a translation: its reply tuple is not
//! its own tuple reversed, and what no tuple says (sequence numbers, identification, flow label) is in an extra (`extra`). A policy that
//! comes later takes rules away from connections, never a translation: the two ends would not know each other any more.
//!
//! Life-cycle: belongs to a worker, which alone touches it. The control side sends it tasks, which run between vectors
//! (`connections`).

mod begin;
mod checked;
mod common;
mod errors;
mod extra;
mod fragments;
mod isn;
mod look;
mod neighbours;
mod owners;
mod pauses;
mod plans;
mod ports;
mod relate;
pub(crate) mod saved;
mod sets;
mod sources;
mod stateful;
mod validity;

pub(crate) use common::{Common, Keeper};
pub(crate) use plans::Decision;
pub(crate) use relate::is_link_scope;
pub(crate) use stateful::{Stateful, is_constant, is_mapping};
pub(crate) use validity::Judgement;

use crate::cells::WorkerCells;
use crate::drop::DropReason;
use crate::snapshot::Snapshot;
use crate::worker::VECTOR;
use extra::Extras;
use isn::SequenceNumbers;
use look::Lookups;
use mmb_conn::fragment::{Complete, FragmentKey, Fragments, Held, Losses};
use mmb_conn::{
    CloseReason, ConnId, Connection, Cursor, Direction, Invalid, Judged, Segment, Signal, Table, proto,
};
use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_packet::{Layout, Packet};
use mmb_policy::CtState;
use mmb_policy::policy::InvalidPackets;
use mmb_random::{Purpose, SeedTree};
use mmb_rewrite::Translation;
use pauses::Pauses;
use plans::Plans;
use sets::RuleSets;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

/// Datagrams whose fragments are followed at once, and for how long at most (RFC 8200 section 4.5 has a host wait a minute; what
/// comes apart on one path comes within seconds).
const DATAGRAMS: usize = 4096;
const FRAGMENT_AGE_MS: u64 = 15_000;
/// Fragments that wait for their first one at once, and the bytes of all of them.
const HELD: u16 = 4096;
const HELD_BYTES: usize = 4 << 20;

/// The connection that ends when the one of a packet begins, and why.
pub(crate) type Ends = Option<(ConnId, CloseReason)>;

/// How a packet stands to connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Standing {
    /// It is of none, and makes none.
    Apart,
    /// It is of none, and may make one.
    New,
    /// It is of none, and can make none.
    Invalid(Invalid),
    /// It is of this one.
    Member(ConnId, Direction),
    /// It is a fragment without a transport header of this one; as [`Sort::Fragment`](relate::Sort::Fragment).
    Fragment(ConnId, Direction, Option<Complete>),
    /// It is an ICMP error about a packet of this one that went the other way.
    Error(ConnId, Direction, QuotedAt),
    /// It belongs to another worker.
    Elsewhere(usize),
    /// It must not pass.
    Refused(DropReason),
    /// It waits for its datagram's first fragment, in this place.
    Held(u16),
}

/// Where the packet lies that an ICMP error quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotedAt {
    pub(crate) proto: u8,
    pub(crate) ip: u16,
    pub(crate) l4: u16,
}

/// What is done to a packet for its connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    pub(crate) translation: Translation,
    /// It goes back by the port that it came by, to this Ethernet address.
    pub(crate) hairpin: Option<[u8; 6]>,
}

/// Whoever watches connections.
pub(crate) struct Watcher {
    pub(crate) events: SyncSender<crate::connections::Event>,
    /// Events that found no room in its queue. Also what it is known by.
    pub(crate) lost: Arc<AtomicU64>,
}

/// A worker's connections.
pub(crate) struct Flows {
    pub(crate) table: Table,
    pub(crate) keeper: Keeper,
    fragments: Fragments,
    /// Those that came before the first one of their datagram.
    held: Held,
    sought: Lookups,
    standings: Box<[Standing; VECTOR]>,
    /// How rules saw the packets, where some ask.
    states: Box<[CtState; VECTOR]>,
    pub(crate) plans: Plans,
    /// The packets' plans, 0 for those that have none.
    planned: Box<[u32; VECTOR]>,
    /// What was found for each of `sought`.
    found: Vec<Option<(ConnId, Direction)>>,
    /// A connection came or went since the vector was looked up: what was found may be wrong.
    stale: bool,
    /// Datagrams whose first fragment came in this vector and did not pass.
    refused: Vec<FragmentKey>,
    /// TCP datagrams whose first fragment was believed in this vector, with the sequence number of the byte at offset 0.
    numbered: Vec<(FragmentKey, u32)>,
    /// Packets that were held, and lost since the host asked for these numbers.
    pub(crate) lost: Losses,
    /// Some packets of the vector need no classifying.
    some_settled: bool,
    /// Searches for a port that another connection could give up, which found none.
    pauses: Pauses,
    /// Where the last search for such a connection came to.
    cursor: Cursor,
    /// The worker counts among those that have connections.
    busy: bool,
    /// `set conn invalid drop`.
    drops_invalid: bool,
}

impl Flows {
    pub(crate) fn new(
        worker: usize,
        common: Arc<Common>,
        cells: Arc<WorkerCells>,
        seeds: &SeedTree,
    ) -> Flows {
        let seed = |purpose| seeds.of_worker(purpose, worker);
        Flows {
            table: Table::new(seed(Purpose::ConnectionIndex)),
            keeper: Keeper {
                worker,
                sets: RuleSets::default(),
                common,
                extras: Extras::new(
                    seed(Purpose::HeaderChoices),
                    SequenceNumbers::new(seeds.shared(Purpose::SequenceNumbers)),
                ),
                cells,
                watchers: Vec::new(),
                per_source: None,
                now_ms: 0,
            },
            fragments: Fragments::new(seed(Purpose::FragmentIndex), DATAGRAMS, FRAGMENT_AGE_MS),
            held: Held::new(seed(Purpose::HeldFragmentIndex), FRAGMENT_AGE_MS, HELD, HELD_BYTES),
            sought: Lookups::new(),
            standings: Box::new([Standing::Apart; VECTOR]),
            states: Box::new([CtState::Untracked; VECTOR]),
            plans: Plans::default(),
            planned: Box::new([0; VECTOR]),
            found: Vec::with_capacity(VECTOR),
            stale: false,
            refused: Vec::with_capacity(VECTOR),
            numbered: Vec::with_capacity(VECTOR),
            lost: Losses::default(),
            some_settled: false,
            pauses: Pauses::new(),
            cursor: Cursor::default(),
            busy: false,
            drops_invalid: false,
        }
    }

    /// Takes over the settings of a policy.
    pub(crate) fn fit(&mut self, snapshot: &Snapshot) {
        self.plans.renew(snapshot.generation);
        self.fit_share(snapshot);
        let settings = &snapshot.connections;
        self.keeper.per_source = settings.per_source;
        self.drops_invalid = settings.invalid == InvalidPackets::Drop;
        self.keeper.common.nat().configure(settings);
        if snapshot.stateful_rules > 0 {
            self.held.prepare();
        } else {
            // Whose they are does not matter any more.
            self.held.release_all();
        }
    }

    /// Has room for this worker's share of the connections that there may be.
    pub(crate) fn fit_share(&mut self, snapshot: &Snapshot) {
        let settings = &snapshot.connections;
        let Common { memory, owners, .. } = &*self.keeper.common;
        let max = memory.load(Ordering::Relaxed).min(settings.max as usize).div_ceil(owners.sharing());
        self.table.configure(max, settings.timeouts, settings.pickup);
    }

    /// Tells all workers which of this worker's connections it has, where a change of shares that is prepared gives them to others. Looks at so
    /// many from a place on, and returns where to go on.
    pub(crate) fn claim_strays(&mut self, first: u32, most: usize) -> Option<u32> {
        let Flows { table, keeper, .. } = self;
        table.scan(first, most, &mut |_, connection| {
            // What another worker has made meanwhile is that one's.
            let _ = keeper.common.claim(connection, keeper.worker);
        })
    }

    /// Lets the time go on: ends what was idle for too long, and what waited for too long.
    #[inline]
    pub(crate) fn advance(&mut self, now_ns: u64) {
        self.keeper.extras.numbers.advance(now_ns);
        let now_ms = now_ns / 1_000_000;
        // A host's clock may be read by several threads; ours never goes back.
        self.keeper.now_ms = self.keeper.now_ms.max(now_ms);
        if !self.table.is_empty() {
            let Flows { table, keeper, .. } = self;
            table.advance(keeper.now_ms, &mut |connection, reason| keeper.closed(connection, reason));
            self.count();
        }
        if !self.held.is_empty() {
            self.held.age(self.keeper.now_ms);
            self.count_held();
        }
    }

    fn count(&mut self) {
        let busy = !self.table.is_empty();
        if std::mem::replace(&mut self.busy, busy) != busy {
            let workers = &self.keeper.common.busy;
            _ = if busy {
                workers.fetch_add(1, Ordering::Relaxed)
            } else {
                workers.fetch_sub(1, Ordering::Relaxed)
            };
        }
        let [now, half_open, places] =
            [self.table.len(), self.table.half_open(), self.table.places()].map(|count| count as u64);
        self.keeper.cells.connections_now(now, half_open, places);
    }

    /// A connection for people.
    pub(crate) fn info(&self, id: ConnId, connection: &Connection) -> crate::connections::ConnectionInfo {
        self.keeper.info(id, connection, self.table.expires_ms(id, self.keeper.now_ms))
    }

    /// Whether packets have to be looked at under a policy: they may be of another worker's connections.
    #[inline]
    pub(crate) fn concerns(&self, snapshot: &Snapshot) -> bool {
        snapshot.stateful_rules > 0
            || snapshot.ct_rules > 0
            || self.keeper.common.busy.load(Ordering::Relaxed) > 0
    }

    /// The slots of the rules that a connection has and the policy still knows.
    #[inline]
    pub(crate) fn rules(&mut self, snapshot: &Snapshot, id: ConnId) -> &[u32] {
        let number = sources::rule_set(self.table.get(id));
        self.keeper.sets.live(snapshot, number)
    }

    /// Notes that a packet of a connection passes.
    ///
    /// # Errors
    /// The packet is not believed. It changed nothing and is counted by kind only: see [`Flows::pass_invalid`].
    #[inline]
    pub(crate) fn touch(
        &mut self,
        id: ConnId,
        direction: Direction,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<(), Invalid> {
        let now = (self.keeper.now_ms, packet.len());
        let segment = relate::segment(packet, layout).map(|segment| self.shifted(id, direction, segment));
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
        let now = (self.keeper.now_ms, packet.len());
        let soundness = || transport_soundness(packet.bytes(), layout);
        match self.table.touch_if_sound(id, direction, now, signal.as_ref(), soundness) {
            Judged::Invalid(kind) => {
                self.keeper.cells.count_invalid(kind);
                Err(kind)
            }
            Judged::Moves(_) | Judged::Stays => {
                self.table.get_mut(id).arrivals.note(direction, packet.port);
                Ok(())
            }
            Judged::Reopens | Judged::Noted => Ok(()),
        }
    }

    /// A packet that its connection does not believe passes all the same.
    pub(crate) fn pass_invalid(&mut self, (id, direction): (ConnId, Direction), packet: &Packet<'_>) {
        self.table.count_invalid(id, direction, packet.len());
    }

    /// A fragment without a transport header passes; it may complete its datagram. One of TCP or SCTP is only counted: it has no tag or number
    /// by which to believe it. A TCP datagram that is complete tells how far its sender came, if its header was believed. Fragments of others
    /// keep their connection alive, but answer nothing: their checksum is their datagram's.
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
                self.table.sent(id, direction, seq, len);
            }
            return self.table.count_invalid(id, direction, packet.len());
        }
        let now = (self.keeper.now_ms, packet.len());
        self.table.touch_if_sound(id, direction, now, None, || Soundness::Unknown);
    }

    /// What tracking looks at, a TCP header as both ends count.
    fn signal(
        &self,
        id: ConnId,
        direction: Direction,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Option<Signal> {
        Some(match relate::signal(packet, layout)? {
            Signal::Tcp(segment) => Signal::Tcp(self.shifted(id, direction, segment)),
            other => other,
        })
    }

    /// A TCP header as both ends count: acknowledgments are undone if the connection shifts numbers.
    #[inline(always)]
    fn shifted(&self, id: ConnId, direction: Direction, mut segment: Segment) -> Segment {
        let extra = self.table.get(id).extra;
        if extra != 0 {
            segment.ack = segment.ack.wrapping_add(self.keeper.extras.get(extra).ack(direction));
        }
        segment
    }

    /// Ends a connection.
    pub(crate) fn end(&mut self, id: ConnId, reason: CloseReason) {
        let connection = self.table.remove(id);
        self.keeper.closed(&connection, reason);
        self.stale = true;
        self.count();
    }

    /// Ends a connection that is to end when another one begins, if its time is up anyway.
    pub(crate) fn end_if_up(&mut self, ends: Ends) -> Ends {
        let (id, reason) = ends?;
        if self.table.expires_ms(id, self.keeper.now_ms) > 0 {
            return ends;
        }
        self.end(id, reason);
        None
    }

    /// Whether packets of a connection are changed for it.
    #[inline]
    pub(crate) fn turns(&self, id: ConnId) -> bool {
        let connection = self.table.get(id);
        connection.is_translated() || connection.extra != 0
    }

    /// What packets of a connection get in one direction.
    #[inline]
    pub(crate) fn turn(&self, id: ConnId, direction: Direction) -> Turn {
        let connection = self.table.get(id);
        let to = connection.translated(direction);
        let mut turn = Turn::default();
        if let Some(to) = to {
            let from = connection.tuple(direction);
            for side in 0..2 {
                turn.translation.addresses[side] =
                    (from.addresses[side] != to.addresses[side]).then_some(to.addresses[side]);
                turn.translation.ports[side] = (from.ports[side] != to.ports[side]).then_some(to.ports[side]);
            }
        }
        if connection.extra != 0 {
            let extra = self.keeper.extras.get(connection.extra);
            extra.add_to(&mut turn.translation, direction);
            turn.hairpin = extra.hairpin.map(|macs| macs[direction as usize]);
        }
        turn
    }
}
