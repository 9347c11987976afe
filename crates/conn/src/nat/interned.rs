//! Numbers for things that are the same if they say the same, as long as someone uses them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Things of kind `K`, each with a number, a state, and a count of its users.
pub(super) struct Interned<K, S> {
    numbers: HashMap<Arc<K>, u32>,
    /// By number.
    entries: Vec<Option<Entry<K, S>>>,
    free: Vec<u32>,
    /// The number that was asked for last: the next connection is likely to ask for the same.
    last: u32,
}

struct Entry<K, S> {
    key: Arc<K>,
    state: S,
    users: u32,
}

impl<K: Eq + Hash, S> Interned<K, S> {
    pub(super) fn new() -> Interned<K, S> {
        Interned { numbers: HashMap::new(), entries: Vec::new(), free: Vec::new(), last: 0 }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The number of a thing, for one user more; its state is made if nobody used it.
    pub(super) fn hold(&mut self, key: K, make: impl FnOnce(&K) -> S) -> u32 {
        let last = self.entries.get(self.last as usize).and_then(Option::as_ref);
        let known = match last {
            Some(entry) if *entry.key == key => Some(self.last),
            _ => self.numbers.get(&key).copied(),
        };
        if let Some(number) = known {
            self.last = number;
            self.hold_number(number);
            return number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        let state = make(&key);
        let key = Arc::new(key);
        self.numbers.insert(Arc::clone(&key), number);
        self.entries[number as usize] = Some(Entry { key, state, users: 1 });
        number
    }

    /// The number of a thing that has users.
    pub(super) fn number(&self, key: &K) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// One user more of a number that has users.
    pub(super) fn hold_number(&mut self, number: u32) {
        if let Some(entry) = &mut self.entries[number as usize] {
            entry.users += 1;
        }
    }

    /// One user less.
    pub(super) fn release(&mut self, number: u32) {
        let entry = &mut self.entries[number as usize];
        if let Some(gone) = entry.take_if(|entry| {
            entry.users -= 1;
            entry.users == 0
        }) {
            self.numbers.remove(&gone.key);
            self.free.push(number);
        }
    }

    pub(super) fn state(&mut self, number: u32) -> Option<&mut S> {
        self.entries[number as usize].as_mut().map(|entry| &mut entry.state)
    }
}
