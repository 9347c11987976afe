//! A hash table in many small ones, so that none of them ever grows for long.
//!
//! One table of ten million entries would stop its worker for most of a second when it doubles. A thousandth of it takes
//! less than a millisecond, and its shards do not all grow within one packet.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

const SHARDS: usize = 1024;

/// Entries found by a hash and a test of equality that the caller brings; they may be numbers of records elsewhere.
pub(super) struct Shards<T> {
    shards: Box<[HashTable<T>]>,
    len: usize,
}

impl<T> Shards<T> {
    pub(super) fn new() -> Shards<T> {
        Shards { shards: (0..SHARDS).map(|_| HashTable::new()).collect(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bytes that the tables take, roughly: their slots and a control byte for each.
    pub(super) fn memory(&self) -> usize {
        let slots: usize = self.shards.iter().map(HashTable::capacity).sum();
        slots * (size_of::<T>() + 1) * 8 / 7 + SHARDS * size_of::<HashTable<T>>()
    }

    pub(super) fn find(&self, hash: u64, same: impl FnMut(&T) -> bool) -> Option<&T> {
        self.shards[shard(hash)].find(hash, same)
    }

    pub(super) fn find_mut(&mut self, hash: u64, same: impl FnMut(&T) -> bool) -> Option<&mut T> {
        self.shards[shard(hash)].find_mut(hash, same)
    }

    /// Adds an entry that is not there yet.
    pub(super) fn insert(&mut self, hash: u64, entry: T, rehash: impl Fn(&T) -> u64) {
        self.shards[shard(hash)].insert_unique(hash, entry, rehash);
        self.len += 1;
    }

    /// The entry, made if there was none.
    pub(super) fn entry(
        &mut self,
        hash: u64,
        same: impl FnMut(&T) -> bool,
        rehash: impl Fn(&T) -> u64,
        make: impl FnOnce() -> T,
    ) -> &mut T {
        match self.shards[shard(hash)].entry(hash, same, rehash) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(place) => {
                self.len += 1;
                place.insert(make()).into_mut()
            }
        }
    }

    pub(super) fn remove(&mut self, hash: u64, same: impl FnMut(&T) -> bool) -> Option<T> {
        let entry = self.shards[shard(hash)].find_entry(hash, same).ok()?;
        self.len -= 1;
        Some(entry.remove().0)
    }
}

/// The tables themselves use the lowest and the highest seven bits.
fn shard(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}
