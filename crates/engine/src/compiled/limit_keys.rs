//! The state of one rate limit for many keys, in a table of fixed size.
//!
//! A key is an address or a network, identified by a keyed 64-bit hash. A bucket has eight places in two
//! cache lines: one of hashes and one of cells. A cell that is not ahead of now is equal to an unused cell,
//! so its place is free. Therefore a key occupies a place only for the duration of its burst after its last
//! use.
//!
//! When a bucket is full, the key whose cell is the least ahead of now is evicted. If that key returns, its
//! whole burst is available. So senders with many addresses evict each other. They do not evict a sender that
//! the limit restricts, because its cell is the furthest ahead. No sender is refused because of other
//! senders, and memory is bounded.
//!
//! Workers share a table without locks. If two workers use one place at the same time, some units may be
//! counted for the wrong key or not at all, once.

use crate::rate::{RateCell, RateLimit, Ticks};
use mmb_base::{ZeroedAtomics, prefetch};
use mmb_conn::{Tuple, TupleHasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Places of a bucket.
const WAYS: usize = 8;
/// Places per key. When the table has all the keys for which it was sized, only about one key in a thousand
/// is evicted from a full bucket.
const PLACES_PER_KEY: usize = 4;

/// Words of a bucket: a hash and a cell for each place.
const WORDS: usize = 2 * WAYS;

struct Bucket<'t> {
    /// The hashes of keys; 0 for none.
    keys: &'t [AtomicU64],
    cells: &'t [AtomicU64],
}

/// Rates by key.
#[derive(Debug)]
pub(crate) struct LimitKeys {
    hasher: TupleHasher,
    /// The buckets. The pages of large tables are touched only as keys use them.
    words: ZeroedAtomics,
}

/// The result of taking units of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyOutcome {
    /// The units are within the rate.
    pub(crate) fits: bool,
    /// Another key in use was evicted for this key.
    pub(crate) evicted: bool,
}

impl LimitKeys {
    /// A table for at least `keys` keys.
    pub(crate) fn new(keys: u32, hasher: TupleHasher) -> LimitKeys {
        LimitKeys { hasher, words: ZeroedAtomics::new(LimitKeys::buckets(keys) * WORDS) }
    }

    /// The bytes of a table for at least `keys` keys.
    pub(crate) fn bytes(keys: u32) -> u64 {
        (LimitKeys::buckets(keys) * WORDS * size_of::<AtomicU64>()) as u64
    }

    fn buckets(keys: u32) -> usize {
        (keys.next_power_of_two() as usize * PLACES_PER_KEY).div_ceil(WAYS)
    }

    /// Prefetches what [`LimitKeys::take`] reads.
    #[inline]
    pub(crate) fn prefetch(&self, key: &Tuple) {
        let Bucket { keys, cells } = self.bucket(self.hash(key));
        prefetch(&keys[0]);
        prefetch(&cells[0]);
    }

    fn hash(&self, key: &Tuple) -> u64 {
        self.hasher.hash(key).max(1)
    }

    fn bucket(&self, hash: u64) -> Bucket<'_> {
        // The number of buckets is a power of two.
        let first = (hash as usize).wrapping_mul(WORDS) & (self.words.len() - 1);
        let (keys, cells) = self.words[first..first + WORDS].split_at(WAYS);
        Bucket { keys, cells }
    }

    /// Takes units of a key if they are within the rate.
    #[inline]
    pub(crate) fn take(&self, key: &Tuple, limit: &RateLimit, units: u64, now: Ticks) -> KeyOutcome {
        let hash = self.hash(key);
        let bucket = self.bucket(hash);
        let place = bucket.keys.iter().position(|known| known.load(Relaxed) == hash);
        let (place, evicted) = match place {
            Some(place) => (place, false),
            None => bucket.admit(hash, limit, now),
        };
        KeyOutcome { fits: bucket.cell(place).take_units(limit, units, now), evicted }
    }
}

impl<'t> Bucket<'t> {
    #[inline]
    fn cell(&self, place: usize) -> RateCell<&'t AtomicU64> {
        RateCell(&self.cells[place])
    }

    /// Gives a key the place whose cell is the least ahead of now. Returns the place, and whether another key
    /// used it.
    #[cold]
    fn admit(&self, hash: u64, limit: &RateLimit, now: Ticks) -> (usize, bool) {
        let uses = (0..WAYS).map(|place| self.cell(place).ahead(limit, now));
        let (place, ahead) = (0..).zip(uses).min_by_key(|(_, ahead)| *ahead).unwrap_or_default();
        self.keys[place].store(hash, Relaxed);
        self.cell(place).reset(now);
        (place, ahead > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_random::Seed;

    const SECOND_NS: u64 = 1_000_000_000;

    fn table(keys: u32) -> LimitKeys {
        LimitKeys::new(keys, TupleHasher::new(Seed::repeatable(1)))
    }

    fn key(number: u128) -> Tuple {
        Tuple { addresses: [number, 0], family: 4, ..Tuple::default() }
    }

    #[test]
    fn each_key_has_the_rate_for_itself() {
        let (table, limit) = (table(1 << 14), RateLimit::new((10, 1), 5));
        let mut passed = vec![0; 1000];
        // Each key sends a hundred packets a second, for ten seconds.
        for step in 0..1000_u64 {
            for (number, passed) in passed.iter_mut().enumerate() {
                let now = Ticks::from_ns(step * SECOND_NS / 100);
                let outcome = table.take(&key(number as u128), &limit, 1, now);
                *passed += u32::from(outcome.fits);
                assert!(!outcome.evicted);
            }
        }
        assert!(passed.iter().all(|passed| (103..=105).contains(passed)), "{passed:?}");
    }

    #[test]
    fn as_many_keys_as_were_asked_for_are_kept_apart() {
        let (table, limit) = (table(1 << 12), RateLimit::new((1, 3600), 1));
        let passed =
            |_| (0..1 << 12).filter(|n| table.take(&key(*n), &limit, 1, Ticks::from_ns(0)).fits).count();
        let [first, second] = [(); 2].map(passed);
        assert_eq!(first, 1 << 12);
        assert!(second <= 4, "{second} of 4096 were forgotten");
    }

    #[test]
    fn a_flood_of_keys_neither_frees_those_who_are_held_back_nor_refuses_others() {
        let (table, limit) = (table(1024), RateLimit::new((10, 1), 5));
        let (mut loud, mut others, mut evicted) = (0, 0, 0);
        for step in 0..1_000_000_u64 {
            let now = Ticks::from_ns(step * 10_000);
            // One sender sends a hundred packets a second, among a hundred thousand from addresses that send
            // once.
            if step % 1000 == 0 {
                loud += u32::from(table.take(&key(7), &limit, 1, now).fits);
            }
            let outcome = table.take(&key(u128::from(step) + 1000), &limit, 1, now);
            others += u32::from(outcome.fits);
            evicted += u32::from(outcome.evicted);
        }
        assert!((100..=115).contains(&loud), "{loud} packets in ten seconds of 10 a second");
        assert_eq!(others, 1_000_000);
        assert!(evicted > 500_000, "{evicted}");
    }

    #[test]
    fn keys_that_are_idle_are_forgotten_first_and_are_no_loss() {
        let (table, limit) = (table(1024), RateLimit::new((10, 1), 5));
        let evicted = |numbers: std::ops::Range<u128>, now: Ticks| {
            numbers.filter(|number| table.take(&key(*number), &limit, 1, now).evicted).count()
        };
        assert_eq!(evicted(0..200, Ticks::from_ns(0)), 0);
        assert!(evicted(1000..10_000, Ticks::from_ns(1)) > 4000);
        assert_eq!(evicted(20_000..20_200, Ticks::from_ns(SECOND_NS)), 0);
    }
}
