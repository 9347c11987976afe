//! Which worker has a connection, where there are several.
//!
//! A connection belongs to the worker that the hash of its first packet's ends names, the same for both directions. Replies to a
//! translated connection hash to anybody: whoever makes such a connection tells all workers its tuples here. A packet that
//! comes in at another worker than its connection's is handed over.
//!
//! Which workers hashes name may change ([`OwnerMap::prepare`]), as a host's threads get input or lose it. Connections stay where they are:
//! before a new distribution holds, every worker claims those of its connections that it gives to another one.
//!
//! Which worker a connection has can be told from outside by how long packets take: it is chosen by a keyed function.
//!
//! Devices spread a datagram's fragments by other hashes than whole packets, or by none; and only the first one says whose they are. So all
//! of them go first to the worker that the hash of their datagram names, its *home*, which knows the first one's ports when it hands the
//! others on, and holds those that come before it.
//!
//! Who writes: any worker, when a translated connection begins or ends. Only packets that the worker which received them knows no
//! connection of are looked up here, and only where there are several workers.

use crate::drop::DropReason;
use mmb_conn::Tuple;
use mmb_conn::fragment::FragmentKey;
use mmb_random::{Prf, Seed};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

const SHARDS: usize = 64;

/// Parts of all hashes, each of which names one worker.
const PARTS: usize = 256;

/// Why a tuple is not a worker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimError {
    /// A connection of another worker has it.
    Taken,
    /// There is no memory to note it.
    NoMemory,
}

impl From<ClaimError> for DropReason {
    fn from(why: ClaimError) -> DropReason {
        match why {
            ClaimError::Taken => DropReason::NatClash,
            ClaimError::NoMemory => DropReason::ConnNoMemory,
        }
    }
}

/// What all workers know of each other's connections.
#[derive(Debug)]
pub(crate) struct OwnerMap {
    /// Workers 0 to here may own connections. Those behind only hand over: hosts have threads that packets seldom come to and that sleep.
    owning: usize,
    /// Of these, how many have a share of the connections to come.
    sharing: AtomicUsize,
    /// Whose connections are, by part of their hashes: now, and once a change that is prepared holds.
    now: Box<[AtomicU16; PARTS]>,
    next: Box<[AtomicU16; PARTS]>,
    /// Some connection may not be where its hash says, though it is not translated.
    changed: AtomicBool,
    prf: Prf,
    moved: [RwLock<HashMap<Tuple, usize>>; SHARDS],
    len: AtomicUsize,
}

impl OwnerMap {
    pub(crate) fn new(owning: usize, seed: Seed) -> OwnerMap {
        let parts = || Box::new(std::array::from_fn(|part| AtomicU16::new((part % owning) as u16)));
        OwnerMap {
            owning,
            sharing: AtomicUsize::new(owning),
            now: parts(),
            next: parts(),
            changed: AtomicBool::new(false),
            prf: Prf::new(seed),
            moved: std::array::from_fn(|_| RwLock::default()),
            len: AtomicUsize::new(0),
        }
    }

    /// How many workers may own connections.
    #[inline]
    pub(crate) fn owning(&self) -> usize {
        self.owning
    }

    /// How many workers have a share of the connections to come.
    pub(crate) fn sharing(&self) -> usize {
        self.sharing.load(Ordering::Relaxed)
    }

    /// Has these workers share the connections to come, once [`OwnerMap::switch`] says so. Until then each worker claims those of its
    /// connections that [are strays](OwnerMap::is_stray). One caller at a time.
    pub(crate) fn prepare(&self, workers: &[u16]) {
        share_out(&self.next, workers);
        self.changed.store(true, Ordering::Release);
    }

    /// What was prepared holds from now on.
    pub(crate) fn switch(&self, workers: &[u16]) {
        share_out(&self.now, workers);
        self.sharing.store(workers.len(), Ordering::Relaxed);
    }

    /// Whether connections may be elsewhere than their hashes say, though they are not translated.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Whether hashes give a tuple to another worker than this, now or once a change that is prepared holds.
    pub(crate) fn is_stray(&self, tuple: &Tuple, worker: usize) -> bool {
        let part = part(self.hash(tuple));
        [&self.now, &self.next].iter().any(|parts| usize::from(parts[part].load(Ordering::Acquire)) != worker)
    }

    /// Whether every connection is this worker's.
    #[inline]
    pub(crate) fn owns_all(&self, worker: usize) -> bool {
        self.owning == 1 && worker == 0
    }

    /// The worker that a packet with this tuple belongs to.
    pub(crate) fn of(&self, tuple: &Tuple) -> usize {
        let hash = self.hash(tuple);
        if self.len.load(Ordering::Acquire) > 0 {
            let shard = self.moved[hash as usize % SHARDS].read().unwrap_or_else(PoisonError::into_inner);
            if let Some(&worker) = shard.get(tuple) {
                return worker;
            }
        }
        self.by_hash(hash)
    }

    /// The worker that all fragments of a datagram go to first.
    pub(crate) fn home(&self, datagram: &FragmentKey) -> usize {
        self.by_hash(self.prf.hash(&datagram.packed().to_bytes()))
    }

    /// A translated connection of `worker` has packets with this tuple.
    ///
    /// # Errors
    /// It cannot be said so. Nothing is changed.
    pub(crate) fn claim(&self, tuple: &Tuple, worker: usize) -> Result<(), ClaimError> {
        let mut shard = self.shard(tuple).write().unwrap_or_else(PoisonError::into_inner);
        shard.try_reserve(1).map_err(|_| ClaimError::NoMemory)?;
        match shard.entry(*tuple) {
            Entry::Occupied(other) if *other.get() == worker => Ok(()),
            Entry::Occupied(_) => Err(ClaimError::Taken),
            Entry::Vacant(place) => {
                place.insert(worker);
                self.len.fetch_add(1, Ordering::Release);
                Ok(())
            }
        }
    }

    /// Whether a translated connection of another worker has packets with this tuple.
    pub(crate) fn is_taken(&self, tuple: &Tuple, worker: usize) -> bool {
        self.len.load(Ordering::Acquire) > 0
            && self
                .shard(tuple)
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .get(tuple)
                .is_some_and(|&other| other != worker)
    }

    /// It has ended.
    pub(crate) fn release(&self, tuple: &Tuple, worker: usize) {
        let mut shard = self.shard(tuple).write().unwrap_or_else(PoisonError::into_inner);
        if shard.get(tuple) == Some(&worker) {
            shard.remove(tuple);
            self.len.fetch_sub(1, Ordering::Release);
        }
    }

    fn shard(&self, tuple: &Tuple) -> &RwLock<HashMap<Tuple, usize>> {
        &self.moved[self.hash(tuple) as usize % SHARDS]
    }

    #[inline]
    fn by_hash(&self, hash: u64) -> usize {
        usize::from(self.now[part(hash)].load(Ordering::Acquire))
    }

    /// The same for a tuple and the one that is reversed.
    fn hash(&self, tuple: &Tuple) -> u64 {
        self.prf.hash(&tuple.in_order().to_bytes())
    }
}

/// Gives each worker as many parts as any other.
fn share_out(parts: &[AtomicU16; PARTS], workers: &[u16]) {
    for (part, worker) in parts.iter().zip(workers.iter().cycle()) {
        part.store(*worker, Ordering::Release);
    }
}

/// The part that a hash belongs to. Other bits say in which shard a claim is.
#[inline]
fn part(hash: u64) -> usize {
    (hash >> 56) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(number: u32) -> Tuple {
        Tuple {
            addresses: [u128::from(0x0a00_0000 + number), 0xc000_0250],
            ports: [5000, 80],
            proto: 6,
            family: 4,
            ..Tuple::default()
        }
    }

    #[test]
    fn both_directions_belong_to_one_worker_and_workers_share_evenly() {
        let owners = OwnerMap::new(3, Seed::repeatable(7));
        let mut counts = [0; 3];
        for number in 0..30_000 {
            let owner = owners.of(&tuple(number));
            assert_eq!(owner, owners.of(&tuple(number).reversed()));
            counts[owner] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn claimed_tuples_belong_to_who_claimed_them_until_let_go() {
        let owners = OwnerMap::new(2, Seed::repeatable(7));
        for number in 0..100 {
            let reply = tuple(number);
            let by_hash = owners.of(&reply);
            for worker in 0..2 {
                assert_eq!([0; 2].map(|_| owners.claim(&reply, worker)), [Ok(()); 2]);
                assert_eq!(owners.claim(&reply, 1 - worker), Err(ClaimError::Taken));
                assert!(owners.is_taken(&reply, 1 - worker));
                assert!(!owners.is_taken(&reply, worker));
                assert_eq!(owners.of(&reply), worker);
                owners.release(&reply, worker);
                assert_eq!(owners.of(&reply), by_hash);
            }
        }
        assert_eq!(owners.len.load(Ordering::Relaxed), 0);
    }
}
