//! A set of indices (of addresses or servers) from which some are removed for a while. An available index is
//! selected by its rank in constant time.
//!
//! The set is a shuffle that stores only displaced positions. Its memory depends on how many indices are or
//! were removed, not on how many there are.
//!
//! The memory that is needed to put an index back is reserved before the index is removed, so that putting
//! back never fails.

use std::collections::HashMap;

/// See the module.
#[derive(Debug)]
pub(super) struct AvailableIndices {
    /// The first `available` positions hold the available indices.
    available: u64,
    len: u64,
    /// The index at a position, and the position of an index, if displaced.
    indices: HashMap<u64, u64>,
    positions: HashMap<u64, u64>,
}

impl AvailableIndices {
    /// A set of `len` indices, all available.
    pub(super) fn new(len: u64) -> AvailableIndices {
        AvailableIndices { available: len, len, indices: HashMap::new(), positions: HashMap::new() }
    }

    /// Number of available indices.
    pub(super) fn count(&self) -> u64 {
        self.available
    }

    /// Whether no index is removed.
    pub(super) fn all_available(&self) -> bool {
        self.available == self.len
    }

    /// The available index with this rank. Each `rank` below [`AvailableIndices::count`] has another index.
    pub(super) fn nth(&self, rank: u64) -> u64 {
        self.indices.get(&rank).copied().unwrap_or(rank)
    }

    /// Whether an index is not removed.
    pub(super) fn is_available(&self, index: u64) -> bool {
        self.position_of(index) < self.available
    }

    /// Reserves memory to remove one more index, and to put all back. Returns false if memory is exhausted.
    #[must_use]
    pub(super) fn reserve(&mut self) -> bool {
        let removed = (self.len - self.available) as usize + 1;
        // Each removal displaces at most two positions. A table that is at most half full removes its
        // tombstones without growing.
        let room = |table: &HashMap<u64, u64>| table.len() + 2 * (2 + 2 * removed);
        self.indices.try_reserve(room(&self.indices)).is_ok()
            && self.positions.try_reserve(room(&self.positions)).is_ok()
    }

    /// Removes an index. [`AvailableIndices::reserve`] must be called before.
    pub(super) fn remove(&mut self, index: u64) {
        let position = self.position_of(index);
        if position < self.available {
            self.available -= 1;
            self.swap(position, self.available);
        }
    }

    /// Puts an index back.
    pub(super) fn put_back(&mut self, index: u64) {
        let position = self.position_of(index);
        if position >= self.available {
            self.swap(position, self.available);
            self.available += 1;
        }
    }

    fn position_of(&self, index: u64) -> u64 {
        self.positions.get(&index).copied().unwrap_or(index)
    }

    fn swap(&mut self, one: u64, other: u64) {
        let (first, second) = (self.nth(one), self.nth(other));
        self.put(one, second);
        self.put(other, first);
    }

    fn put(&mut self, position: u64, index: u64) {
        if position == index {
            self.indices.remove(&position);
            self.positions.remove(&index);
        } else {
            self.indices.insert(position, index);
            self.positions.insert(index, position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn putting_back_needs_no_memory() {
        let mut set = AvailableIndices::new(1000);
        for round in 0..200 {
            let numbers = (0..50).map(|index| (index * 17 + round * 31) % 1000);
            for index in numbers.clone() {
                assert!(set.reserve());
                set.remove(index);
            }
            let capacity = (set.indices.capacity(), set.positions.capacity());
            numbers.rev().for_each(|index| set.put_back(index));
            assert_eq!((set.indices.capacity(), set.positions.capacity()), capacity, "round {round}");
        }
    }

    proptest! {
        #[test]
        fn available_indices_are_those_of_a_plain_set(steps in proptest::collection::vec((any::<bool>(), 0_u64..12), 0..100)) {
            let mut set = AvailableIndices::new(12);
            let mut plain: BTreeSet<u64> = (0..12).collect();
            for (removes, index) in steps {
                if removes {
                    prop_assert!(set.reserve());
                    set.remove(index);
                    plain.remove(&index);
                } else {
                    set.put_back(index);
                    plain.insert(index);
                }
                let found: BTreeSet<u64> = (0..set.count()).map(|rank| set.nth(rank)).collect();
                prop_assert_eq!(&found, &plain);
                prop_assert_eq!(set.all_available(), plain.len() == 12);
                for index in 0..12 {
                    prop_assert_eq!(set.is_available(index), plain.contains(&index));
                }
            }
        }
    }
}
