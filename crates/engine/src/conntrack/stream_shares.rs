//! Counts the streams of each source, so that one host cannot take all places (`set stream per-source`).
//!
//! Each worker counts the streams of its own table by source. A source is the address that opened the
//! connection (for IPv6, its first 64 bits), on its wire. It is identified by a keyed 64-bit hash. The counts
//! are in many small hash tables, so that a packet never waits long while one of them grows.

use hashbrown::hash_table::Entry;
use hashbrown::{HashTable, TryReserveError};
use mmb_conn::{Tuple, Wire};
use mmb_policy::settings::StreamsPerSource;
use std::hash::{BuildHasher, RandomState};

const SHARDS: usize = 256;
/// Every source may have at least `MIN_STREAMS` streams or one in `PART` of all places, whichever is more:
/// see [`StreamsPerSource::Share`].
const MIN_STREAMS: usize = 64;
const PART: usize = 256;

/// A source of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct StreamSource(u64);

/// The number of streams of each source.
#[derive(Debug)]
pub(super) struct StreamShares {
    hasher: RandomState,
    shards: Box<[HashTable<(u64, u32)>]>,
    max: StreamsPerSource,
}

impl StreamShares {
    pub(super) fn new() -> StreamShares {
        StreamShares {
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
            max: StreamsPerSource::default(),
        }
    }

    /// Sets the limit. If it is a fixed number, each of `workers` workers applies an equal part of it.
    pub(super) fn configure(&mut self, max: StreamsPerSource, workers: usize) {
        self.max = match max {
            StreamsPerSource::Share => StreamsPerSource::Share,
            StreamsPerSource::AtMost(max) => StreamsPerSource::AtMost(max.div_ceil(workers.max(1) as u32)),
        };
    }

    /// The source of a connection whose first packet has this tuple.
    pub(super) fn source(&self, arrived: &Tuple) -> StreamSource {
        let Tuple { addresses: [address, _], wire, family, .. } = *arrived;
        let prefix = if family == 6 { address >> 64 << 64 } else { address };
        let key: (u128, Wire, u8) = (prefix, wire, family);
        StreamSource(self.hasher.hash_one(key))
    }

    /// Whether a source may have one more stream, if `free` of the table's `places` places are free. Reserves
    /// memory for the count, so that [`StreamShares::begin`] does not allocate.
    ///
    /// # Errors
    /// The allocation failed.
    pub(super) fn admits(
        &mut self,
        StreamSource(hash): StreamSource,
        (places, free): (usize, usize),
    ) -> Result<bool, TryReserveError> {
        let shard = &mut self.shards[hash as usize % SHARDS];
        let Some((_, count)) = shard.find(hash, |(known, _)| *known == hash) else {
            shard.try_reserve(1, |(known, _)| *known)?;
            return Ok(true);
        };
        let count = *count as usize;
        Ok(match self.max {
            StreamsPerSource::Share => count < MIN_STREAMS.max(places / PART) || count < free,
            StreamsPerSource::AtMost(max) => count < max as usize,
        })
    }

    /// Counts a stream of a source that [`StreamShares::admits`] has admitted.
    pub(super) fn begin(&mut self, StreamSource(hash): StreamSource) {
        let shard = &mut self.shards[hash as usize % SHARDS];
        shard
            .entry(hash, |(known, _)| *known == hash, |(known, _)| *known)
            .or_insert((hash, 0))
            .get_mut()
            .1 += 1;
    }

    /// Removes a stream of a source from its count.
    pub(super) fn end(&mut self, StreamSource(hash): StreamSource) {
        let shard = &mut self.shards[hash as usize % SHARDS];
        if let Entry::Occupied(mut counted) =
            shard.entry(hash, |(known, _)| *known == hash, |(known, _)| *known)
        {
            match counted.get().1 {
                0 | 1 => drop(counted.remove()),
                count => counted.get_mut().1 = count - 1,
            }
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(HashTable::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(address: u128, family: u8) -> Tuple {
        Tuple { addresses: [address, 9], ports: [1, 2], proto: 6, family, ..Tuple::default() }
    }

    /// Opens as many streams of a source as are admitted. `taken` of `places` places are taken before.
    fn fill(shares: &mut StreamShares, address: u128, places: usize, taken: &mut usize) -> usize {
        let source = shares.source(&tuple(address, 4));
        let before = *taken;
        while *taken < places && shares.admits(source, (places, places - *taken)) == Ok(true) {
            shares.begin(source);
            *taken += 1;
        }
        *taken - before
    }

    #[test]
    fn one_source_leaves_half_of_the_places_to_others() {
        let (mut shares, mut taken) = (StreamShares::new(), 0);
        assert_eq!(fill(&mut shares, 1, 100_000, &mut taken), 50_000);
        assert_eq!(fill(&mut shares, 2, 100_000, &mut taken), 25_000);
        // Each host takes half of the free places, until half of them is less than the share that every host
        // may have.
        assert!((3..9).map(|host| fill(&mut shares, host, 100_000, &mut taken)).all(|own| own >= 390));
        for (address, count) in [(1, 50_000), (2, 25_000)] {
            let source = shares.source(&tuple(address, 4));
            (0..count).for_each(|_| shares.end(source));
        }
        assert_eq!(shares.len(), 6, "sources without streams are forgotten");
    }

    #[test]
    fn few_places_are_not_divided() {
        let (mut shares, mut taken) = (StreamShares::new(), 0);
        assert_eq!(fill(&mut shares, 1, 64, &mut taken), 64);
    }

    #[test]
    fn a_number_holds_for_each_source_and_workers_have_parts_of_it() {
        let (mut shares, mut taken) = (StreamShares::new(), 0);
        shares.configure(StreamsPerSource::AtMost(5), 2);
        assert_eq!(
            (1..4).map(|host| fill(&mut shares, host, 100, &mut taken)).collect::<Vec<_>>(),
            [3, 3, 3]
        );
    }

    #[test]
    fn addresses_of_ipv6_share_by_64_bits() {
        let shares = StreamShares::new();
        let prefix = 0x2001_0db8_0000_0001_u128 << 64;
        let source = |address, family| shares.source(&tuple(address, family));
        assert_eq!(source(prefix | 1, 6), source(prefix | 77, 6));
        assert_ne!(source(prefix | 1, 6), source((prefix + (1 << 64)) | 1, 6), "of another network");
        assert_ne!(source(prefix, 6), source(prefix, 4), "of another family");
    }
}
