//! Interning: equal keys have one id while they have users.

use hashbrown::HashTable;
use mmb_base::{Id, Slab};
use std::hash::{BuildHasher, Hash, RandomState};

/// Keys of type `K`, each with an id, a state, and a count of its users.
pub(super) struct Interned<I, K, S> {
    hasher: RandomState,
    ids: HashTable<I>,
    entries: Slab<I, Option<InternedEntry<K, S>>>,
    /// The id that was looked up last: the next connection is likely to need the same.
    last: Option<I>,
}

struct InternedEntry<K, S> {
    key: K,
    state: S,
    users: u32,
}

impl<I: Id, K: Eq + Hash, S> Interned<I, K, S> {
    pub(super) fn new() -> Interned<I, K, S> {
        Interned { hasher: RandomState::new(), ids: HashTable::new(), entries: Slab::default(), last: None }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Adds a user to the id that was looked up last, if `is` returns true for its key. This needs no copy of
    /// the key.
    #[inline]
    pub(super) fn hold_last(&mut self, is: impl FnOnce(&K) -> bool) -> Option<I> {
        let id = self.last(is)?;
        self.hold_id(id);
        Some(id)
    }

    /// The id that was looked up last, if `is` returns true for its key.
    #[inline]
    pub(super) fn last(&self, is: impl FnOnce(&K) -> bool) -> Option<I> {
        let id = self.last?;
        self.entries[id].as_ref().filter(|entry| is(&entry.key)).map(|_| id)
    }

    /// Adds a user of a key and returns its id. Creates the state for the first user. Returns `None` if
    /// memory is exhausted.
    pub(super) fn hold(&mut self, key: K, make: impl FnOnce(&K) -> S) -> Option<I> {
        if let Some(id) = self.find(&key) {
            self.last = Some(id);
            self.hold_id(id);
            return Some(id);
        }
        self.try_reserve()?;
        let hash = self.hasher.hash_one(&key);
        let state = make(&key);
        let id = self.entries.insert(Some(InternedEntry { key, state, users: 1 }));
        let Interned { hasher, ids, entries, .. } = self;
        ids.insert_unique(hash, id, |id| hash_at(hasher, entries, *id));
        self.last = Some(id);
        Some(id)
    }

    /// The id of a key that has users.
    pub(super) fn find(&self, key: &K) -> Option<I> {
        let is = |id: &I| self.entries[*id].as_ref().is_some_and(|entry| entry.key == *key);
        self.last.filter(is).or_else(|| self.ids.find(self.hasher.hash_one(key), is).copied())
    }

    /// Adds a user to an id that has users.
    pub(super) fn hold_id(&mut self, id: I) {
        if let Some(entry) = &mut self.entries[id] {
            entry.users += 1;
        }
    }

    /// Removes a user.
    pub(super) fn release(&mut self, id: I) {
        let Some(entry) = &mut self.entries[id] else { return };
        entry.users -= 1;
        if entry.users == 0 {
            let hash = hash_at(&self.hasher, &self.entries, id);
            if let Ok(entry) = self.ids.find_entry(hash, |other| *other == id) {
                entry.remove();
            }
            self.entries.remove(id);
        }
    }

    pub(super) fn state(&mut self, id: I) -> Option<&mut S> {
        self.entries[id].as_mut().map(|entry| &mut entry.state)
    }

    /// Reserves memory for one more key, and for freeing all ids. Returns `None` if memory is exhausted.
    fn try_reserve(&mut self) -> Option<()> {
        let Interned { hasher, ids, entries, .. } = self;
        entries.try_reserve().ok()?;
        ids.try_reserve(1, |id| hash_at(hasher, entries, *id)).ok()
    }
}

fn hash_at<I: Id, K: Hash, S>(
    hasher: &RandomState,
    entries: &Slab<I, Option<InternedEntry<K, S>>>,
    id: I,
) -> u64 {
    entries[id].as_ref().map_or(0, |entry| hasher.hash_one(&entry.key))
}
