//! A set of numbers from 0 that can be marked exhausted and available again, with constant-time selection of an available one by rank.
//!
//! It is a shuffle that stores only displaced positions: memory depends on how many numbers are or were exhausted, not on how many there
//! are.
//!
//! Marking a number exhausted takes the memory that making it available again needs: a release never fails.

use std::collections::HashMap;

/// See the module.
#[derive(Debug)]
pub(super) struct AvailablePorts {
    /// The first `open` positions hold the available numbers.
    open: u64,
    len: u64,
    /// The number at a position, and the position of a number, if displaced.
    at: HashMap<u64, u64>,
    place: HashMap<u64, u64>,
}

impl AvailablePorts {
    /// A set of `len` numbers, all available.
    pub(super) fn new(len: u64) -> AvailablePorts {
        AvailablePorts { open: len, len, at: HashMap::new(), place: HashMap::new() }
    }

    /// Number of available numbers.
    pub(super) fn count(&self) -> u64 {
        self.open
    }

    pub(super) fn all_open(&self) -> bool {
        self.open == self.len
    }

    /// An available number; each `rank` below [`AvailablePorts::count`] gives another.
    pub(super) fn nth(&self, rank: u64) -> u64 {
        self.at.get(&rank).copied().unwrap_or(rank)
    }

    pub(super) fn is_open(&self, number: u64) -> bool {
        self.place_of(number) < self.open
    }

    /// Reserves memory to mark one more number, and to make all available again. False if there is none.
    #[must_use]
    pub(super) fn reserve(&mut self) -> bool {
        let shut = (self.len - self.open) as usize + 1;
        // Each step displaces at most two. A table that is at most half full removes its tombstones without growing.
        let room = |table: &HashMap<u64, u64>| table.len() + 2 * (2 + 2 * shut);
        self.at.try_reserve(room(&self.at)).is_ok() && self.place.try_reserve(room(&self.place)).is_ok()
    }

    /// Marks a number exhausted; [`AvailablePorts::reserve`] comes before.
    pub(super) fn mark_exhausted(&mut self, number: u64) {
        let place = self.place_of(number);
        if place < self.open {
            self.open -= 1;
            self.swap(place, self.open);
        }
    }

    pub(super) fn reopen(&mut self, number: u64) {
        let place = self.place_of(number);
        if place >= self.open {
            self.swap(place, self.open);
            self.open += 1;
        }
    }

    fn place_of(&self, number: u64) -> u64 {
        self.place.get(&number).copied().unwrap_or(number)
    }

    fn swap(&mut self, one: u64, other: u64) {
        let (first, second) = (self.nth(one), self.nth(other));
        self.put(one, second);
        self.put(other, first);
    }

    fn put(&mut self, place: u64, number: u64) {
        if place == number {
            self.at.remove(&place);
            self.place.remove(&number);
        } else {
            self.at.insert(place, number);
            self.place.insert(number, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn opening_again_needs_no_memory() {
        let mut open = AvailablePorts::new(1000);
        for round in 0..200 {
            let numbers = (0..50).map(|number| (number * 17 + round * 31) % 1000);
            for number in numbers.clone() {
                assert!(open.reserve());
                open.mark_exhausted(number);
            }
            let capacity = (open.at.capacity(), open.place.capacity());
            numbers.rev().for_each(|number| open.reopen(number));
            assert_eq!((open.at.capacity(), open.place.capacity()), capacity, "round {round}");
        }
    }

    proptest! {
        #[test]
        fn open_numbers_are_those_of_a_plain_set(steps in proptest::collection::vec((any::<bool>(), 0_u64..12), 0..100)) {
            let mut open = AvailablePorts::new(12);
            let mut plain: BTreeSet<u64> = (0..12).collect();
            for (shut, number) in steps {
                if shut {
                    prop_assert!(open.reserve());
                    open.mark_exhausted(number);
                    plain.remove(&number);
                } else {
                    open.reopen(number);
                    plain.insert(number);
                }
                let found: BTreeSet<u64> = (0..open.count()).map(|rank| open.nth(rank)).collect();
                prop_assert_eq!(&found, &plain);
                prop_assert_eq!(open.all_open(), plain.len() == 12);
                for number in 0..12 {
                    prop_assert_eq!(open.is_open(number), plain.contains(&number));
                }
            }
        }
    }
}
