//! Sets of short strings that tell, by one word of memory, that a string is not among them.

use mmb_base::simd::{Kernel, SimdLevel};
use std::ops::Range;

/// A multiplier whose product's high bits depend on all bits of a key (the golden ratio).
pub(crate) const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// What makes ASCII letters equal in either case, and some other bytes too.
pub(crate) const FOLD: u64 = 0x2020_2020_2020_2020;
/// Strings for each word of 64 bits, of which each sets two: one of 50 others seems to be a member.
const STRINGS_A_WORD: usize = 4;
/// The most words: 1 MiB.
const MAX_WORDS: usize = 1 << 17;

/// A Bloom filter. It may seem to have a string that it has not, never the other way. Letters are the same in either case.
#[derive(Debug)]
pub(crate) struct StringFilter {
    /// A power of two of them.
    words: Vec<u64>,
}

/// A string of at most 8 bytes: with its length, or as a mask cuts it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StringKey(u64);

impl StringKey {
    /// The key of a string of 1 to 8 bytes.
    pub(crate) fn new(bytes: &[u8]) -> StringKey {
        StringKey::last(last_8(bytes), bytes.len())
    }

    /// The key of the last 1 to 8 of 8 bytes, as [`last_8`] has them.
    #[inline]
    pub(crate) fn last(last_8: u64, len: usize) -> StringKey {
        StringKey((last_8 | FOLD) >> (64 - 8 * len) ^ len as u64)
    }

    /// The key of those of 8 bytes that are ones in the mask. No key of a string of another length is compared with it.
    #[inline]
    pub(crate) fn masked(bytes: u64, mask: u64) -> StringKey {
        StringKey((bytes | FOLD) & mask)
    }

    /// A number that is the same for the same key only, and not zero.
    #[inline]
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// The key of 4 bytes.
    #[inline]
    pub(crate) fn of_4(bytes: [u8; 4]) -> StringKey {
        StringKey::last(u64::from(u32::from_le_bytes(bytes)) << 32, 4)
    }

    /// The key of 8 bytes.
    #[inline]
    pub(crate) fn of_8(bytes: [u8; 8]) -> StringKey {
        StringKey::last(u64::from_le_bytes(bytes), 8)
    }
}

/// The last 8 bytes, the last one highest; of fewer bytes these, with zeros below.
#[inline]
pub(crate) fn last_8(bytes: &[u8]) -> u64 {
    match bytes.last_chunk() {
        Some(last) => u64::from_le_bytes(*last),
        None => bytes.iter().fold(0, |word, byte| word >> 8 | u64::from(*byte) << 56),
    }
}

impl StringFilter {
    pub(crate) fn new(mut keys: Vec<StringKey>) -> StringFilter {
        keys.sort_unstable();
        keys.dedup();
        let words = keys.len().div_ceil(STRINGS_A_WORD).clamp(1, MAX_WORDS).next_power_of_two();
        let mut filter = StringFilter { words: vec![0; words] };
        for key in keys {
            let (word, bits) = filter.bits_of(key);
            filter.words[word] |= bits;
        }
        filter
    }

    #[inline]
    pub(crate) fn may_have(&self, key: StringKey) -> bool {
        let (word, bits) = self.bits_of(key);
        self.words.get(word).is_some_and(|word| word & bits == bits)
    }

    #[inline]
    fn bits_of(&self, key: StringKey) -> (usize, u64) {
        let mixed = mix(key.0);
        let [first, second] = bits(mixed);
        (word(mixed, self.words.len() - 1), 1 << first | 1 << second)
    }

    /// Which places of a block may begin with a member, by the bytes of 8 that the mask has: the bits of [`place_of_bit`]. 0 if there are
    /// fewer bytes than [`block_bytes`].
    #[inline]
    pub(crate) fn search_block<const STEP: usize>(&self, bytes: &[u8], mask: u64, level: SimdLevel) -> u64 {
        let mut found = 0;
        level.run(SearchBlock::<STEP> { words: &self.words, bytes, mask, found: &mut found });
        found
    }
}

#[inline(always)]
fn mix(key: u64) -> u64 {
    key.wrapping_mul(MULTIPLIER)
}

/// The word of a mixed key, of words up to `last`.
#[inline(always)]
fn word(mixed: u64, last: usize) -> usize {
    (mixed >> 32) as usize & last
}

/// The bits of a mixed key in its word.
#[inline(always)]
fn bits(mixed: u64) -> [u64; 2] {
    [mixed >> 58, mixed >> 52 & 63]
}

/// Places of a block.
pub(crate) const BLOCK: usize = 64;

/// Bytes of a block of places that are `step` apart, 1, 2, 4 or 8, each with 8 bytes.
pub(crate) const fn block_bytes(step: usize) -> usize {
    (BLOCK - 1) * step + 8
}

/// Where the place of a bit is in a block of places that are `STEP` apart. First come the places that are 8 bytes apart, then those a step
/// behind each of these.
#[inline]
pub(crate) fn place_of_bit<const STEP: usize>(bit: usize) -> usize {
    bit % (8 * STEP) * 8 + bit / (8 * STEP) * STEP
}

/// The search of a block: which of its places may begin with a member, by the bytes of 8 that the mask has.
struct SearchBlock<'a, const STEP: usize> {
    words: &'a [u64],
    bytes: &'a [u8],
    mask: u64,
    found: &'a mut u64,
}

impl<const STEP: usize> Kernel for SearchBlock<'_, STEP> {
    /// Plain loops over arrays, which the compiler vectorizes.
    #[inline(always)]
    fn run(self) {
        let SearchBlock { words, bytes, mask, found } = self;
        let (Some(bytes), Some(last)) = (bytes.get(..block_bytes(STEP)), words.len().checked_sub(1)) else {
            return;
        };
        let mut mixed = [0_u64; BLOCK];
        for (number, mixed) in mixed.chunks_exact_mut(8 * STEP).enumerate() {
            for (mixed, eight) in mixed.iter_mut().zip(bytes[number * STEP..].as_chunks().0) {
                *mixed = mix((u64::from_le_bytes(*eight) | FOLD) & mask);
            }
        }
        let mut hits = [0_u64; BLOCK];
        for (hit, mixed) in hits.iter_mut().zip(&mixed) {
            *hit = words[word(*mixed, last)];
        }
        for (hit, mixed) in hits.iter_mut().zip(&mixed) {
            let [first, second] = bits(*mixed);
            *hit = (*hit >> first) & (*hit >> second) & 1;
        }
        *found = hits.iter().enumerate().fold(0, |found, (number, hit)| found | hit << number);
    }
}

/// The first bytes of strings that all have as many.
#[derive(Debug)]
pub(crate) struct StartFilter {
    filter: StringFilter,
    len: usize,
}

impl StartFilter {
    /// For strings, none of them empty. Their first 8 bytes count, or as many as the shortest one has.
    pub(crate) fn new(strings: &[Vec<u8>]) -> StartFilter {
        let len = strings.iter().map(Vec::len).min().unwrap_or(8).min(8);
        let keys = strings.iter().map(|string| StringKey::new(&string[..len])).collect();
        StartFilter { filter: StringFilter::new(keys), len }
    }

    /// The number of bytes that count.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The first place in a range at which a string may begin that ends in it.
    #[inline]
    pub(crate) fn find(&self, bytes: &[u8], range: Range<usize>) -> Option<usize> {
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
