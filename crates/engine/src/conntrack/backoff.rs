//! Back-off between searches for outside ports that could be reclaimed, after searches that found none.
//!
//! A search examines hundreds of connections, and a flood of packets may ask for searches. After a search
//! that found nothing, packets with the same shortage therefore start no search for some time: a millisecond,
//! then twice as long after each further failure, up to [`LONGEST_MS`].
//!
//! The shortage is either the ports of one host, or the ports of a pool for hosts with about the same number
//! of ports. A keyed hash of the shortage selects one of [`PLACES`] entries. A host whose searches fail
//! delays only the hosts of the same entry. The hash assigns entries anew every [`EPOCH_MS`], so no host
//! shares an entry with a flood for longer. Each entry allows a few searches at the beginning of an epoch,
//! and then one per [`LONGEST_MS`], however many hosts ask.

const PLACES: usize = 256;
const LONGEST_MS: u64 = 128;
const EPOCH_MS: u64 = 1024;

/// The back-offs of failed searches, by the hash of the shortage.
#[derive(Debug)]
pub(super) struct SearchBackoffs(Box<[SearchBackoff; PLACES]>);

/// The back-off of one entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SearchBackoff {
    until_ms: u64,
    length_ms: u64,
}

impl SearchBackoffs {
    pub(super) fn new() -> SearchBackoffs {
        SearchBackoffs(Box::new([SearchBackoff::default(); PLACES]))
    }

    /// The entry of a shortage; `hash` is its keyed hash.
    pub(super) fn entry(&mut self, hash: u32, now_ms: u64) -> &mut SearchBackoff {
        // Two rounds of a fold and an odd multiplier: two hashes that share an entry seldom share one in the
        // next epoch.
        let seed = u64::from(hash) << 32 | u64::from((now_ms / EPOCH_MS) as u32);
        let spread = |number: u64| (number ^ number >> 29).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &mut self.0[(spread(spread(seed)) >> 56) as usize % PLACES]
    }
}

impl SearchBackoff {
    /// Whether the back-off lasts: no search may start yet.
    pub(super) fn is_active(self, now_ms: u64) -> bool {
        now_ms < self.until_ms
    }

    /// Starts or lengthens the back-off, after a search that found nothing.
    pub(super) fn begin(&mut self, now_ms: u64) {
        let is_long_ago = now_ms >= self.until_ms + LONGEST_MS;
        self.length_ms = if is_long_ago { 1 } else { (2 * self.length_ms).clamp(1, LONGEST_MS) };
        self.until_ms = now_ms + self.length_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_in_vain_become_rare_and_begin_anew_later() {
        let (mut backoff, mut searches) = (SearchBackoff::default(), Vec::new());
        for now_ms in 1000..2000 {
            if !backoff.is_active(now_ms) {
                backoff.begin(now_ms);
                searches.push(now_ms - 1000);
            }
        }
        assert_eq!(searches[..9], [0, 1, 3, 7, 15, 31, 63, 127, 255]);
        assert_eq!(searches.len(), 14);
        assert!(!backoff.is_active(3000));
        backoff.begin(3000);
        assert!(backoff.is_active(3000) && !backoff.is_active(3001), "it is long ago");
    }

    #[test]
    fn others_are_not_paused_and_share_no_place_for_long() {
        let mut backoffs = SearchBackoffs::new();
        let mut others: Vec<u32> = (1..20_000_u32).map(|other| other.wrapping_mul(0x85EB_CA6B)).collect();
        for epoch in 0..4 {
            let now_ms = epoch * EPOCH_MS;
            for _ in 0..8 {
                backoffs.entry(7, now_ms).begin(now_ms);
            }
            assert!(backoffs.entry(7, now_ms).is_active(now_ms));
            others.retain(|other| backoffs.entry(*other, now_ms).is_active(now_ms));
        }
        assert!(others.is_empty(), "{} are paused four times", others.len());
    }
}
