//! Interning: equal keys have one number for as long as they have users.

use hashbrown::HashTable;
use std::hash::{BuildHasher, Hash, RandomState};

/// Keys of type `K`, each with a number, a state, and a count of its users.
pub(super) struct Interned<K, S> {
    hasher: RandomState,
    numbers: HashTable<u32>,
    /// By number.
    entries: Vec<Option<InternedEntry<K, S>>>,
    free: Vec<u32>,
    /// The last number that was looked up: the next connection is likely to need the same.
    last: u32,
}

struct InternedEntry<K, S> {
    key: K,
    state: S,
    users: u32,
}

impl<K: Eq + Hash, S> Interned<K, S> {
    pub(super) fn new() -> Interned<K, S> {
        Interned {
            hasher: RandomState::new(),
            numbers: HashTable::new(),
            entries: Vec::new(),
            free: Vec::new(),
            last: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Adds a user of a key and returns its number; creates the state for the first user. `None` if there is no memory.
    pub(super) fn hold(&mut self, key: K, make: impl FnOnce(&K) -> S) -> Option<u32> {
        if let Some(number) = self.number(&key) {
            self.last = number;
            self.hold_number(number);
            return Some(number);
        }
        if !self.reserve() {
            return None;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        let hash = self.hasher.hash_one(&key);
        let state = make(&key);
        self.entries[number as usize] = Some(InternedEntry { key, state, users: 1 });
        let Interned { hasher, numbers, entries, .. } = self;
        numbers.insert_unique(hash, number, |number| hash_at(hasher, entries, *number));
        Some(number)
    }

    /// The number of a key that has users.
    pub(super) fn number(&self, key: &K) -> Option<u32> {
        let is = |number: u32| self.entry(number).is_some_and(|entry| entry.key == *key);
        if is(self.last) {
            return Some(self.last);
        }
        self.numbers.find(self.hasher.hash_one(key), |number| is(*number)).copied()
    }

    /// Adds a user to a number that has users.
    pub(super) fn hold_number(&mut self, number: u32) {
        if let Some(entry) = &mut self.entries[number as usize] {
            entry.users += 1;
        }
    }

    /// Removes a user.
    pub(super) fn release(&mut self, number: u32) {
        let Some(entry) = &mut self.entries[number as usize] else { return };
        entry.users -= 1;
        if entry.users == 0 {
            let hash = hash_at(&self.hasher, &self.entries, number);
            if let Ok(entry) = self.numbers.find_entry(hash, |other| *other == number) {
                entry.remove();
            }
            self.entries[number as usize] = None;
            self.free.push(number);
        }
    }

    pub(super) fn state(&mut self, number: u32) -> Option<&mut S> {
        self.entries[number as usize].as_mut().map(|entry| &mut entry.state)
    }

    fn entry(&self, number: u32) -> Option<&InternedEntry<K, S>> {
        self.entries.get(number as usize)?.as_ref()
    }

    /// Reserves memory for one more key, and for its number in the free list. False if there is none.
    fn reserve(&mut self) -> bool {
        let Interned { hasher, numbers, entries, free, .. } = self;
        numbers.try_reserve(1, |number| hash_at(hasher, entries, *number)).is_ok()
            && (!free.is_empty()
                || entries.try_reserve(1).is_ok() && free.try_reserve(entries.capacity()).is_ok())
    }
}

fn hash_at<K: Hash, S>(hasher: &RandomState, entries: &[Option<InternedEntry<K, S>>], number: u32) -> u64 {
    entries[number as usize].as_ref().map_or(0, |entry| hasher.hash_one(&entry.key))
}
