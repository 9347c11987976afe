//! Sets of short strings that tell, by one word of memory, that a string is not among them.

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
    /// The key of a string of up to 8 bytes.
    pub(super) fn new(bytes: &[u8]) -> StringKey {
        let mut padded = [0; 8];
        padded.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        StringKey::of(u64::from_le_bytes(padded), bytes.len())
    }

    /// The key of 4 bytes.
    #[inline]
    pub(super) fn of_4(bytes: [u8; 4]) -> StringKey {
        StringKey::of(u64::from(u32::from_le_bytes(bytes)), 4)
    }

    /// The key of 8 bytes.
    #[inline]
    pub(super) fn of_8(bytes: [u8; 8]) -> StringKey {
        StringKey::of(u64::from_le_bytes(bytes), 8)
    }

    #[inline]
    fn of(bytes: u64, len: usize) -> StringKey {
        StringKey((bytes | FOLD) ^ (len as u64) << 56)
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
