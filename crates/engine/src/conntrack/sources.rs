//! Counts the connections that each source address has opened, for `set conn per-source`.
//!
//! Several workers may own connections of one source, so all workers count here. While the setting is on, a
//! shard is locked when a connection starts or ends. The record of a connection notes whether it was counted;
//! connections older than the setting are not counted. An IPv6 host may use 2^64 addresses, so IPv6 sources
//! are counted by the first 64 bits of their address.

use mmb_base::lock;
use mmb_conn::{Connection, Direction, Tuple, Wire};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard};

const SHARDS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SourceKey {
    address: u128,
    wire: Wire,
    family: u8,
}

impl SourceKey {
    fn from_tuple(tuple: &Tuple) -> SourceKey {
        let Tuple { addresses: [address, _], wire, family, .. } = *tuple;
        let prefix = if family == 6 { address >> 64 << 64 } else { address };
        SourceKey { address: prefix, wire, family }
    }
}

/// Why a connection is not counted, and must not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceRefusal {
    /// Its source has reached the limit.
    Limit,
    /// There is no memory to count it.
    NoMemory,
}

/// The number of connections by source.
#[derive(Debug)]
pub(super) struct SourceCounts {
    hasher: RandomState,
    shards: [Mutex<HashMap<SourceKey, u32>>; SHARDS],
}

impl SourceCounts {
    pub(super) fn new() -> SourceCounts {
        SourceCounts { hasher: RandomState::new(), shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Counts one more connection, if the source has fewer than `max`.
    ///
    /// # Errors
    /// The connection is not counted, and nothing is changed.
    pub(super) fn begin(&self, tuple: &Tuple, max: u32) -> Result<(), SourceRefusal> {
        let source = SourceKey::from_tuple(tuple);
        let mut shard = self.shard(&source);
        if let Some(count) = shard.get_mut(&source) {
            let is_below = *count < max;
            *count += u32::from(is_below);
            return if is_below { Ok(()) } else { Err(SourceRefusal::Limit) };
        }
        shard.try_reserve(1).map_err(|_| SourceRefusal::NoMemory)?;
        shard.insert(source, 1);
        Ok(())
    }

    /// Removes one connection from the count of its source.
    pub(super) fn end(&self, tuple: &Tuple) {
        let source = SourceKey::from_tuple(tuple);
        let mut shard = self.shard(&source);
        let Some(count) = shard.get_mut(&source) else { return };
        *count -= 1;
        if *count == 0 {
            shard.remove(&source);
            if shard.is_empty() {
                // Frees the capacity that a flood of sources has used.
                *shard = HashMap::new();
            }
        }
    }

    fn shard(&self, source: &SourceKey) -> MutexGuard<'_, HashMap<SourceKey, u32>> {
        let shard = self.hasher.hash_one(source) as usize % SHARDS;
        lock(&self.shards[shard])
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().expect("no test panics with it").len()).sum()
    }
}

/// The tuple with the source for which a connection is counted; `None` if it is not counted.
pub(super) fn counted(connection: &Connection) -> Option<Tuple> {
    connection.is_counted.then(|| connection.tuple(Direction::Forward))
}

/// Whether a connection is counted for the source of a tuple.
pub(super) fn counts_for(connection: &Connection, tuple: &Tuple) -> bool {
    counted(connection).is_some_and(|counted| SourceKey::from_tuple(&counted) == SourceKey::from_tuple(tuple))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(address: u128, family: u8) -> Tuple {
        Tuple { addresses: [address, 9], ports: [1, 2], proto: 17, family, ..Tuple::default() }
    }

    fn begins(sources: &SourceCounts, address: u128, family: u8, max: u32) -> bool {
        sources.begin(&tuple(address, family), max) == Ok(())
    }

    #[test]
    fn a_source_begins_as_many_as_it_may() {
        let sources = SourceCounts::new();
        for round in 0..3 {
            assert!((0..3).all(|_| begins(&sources, 7, 4, 3)), "round {round}");
            assert!(!begins(&sources, 7, 4, 3) && !begins(&sources, 7, 4, 2));
            assert!(begins(&sources, 8, 4, 1), "another one");
            sources.end(&tuple(7, 4));
            assert!(begins(&sources, 7, 4, 3));
            (0..3).for_each(|_| sources.end(&tuple(7, 4)));
            sources.end(&tuple(8, 4));
            assert_eq!(sources.len(), 0);
        }
    }

    #[test]
    fn addresses_of_ipv6_are_counted_by_64_bits() {
        let sources = SourceCounts::new();
        let prefix = 0x2001_0db8_0000_0001_u128 << 64;
        assert!(begins(&sources, prefix | 1, 6, 2) && begins(&sources, prefix | 77, 6, 2));
        assert!(!begins(&sources, prefix | 3, 6, 2));
        assert!(begins(&sources, (prefix + (1 << 64)) | 3, 6, 2), "of another network");
        assert!(begins(&sources, prefix | 1, 4, 2), "of another family");
    }
}
