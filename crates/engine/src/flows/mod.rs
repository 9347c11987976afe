//! Connections in the pipeline: which packet is of which connection, what it gets for that, and what ends one.
//!
//! Purpose: [`Flows`] is a worker's table of connections with all that hangs on them. The connections stage tells of each packet of
//! a vector how it stands to them ([`Flows::relate`]); the verdict stage then makes connections ([`Flows::open`]), keeps them
//! going ([`Flows::touch`]) and asks how packets are translated ([`Flows::translation`]).
//!
//! A connection has the stateful rules that its first packet matched (`sets`), and from them a translation: its reply tuple is not
//! its own tuple reversed, and what no tuple says (sequence numbers, identification, flow label) is in an [`Extra`]. A policy that
//! comes later takes rules away from connections, never a translation: the two ends would not know each other any more.
//!
//! Life-cycle: belongs to a worker, which alone touches it. The control side sends it tasks, which run between vectors
//! (`connections`).

mod extra;
mod owners;
mod plans;
mod relate;
pub(crate) mod saved;
mod sets;
mod stateful;

pub(crate) use owners::Owners;
pub(crate) use plans::Decision;
pub(crate) use stateful::{Stateful, is_constant, is_mapping};

use crate::cells::WorkerCells;
use crate::drop::DropReason;
use crate::snapshot::Snapshot;
use crate::worker::{VECTOR, Verdict};
use extra::Extras;
use mmb_classify::prefetch;
use mmb_conn::fragment::{FragmentDrop, FragmentVerdict, Fragments, Later};
use mmb_conn::nat::{self, Filtering, Mapping, Nat, NatSettings, Translated};
use mmb_conn::{
    CloseReason, ConnId, Connection, DESTINATION, Direction, Judged, Segment, Table, Timeouts, Tuple,
};
use mmb_packet::checksum::{ICMP, ICMP6};
use mmb_packet::{Class, Layout, LinkType, Malformed, Packet};
use mmb_policy::policy as settings;
use mmb_rewrite::Translation;
use plans::Plans;
use relate::{Relation, relation};
use saved::Saved;
use sets::RuleSets;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Datagrams whose fragments are followed at once, and for how long at most (RFC 8200 section 4.5 has a host wait a minute; what
/// comes apart on one path comes within seconds).
const DATAGRAMS: usize = 4096;
const FRAGMENT_AGE_MS: u64 = 15_000;

/// That of a packet which was not looked up: there is no such family.
const NO_TUPLE: Tuple = Tuple { addresses: [0; 2], ports: [0; 2], wire: 0, proto: 0, family: 0 };

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
}

/// Where the packet lies that an ICMP error quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotedAt {
    pub(crate) proto: u8,
    pub(crate) ip: usize,
    pub(crate) l4: usize,
}

/// What is done to a packet for its connection.
#[derive(Clone, Copy, Debug)]
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
    now_ms: u64,
    /// The packets' tuples, [`NO_TUPLE`] for those that have none.
    tuples: Box<[Tuple; VECTOR]>,
    standings: Box<[Standing; VECTOR]>,
    pub(crate) plans: Plans,
    /// The packets' plans, 0 for those that have none.
    planned: Box<[u32; VECTOR]>,
    /// Tuples that are looked up together, what was found, and the packets that they are of.
    asked: Vec<Tuple>,
    found: Vec<Option<(ConnId, Direction)>>,
    of: Vec<u8>,
    /// A connection came or went since the vector was looked up: what was found may be wrong.
    stale: bool,
    /// The worker counts among those that have connections.
    busy: bool,
}

/// What the workers of an engine share. It is locked when a connection with a translation begins or ends, and for packets that
/// belong elsewhere: never for those of a worker's own connections.
pub(crate) struct Common {
    nat: Mutex<Nat>,
    /// How many inside ends have an outside end.
    bindings: AtomicUsize,
    /// How many workers have connections.
    busy: AtomicUsize,
    owners: Owners,
}

impl Common {
    /// What so many workers share.
    pub(crate) fn new(workers: usize, seed: u64) -> Common {
        Common {
            nat: Mutex::new(Nat::new(seed)),
            bindings: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            owners: Owners::new(workers, seed),
        }
    }

    fn nat(&self) -> MutexGuard<'_, Nat> {
        self.nat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a connection held is not held any more.
    fn release(&self, binding: u32) {
        if binding != 0 {
            let mut nat = self.nat();
            nat.release(binding);
            self.bindings.store(nat.len(), Ordering::Relaxed);
        }
    }

    /// The worker that a connection with this tuple belongs to.
    pub(crate) fn owner(&self, tuple: &Tuple) -> usize {
        self.owners.of(tuple)
    }

    /// Forgets a rule that is gone.
    pub(crate) fn forget(&self, stamp: u64) {
        self.nat().forget(stamp as u32);
    }
}

/// What hangs on connections, and is let go of when they end.
pub(crate) struct Keeper {
    pub(crate) worker: usize,
    pub(crate) sets: RuleSets,
    common: Arc<Common>,
    extras: Extras,
    cells: Arc<WorkerCells>,
    pub(crate) watchers: Vec<Watcher>,
    pub(crate) now_ms: u64,
}

impl Keeper {
    /// A connection has ended.
    fn closed(&mut self, connection: &Connection, reason: CloseReason) {
        self.tell(connection, Some(reason));
        self.common.release(connection.binding);
        if self.common.owners.workers() > 1 {
            self.common.owners.let_go(&connection.tuple(Direction::Reply), self.worker);
        }
        self.extras.free(connection.extra);
        self.sets.leave(connection.rules);
        self.cells.connection_closed(reason);
    }

    /// Tells whoever watches.
    fn tell(&mut self, connection: &Connection, closed: Option<CloseReason>) {
        if self.watchers.is_empty() {
            return;
        }
        let event = crate::connections::Event {
            created: closed.is_none(),
            reason: closed.map(CloseReason::name),
            info: self.info(ConnId(0), connection, 0),
        };
        let cells = &self.cells;
        self.watchers.retain(|watcher| match watcher.try_send(event.clone()) {
            Ok(()) => true,
            Err(std::sync::mpsc::TrySendError::Full(_)) => {
                cells.event_lost();
                true
            }
            Err(std::sync::mpsc::TrySendError::Disconnected(_)) => false,
        });
    }

    /// A connection for people.
    pub(crate) fn info(
        &self,
        id: ConnId,
        connection: &Connection,
        expires_ms: u64,
    ) -> crate::connections::ConnectionInfo {
        crate::connections::ConnectionInfo::new(
            self.worker,
            id,
            connection,
            (self.now_ms, expires_ms),
            self.sets.rules(connection.rules).map(|rule| rule.id).collect(),
        )
    }
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
            now_ms: 0,
            tuples: Box::new([NO_TUPLE; VECTOR]),
            standings: Box::new([Standing::Apart; VECTOR]),
            plans: Plans::default(),
            planned: Box::new([0; VECTOR]),
            asked: Vec::with_capacity(VECTOR),
            found: Vec::with_capacity(VECTOR),
            of: Vec::with_capacity(VECTOR),
            stale: false,
            busy: false,
        }
    }

    /// Takes over the settings of a policy.
    pub(crate) fn fit(&mut self, snapshot: &Snapshot) {
        self.plans.renew(snapshot.generation);
        let settings = &snapshot.connections;
        let pickup = match settings.pickup {
            settings::Pickup::Loose => mmb_conn::Pickup::Loose,
            settings::Pickup::Strict => mmb_conn::Pickup::Strict,
        };
        let max = (settings.max as usize).div_ceil(self.keeper.common.owners.workers());
        self.table.configure(max, timeouts(&settings.timeouts), pickup);
        let filtering = match settings.nat_filtering {
            settings::NatFiltering::EndpointIndependent => Filtering::EndpointIndependent,
            settings::NatFiltering::AddressDependent => Filtering::AddressDependent,
            settings::NatFiltering::AddressAndPortDependent => Filtering::AddressAndPortDependent,
        };
        self.keeper.common.nat().configure(NatSettings {
            filtering,
            parity: settings.nat_parity,
            contiguity: settings.nat_contiguity,
        });
    }

    /// Lets the time go on: ends what was idle for too long.
    #[inline]
    pub(crate) fn advance(&mut self, now_ms: u64) {
        // A host's clock may be read by several threads; ours never goes back.
        self.now_ms = self.now_ms.max(now_ms);
        self.keeper.now_ms = self.now_ms;
        if !self.table.is_empty() {
            let Flows { table, keeper, .. } = self;
            table.advance(self.now_ms, &mut |connection, reason| keeper.closed(connection, reason));
            self.count();
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
        self.keeper.info(id, connection, self.table.expires_ms(id, self.now_ms))
    }

    /// Whether packets have to be looked at under a policy: they may be of another worker's connections.
    #[inline]
    pub(crate) fn concerns(&self, snapshot: &Snapshot) -> bool {
        snapshot.stateful_rules > 0 || self.keeper.common.busy.load(Ordering::Relaxed) > 0
    }

    /// Finds out how each packet of a vector stands to connections.
    pub(crate) fn relate(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        layouts: &[Layout],
        verdicts: &[Verdict],
        handed: bool,
    ) {
        self.stale = false;
        self.asked.clear();
        self.of.clear();
        let rows = packets.iter().zip(layouts).zip(verdicts).enumerate();
        for (at, ((packet, layout), verdict)) in rows {
            self.standings[at] = Standing::Apart;
            self.tuples[at] = NO_TUPLE;
            let route = snapshot.route(packet.port);
            if !route.enabled || layout.class == Class::Other || matches!(verdict, Verdict::Drop(_)) {
                continue;
            }
            let wire = Tuple::wire(packet.port, route.peer.map(|(peer, _)| peer));
            let tuple = match relation(packet, layout, wire) {
                Relation::None => continue,
                Relation::Flow(tuple) => match self.first_fragment(packet, layout, &tuple) {
                    Some(reason) => {
                        self.standings[at] = Standing::Refused(reason);
                        continue;
                    }
                    None => tuple,
                },
                Relation::Fragment(key) => match self.later_fragment(packet, layout, key, snapshot) {
                    Ok(Some(ports)) => {
                        Tuple { addresses: key.addresses, ports, wire, proto: key.proto, family: key.family }
                    }
                    Ok(None) => continue,
                    Err(reason) => {
                        self.standings[at] = Standing::Refused(reason);
                        continue;
                    }
                },
                Relation::Error(quoted, _) => Tuple { wire, ..quoted.tuple }.reversed(),
            };
            self.tuples[at] = tuple;
            self.asked.push(tuple);
            // A vector's packets are numbered in a byte.
            self.of.push(at as u8);
        }
        self.found.clear();
        self.found.resize(self.asked.len(), None);
        self.table.find_all(&self.asked, &mut self.found);
        for number in 0..self.of.len() {
            let at = usize::from(self.of[number]);
            self.standings[at] =
                standing(self.found[number], &packets[at], &layouts[at], self.tuples[at].wire);
        }
        if self.keeper.common.owners.workers() > 1 && !handed {
            self.look_elsewhere();
        }
    }

    /// Finds the plans of packets under a policy that allows of them, and has fetched what they will touch. Returns how many packets
    /// have one.
    ///
    /// A planned packet's connection cannot end within the vector: half-open ones and those that are over, which may have to make
    /// room, are not planned, nor are packets that may begin anew.
    pub(crate) fn plan(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>], layouts: &[Layout]) -> usize {
        self.planned[..packets.len()].fill(0);
        if !snapshot.is_constant() {
            return 0;
        }
        for &at in &self.of {
            let at = usize::from(at);
            let Standing::Member(id, direction) = self.standings[at] else { continue };
            let state = self.table.get(id).state;
            if state.is_half_open() || state.is_over() || layouts[at].is_fragment() {
                continue;
            }
            if let Some(plan) = self.plans.of(id, direction) {
                self.planned[at] = plan;
                if let Some(decision) = self.plans.decision(plan) {
                    prefetch(decision);
                }
            }
        }
        let cells = &snapshot.cells[self.keeper.worker];
        let mut planned = 0;
        for &at in &self.of {
            let at = usize::from(at);
            let Some(decision) = self.plans.decision(self.planned[at]) else { continue };
            let Standing::Member(id, _) = self.standings[at] else { continue };
            let begins = relate::begins(&packets[at], &layouts[at]);
            if decision.port != packets[at].port || begins || self.table.expires_ms(id, self.now_ms) == 0 {
                self.planned[at] = 0;
                continue;
            }
            planned += 1;
            self.plans.rules(decision).iter().take(4).for_each(|&slot| prefetch(cells.slot(slot)));
        }
        planned
    }

    /// The decision that is planned for a packet.
    #[inline]
    pub(crate) fn planned(&self, at: usize) -> Option<&Decision> {
        match self.planned[at] {
            0 => None,
            plan => self.plans.decision(plan),
        }
    }

    /// Finds out which of the packets that nothing was found for belong to other workers.
    fn look_elsewhere(&mut self) {
        for (&at, found) in self.of.iter().zip(&self.found) {
            let at = usize::from(at);
            if found.is_some() {
                continue;
            }
            let owner = self.keeper.common.owners.of(&self.tuples[at]);
            if owner != self.keeper.worker {
                self.standings[at] = Standing::Elsewhere(owner);
            }
        }
    }

    /// How a packet stands to connections now that those before it in the vector were worked on.
    #[inline]
    pub(crate) fn standing(&mut self, at: usize, packet: &Packet<'_>, layout: &Layout) -> Standing {
        let before = self.standings[at];
        let tuple = self.tuples[at];
        let looked_up = tuple.family != NO_TUPLE.family;
        if !self.stale || !looked_up || matches!(before, Standing::Elsewhere(_)) {
            return before;
        }
        standing(self.table.find(&tuple), packet, layout, tuple.wire)
    }

    /// How a packet stood to connections when the vector was looked up.
    #[inline]
    pub(crate) fn known(&self, at: usize) -> Standing {
        self.standings[at]
    }

    /// Remembers the ports of a first fragment.
    fn first_fragment(&mut self, packet: &Packet<'_>, layout: &Layout, tuple: &Tuple) -> Option<DropReason> {
        if !layout.is_fragment() {
            return None;
        }
        let bytes = packet.bytes();
        let key = relate::fragment_key(bytes, layout, tuple)?;
        let (_, len, _) = relate::fragment_place(bytes, layout)?;
        match self.fragments.first(self.now_ms, key, tuple.ports, len) {
            FragmentVerdict::Pass => None,
            FragmentVerdict::Drop(why) => Some(fragment_drop(why)),
        }
    }

    /// The ports of a later fragment; none if there is nothing to follow.
    fn later_fragment(
        &mut self,
        packet: &Packet<'_>,
        layout: &Layout,
        key: mmb_conn::fragment::FragmentKey,
        snapshot: &Snapshot,
    ) -> Result<Option<[u16; 2]>, DropReason> {
        let Some((offset, len, last)) = relate::fragment_place(packet.bytes(), layout) else {
            return Ok(None);
        };
        match self.fragments.later(self.now_ms, key, offset, len, last) {
            Later::Ports(ports) => Ok(Some(ports)),
            Later::Unknown if snapshot.stateful_rules > 0 => Err(DropReason::FragmentEarly),
            Later::Unknown => Ok(None),
            Later::Drop(why) => Err(fragment_drop(why)),
        }
    }

    /// The slots of the rules that a connection has and the policy still knows.
    #[inline]
    pub(crate) fn rules(&mut self, snapshot: &Snapshot, id: ConnId) -> &[u32] {
        let number = self.table.get(id).rules;
        self.keeper.sets.live(snapshot, number)
    }

    /// Notes that a packet of a connection passes. False if the connection ended by it, and the packet may begin another.
    #[inline]
    pub(crate) fn touch(
        &mut self,
        id: ConnId,
        direction: Direction,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> bool {
        let segment = self.segment(id, direction, packet, layout);
        match self.table.touch(id, direction, self.now_ms, packet.len(), segment.as_ref()) {
            Judged::Moves(_) | Judged::Stays => true,
            Judged::OutOfWindow => {
                self.keeper.cells.out_of_window();
                true
            }
            Judged::Reopens => {
                self.end(id, CloseReason::Finished);
                false
            }
        }
    }

    /// A fragment without a transport header passes.
    pub(crate) fn touch_fragment(&mut self, id: ConnId, direction: Direction, packet: &Packet<'_>) {
        self.table.touch(id, direction, self.now_ms, packet.len(), None);
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

    /// Makes a connection of a packet that matched these stateful rules, given by slot in the order in which their targets are
    /// applied. `at` is the packet's number in the vector.
    ///
    /// # Errors
    /// Why there is none; the packet is not to pass then.
    pub(crate) fn open(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        slots: &[u32],
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<(ConnId, Direction), DropReason> {
        let arrived = self.tuples[at];
        let rules = || slots.iter().filter_map(|&slot| snapshot.stateful(slot));
        let mut mapping = Mapping::default();
        for rule in rules().filter(|rule| rule.maps) {
            merge(&mut mapping, &rule.mapping);
        }
        let segment = relate::segment(packet, layout);
        let Flows { table, keeper, .. } = self;
        if rules().all(|rule| !rule.maps) && keeper.common.bindings.load(Ordering::Relaxed) == 0 {
            let extra = keeper.extras.make(rules(), &arrived, segment.as_ref(), None);
            let set = keeper.sets.enter(snapshot, slots);
            return self.enter(packet, segment.as_ref(), [arrived, arrived.reversed()], [set, 0, extra]);
        }
        let first = rules().next().map_or(0, |rule| rule.stamp as u32);
        let taken = |tuple: &Tuple| table.find(tuple).is_some();
        let mut hairpin = None;
        // A packet for an outside address of ours, from a side that has one itself, goes back to that side (RFC 4787 REQ-9).
        let mut nat = keeper.common.nat();
        let mut translated = nat.translate(first, &mapping, &arrived, &taken).map_err(refused)?;
        // A packet for an outside end of ours, from a side that has one itself, goes back to that side (RFC 4787 REQ-9).
        if let Some(inside) = owner(&nat, &translated.sent)
            && let (Some(to), Some(from)) =
                (keeper.extras.neighbour(arrived.wire, inside), source_mac(packet))
        {
            let outside = translated.sent;
            translated = nat.enter(translated);
            if translated.sent != outside && mapping.saddr.is_some() {
                hairpin = Some([to, from]);
            }
        }
        keeper.common.bindings.store(nat.len(), Ordering::Relaxed);
        drop(nat);
        let Translated { sent, binding } = translated;
        if mapping.saddr.is_some()
            && let Some(mac) = source_mac(packet)
        {
            keeper.extras.learn(arrived.wire, arrived.addresses[0], mac);
        }
        let extra = keeper.extras.make(rules(), &arrived, segment.as_ref(), hairpin);
        let set = keeper.sets.enter(snapshot, slots);
        self.enter(packet, segment.as_ref(), [arrived, sent.reversed()], [set, binding, extra])
    }

    /// Makes a connection of a packet that matched no stateful rule, but comes to an outside end of ours from whom it may (RFC 4787
    /// REQ-8); none if it does not.
    pub(crate) fn admit(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Option<(ConnId, Direction)> {
        let common = &self.keeper.common;
        if common.bindings.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let arrived = self.tuples[at];
        let Translated { sent, binding } = common.nat().enter(Translated { sent: arrived, binding: 0 });
        if sent == arrived {
            return None;
        }
        let segment = relate::segment(packet, layout);
        let set = self.keeper.sets.enter(snapshot, &[]);
        self.enter(packet, segment.as_ref(), [arrived, sent.reversed()], [set, binding, 0]).ok()
    }

    /// Puts a connection into the table with its first packet; `holds` are its rules, binding and extra.
    fn enter(
        &mut self,
        packet: &Packet<'_>,
        segment: Option<&Segment>,
        [arrived, reply]: [Tuple; 2],
        [set, binding, extra]: [u32; 3],
    ) -> Result<(ConnId, Direction), DropReason> {
        let Flows { table, keeper, .. } = self;
        let made = table.insert(self.now_ms, arrived, reply, segment, &mut |connection, reason| {
            keeper.closed(connection, reason);
        });
        self.stale = true;
        let id = self.settle(made, [set, binding, extra], &reply)?;
        self.table.touch(id, Direction::Forward, self.now_ms, packet.len(), segment);
        self.keeper.tell(self.table.get(id), None);
        Ok((id, Direction::Forward))
    }

    /// A connection for a file.
    pub(crate) fn saved(&self, connection: &Connection) -> Saved {
        let rules = self.keeper.sets.rules(connection.rules).map(|rule| rule.id).collect();
        Saved::of(connection, self.now_ms, *self.keeper.extras.get(connection.extra), rules)
    }

    /// Makes a connection that another daemon had. `slots` are those of its rules that this one knows.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(crate) fn restore(
        &mut self,
        snapshot: &Snapshot,
        saved: &Saved,
        slots: &[u32],
    ) -> Result<(), DropReason> {
        let [arrived, reply] = saved.connection.tuples;
        let mut mapping = Mapping::default();
        for rule in slots.iter().filter_map(|&slot| snapshot.stateful(slot)) {
            merge(&mut mapping, &rule.mapping);
        }
        let Flows { table, keeper, .. } = self;
        let mut nat = keeper.common.nat();
        let restored = nat.restore(&mapping, &arrived, reply.reversed()).map_err(refused)?;
        keeper.common.bindings.store(nat.len(), Ordering::Relaxed);
        drop(nat);
        let extra = keeper.extras.keep(saved.extra);
        let set = keeper.sets.enter(snapshot, slots);
        let made = table.restore(self.now_ms, &saved.connection, &mut |connection, reason| {
            keeper.closed(connection, reason);
        });
        self.stale = true;
        self.settle(made, [set, restored.binding, extra], &reply).map(|_| ())
    }

    /// Hangs on a connection that was made what it has; gives that back if it was not.
    fn settle(
        &mut self,
        made: Result<ConnId, mmb_conn::Refused>,
        [set, binding, extra]: [u32; 3],
        reply: &Tuple,
    ) -> Result<ConnId, DropReason> {
        let Flows { table, keeper, .. } = self;
        let id = match made {
            Ok(id) => id,
            Err(why) => {
                keeper.common.release(binding);
                keeper.extras.free(extra);
                keeper.sets.leave(set);
                return Err(match why {
                    mmb_conn::Refused::Full => DropReason::ConnFull,
                    mmb_conn::Refused::Taken => DropReason::NatClash,
                    mmb_conn::Refused::NotSyn => DropReason::ConnNotSyn,
                });
            }
        };
        self.plans.begin(id);
        let connection = table.get_mut(id);
        (connection.rules, connection.binding, connection.extra) = (set, binding, extra);
        if keeper.common.owners.workers() > 1 {
            keeper.common.owners.claim(reply, keeper.worker);
        }
        keeper.cells.connection_created();
        self.count();
        Ok(id)
    }

    /// What packets of a connection get in one direction.
    #[inline]
    pub(crate) fn turn(&self, id: ConnId, direction: Direction) -> Turn {
        let connection = self.table.get(id);
        let [forward, reply] = connection.tuples();
        let (from, to) = match direction {
            Direction::Forward => (forward, reply.reversed()),
            Direction::Reply => (reply, forward.reversed()),
        };
        let mut translation = Translation::default();
        for side in 0..2 {
            translation.addresses[side] =
                (from.addresses[side] != to.addresses[side]).then_some(to.addresses[side]);
            translation.ports[side] = (from.ports[side] != to.ports[side]).then_some(to.ports[side]);
        }
        let mut hairpin = None;
        if connection.extra != 0 {
            let extra = self.keeper.extras.get(connection.extra);
            extra.add_to(&mut translation, direction);
            hairpin = extra.hairpin.map(|macs| macs[direction as usize]);
        }
        Turn { translation, hairpin }
    }
}

/// What was found for a packet's tuple.
#[inline]
fn standing(found: Option<(ConnId, Direction)>, packet: &Packet<'_>, layout: &Layout, wire: u16) -> Standing {
    if layout.is_later_fragment() {
        return found.map_or(Standing::Apart, |(id, direction)| Standing::Fragment(id, direction));
    }
    if !matches!(layout.l4_kind, ICMP | ICMP6) {
        return found.map_or(Standing::New, |(id, direction)| Standing::Member(id, direction));
    }
    if let Relation::Error(quoted, at) = relation(packet, layout, wire) {
        let place = QuotedAt { proto: quoted.tuple.proto, ip: at + quoted.ip_at, l4: at + quoted.l4_at };
        return found.map_or(Standing::Apart, |(id, direction)| Standing::Error(id, direction, place));
    }
    // Both ends may ask under one identifier: a request is never the answer to one, and an answer begins nothing.
    match (found, relate::asks(packet, layout)) {
        (Some((id, direction @ Direction::Forward)), true) => Standing::Member(id, direction),
        (Some((id, direction @ Direction::Reply)), false) => Standing::Member(id, direction),
        (_, true) => Standing::New,
        (_, false) => Standing::Apart,
    }
}

/// The inside address whose outside end a packet goes to.
fn owner(nat: &Nat, sent: &Tuple) -> Option<u128> {
    let Tuple { addresses, ports, wire, proto, family } = *sent;
    nat.owner(proto, family, wire, addresses[DESTINATION], ports[DESTINATION]).map(|(inside, _)| inside)
}

/// What a later rule maps goes before what an earlier one did.
fn merge(mapping: &mut Mapping, later: &Mapping) {
    let Mapping { saddr, daddr, sport, dport, balance } = later;
    if saddr.is_some() {
        mapping.saddr.clone_from(saddr);
    }
    if daddr.is_some() || dport.is_some() {
        mapping.balance = *balance;
    }
    if daddr.is_some() {
        mapping.daddr.clone_from(daddr);
    }
    if sport.is_some() {
        mapping.sport.clone_from(sport);
    }
    if dport.is_some() {
        mapping.dport.clone_from(dport);
    }
}

fn fragment_drop(why: FragmentDrop) -> DropReason {
    match why {
        FragmentDrop::Overlap => DropReason::FragmentOverlap,
        FragmentDrop::Duplicate => DropReason::FragmentDuplicate,
        FragmentDrop::Tiny => DropReason::Malformed(Malformed::TinyFragment),
        FragmentDrop::BadLength => DropReason::FragmentBadLength,
        FragmentDrop::TooMany => DropReason::FragmentTooMany,
    }
}

fn refused(why: nat::Refused) -> DropReason {
    match why {
        nat::Refused::NoAddress => DropReason::NatNoAddress,
        nat::Refused::NoPort => DropReason::NatNoPort,
        nat::Refused::Clash => DropReason::NatClash,
    }
}

/// The Ethernet address that a packet comes from.
fn source_mac(packet: &Packet<'_>) -> Option<[u8; 6]> {
    if packet.link != LinkType::Ethernet {
        return None;
    }
    packet.bytes().get(6..12)?.try_into().ok()
}

fn timeouts(settings: &settings::Timeouts) -> Timeouts {
    Timeouts {
        tcp_syn: settings.tcp_syn,
        tcp_established: settings.tcp_established,
        tcp_fin: settings.tcp_fin,
        tcp_time_wait: settings.tcp_time_wait,
        tcp_reset: settings.tcp_reset,
        udp: settings.udp,
        udp_unreplied: settings.udp_unreplied,
        icmp: settings.icmp,
        other: settings.other,
    }
}
