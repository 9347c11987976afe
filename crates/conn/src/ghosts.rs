//! Ghost entries: half-open connections that were evicted in the last seconds (after the ghost lists of 2Q,
//! Johnson and Shasha, VLDB 1994).
//!
//! A client whose connection was evicted retransmits its first packet: TCP after one second and after three
//! (RFC 6298), other protocols after a similar time. A flood of made-up tuples does not retransmit. So the
//! table records a fingerprint and the time of each evicted entry. It is set-associative: a new ghost
//! replaces the oldest of its set. A lookup reads one or two cache lines. The hash is keyed, so a sender
//! cannot choose the set.

use mmb_base::prefetch;

/// The number of sets, as a shift.
const SETS_SHIFT: u32 = 16;

/// Fingerprints per set. The 65,536 sets contain a million fingerprints, which last three seconds at 300,000
/// evictions a second.
const WAYS: usize = 16;

/// The number of sets that are allocated together, as a shift: 64 KiB.
const CHUNK_SHIFT: u32 = 10;
const CHUNK: usize = 1 << CHUNK_SHIFT;
const CHUNKS: usize = 1 << (SETS_SHIFT - CHUNK_SHIFT);

/// The minimum time after which a client retransmits its first packet. A sender that repeats a packet sooner
/// does not count as retransmitting. RFC 6298 starts with one second, of which the table's clock and queues
/// may take a part.
pub(crate) const RETRANSMITTED_AFTER_MS: u64 = 500;

/// How long a ghost is kept. A first packet that comes later counts as new.
const MAX_AGE_MS: u64 = 3_500;

/// The unit of time, as a shift of milliseconds.
const TICK_SHIFT: u32 = 4;

/// The fingerprint in the upper half, and the time in the lower half. Zero means none.
type Ghost = u32;

type GhostSet = [Ghost; WAYS];

/// The ghosts of a table.
#[derive(Debug)]
pub(crate) struct Ghosts {
    /// Allocated on first use.
    chunks: [Vec<GhostSet>; CHUNKS],
    /// The time at which the newest ghost expires. After it, lookups need no search.
    lasts_until_ms: u64,
}

impl Ghosts {
    pub(crate) fn new() -> Ghosts {
        Ghosts { chunks: std::array::from_fn(|_| Vec::new()), lasts_until_ms: 0 }
    }

    /// Whether there may be ghosts that have not expired.
    #[inline]
    pub(crate) fn may_exist(&self, now_ms: u64) -> bool {
        now_ms < self.lasts_until_ms
    }

    /// Prefetches the set of a hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let GhostParts { chunk, set, .. } = parts(hash);
        self.chunks[chunk].get(set).into_iter().for_each(prefetch);
    }

    /// Records that an entry with this hash was evicted.
    pub(crate) fn insert(&mut self, hash: u64, now_ms: u64) {
        let GhostParts { chunk, set, print } = parts(hash);
        let chunk = &mut self.chunks[chunk];
        if chunk.is_empty() {
            // Without memory, nothing is recorded. Then a retransmission counts only for entries in the
            // table.
            if chunk.try_reserve_exact(CHUNK).is_err() {
                return;
            }
            chunk.resize(CHUNK, [0; WAYS]);
        }
        self.lasts_until_ms = now_ms + MAX_AGE_MS;
        let ways = &mut chunk[set];
        // Replaces the ghost of the same entry, an unused one, or the oldest.
        let rank = |ghost: &&mut Ghost| match **ghost {
            ghost if has_print(ghost, print) => u64::MAX,
            0 => u64::MAX - 1,
            ghost => age_ms(ghost, now_ms),
        };
        if let Some(oldest) = ways.iter_mut().max_by_key(rank) {
            *oldest = print << 16 | u32::from((now_ms >> TICK_SHIFT) as u16);
        }
    }

    /// Whether a first packet with this hash is a retransmission: an entry with this hash was evicted between
    /// `RETRANSMITTED_AFTER_MS` and `MAX_AGE_MS` ago.
    #[inline]
    pub(crate) fn is_retransmitted(&self, hash: u64, now_ms: u64) -> bool {
        self.may_exist(now_ms) && self.find(hash, now_ms)
    }

    fn find(&self, hash: u64, now_ms: u64) -> bool {
        let GhostParts { chunk, set, print } = parts(hash);
        let Some(ways) = self.chunks[chunk].get(set) else { return false };
        let ages = RETRANSMITTED_AFTER_MS..=MAX_AGE_MS;
        ways.iter().any(|ghost| has_print(*ghost, print) && ages.contains(&age_ms(*ghost, now_ms)))
    }

    /// Bytes in use: 4 MiB once all chunks are allocated.
    pub(crate) fn memory(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<GhostSet>()).sum()
    }
}

/// The parts of a hash.
struct GhostParts {
    chunk: usize,
    set: usize,
    print: u32,
}

fn parts(hash: u64) -> GhostParts {
    let set = (hash >> (64 - SETS_SHIFT)) as usize;
    // A fingerprint is never zero, so that a ghost is never zero.
    GhostParts { chunk: set >> CHUNK_SHIFT, set: set % CHUNK, print: u32::from(hash as u16).max(1) }
}

fn has_print(ghost: Ghost, print: u32) -> bool {
    ghost >> 16 == print
}

/// The age of a ghost; it wraps after 17 minutes.
fn age_ms(ghost: Ghost, now_ms: u64) -> u64 {
    u64::from(((now_ms >> TICK_SHIFT) as u16).wrapping_sub(ghost as u16)) << TICK_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_random::RepeatableRandom;

    #[test]
    fn a_ghost_is_seen_as_long_after_as_a_client_sends_again() {
        let begins_ms = (u64::from(u16::MAX) << TICK_SHIFT) - 200;
        let mut ghosts = Ghosts::new();
        let hash = 0x1234_5678_9abc_def0;
        assert!(!ghosts.is_retransmitted(hash, begins_ms));
        ghosts.insert(hash, begins_ms);
        for (after_ms, again) in [(0, false), (400, false), (1000, true), (3000, true), (7000, false)] {
            assert_eq!(ghosts.is_retransmitted(hash, begins_ms + after_ms), again, "after {after_ms} ms");
        }
        assert!(!ghosts.is_retransmitted(hash ^ 1, begins_ms + 1000), "another fingerprint");
        assert!(!ghosts.is_retransmitted(hash ^ 1 << 60, begins_ms + 1000), "another set");
        // A sender that does not pause does not count as retransmitting.
        ghosts.insert(hash, begins_ms + 900);
        assert!(!ghosts.is_retransmitted(hash, begins_ms + 1000));
        assert!(ghosts.is_retransmitted(hash, begins_ms + 1900));
    }

    /// At 300,000 evictions a second, a first packet that is retransmitted after a second is recognized, and
    /// hardly any other is.
    #[test]
    fn a_flood_does_not_wash_away_the_ghosts_of_the_last_second() {
        let mut ghosts = Ghosts::new();
        let mut random = RepeatableRandom::new(1);
        let clients: Vec<u64> = (0..1000).map(|_| random.word()).collect();
        for at in 0..300_000u64 {
            ghosts.insert(random.word(), at / 300);
            if at % 300 == 0 {
                ghosts.insert(clients[(at / 300) as usize], at / 300);
            }
        }
        for at in 0..300_000u64 {
            ghosts.insert(random.word(), 1000 + at / 300);
        }
        let known = clients.iter().filter(|hash| ghosts.is_retransmitted(**hash, 1000 + 999)).count();
        assert!(known >= 980, "{known} of 1000 are known");
        let strangers = (0..100_000).filter(|_| ghosts.is_retransmitted(random.word(), 1999)).count();
        assert!(strangers <= 100, "{strangers} of 100,000 are taken for others");
        assert!(ghosts.memory() <= 4 << 20);
    }
}
