//! Numbers for things that are the same if they say the same, as long as someone uses them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Things of kind `K`, each with a number, a state, and a count of its users.
pub(super) struct Interned<K, S> {
    numbers: HashMap<Arc<K>, u32>,
    entries: HashMap<u32, Entry<K, S>>,
    free: Vec<u32>,
}

struct Entry<K, S> {
    key: Arc<K>,
    state: S,
    users: u32,
}

impl<K: Eq + Hash, S> Interned<K, S> {
    pub(super) fn new() -> Interned<K, S> {
        Interned { numbers: HashMap::new(), entries: HashMap::new(), free: Vec::new() }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of a thing, for one user more; its state is made if nobody used it.
    pub(super) fn hold(&mut self, key: K, make: impl FnOnce(&K) -> S) -> u32 {
        if let Some(number) = self.numbers.get(&key).copied() {
            self.hold_number(number);
            return number;
        }
        let number = self.free.pop().unwrap_or(self.entries.len() as u32);
        let (key, state) = (Arc::new(key), make);
        let state = state(&key);
        self.numbers.insert(Arc::clone(&key), number);
        self.entries.insert(number, Entry { key, state, users: 1 });
        number
    }

    /// The number of a thing that has users.
    pub(super) fn number(&self, key: &K) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// One user more of a number that has users.
    pub(super) fn hold_number(&mut self, number: u32) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.users += 1;
        }
    }

    /// One user less.
    pub(super) fn release(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.users -= 1;
        if entry.users == 0
            && let Some(gone) = self.entries.remove(&number)
        {
            self.numbers.remove(&gone.key);
            self.free.push(number);
        }
    }

    pub(super) fn state(&mut self, number: u32) -> Option<&mut S> {
        self.entries.get_mut(&number).map(|entry| &mut entry.state)
    }
}
