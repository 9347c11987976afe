//! Maps tuples to the worker that owns their connection, if there are several workers.
//!
//! A connection belongs to the worker that the hash of its first packet's addresses and ports selects. The
//! hash is the same for both directions. Replies to a translated connection may hash to any worker, so the
//! worker that creates such a connection claims its tuples here. If a packet arrives at a worker that does
//! not own its connection, it is handed over to the owner.
//!
//! The distribution of hashes to workers may change ([`OwnerMap::prepare`]) when threads of the host gain or
//! lose input queues. Connections stay with their workers. Before a new distribution takes effect, every
//! worker claims those of its connections that the distribution assigns to another worker.
//!
//! An observer can infer from packet latency which worker owns a connection. For this reason the hash is
//! keyed.
//!
//! NICs distribute the fragments of a datagram by another hash than whole packets, or by no hash, and only
//! the first fragment carries the ports. So all fragments first go to the *home* of their datagram: the
//! worker that the hash of the datagram selects. The home knows the ports from the first fragment when it
//! hands later fragments over. It holds fragments that arrive before the first one.
//!
//! Writers: any worker, when a translated connection starts or ends. A worker looks up only packets that have
//! no connection in its own table, and only if there are several workers.

use crate::drop::DropReason;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use mmb_base::{read, write};
use mmb_conn::fragment::FragmentKey;
use mmb_conn::{Tuple, TupleHasher};
use mmb_random::{Prf, Purpose, SeedTree};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};

/// The number of shards of the index of claims: enough that growing a shard takes little time.
const SHARDS: usize = 1024;

/// The number of hash ranges. Each range is assigned to one worker.
const PARTS: usize = 256;

/// Why a worker cannot claim a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimError {
    /// A connection of another worker has it.
    Taken,
    /// There is no memory to record it.
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

/// A tuple that a worker claims, represented by its hash under secret keys. Two tuples have the same hash
/// with a probability of 2^-64; then the claim of the second one is refused.
#[derive(Clone, Copy, Debug)]
struct Claim {
    hash: u64,
    worker: u16,
}

/// The owners of connections, as all workers see them.
#[derive(Debug)]
pub(crate) struct OwnerMap {
    /// The number of workers that may own connections: the first ones. The others only hand packets over:
    /// they are threads of the host that seldom receive packets, and sleep.
    owning: usize,
    /// The number of workers that receive new connections, at most `owning`.
    sharing: AtomicUsize,
    /// The owner of each hash range: now, and after a prepared change takes effect.
    now: Box<[AtomicU16; PARTS]>,
    next: Box<[AtomicU16; PARTS]>,
    /// Some untranslated connections may belong to another worker than the one that their hash selects.
    changed: AtomicBool,
    prf: Prf,
    hasher: TupleHasher,
    moved: Box<[RwLock<HashTable<Claim>>]>,
    /// Some tuple was claimed. This is a flag and not a number, because all workers would write a number.
    has_claims: AtomicBool,
    /// The number of connections that helpers expect. Each has a claim of its tuple with source port 0, since
    /// the source port is not known yet.
    expecting: AtomicUsize,
}

impl OwnerMap {
    pub(crate) fn new(owning: usize, seeds: &SeedTree) -> OwnerMap {
        let parts = || Box::new(std::array::from_fn(|part| AtomicU16::new((part % owning) as u16)));
        OwnerMap {
            owning,
            sharing: AtomicUsize::new(owning),
            now: parts(),
            next: parts(),
            changed: AtomicBool::new(false),
            prf: Prf::new(seeds.shared(Purpose::Owners)),
            hasher: TupleHasher::new(seeds.shared(Purpose::Claims)),
            moved: (0..SHARDS).map(|_| RwLock::default()).collect(),
            has_claims: AtomicBool::new(false),
            expecting: AtomicUsize::new(0),
        }
    }

    /// Number of workers that may own connections.
    #[inline]
    pub(crate) fn owning(&self) -> usize {
        self.owning
    }

    /// Number of workers that receive new connections.
    pub(crate) fn sharing(&self) -> usize {
        self.sharing.load(Ordering::Relaxed)
    }

    /// Prepares a distribution of new connections to these workers, which takes effect with
    /// [`OwnerMap::switch`]. Before that, each worker claims its connections that the hash [assigns
    /// elsewhere](OwnerMap::is_elsewhere). Must not be called concurrently.
    pub(crate) fn prepare(&self, workers: &[u16]) {
        share_out(&self.next, workers);
        self.changed.store(true, Ordering::Release);
    }

    /// Makes the prepared distribution take effect.
    pub(crate) fn switch(&self, workers: &[u16]) {
        share_out(&self.now, workers);
        self.sharing.store(workers.len(), Ordering::Relaxed);
    }

    /// Whether untranslated connections may belong to another worker than the one that their hash selects.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Whether the hash assigns a tuple to another worker than this one, now or after a prepared change takes
    /// effect.
    pub(crate) fn is_elsewhere(&self, tuple: &Tuple, worker: usize) -> bool {
        let part = part(self.hash(tuple));
        [&self.now, &self.next].iter().any(|parts| usize::from(parts[part].load(Ordering::Acquire)) != worker)
    }

    /// Whether this worker owns every connection.
    #[inline]
    pub(crate) fn owns_all(&self, worker: usize) -> bool {
        self.owning == 1 && worker == 0
    }

    /// The worker that owns packets with this tuple.
    pub(crate) fn owner(&self, tuple: &Tuple) -> usize {
        let claimed = self.claimed_by(tuple).or_else(|| self.expected_by(tuple));
        claimed.unwrap_or_else(|| self.by_hash(self.hash(tuple)))
    }

    /// The home of a datagram: the worker to which all its fragments go first.
    pub(crate) fn home(&self, datagram: &FragmentKey) -> usize {
        self.by_hash(self.prf.hash(&datagram.packed().to_bytes()))
    }

    /// Records that a connection of `worker` receives packets with this tuple. The hash of the tuple may
    /// select another worker.
    ///
    /// # Errors
    /// The tuple cannot be claimed. Nothing is changed.
    pub(crate) fn claim(&self, tuple: &Tuple, worker: usize) -> Result<(), ClaimError> {
        let hash = self.hasher.hash(tuple);
        let worker = worker as u16;
        let mut shard = write(self.shard(hash));
        shard.try_reserve(1, |claim| claim.hash).map_err(|_| ClaimError::NoMemory)?;
        match shard.entry(hash, |claim| claim.hash == hash, |claim| claim.hash) {
            Entry::Occupied(other) if other.get().worker == worker => Ok(()),
            Entry::Occupied(_) => Err(ClaimError::Taken),
            Entry::Vacant(place) => {
                place.insert(Claim { hash, worker });
                if !self.has_claims.load(Ordering::Relaxed) {
                    self.has_claims.store(true, Ordering::Release);
                }
                Ok(())
            }
        }
    }

    /// Records that `worker` expects a connection with this tuple from any source port. The source port of
    /// `tuple` is 0.
    ///
    /// # Errors
    /// The tuple cannot be claimed. Nothing is changed.
    pub(crate) fn expect(&self, tuple: &Tuple, worker: usize) -> Result<(), ClaimError> {
        if self.owning > 1 {
            self.claim(tuple, worker)?;
            self.expecting.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Withdraws the claim of [`OwnerMap::expect`].
    pub(crate) fn withdraw_expected(&self, tuple: &Tuple, worker: usize) {
        if self.owning > 1 {
            self.release(tuple, worker);
            self.expecting.fetch_sub(1, Ordering::Release);
        }
    }

    /// The worker that expects a connection with this tuple.
    fn expected_by(&self, tuple: &Tuple) -> Option<usize> {
        if self.expecting.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.claimed_by(&tuple.from_any_port())
    }

    /// Whether another worker has claimed this tuple.
    pub(crate) fn is_taken(&self, tuple: &Tuple, worker: usize) -> bool {
        self.claimed_by(tuple).is_some_and(|other| other != worker)
    }

    /// The worker that has claimed this tuple.
    fn claimed_by(&self, tuple: &Tuple) -> Option<usize> {
        if !self.has_claims.load(Ordering::Acquire) {
            return None;
        }
        let hash = self.hasher.hash(tuple);
        read(self.shard(hash)).find(hash, |claim| claim.hash == hash).map(|claim| usize::from(claim.worker))
    }

    /// Withdraws a worker's claim.
    pub(crate) fn release(&self, tuple: &Tuple, worker: usize) {
        let hash = self.hasher.hash(tuple);
        let own = |claim: &Claim| claim.hash == hash && usize::from(claim.worker) == worker;
        if let Ok(claim) = write(self.shard(hash)).find_entry(hash, own) {
            claim.remove();
        }
    }

    /// Shards are selected by middle bits, since the hash tables use the lowest bits and the highest seven.
    fn shard(&self, hash: u64) -> &RwLock<HashTable<Claim>> {
        &self.moved[(hash >> 40) as usize % SHARDS]
    }

    #[inline]
    fn by_hash(&self, hash: u64) -> usize {
        usize::from(self.now[part(hash)].load(Ordering::Acquire))
    }

    /// The hash of a tuple, the same for its reverse.
    fn hash(&self, tuple: &Tuple) -> u64 {
        self.prf.hash(&tuple.in_order().to_bytes())
    }
}

/// Assigns an equal number of hash ranges to each worker.
fn share_out(parts: &[AtomicU16; PARTS], workers: &[u16]) {
    for (part, worker) in parts.iter().zip(workers.iter().cycle()) {
        part.store(*worker, Ordering::Release);
    }
}

/// The range of a hash.
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
        let owners = OwnerMap::new(3, &SeedTree::repeatable(7));
        let mut counts = [0; 3];
        for number in 0..30_000 {
            let owner = owners.owner(&tuple(number));
            assert_eq!(owner, owners.owner(&tuple(number).reversed()));
            counts[owner] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn claimed_tuples_belong_to_who_claimed_them_until_let_go() {
        let owners = OwnerMap::new(2, &SeedTree::repeatable(7));
        for number in 0..100 {
            let reply = tuple(number);
            let by_hash = owners.owner(&reply);
            for worker in 0..2 {
                assert_eq!([0; 2].map(|_| owners.claim(&reply, worker)), [Ok(()); 2]);
                assert_eq!(owners.claim(&reply, 1 - worker), Err(ClaimError::Taken));
                assert!(owners.is_taken(&reply, 1 - worker));
                assert!(!owners.is_taken(&reply, worker));
                assert_eq!(owners.owner(&reply), worker);
                owners.release(&reply, worker);
                assert_eq!(owners.owner(&reply), by_hash);
            }
        }
        assert!(owners.moved.iter().all(|shard| read(shard).is_empty()));
    }
}
