//! The connections of a worker: found by tuples, followed, ended.
//!
//! A connection's record lies in a slab and does not move; the index finds it by the hash of either tuple, and a queue waits
//! for its end. A full table makes room for a new connection by one that is over, or if there is none by one that is half
//! open; what both ends want is never ended for another. Which one, and what holds under a flood, says `room`; what packets say of
//! their connection, `follow`; who ends as time passes, `expiry`.

mod expiry;
mod follow;
mod reclaim;
mod room;

pub use reclaim::Cursor;

use crate::ghosts::Ghosts;
use crate::hash::Hasher;
use crate::index::{ABSENT, Bucket, EMPTY, Index, NoPlace};
use crate::slab::{NoMemory, Slab};
use crate::timeouts::Limits;
use crate::wheel::{self, Queues};
use crate::{CloseReason, ConnId, Connection, Direction, Invalid, Signal, Snapshot, Tuple, Wire};
use mmb_policy::policy::{Pickup, Timeouts};
use mmb_random::Seed;
use std::hint::black_box;

/// How many tuples are worked on at a time.
const VECTOR: usize = 256;

/// Why a connection was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The table is full of connections that nobody may end.
    Full,
    /// One of its tuples is another connection's.
    Taken,
    /// No connection begins so.
    Invalid(Invalid),
    /// There is no memory for more connections, and none of those that are there may end.
    NoMemory,
}

/// The connections of a worker.
#[derive(Debug)]
pub struct Table {
    hasher: Hasher,
    index: Index,
    slab: Slab,
    queues: Queues,
    /// Half-open connections that were evicted lately.
    ghosts: Ghosts,
    len: usize,
    max: usize,
    /// What memory was enough for when it last ran out, and when more is asked for again.
    enough: Option<(usize, u64)>,
    limits: Limits,
    pickup: Pickup,
    /// The latest time that was told. Time does not go back.
    now_ms: u64,
    /// When time was last let pass.
    advanced_ms: u64,
    /// More was due then than was asked.
    behind: bool,
    /// Where connections are asked for their timeouts anew, after these became shorter.
    sweep: Option<u32>,
}

impl Table {
    /// An empty table for a million connections, with the default timeouts. Its hash keys are made from the seed.
    pub fn new(seed: Seed) -> Table {
        Table {
            hasher: Hasher::new(seed),
            index: Index::new(),
            slab: Slab::new(),
            queues: Queues::new(),
            ghosts: Ghosts::new(),
            len: 0,
            max: 1_000_000,
            enough: None,
            limits: Limits::new(Timeouts::default()),
            pickup: Pickup::Loose,
            now_ms: 0,
            advanced_ms: 0,
            behind: false,
            sweep: None,
        }
    }

    /// Changes what a table goes by. A lower `max` ends nobody at once: connections that are over or half open make room as
    /// new ones come.
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
        signal: Option<&Signal>,
        closed: &mut dyn FnMut(&Connection, CloseReason),
    ) -> Result<ConnId, Refused> {
        self.now_ms = self.now_ms.max(now_ms);
        let reply = reply.like(&forward);
        let hashes = self.free_keys([&forward, &reply])?;
        let (tracker, state) = self.begin(forward.proto, signal).map_err(Refused::Invalid)?;
        self.make_room(closed)?;
        let comes_again = self.ghosts.comes_again(hashes[0], self.now_ms);
        self.keep(hashes, Connection::new(self.now_ms, [&forward, &reply], state, tracker), comes_again)
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
        self.keep(hashes, Connection::restored(self.now_ms, &Snapshot { tuples, ..*was }), false)
    }

    /// The hashes of tuples that no connection has.
    fn free_keys(&self, tuples: [&Tuple; 2]) -> Result<[u64; 2], Refused> {
        let hashes = tuples.map(|tuple| self.hasher.hash(tuple));
        let taken = hashes.iter().zip(tuples).any(|(hash, tuple)| self.find_hashed(*hash, tuple).is_some());
        if taken { Err(Refused::Taken) } else { Ok(hashes) }
    }

    fn keep(
        &mut self,
        hashes: [u64; 2],
        connection: Connection,
        is_protected: bool,
    ) -> Result<ConnId, Refused> {
        let ends_ms = self.now_ms + connection.expires_ms(self.now_ms, &self.limits);
        let [forward, reply] = connection.tuples();
        let id = self.slab.insert(connection).map_err(|NoMemory| self.no_memory())?;
        for (direction, hash) in keyed(&forward, &reply).iter().zip(hashes) {
            let hash_of = |entry| hash_of(&self.hasher, &self.slab, entry);
            if let Err(why) = self.index.insert(hash, entry(id, *direction), hash_of) {
                self.index.remove(hashes[0], entry(id, Direction::Forward));
                self.slab.remove(id);
                return Err(match why {
                    NoPlace::Crowded => Refused::Full,
                    NoPlace::NoMemory => self.no_memory(),
                });
            }
        }
        self.len += 1;
        self.queues.join(&mut self.slab, id.0, ends_ms, is_protected);
        Ok(id)
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

    /// Connections.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Connections that there is memory for already: as many as there ever were at once.
    pub fn places(&self) -> usize {
        self.slab.used() as usize
    }

    /// Connections that are half open.
    #[inline]
    pub fn half_open(&self) -> usize {
        self.queues.half_open()
    }

    /// Bytes in use. Records and index only grow; places of connections that ended are used again.
    pub fn memory(&self) -> usize {
        self.slab.memory() + self.index.memory() + self.queues.memory() + self.ghosts.memory()
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
    /// Of the same wire, protocol and family as another, as both directions of a connection are.
    fn like(self, other: &Tuple) -> Tuple {
        let wire = Wire { port: other.wire.port, ..self.wire };
        Tuple { wire, proto: other.proto, family: other.family, ..self }
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
