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
mod common;
mod extra;
mod fragments;
mod look;
mod owners;
mod plans;
mod relate;
pub(crate) mod saved;
mod sets;
mod stateful;

pub(crate) use common::{Common, Keeper};
pub(crate) use plans::Decision;
pub(crate) use stateful::{Stateful, is_constant, is_mapping};

use crate::cells::WorkerCells;
use crate::drop::DropReason;
use crate::snapshot::Snapshot;
use crate::worker::VECTOR;
use extra::Extras;
use look::Lookups;
use mmb_conn::fragment::{FragmentKey, Fragments, Held, Losses};
use mmb_conn::{CloseReason, ConnId, Connection, Direction, Judged, Segment, Table};
use mmb_packet::{Layout, Packet};
use mmb_rewrite::Translation;
use plans::Plans;
use sets::RuleSets;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

/// Datagrams whose fragments are followed at once, and for how long at most (RFC 8200 section 4.5 has a host wait a minute; what
/// comes apart on one path comes within seconds).
const DATAGRAMS: usize = 4096;
const FRAGMENT_AGE_MS: u64 = 15_000;
/// Fragments that wait for their first one at once, and the bytes of all of them.
const HELD: u16 = 4096;
const HELD_BYTES: usize = 4 << 20;

/// How a packet stands to connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Standing {
    /// It is of none, and makes none.
    Apart,
    /// It is of none, and may make one.
    New,
    /// It is of this one.
    Member(ConnId, Direction),
    /// It is a fragment without a transport header of this one.
    Fragment(ConnId, Direction),
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

/// Something that happened to a connection.
pub(crate) type Watcher = SyncSender<crate::connections::Event>;

/// A worker's connections.
pub(crate) struct Flows {
    pub(crate) table: Table,
    pub(crate) keeper: Keeper,
    fragments: Fragments,
    /// Those that came before the first one of their datagram.
    held: Held,
    sought: Lookups,
    standings: Box<[Standing; VECTOR]>,
    pub(crate) plans: Plans,
    /// The packets' plans, 0 for those that have none.
    planned: Box<[u32; VECTOR]>,
    /// What was found for each of `sought`.
    found: Vec<Option<(ConnId, Direction)>>,
    /// A connection came or went since the vector was looked up: what was found may be wrong.
    stale: bool,
    /// Datagrams whose first fragment came in this vector and did not pass.
    refused: Vec<FragmentKey>,
    /// Packets that were held, and lost since the host asked for these numbers.
    pub(crate) lost: Losses,
    /// Some packets of the vector need no classifying.
    some_settled: bool,
    /// The worker counts among those that have connections.
    busy: bool,
}

impl Flows {
    pub(crate) fn new(worker: usize, common: Arc<Common>, cells: Arc<WorkerCells>, seed: u64) -> Flows {
        let seed = seed ^ (worker as u64).rotate_left(17);
        Flows {
            table: Table::new(seed),
            keeper: Keeper {
                worker,
                sets: RuleSets::default(),
                common,
                extras: Extras::new(seed),
                cells,
                watchers: Vec::new(),
                now_ms: 0,
            },
            fragments: Fragments::new(seed, DATAGRAMS, FRAGMENT_AGE_MS),
            held: Held::new(seed, FRAGMENT_AGE_MS, HELD, HELD_BYTES),
            sought: Lookups::new(),
            standings: Box::new([Standing::Apart; VECTOR]),
            plans: Plans::default(),
            planned: Box::new([0; VECTOR]),
            found: Vec::with_capacity(VECTOR),
            stale: false,
            refused: Vec::with_capacity(VECTOR),
            lost: Losses::default(),
            some_settled: false,
            busy: false,
        }
    }

    /// Takes over the settings of a policy.
    pub(crate) fn fit(&mut self, snapshot: &Snapshot) {
        self.plans.renew(snapshot.generation);
        let settings = &snapshot.connections;
        let max = (settings.max as usize).div_ceil(self.keeper.common.owners.workers());
        self.table.configure(max, settings.timeouts, settings.pickup);
        self.keeper.common.nat().configure(settings);
        if snapshot.stateful_rules > 0 {
            self.held.prepare();
        } else {
            // Whose they are does not matter any more.
            self.held.release_all();
        }
    }

    /// Lets the time go on: ends what was idle for too long, and what waited for too long.
    #[inline]
    pub(crate) fn advance(&mut self, now_ms: u64) {
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
        self.keeper.cells.connections_now(self.table.len() as u64, self.table.half_open() as u64);
    }

    /// A connection for people.
    pub(crate) fn info(&self, id: ConnId, connection: &Connection) -> crate::connections::ConnectionInfo {
        self.keeper.info(id, connection, self.table.expires_ms(id, self.keeper.now_ms))
    }

    /// Whether packets have to be looked at under a policy: they may be of another worker's connections.
    #[inline]
    pub(crate) fn concerns(&self, snapshot: &Snapshot) -> bool {
        snapshot.stateful_rules > 0 || self.keeper.common.busy.load(Ordering::Relaxed) > 0
    }

    /// The slots of the rules that a connection has and the policy still knows.
    #[inline]
    pub(crate) fn rules(&mut self, snapshot: &Snapshot, id: ConnId) -> &[u32] {
        let number = self.table.get(id).rules;
        self.keeper.sets.live(snapshot, number)
    }

    /// Whether a packet of a connection begins another between the same ends: the old one has had its time.
    pub(crate) fn reopens(
        &self,
        at: usize,
        (id, direction): (ConnId, Direction),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> bool {
        let now_ms = self.keeper.now_ms;
        if self.is_steady(at) && self.table.expires_ms(id, now_ms) > 0 {
            return false;
        }
        let segment = self.segment(id, direction, packet, layout);
        self.table.reopens(id, direction, now_ms, segment.as_ref())
    }

    /// Notes that a packet of a connection passes.
    #[inline]
    pub(crate) fn touch(&mut self, id: ConnId, direction: Direction, packet: &Packet<'_>, layout: &Layout) {
        let segment = self.segment(id, direction, packet, layout);
        let judged = self.table.touch(id, direction, self.keeper.now_ms, packet.len(), segment.as_ref());
        if judged == Judged::OutOfWindow {
            self.keeper.cells.out_of_window();
        }
    }

    /// A fragment without a transport header passes.
    pub(crate) fn touch_fragment(&mut self, id: ConnId, direction: Direction, packet: &Packet<'_>) {
        self.table.touch(id, direction, self.keeper.now_ms, packet.len(), None);
    }

    /// The TCP header as both ends count: acknowledgments are undone if the connection shifts numbers.
    #[inline]
    fn segment(
        &self,
        id: ConnId,
        direction: Direction,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Option<Segment> {
        let mut segment = relate::segment(packet, layout)?;
        let extra = self.table.get(id).extra;
        if extra != 0 {
            segment.ack = segment.ack.wrapping_add(self.keeper.extras.get(extra).ack(direction));
        }
        Some(segment)
    }

    /// Ends a connection.
    pub(crate) fn end(&mut self, id: ConnId, reason: CloseReason) {
        let connection = self.table.remove(id);
        self.keeper.closed(&connection, reason);
        self.stale = true;
        self.count();
    }

    /// What packets of a connection get in one direction; `None` if nothing.
    #[inline]
    pub(crate) fn turn(&self, id: ConnId, direction: Direction) -> Option<Turn> {
        let connection = self.table.get(id);
        let to = connection.translated(direction);
        if to.is_none() && connection.extra == 0 {
            return None;
        }
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
        Some(turn)
    }
}
