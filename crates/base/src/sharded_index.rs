//! A hash table split into many small ones, so that growing never takes long.
//!
//! One table of ten million entries would stall its worker for most of a second when it doubles. A thousandth of it takes less than a
//! millisecond, and the shards do not all grow within one packet.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

const SHARDS: usize = 1024;
/// A table with at most this capacity is not shrunk.
const LITTLE: usize = 28;

/// Entries found by a hash and an equality function of the caller; they may be numbers of records elsewhere.
#[derive(Debug)]
pub struct ShardedIndex<T> {
    shards: Box<[HashTable<T>]>,
    len: usize,
}

impl<T> Default for ShardedIndex<T> {
    fn default() -> Self {
        ShardedIndex::new()
    }
}

impl<T> ShardedIndex<T> {
    /// An index without entries.
    pub fn new() -> ShardedIndex<T> {
        ShardedIndex { shards: (0..SHARDS).map(|_| HashTable::new()).collect(), len: 0 }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        if !self.is_empty() {
            self.shards.iter_mut().for_each(HashTable::clear);
            self.len = 0;
        }
    }

    /// Approximate memory of the tables in bytes: their slots and a control byte for each.
    pub fn memory(&self) -> usize {
        let slots: usize = self.shards.iter().map(HashTable::capacity).sum();
        slots * (size_of::<T>() + 1) * 8 / 7 + SHARDS * size_of::<HashTable<T>>()
    }

    /// The entry with a hash for which `same` returns true.
    #[inline]
    pub fn find(&self, hash: u64, same: impl FnMut(&T) -> bool) -> Option<&T> {
        self.shards[shard(hash)].find(hash, same)
    }

    /// The entry with a hash for which `same` returns true, to be changed.
    pub fn find_mut(&mut self, hash: u64, same: impl FnMut(&T) -> bool) -> Option<&mut T> {
        self.shards[shard(hash)].find_mut(hash, same)
    }

    /// Reserves memory for one more entry with this hash. False if there is none.
    #[must_use]
    pub fn reserve(&mut self, hash: u64, rehash: impl Fn(&T) -> u64) -> bool {
        self.shards[shard(hash)].try_reserve(1, rehash).is_ok()
    }

    /// The entry, created if there was none; [`ShardedIndex::reserve`] comes before.
    pub fn entry(
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

    /// Removes an entry. A table that becomes nearly empty is rebuilt with a smaller size: otherwise it would keep its memory, and
    /// tombstones would slow lookups down.
    pub fn remove(&mut self, hash: u64, same: impl FnMut(&T) -> bool, rehash: impl Fn(&T) -> u64) {
        let table = &mut self.shards[shard(hash)];
        let Ok(entry) = table.find_entry(hash, same) else { return };
        entry.remove();
        self.len -= 1;
        if table.capacity() > LITTLE && table.len() < table.capacity() / 8 {
            let mut smaller = HashTable::new();
            if smaller.try_reserve(table.len() * 2, &rehash).is_ok() {
                for entry in table.drain() {
                    smaller.insert_unique(rehash(&entry), entry, &rehash);
                }
                *table = smaller;
            }
        }
    }
}

/// The tables themselves use the lowest and the highest seven bits.
fn shard(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: &u64) -> u64 {
        number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    #[test]
    fn tables_grow_and_shrink_with_what_they_hold() {
        let mut shards = ShardedIndex::new();
        let empty = shards.memory();
        for round in 0..3 {
            for number in 0..200_000 {
                assert!(shards.reserve(hash(&number), hash));
                shards.entry(hash(&number), |other| *other == number, hash, || number);
            }
            assert!(shards.len() == 200_000 && shards.memory() - empty < 200_000 * 24);
            for number in (0..200_000).filter(|number| number % 4 != round) {
                shards.remove(hash(&number), |other| *other == number, hash);
            }
            assert!(
                (0..200_000).all(|number| shards.find(hash(&number), |other| *other == number).is_some()
                    == (number % 4 == round))
            );
            for number in 0..200_000 {
                shards.remove(hash(&number), |other| *other == number, hash);
            }
            assert!(shards.is_empty() && shards.memory() - empty < SHARDS * 32 * 16);
        }
    }
}
