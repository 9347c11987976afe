//! A worker's connection table: lookup by tuple, state tracking, expiry and eviction.
//!
//! A connection's record does not move in its slab. The index finds the record by the hash of either tuple,
//! and an expiry queue contains it until it times out. For a new connection, a full table evicts a closed
//! connection or, if none is closed, a half-open one. It never evicts a connection that both ends have
//! confirmed. `room` describes which connection is evicted, and the guarantees under a flood. `follow` tracks
//! states by packets, and `expiry` times connections out.

mod epochs;
mod expiry;
mod folding;
mod follow;
mod offloaded;
mod quick;
mod reclaim;
mod room;

use self::epochs::Epochs;
use crate::alloc_error::AllocError;
use crate::ghosts::Ghosts;
use crate::hash::TupleHasher;
use crate::index::{ABSENT, EMPTY, IndexBucket, IndexError, IndexKeys, TupleIndex};
use crate::links;
use crate::owner::TableOwner;
use crate::queue::IdQueue;
use crate::slab::ConnectionSlab;
use crate::timeouts::StateTimeouts;
use crate::wheel::ExpiryQueues;
use crate::{
    CloseReason, ConnId, ConnState, Connection, ConnectionSnapshot, Direction, IngressPorts, Invalid,
    ResourceIds, TrackedHeader, Tuple, Vlans, Wire,
};
use mmb_base::{Id, VECTOR, prefetch};
use mmb_packet::PortId;
use mmb_policy::settings::{Pickup, Timeouts};
use mmb_random::Seed;

/// Packets per block of [`ConnectionTable::find_all`]. The index buckets or records of a block are prefetched
/// together.
const BLOCK: usize = 16;

/// Why a connection was not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertError {
    /// The table is full of connections that must not be evicted.
    Full,
    /// One of its tuples belongs to another connection.
    Taken,
    /// The packet cannot begin a connection.
    Invalid(Invalid),
    /// There is no memory for more connections, and no existing one may be evicted.
    NoMemory,
}

/// The connections of a worker.
#[derive(Debug)]
pub struct ConnectionTable {
    hasher: TupleHasher,
    index: TupleIndex,
    slab: ConnectionSlab,
    queues: ExpiryQueues,
    /// Half-open connections that were evicted recently.
    ghosts: Ghosts,
    len: usize,
    max: usize,
    /// After memory ran out: the number of connections at that time, and the time at which allocation is
    /// retried.
    allocation_limit: Option<(usize, u64)>,
    limits: StateTimeouts,
    pickup: Pickup,
    /// The latest time that was passed. Time does not go back.
    now_ms: u64,
    /// The time of the last call of [`ConnectionTable::advance_idle`].
    idle_ms: u64,
    /// Whether the last call of [`ConnectionTable::advance`] reached its limit before it had checked all due
    /// connections, or a sweep has not ended.
    is_behind: bool,
    /// Where to continue re-checking connections after timeouts were shortened.
    sweep: Option<ConnId>,
    /// Packets of connections may have been missed before this time: see [`ConnectionTable::resync`].
    resync_ms: Option<u64>,
    /// The epoch for which verdicts may be cached; 0 while none may be cached.
    epoch: u16,
    epochs: Epochs,
    /// The connections with counts that are not folded yet, each once.
    unfolded: IdQueue,
}

impl ConnectionTable {
    /// An empty table for a million connections, with the default timeouts. Its hash keys derive from the
    /// seed.
    pub fn new(seed: Seed) -> ConnectionTable {
        ConnectionTable {
            hasher: TupleHasher::new(seed),
            index: TupleIndex::large(),
            slab: ConnectionSlab::default(),
            queues: ExpiryQueues::new(),
            ghosts: Ghosts::new(),
            len: 0,
            max: 1_000_000,
            allocation_limit: None,
            limits: StateTimeouts::new(Timeouts::default()),
            pickup: Pickup::Loose,
            now_ms: 0,
            idle_ms: 0,
            is_behind: false,
            sweep: None,
            resync_ms: None,
            epoch: 0,
            epochs: Epochs::default(),
            unfolded: IdQueue::default(),
        }
    }

    /// Changes the table's settings. A lower `max` ends no connection at once: closed and half-open
    /// connections are evicted when new ones arrive.
    pub fn configure(&mut self, max: usize, timeouts: Timeouts, pickup: Pickup) {
        self.max = max.min(links::MAX_RECORDS);
        self.pickup = pickup;
        if *self.limits.timeouts() != timeouts {
            self.limits = StateTimeouts::new(timeouts);
            self.sweep = Some(ConnId::FIRST);
        }
    }

    /// Records that packets of all connections may have been missed before this time. A TCP connection
    /// without a valid packet since then resumes: segments out of window replace its sequence numbers.
    pub fn resync(&mut self, missed_until_ms: u64) {
        self.resync_ms = Some(missed_until_ms);
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
            member(entry).is_some_and(|(id, direction)| self.slab.record(id).matches(tuple, direction))
        });
        found.and_then(member)
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

    /// Works in blocks. Each step runs one block after the step that prefetches its data. With larger blocks,
    /// prefetches would be lost.
    fn find_vector(&self, tuples: &[Tuple], found: &mut [Option<(ConnId, Direction)>]) {
        const NEW: &IndexBucket = &IndexBucket::NEW;
        let (mut hashes, mut buckets) = ([0; VECTOR], [NEW; VECTOR]);
        let mut likely = [EMPTY; VECTOR];
        let is_all_in_buckets = !self.index.has_stash();
        let count = tuples.len().min(VECTOR);
        let block = |number: usize| number * BLOCK..count.min((number + 1) * BLOCK);
        let blocks = count.div_ceil(BLOCK);
        for step in 0..blocks + 2 {
            if step < blocks {
                for index in block(step) {
                    hashes[index] = self.hasher.hash(&tuples[index]);
                    buckets[index] = self.index.first(hashes[index]);
                    prefetch(buckets[index]);
                }
            }
            if let Some(second) = step.checked_sub(1).filter(|second| *second < blocks) {
                for index in block(second) {
                    likely[index] = buckets[index].likely(hashes[index]);
                    if let Some((id, _)) = member(likely[index]) {
                        self.slab.prefetch(id);
                    }
                }
            }
            if let Some(third) = step.checked_sub(2) {
                for index in block(third) {
                    let tuple = &tuples[index];
                    found[index] = match member(likely[index]) {
                        Some((id, direction)) if self.slab.record(id).matches(tuple, direction) => {
                            Some((id, direction))
                        }
                        None if likely[index] == ABSENT && is_all_in_buckets => None,
                        _ => self.find_hashed(hashes[index], tuple),
                    };
                }
            }
        }
    }

    /// Prefetches what [`ConnectionTable::insert`] reads for a connection with these tuples, of which the
    /// first one was just looked up.
    #[inline]
    pub fn prefetch(&self, forward: &Tuple, reply: &Tuple) {
        prefetch(self.index.first(self.hasher.hash(reply)));
        if self.ghosts.may_exist(self.now_ms) {
            self.ghosts.prefetch(self.hasher.hash(forward));
        }
    }

    /// Prefetches the slots of `count` new connections, and returns their ids. Also prefetches what the
    /// eviction of connections for them reads.
    pub fn prefetch_slots(&self, count: usize, owner: &impl TableOwner) -> impl Iterator<Item = ConnId> {
        if self.len + count > self.max {
            self.prefetch_victims(count, owner);
        }
        self.slab.next_ids(count).inspect(|id| self.slab.prefetch(*id))
    }

    /// Creates a connection from its first packet, which is not counted. `forward` and `reply` are the tuples
    /// of both ends' packets as they arrive. Evicted connections are passed to `owner`.
    pub fn insert(
        &mut self,
        now_ms: u64,
        forward: Tuple,
        reply: Tuple,
        header: Option<&TrackedHeader>,
        owner: &mut impl TableOwner,
    ) -> Result<ConnId, InsertError> {
        self.now_ms = self.now_ms.max(now_ms);
        let forward = forward.storable();
        let reply = reply.like(&forward);
        let hashes = self.free_keys([&forward, &reply])?;
        let (tracker, state) = self.begin(forward.proto, header).map_err(InsertError::Invalid)?;
        self.make_room(owner)?;
        let is_retransmitted = self.ghosts.is_retransmitted(hashes[0], self.now_ms);
        self.store(hashes, Connection::new(self.now_ms, [&forward, &reply], state, tracker), is_retransmitted)
    }

    /// Restores a connection of another table from its [`Connection::snapshot`]. Closed and half-open
    /// connections are queued in the order of their last packets, so their timeout restarts.
    pub fn restore(
        &mut self,
        now_ms: u64,
        snapshot: &ConnectionSnapshot,
        owner: &mut impl TableOwner,
    ) -> Result<ConnId, InsertError> {
        self.now_ms = self.now_ms.max(now_ms);
        let [forward, reply] = snapshot.tuples;
        let tuples = [forward.storable(), reply.like(&forward)];
        let hashes = self.free_keys(tuples.each_ref())?;
        self.make_room(owner)?;
        self.store(
            hashes,
            Connection::restored(self.now_ms, &ConnectionSnapshot { tuples, ..*snapshot }),
            false,
        )
    }

    /// Whether a connection of another table would have timed out in this one.
    pub fn would_have_timed_out(&self, snapshot: &ConnectionSnapshot) -> bool {
        snapshot.idle_ms > self.limits.ms(snapshot.tuples[0].proto, snapshot.state)
    }

    /// The hashes of these tuples, if no connection has them.
    fn free_keys(&self, tuples: [&Tuple; 2]) -> Result<[u64; 2], InsertError> {
        let hashes = tuples.map(|tuple| self.hasher.hash(tuple));
        let taken = hashes.iter().zip(tuples).any(|(hash, tuple)| self.find_hashed(*hash, tuple).is_some());
        if taken { Err(InsertError::Taken) } else { Ok(hashes) }
    }

    fn store(
        &mut self,
        hashes: [u64; 2],
        connection: Connection,
        is_protected: bool,
    ) -> Result<ConnId, InsertError> {
        let [forward, reply] = connection.tuples();
        self.unfolded.reserve(self.slab.highest() + 1).map_err(|AllocError| self.no_memory())?;
        let id = self.slab.insert(&connection).map_err(|AllocError| self.no_memory())?;
        let ends_ms = self.now_ms + self.expires_ms(id, self.now_ms);
        for (direction, hash) in keyed(&forward, &reply).iter().zip(hashes) {
            let keys = TableKeys { hasher: &self.hasher, slab: &self.slab };
            if let Err(why) = self.index.insert(hash, entry(id, *direction), &keys) {
                self.index.remove(hashes[0], entry(id, Direction::Forward));
                self.slab.remove(id);
                return Err(match why {
                    IndexError::StashFull => InsertError::Full,
                    IndexError::NoMemory => self.no_memory(),
                });
            }
        }
        self.len += 1;
        self.queues.join(&mut self.slab, id, ends_ms, is_protected);
        Ok(id)
    }

    /// The connection with an id.
    ///
    /// # Panics
    /// If the table never returned this id. The id of an ended connection returns its old record, or that of
    /// the next connection in the slot.
    #[inline]
    pub fn get(&self, id: ConnId) -> Connection {
        self.slab.get(id)
    }

    /// The tuples of a connection's packets as they arrive: the initiator's, then the responder's.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    #[inline]
    pub fn tuples(&self, id: ConnId) -> [Tuple; 2] {
        let record = self.slab.record(id);
        Direction::ALL.map(|direction| record.tuple(direction))
    }

    /// The connection with an id, if there is one.
    pub fn live(&self, id: ConnId) -> Option<Connection> {
        self.slab.live(id)
    }

    /// Whether there is a connection with an id.
    pub fn is_live(&self, id: ConnId) -> bool {
        self.slab.is_live(id)
    }

    /// The state of a connection.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    #[inline]
    pub fn state(&self, id: ConnId) -> ConnState {
        self.slab.line(id).state()
    }

    /// The protocol of a connection.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    #[inline]
    pub fn proto(&self, id: ConnId) -> u8 {
        self.slab.line(id).proto
    }

    /// The ids of a connection's resources.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    #[inline]
    pub fn ids(&self, id: ConnId) -> &ResourceIds {
        &self.slab.cold(id).ids
    }

    /// The ids of a connection's resources, for changes.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    #[inline]
    pub fn ids_mut(&mut self, id: ConnId) -> &mut ResourceIds {
        &mut self.slab.cold_mut(id).ids
    }

    /// Whether NAT changes a connection's packets.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    #[inline]
    pub fn is_translated(&self, id: ConnId) -> bool {
        self.slab.record(id).is_translated()
    }

    /// Whether a connection is included in its source's count of connections.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    pub fn is_counted(&self, id: ConnId) -> bool {
        self.slab.cold(id).is_counted()
    }

    /// Records whether a connection is included in its source's count of connections.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    pub fn set_counted(&mut self, id: ConnId, is_counted: bool) {
        self.slab.cold_mut(id).set_counted(is_counted);
    }

    /// Records that another connection has announced this one.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    pub fn set_expected(&mut self, id: ConnId) {
        self.slab.cold_mut(id).set_expected();
    }

    /// Whether another connection has announced this one.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    #[inline]
    pub fn is_expected(&self, id: ConnId) -> bool {
        self.slab.cold(id).is_expected()
    }

    /// Records that a connection no longer counts as an open connection of its server.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    pub fn set_left_server(&mut self, id: ConnId) {
        self.slab.cold_mut(id).set_left_server();
    }

    /// Whether a connection no longer counts as an open connection of its server.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    pub fn has_left_server(&self, id: ConnId) -> bool {
        self.slab.cold(id).has_left_server()
    }

    /// Makes the quick pass list the packets of a connection that it takes: see
    /// [`QuickResult::followed`](crate::QuickResult::followed).
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    pub fn set_followed(&mut self, id: ConnId) {
        self.slab.line_mut(id).set_followed();
    }

    /// Sets the ports on which a connection's packets arrive. This has no effect on a connection on a wire.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    pub fn set_arrivals(&mut self, id: ConnId, arrivals: IngressPorts) {
        self.slab.cold_mut(id).set_arrivals(arrivals);
    }

    /// Whether packets of a direction may arrive on a port: see [`IngressPorts::admit`].
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    #[inline]
    pub fn admits(&self, id: ConnId, direction: Direction, port: PortId) -> bool {
        self.slab.cold(id).arrivals().admit(direction, port)
    }

    /// The first port on which packets of a direction arrived. `None` on a wire, and before the first packet.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    pub fn arrival_port(&self, id: ConnId, direction: Direction) -> Option<PortId> {
        self.slab.cold(id).arrivals().first(direction)
    }

    /// Records that a valid packet of a direction arrived on a port.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    #[inline]
    pub fn record_arrival(&mut self, id: ConnId, direction: Direction, port: PortId) {
        self.slab.cold_mut(id).record_arrival(direction, port);
    }

    /// Milliseconds until a connection times out if no packet comes.
    #[inline]
    pub fn expires_ms(&self, id: ConnId, now_ms: u64) -> u64 {
        self.slab.expires_ms(id, now_ms, &self.limits)
    }

    /// Ends a connection.
    ///
    /// # Panics
    /// If there is no connection with this id.
    pub fn remove(&mut self, id: ConnId) -> Connection {
        assert!(self.slab.is_live(id), "a connection that has not ended");
        let hashes = Direction::ALL.map(|direction| self.hasher.hash(&self.slab.tuple(id, direction)));
        self.remove_hashed(id, hashes)
    }

    /// [`ConnectionTable::remove`] with the hashes of the connection's tuples. Different tuples may have
    /// equal hashes, so the tuples decide whether the connection has one index entry or two.
    fn remove_hashed(&mut self, id: ConnId, hashes: [u64; 2]) -> Connection {
        self.queues.leave(&mut self.slab, id);
        let connection = self.slab.remove(id);
        let [forward, reply] = connection.tuples();
        for (direction, hash) in keyed(&forward, &reply).iter().zip(hashes) {
            self.index.remove(hash, entry(id, *direction));
        }
        self.len -= 1;
        connection
    }

    fn end(&mut self, id: ConnId, reason: CloseReason, owner: &mut impl TableOwner) {
        owner.closed(&self.remove(id), reason);
    }

    /// Number of connections.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of records that were allocated: the largest number of connections that existed at once.
    pub fn records(&self) -> usize {
        self.slab.highest()
    }

    /// Number of half-open connections.
    #[inline]
    pub fn half_open(&self) -> usize {
        self.queues.half_open()
    }

    /// Bytes in use. Records and index only grow; ids of ended connections are reused.
    pub fn memory(&self) -> usize {
        self.slab.memory()
            + self.unfolded.memory()
            + self.index.memory()
            + self.queues.memory()
            + self.ghosts.memory()
    }

    /// Visits the connections among at most `max` records from `first` on. Returns the id to continue with,
    /// or `None` at the end. A connection that exists from the first call to the last is visited once.
    pub fn scan(
        &self,
        first: ConnId,
        max: usize,
        each: &mut dyn FnMut(ConnId, &Connection),
    ) -> Option<ConnId> {
        let (ids, next) = self.slab.ids(first, max);
        for id in ids {
            if let Some(connection) = self.slab.live(id) {
                each(id, &connection);
            }
        }
        next
    }
}

impl Tuple {
    /// The tuple with another one's wire, protocol and family, which both directions of a connection have in
    /// common.
    fn like(self, other: &Tuple) -> Tuple {
        let wire = Wire { port: other.wire.port, ..self.wire };
        Tuple { wire, proto: other.proto, family: other.family, ..self }.storable()
    }

    /// The tuple as a record stores it. On a host that routes, the scope of a connection does not contain
    /// VLANs.
    fn storable(self) -> Tuple {
        let vlans = if self.wire.is_routed() { Vlans::NONE } else { self.wire.vlans };
        Tuple { wire: Wire { vlans, ..self.wire }, ..self }
    }
}

/// The connection and direction of an index entry; `None` for [`EMPTY`] and [`ABSENT`].
#[inline]
fn member(entry: u32) -> Option<(ConnId, Direction)> {
    let direction = if entry & 1 == 0 { Direction::Forward } else { Direction::Reply };
    ConnId::new(entry >> 1).map(|id| (id, direction))
}

/// The index entry of a connection's tuple.
#[inline]
fn entry(id: ConnId, direction: Direction) -> u32 {
    id.number() << 1 | direction as u32
}

/// The directions with an index entry of their own: only one if both tuples are equal.
fn keyed(forward: &Tuple, reply: &Tuple) -> &'static [Direction] {
    if forward == reply { &Direction::ALL[..1] } else { &Direction::ALL }
}

/// The keys of a table's index.
struct TableKeys<'t> {
    hasher: &'t TupleHasher,
    slab: &'t ConnectionSlab,
}

impl IndexKeys for TableKeys<'_> {
    fn hash(&self, entry: u32) -> u64 {
        member(entry).map_or(0, |(id, direction)| self.hasher.hash(&self.slab.tuple(id, direction)))
    }

    #[inline]
    fn prefetch(&self, entry: u32) {
        member(entry).into_iter().for_each(|(id, _)| self.slab.prefetch(id));
    }
}

#[cfg(test)]
mod tests;
