//! The connections of a worker: found by tuples, followed, ended.
//!
//! A connection's record lies in a slab and does not move; the index finds it by the hash of either tuple, and a queue waits
//! for its end. A full table makes room for a new connection by the half-open one that was idle longest, or if there is
//! none by the one that is over for longest; what both ends want is never ended for another. So a flood of first packets lives
//! on the room that connections leave: a half-open entry stays for about that room divided by the flood's rate, and a client
//! that answers sooner gets through.

use crate::hash::Hasher;
use crate::index::{ABSENT, Bucket, EMPTY, Index};
use crate::slab::Slab;
use crate::timeouts::Limits;
use crate::wheel::{self, HALF_OPEN, OVER, Queues};
use crate::{CloseReason, ConnId, Connection, Direction, Judged, LONGEST_S, Segment, Snapshot, State};
use crate::{Tracker, Tuple, proto};
use mmb_policy::policy::{Pickup, Timeouts};
use std::hint::black_box;

/// How many tuples are worked on at a time.
const VECTOR: usize = 256;

/// How many connections one call of [`Table::advance`] asks whether they ended.
const ASKED: usize = 512;

/// How many connections may end for a new one: more than one, so that a table shrinks when its bound was lowered.
const EVICTED: usize = 4;

/// Why a connection was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The table is full of connections that nobody may end.
    Full,
    /// One of its tuples is another connection's.
    Taken,
    /// A TCP connection does not begin so.
    NotSyn,
}

/// The connections of a worker.
#[derive(Debug)]
pub struct Table {
    hasher: Hasher,
    index: Index,
    slab: Slab,
    queues: Queues,
    len: usize,
    max: usize,
    limits: Limits,
    pickup: Pickup,
    /// The latest time that was told. Time does not go back.
    now_ms: u64,
    /// Where connections are asked for their timeouts anew, after these became shorter.
    sweep: Option<u32>,
}

impl Table {
    /// An empty table for a million connections, with the default timeouts. Its hashes depend on the seed,
    /// which should be secret.
    pub fn new(seed: u64) -> Table {
        Table {
            hasher: Hasher::new(seed),
            index: Index::new(),
            slab: Slab::new(),
            queues: Queues::new(),
            len: 0,
            max: 1_000_000,
            limits: Limits::new(Timeouts::default()),
            pickup: Pickup::Loose,
            now_ms: 0,
            sweep: None,
        }
    }

    /// Changes what a table goes by. A lower `max` ends nobody at once: half-open connections make room as new ones come.
    pub fn configure(&mut self, max: usize, timeouts: Timeouts, pickup: Pickup) {
        self.max = max.min(wheel::MOST);
        self.pickup = pickup;
        if *self.limits.timeouts() != timeouts {
            self.limits = Limits::new(timeouts);
            self.sweep = Some(0);
        }
    }

    /// The keyed hash of a tuple.
    pub fn hash(&self, tuple: &Tuple) -> u32 {
        (self.hasher.hash(tuple) >> 32) as u32
    }

    /// The connection of packets with a tuple.
    pub fn find(&self, tuple: &Tuple) -> Option<(ConnId, Direction)> {
        self.find_hashed(self.hasher.hash(tuple), tuple)
    }

    fn find_hashed(&self, hash: u64, tuple: &Tuple) -> Option<(ConnId, Direction)> {
        let found = self.index.find(hash, |entry| {
            let (ConnId(place), direction) = meaning(entry);
            self.slab.at(place).is(tuple, direction)
        });
        found.map(meaning)
    }

    /// The connections of a vector's packets.
    ///
    /// # Panics
    /// If `found` is shorter than `tuples`.
    pub fn find_all(&self, tuples: &[Tuple], found: &mut [Option<(ConnId, Direction)>]) {
        assert!(found.len() >= tuples.len(), "an answer for each tuple");
        for (tuples, found) in tuples.chunks(VECTOR).zip(found.chunks_mut(VECTOR)) {
            self.find_vector(tuples, found);
        }
    }

    /// Loop by loop, those that wait for memory with little else in them, so that the processor waits for many lines at once.
    fn find_vector(&self, tuples: &[Tuple], found: &mut [Option<(ConnId, Direction)>]) {
        const NEW: &Bucket = &Bucket::NEW;
        let (mut hashes, mut buckets) = ([0; VECTOR], [NEW; VECTOR]);
        let (mut likely, mut records) = ([EMPTY; VECTOR], [None; VECTOR]);
        let all = ..tuples.len();
        for (tuple, hash) in tuples.iter().zip(&mut hashes) {
            *hash = self.hasher.hash(tuple);
        }
        for (hash, bucket) in hashes[all].iter().zip(&mut buckets) {
            *bucket = self.index.first(*hash);
        }
        black_box(buckets[all].iter().fold(0, |touched, bucket| touched | bucket.touch()));
        for ((hash, bucket), likely) in hashes[all].iter().zip(&buckets).zip(&mut likely) {
            *likely = bucket.likely(*hash);
        }
        for (entry, record) in likely[all].iter().zip(&mut records) {
            if *entry < ABSENT {
                *record = Some(self.slab.at(*entry >> 1));
            }
        }
        black_box(records[all].iter().flatten().fold(0, |touched, record| touched | record.touch()));
        let is_all_in_buckets = !self.index.has_stash();
        let known = likely[all].iter().zip(&records).zip(&hashes);
        for ((tuple, found), ((entry, record), hash)) in tuples.iter().zip(found).zip(known) {
            let (id, direction) = meaning(*entry);
            *found = match record {
                Some(connection) if connection.is(tuple, direction) => Some((id, direction)),
                None if *entry == ABSENT && is_all_in_buckets => None,
                _ => self.find_hashed(*hash, tuple),
            };
        }
    }

    /// Has at hand what tells whether these tuples have a connection, for who asks soon.
    pub fn fetch(&self, tuples: impl Iterator<Item = Tuple>) {
        let first = |tuple: Tuple| self.index.first(self.hasher.hash(&tuple)).touch();
        black_box(tuples.map(first).fold(0, |touched, line| touched | line));
    }

    /// Makes a connection of its first packet, which is not counted. `forward` and `reply` are the tuples of both ends' packets
    /// as they arrive. Who has to make room is told to `closed`.
    pub fn insert(
        &mut self,
        now_ms: u64,
        forward: Tuple,
        reply: Tuple,
        segment: Option<&Segment>,
        closed: &mut dyn FnMut(&Connection, CloseReason),
    ) -> Result<ConnId, Refused> {
        self.now_ms = self.now_ms.max(now_ms);
        let reply = reply.like(&forward);
        let hashes = self.free_keys([&forward, &reply])?;
        let (tracker, state) = self.begin(forward.proto, segment)?;
        self.make_room(closed)?;
        self.keep(hashes, Connection::new(self.now_ms, [&forward, &reply], state, tracker))
    }

    /// Makes a connection that another table had, as [`Connection::snapshot`] found it. Those that wait in order of their last
    /// packet, half open or over, begin their time anew.
    pub fn restore(
        &mut self,
        now_ms: u64,
        was: &Snapshot,
        closed: &mut dyn FnMut(&Connection, CloseReason),
    ) -> Result<ConnId, Refused> {
        self.now_ms = self.now_ms.max(now_ms);
        let [forward, reply] = was.tuples;
        let tuples = [forward, reply.like(&forward)];
        let hashes = self.free_keys(tuples.each_ref())?;
        self.make_room(closed)?;
        self.keep(hashes, Connection::restored(self.now_ms, &Snapshot { tuples, ..*was }))
    }

    /// The hashes of tuples that no connection has.
    fn free_keys(&self, tuples: [&Tuple; 2]) -> Result<[u64; 2], Refused> {
        let hashes = tuples.map(|tuple| self.hasher.hash(tuple));
        let taken = hashes.iter().zip(tuples).any(|(hash, tuple)| self.find_hashed(*hash, tuple).is_some());
        if taken { Err(Refused::Taken) } else { Ok(hashes) }
    }

    fn keep(&mut self, hashes: [u64; 2], connection: Connection) -> Result<ConnId, Refused> {
        let ends_ms = self.now_ms + connection.expires_ms(self.now_ms, &self.limits);
        let [forward, reply] = connection.tuples();
        let id = self.slab.insert(connection);
        for (direction, hash) in keyed(&forward, &reply).iter().zip(hashes) {
            let hash_of = |entry| hash_of(&self.hasher, &self.slab, entry);
            if self.index.insert(hash, entry(id, *direction), hash_of).is_err() {
                self.index.remove(hashes[0], entry(id, Direction::Forward));
                self.slab.remove(id);
                return Err(Refused::Full);
            }
        }
        self.len += 1;
        self.queues.join(&mut self.slab, id.0, ends_ms);
        Ok(id)
    }

    fn begin(&self, proto: u8, segment: Option<&Segment>) -> Result<(Tracker, State), Refused> {
        match (proto, segment) {
            (proto::TCP, Some(segment)) => Tracker::open(segment, self.pickup).ok_or(Refused::NotSyn),
            (proto::TCP, None) if self.pickup == Pickup::Strict => Err(Refused::NotSyn),
            _ => Ok((Tracker::blank(), State::Unreplied)),
        }
    }

    fn make_room(&mut self, closed: &mut dyn FnMut(&Connection, CloseReason)) -> Result<(), Refused> {
        for _ in 0..EVICTED {
            if self.len < self.max {
                return Ok(());
            }
            let oldest = self.oldest(HALF_OPEN).or_else(|| self.oldest(OVER)).ok_or(Refused::Full)?;
            self.end(oldest, CloseReason::Evicted, closed);
        }
        if self.len < self.max { Ok(()) } else { Err(Refused::Full) }
    }

    /// Of the first ones of some orders, the one that was idle longest.
    fn oldest(&self, mut orders: std::ops::Range<u8>) -> Option<u32> {
        let firsts = orders.by_ref().filter_map(|order| self.queues.first(order));
        firsts.max_by_key(|place| self.slab.at(*place).idle_ms(self.now_ms))
    }

    /// Counts a packet of a connection and follows what it says. What is not believed is counted only, and does not keep a
    /// connection alive; what reopens a connection is not counted, and neither is what comes after the connection's time.
    ///
    /// # Panics
    /// If the connection has ended: whoever keeps numbers across calls that may end connections asks again.
    pub fn touch(
        &mut self,
        id: ConnId,
        direction: Direction,
        now_ms: u64,
        bytes: usize,
        segment: Option<&Segment>,
    ) -> Judged {
        self.now_ms = self.now_ms.max(now_ms);
        let connection = self.slab.at_mut(id.0);
        let judged = judge(connection, &self.limits, direction, self.now_ms, segment);
        if judged == Judged::Reopens {
            return judged;
        }
        connection.count(direction, bytes);
        if judged == Judged::OutOfWindow {
            return judged;
        }
        connection.last_ms = self.now_ms as u32;
        match judged {
            Judged::Moves(next) => self.moves(id, next),
            _ => self.queues.used(&mut self.slab, id.0),
        }
        judged
    }

    /// Whether [`Table::touch`] would say that a packet reopens its connection.
    pub fn reopens(&self, id: ConnId, direction: Direction, now_ms: u64, segment: Option<&Segment>) -> bool {
        let mut connection = *self.slab.at(id.0);
        let now_ms = now_ms.max(self.now_ms);
        judge(&mut connection, &self.limits, direction, now_ms, segment) == Judged::Reopens
    }

    /// Whether a connection stays, however many others want its room, until it is idle for too long: both ends want it, and its
    /// time is not over.
    #[inline]
    pub fn is_lasting(&self, id: ConnId, now_ms: u64) -> bool {
        let connection = self.slab.at(id.0);
        let state = connection.state;
        !state.is_half_open() && !state.is_over() && connection.expires_ms(now_ms, &self.limits) > 0
    }

    /// Puts a connection in another state, and in the queue of that.
    fn moves(&mut self, id: ConnId, next: State) {
        self.queues.leave(&mut self.slab, id.0);
        let connection = self.slab.at_mut(id.0);
        connection.state = next;
        let ends_ms = self.now_ms + self.expires_ms(id, self.now_ms);
        self.queues.join(&mut self.slab, id.0, ends_ms);
    }

    /// A connection.
    ///
    /// # Panics
    /// If there was never one of that number. The number of one that ended gives what is left of it, or another one.
    #[inline]
    pub fn get(&self, id: ConnId) -> &Connection {
        self.slab.at(id.0)
    }

    /// A connection, for what its owner keeps in it.
    ///
    /// # Panics
    /// As [`Table::get`].
    #[inline]
    pub fn get_mut(&mut self, id: ConnId) -> &mut Connection {
        self.slab.at_mut(id.0)
    }

    /// The connection of a number, if there is one now.
    pub fn live(&self, id: ConnId) -> Option<&Connection> {
        self.slab.live(id.0)
    }

    /// Milliseconds until a connection ends if no packet comes.
    pub fn expires_ms(&self, id: ConnId, now_ms: u64) -> u64 {
        self.slab.at(id.0).expires_ms(now_ms, &self.limits)
    }

    /// Ends a connection.
    ///
    /// # Panics
    /// If there is none of that number.
    pub fn remove(&mut self, id: ConnId) -> Connection {
        let connection = self.slab.live(id.0).expect("a connection that has not ended");
        let tuples = connection.tuples();
        for (direction, tuple) in keyed(&tuples[0], &tuples[1]).iter().zip(tuples) {
            self.index.remove(self.hasher.hash(&tuple), entry(id, *direction));
        }
        self.queues.leave(&mut self.slab, id.0);
        self.len -= 1;
        self.slab.remove(id)
    }

    fn end(&mut self, place: u32, reason: CloseReason, closed: &mut dyn FnMut(&Connection, CloseReason)) {
        closed(&self.remove(ConnId(place)), reason);
    }

    /// Lets time pass: ends connections whose time is up. Asks some hundred connections at most and goes on with the next
    /// call, so that a vector's time stays bounded; only after a leap of 24 days, which no clock does, all end at once.
    pub fn advance(&mut self, now_ms: u64, closed: &mut dyn FnMut(&Connection, CloseReason)) {
        let leap = now_ms.saturating_sub(self.now_ms) > u64::from(LONGEST_S) * 1000;
        self.now_ms = self.now_ms.max(now_ms);
        if leap && self.len > 0 {
            return self.end_all(closed);
        }
        let mut left = ASKED;
        for order in HALF_OPEN.start..OVER.end {
            while left > 0
                && let Some(place) = self.queues.first(order)
                && self.is_up(place)
            {
                self.expire(place, closed);
                left -= 1;
            }
        }
        let mut steps = wheel::STEPS;
        while left > 0
            && let Some(place) = self.queues.due(self.now_ms, &mut steps)
        {
            left -= 1;
            if self.is_up(place) { self.expire(place, closed) } else { self.wait_on(place) }
        }
        self.go_on_sweeping(left, closed);
    }

    fn end_all(&mut self, closed: &mut dyn FnMut(&Connection, CloseReason)) {
        for place in 0..self.slab.used() {
            if self.slab.live(place).is_some() {
                self.expire(place, closed);
            }
        }
    }

    /// Asks connections anew when to ask them: their timeouts may be shorter than when they were asked last.
    fn go_on_sweeping(&mut self, most: usize, closed: &mut dyn FnMut(&Connection, CloseReason)) {
        let Some(from) = self.sweep else { return };
        let to = from.saturating_add(most as u32).min(self.slab.used());
        for place in from..to {
            if self.slab.live(place).is_none() || !Queues::is_in_wheel(&self.slab, place) {
                continue;
            }
            if self.is_up(place) { self.expire(place, closed) } else { self.wait_on(place) }
        }
        self.sweep = Some(to).filter(|to| *to < self.slab.used());
    }

    fn is_up(&self, place: u32) -> bool {
        self.expires_ms(ConnId(place), self.now_ms) == 0
    }

    fn expire(&mut self, place: u32, closed: &mut dyn FnMut(&Connection, CloseReason)) {
        let connection = self.slab.at(place);
        // The one behind it is likely to be next: its lines come while this one ends.
        if let Some(next) = self.slab.live(connection.links.next) {
            black_box(next.touch());
        }
        let reason = CloseReason::expired(connection.state);
        self.end(place, reason, closed);
    }

    fn wait_on(&mut self, place: u32) {
        let ends_ms = self.now_ms + self.expires_ms(ConnId(place), self.now_ms);
        self.queues.leave(&mut self.slab, place);
        self.queues.join(&mut self.slab, place, ends_ms);
    }

    /// Connections.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Connections that are half open.
    #[inline]
    pub fn half_open(&self) -> usize {
        self.queues.half_open()
    }

    /// Bytes in use. Records and index only grow; places of connections that ended are used again.
    pub fn memory(&self) -> usize {
        self.slab.memory() + self.index.memory() + self.queues.memory()
    }

    /// Looks at `most` places from one on, and tells the connections there. Returns the next place to look at, or `None` at
    /// the end. Connections that last from the first call to the last are told once.
    pub fn scan(&self, from: u32, most: usize, each: &mut dyn FnMut(ConnId, &Connection)) -> Option<u32> {
        let used = self.slab.used();
        let to = from.saturating_add(u32::try_from(most).unwrap_or(u32::MAX)).min(used);
        for place in from..to {
            if let Some(connection) = self.slab.live(place) {
                each(ConnId(place), connection);
            }
        }
        Some(to).filter(|to| *to < used)
    }
}

impl Tuple {
    /// Of the same wire, protocol and family as another: a connection's record has one place for these.
    fn like(self, other: &Tuple) -> Tuple {
        Tuple { wire: other.wire, proto: other.proto, family: other.family, ..self }
    }
}

/// What a packet says of its connection. What is known of both ends then follows it, unless it reopens the connection.
#[inline]
fn judge(
    connection: &mut Connection,
    limits: &Limits,
    direction: Direction,
    now_ms: u64,
    segment: Option<&Segment>,
) -> Judged {
    let (proto, state) = (connection.proto(), connection.state);
    match (proto, segment) {
        _ if connection.expires_ms(now_ms, limits) == 0 => Judged::Reopens,
        (proto::TCP, Some(segment)) => connection.tracker.segment(state, direction, segment),
        _ => answered(proto, state, direction),
    }
}

/// What a packet without TCP does.
fn answered(proto: u8, state: State, direction: Direction) -> Judged {
    match (state, direction, proto) {
        (State::Unreplied, Direction::Reply, proto::TCP) => Judged::Moves(State::Established),
        (State::Unreplied, Direction::Reply, _) => Judged::Moves(State::Replied),
        _ => Judged::Stays,
    }
}

/// What an entry of the index means.
#[inline]
fn meaning(entry: u32) -> (ConnId, Direction) {
    (ConnId(entry >> 1), if entry & 1 == 0 { Direction::Forward } else { Direction::Reply })
}

/// The entry of a connection's tuple.
#[inline]
fn entry(ConnId(place): ConnId, direction: Direction) -> u32 {
    place << 1 | direction as u32
}

/// The directions with a tuple of their own: one if both ends are the same.
fn keyed(forward: &Tuple, reply: &Tuple) -> &'static [Direction] {
    if forward == reply { &Direction::ALL[..1] } else { &Direction::ALL }
}

fn hash_of(hasher: &Hasher, slab: &Slab, entry: u32) -> u64 {
    let (ConnId(place), direction) = meaning(entry);
    hasher.hash(&slab.at(place).tuple(direction))
}

#[cfg(test)]
mod tests;
