//! Sets of short strings that tell, by one word of memory, that a string is not among them.

use std::ops::Range;

/// A multiplier whose product's high bits depend on all bits of a key (the golden ratio).
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// What makes ASCII letters equal in either case, and some other bytes too.
const FOLD: u64 = 0x2020_2020_2020_2020;
/// Strings for each word of 64 bits, of which each sets two: one of 50 others seems to be a member.
const STRINGS_A_WORD: usize = 4;
/// The most words: 1 MiB.
const MOST_WORDS: usize = 1 << 17;

/// A Bloom filter. It may seem to have a string that it has not, never the other way. Letters are the same in either case.
#[derive(Debug)]
pub(super) struct StringFilter {
    words: Vec<u64>,
    shift: u32,
}

/// A string of at most 8 bytes, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StringKey(u64);

impl StringKey {
    /// The key of a string of 1 to 8 bytes.
    pub(super) fn new(bytes: &[u8]) -> StringKey {
        StringKey::last(last_8(bytes), bytes.len())
    }

    /// The key of the last 1 to 8 of 8 bytes, as [`last_8`] has them.
    #[inline]
    pub(super) fn last(last_8: u64, len: usize) -> StringKey {
        StringKey((last_8 | FOLD) >> (64 - 8 * len) ^ len as u64)
    }

    /// The key of 4 bytes.
    #[inline]
    pub(super) fn of_4(bytes: [u8; 4]) -> StringKey {
        StringKey::last(u64::from(u32::from_le_bytes(bytes)) << 32, 4)
    }

    /// The key of 8 bytes.
    #[inline]
    pub(super) fn of_8(bytes: [u8; 8]) -> StringKey {
        StringKey::last(u64::from_le_bytes(bytes), 8)
    }
}

/// The last 8 bytes, the last one highest; of fewer bytes these, with zeros below.
#[inline]
pub(super) fn last_8(bytes: &[u8]) -> u64 {
    match bytes.last_chunk() {
        Some(last) => u64::from_le_bytes(*last),
        None => bytes.iter().fold(0, |word, byte| word >> 8 | u64::from(*byte) << 56),
    }
}

impl StringFilter {
    pub(super) fn new(mut keys: Vec<StringKey>) -> StringFilter {
        keys.sort_unstable();
        keys.dedup();
        let words = keys.len().div_ceil(STRINGS_A_WORD).clamp(1, MOST_WORDS).next_power_of_two();
        let mut filter = StringFilter { words: vec![0; words], shift: 52 - words.trailing_zeros() };
        for key in keys {
            let (word, bits) = filter.bits_of(key);
            filter.words[word] |= bits;
        }
        filter
    }

    #[inline]
    pub(super) fn may_have(&self, key: StringKey) -> bool {
        let (word, bits) = self.bits_of(key);
        self.words.get(word).is_some_and(|word| word & bits == bits)
    }

    #[inline]
    fn bits_of(&self, key: StringKey) -> (usize, u64) {
        let mixed = key.0.wrapping_mul(MULTIPLIER) >> self.shift;
        ((mixed >> 12) as usize, 1 << (mixed & 63) | 1 << (mixed >> 6 & 63))
    }
}

/// The first bytes of strings that all have as many.
#[derive(Debug)]
pub(super) struct StartFilter {
    filter: StringFilter,
    len: usize,
}

impl StartFilter {
    /// For strings, none of them empty. Their first 8 bytes count, or as many as the shortest one has.
    pub(super) fn new(strings: &[Vec<u8>]) -> StartFilter {
        let len = strings.iter().map(Vec::len).min().unwrap_or(8).min(8);
        let keys = strings.iter().map(|string| StringKey::new(&string[..len])).collect();
        StartFilter { filter: StringFilter::new(keys), len }
    }

    /// The number of bytes that count.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The first place in a range at which a string may begin that ends in it.
    #[inline]
    pub(super) fn find(&self, bytes: &[u8], range: Range<usize>) -> Option<usize> {
        let start = range.start;
        let bytes = bytes.get(range)?;
        let shift = 64 - 8 * self.len;
        let may_begin = |eight: &[u8]| {
            let first = eight.first_chunk().map(|eight| u64::from_le_bytes(*eight) << shift);
            first.is_some_and(|first| self.filter.may_have(StringKey::last(first, self.len)))
        };
        if let Some(index) = bytes.windows(8).position(may_begin) {
            return Some(start + index);
        }
        // The last places have fewer than 8 bytes.
        let tail = bytes.len().saturating_sub(7);
        let mut last = bytes[tail..].windows(self.len);
        last.position(|first| self.filter.may_have(StringKey::new(first))).map(|index| start + tail + index)
    }
}
