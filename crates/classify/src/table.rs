//! The hash table of one tuple: masked keys to values, in buckets of one or two cache lines.
//!
//! The first word of a bucket holds four tags of 15 bits of the hash, 0 for none, so that a key that is not there costs
//! one cache line and one comparison. Keys and values follow inline: where a tag agrees the same line (for keys of
//! more than 24 bytes, the next one) settles it.
//!
//! A key lives in the bucket that its hash selects or, when that is full, in one of the next [`REACH`] - 1. Buckets that
//! it passed over remember its tag where they have a tag to spare (most shapes have fewer than four places), else
//! that something passed: a search goes on only behind these. The hash is keyed with random words; a build that
//! finds no place within reach starts again with other words and more buckets, so that neither traffic nor rules
//! can make long searches.

/// Words of the longest key.
pub(crate) const MAX_WORDS: usize = 10;
/// The most buckets of one search.
const REACH: usize = 16;

/// The tags of a bucket's first word: four lanes of 16 bits.
const TAG_BITS: u64 = 0x7fff_7fff_7fff_7fff;
const LANES: u64 = 0x0001_0001_0001_0001;
/// In the first word: some key is in a later bucket, and no tag was to spare for it.
const PASSED: u64 = 0x8000;
const TAGS: usize = 4;
const LINE_WORDS: usize = 8;

/// A cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Line([u64; LINE_WORDS]);

/// How buckets for keys of some length are laid out: tags, keys, then values, two in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    words: usize,
    /// Lines of a bucket.
    lines: usize,
    /// Places of a bucket.
    pub(crate) places: usize,
}

impl Shape {
    pub(crate) const fn new(words: usize) -> Shape {
        let (lines, places) = match words {
            0 | 1 => (1, 4),
            2 | 3 => (1, 2),
            4 => (2, 3),
            5..=7 => (2, 2),
            _ => (2, 1),
        };
        assert!(places <= TAGS && 1 + words * places + places.div_ceil(2) <= lines * LINE_WORDS);
        Shape { words, lines, places }
    }
}

/// The random words of a keyed hash.
pub(crate) type Seeds = [u64; MAX_WORDS + 1];

/// The keyed hash of a masked key: products of pairs of words, folded (the construction of wyhash).
#[inline(always)]
pub(crate) fn hash(seeds: &Seeds, key: &[u64]) -> u64 {
    let mut hash = seeds[MAX_WORDS];
    let mut pairs = key.chunks_exact(2);
    let mut seed = seeds.iter();
    for pair in &mut pairs {
        let (Some(a), Some(b)) = (seed.next(), seed.next()) else { break };
        hash = hash.rotate_left(29) ^ fold(pair[0] ^ a, pair[1] ^ b);
    }
    if let ([word], Some(a)) = (pairs.remainder(), seed.next()) {
        hash = fold(word ^ a, hash | 1);
    }
    hash
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The table. Built once, then only read.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    shape: Shape,
    buckets: usize,
    lines: Box<[Line]>,
    entries: usize,
}

/// No place within reach.
#[derive(Debug)]
struct Crowded;

impl Table {
    /// A table of `entries`, and the seeds that its keys are hashed with. `random` gives seeds.
    pub(crate) fn build<'k>(
        words: usize,
        entries: impl ExactSizeIterator<Item = (&'k [u64], u32)> + Clone,
        mut random: impl FnMut() -> u64,
    ) -> (Table, Seeds) {
        let shape = Shape::new(words);
        // Half full: with two places a bucket, one search in twelve goes on.
        let mut buckets = match entries.len() {
            few if few <= shape.places => 1,
            many => (many * 2).div_ceil(shape.places),
        };
        loop {
            let seeds: Seeds = std::array::from_fn(|_| random());
            let lines = vec![Line::default(); buckets * shape.lines].into_boxed_slice();
            let mut table = Table { shape, buckets, lines, entries: 0 };
            if entries
                .clone()
                .try_for_each(|(key, value)| table.insert(hash(&seeds, key), key, value))
                .is_ok()
            {
                return (table, seeds);
            }
            buckets += buckets / 4 + 1;
        }
    }

    fn insert(&mut self, hash: u64, key: &[u64], value: u32) -> Result<(), Crowded> {
        let Shape { words, places, .. } = self.shape;
        let home = self.bucket(hash);
        for step in 0..REACH.min(self.buckets) {
            let bucket = (home + step) % self.buckets;
            let Some(place) = (0..places).find(|&place| self.tag_at(bucket, place) == 0) else {
                continue;
            };
            *self.word(bucket, 0) |= u64::from(tag(hash)) << (place * 16);
            for (i, &part) in key.iter().enumerate() {
                *self.word(bucket, 1 + place * words + i) = part;
            }
            *self.word(bucket, 1 + words * places + place / 2) |= u64::from(value) << (place % 2 * 32);
            for step in 0..step {
                self.pass((home + step) % self.buckets, tag(hash));
            }
            self.entries += 1;
            return Ok(());
        }
        Err(Crowded)
    }

    /// Makes searches for a tag go on behind a bucket.
    fn pass(&mut self, bucket: usize, tag: u16) {
        let spare = self.shape.places..TAGS;
        if spare.clone().any(|lane| self.tag_at(bucket, lane) == tag) {
            return;
        }
        *self.word(bucket, 0) |= match spare.clone().find(|&lane| self.tag_at(bucket, lane) == 0) {
            Some(lane) => u64::from(tag) << (lane * 16),
            None => PASSED,
        };
    }

    fn tag_at(&mut self, bucket: usize, lane: usize) -> u16 {
        (*self.word(bucket, 0) >> (lane * 16)) as u16 & 0x7fff
    }

    fn word(&mut self, bucket: usize, at: usize) -> &mut u64 {
        &mut self.lines[bucket * self.shape.lines + at / LINE_WORDS].0[at % LINE_WORDS]
    }

    /// The bucket that a hash selects.
    #[inline(always)]
    fn bucket(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.buckets as u128) >> 64) as usize
    }

    /// The tags of the bucket that a hash selects.
    #[inline(always)]
    pub(crate) fn tags<const W: usize>(&self, hash: u64) -> u64 {
        self.lines[self.bucket(hash) * const { Shape::new(W).lines }].0[0]
    }

    /// The value of a key of `W` words; `W` is the table's.
    #[inline(always)]
    pub(crate) fn find<const W: usize>(&self, hash: u64, key: &[u64; W]) -> Option<u32> {
        let Shape { lines, places, .. } = const { Shape::new(W) };
        let mut bucket = self.bucket(hash);
        for _ in 0..REACH {
            let bucket_lines = self.lines.get(bucket * lines..(bucket + 1) * lines)?;
            let word = |at: usize| bucket_lines[at / LINE_WORDS].0[at % LINE_WORDS];
            let tags = word(0);
            let agreeing = agreeing(tags, hash);
            // Which place it is in is a coin toss: no branches.
            let (mut found, mut value) = (false, 0);
            for place in 0..places {
                let differing = (0..W).fold(0, |sum, i| sum | (word(1 + place * W + i) ^ key[i]));
                let here = agreeing >> (place * 16 + 15) & 1 != 0 && differing == 0;
                let its = (word(1 + W * places + place / 2) >> (place % 2 * 32)) as u32;
                value = if here { its } else { value };
                found |= here;
            }
            if found {
                return Some(value);
            }
            let passed = agreeing.checked_shr(places as u32 * 16).unwrap_or(0);
            if passed == 0 && tags & PASSED == 0 {
                return None;
            }
            bucket = if bucket + 1 == self.buckets { 0 } else { bucket + 1 };
        }
        None
    }

    /// Keys in the table.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// Buckets.
    pub(crate) fn buckets(&self) -> usize {
        self.buckets
    }

    /// Used share of the places.
    pub(crate) fn load(&self) -> f64 {
        self.entries as f64 / (self.buckets * self.shape.places) as f64
    }
}

/// The tag of a hash: its low bits, never 0. The bucket comes from its high bits.
#[inline(always)]
fn tag(hash: u64) -> u16 {
    (hash as u16 & 0x7fff).max(1)
}

/// The top bit of each lane of `tags` that holds the tag of `hash`.
#[inline(always)]
fn agreeing(tags: u64, hash: u64) -> u64 {
    let differing = (tags & TAG_BITS) ^ (u64::from(tag(hash)) * LANES);
    // A lane of 15 bits plus 0x7fff reaches the top bit unless it is 0, and never the next lane.
    !(differing + TAG_BITS) & !TAG_BITS
}

/// Not 0 if a key of this hash may be in the bucket of these tags, or behind it.
#[inline(always)]
pub(crate) fn may_hold(tags: u64, hash: u64) -> u64 {
    agreeing(tags, hash) | tags & PASSED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        *state ^ *state >> 29
    }

    fn everything_is_found<const W: usize>(many: usize) {
        let mut state = many as u64;
        let keys: Vec<[u64; W]> = (0..many).map(|i| [(i as u64) << 24; W]).collect();
        let entries = keys.iter().enumerate().map(|(i, key)| (&key[..], i as u32));
        let (table, seeds) = Table::build(W, entries, || random(&mut state));
        assert_eq!(table.entries(), many);
        for (i, key) in keys.iter().enumerate() {
            let hash = hash(&seeds, key);
            assert_ne!(may_hold(table.tags::<W>(hash), hash), 0);
            assert_eq!(table.find::<W>(hash, key), Some(i as u32));
            let other = [key[0] + 1; W];
            assert_eq!(table.find::<W>(super::hash(&seeds, &other), &other), None);
        }
    }

    #[test]
    fn keys_of_every_length_are_found() {
        for many in [1, 2, 5, 3000] {
            everything_is_found::<1>(many);
            everything_is_found::<2>(many);
            everything_is_found::<3>(many);
            everything_is_found::<4>(many);
            everything_is_found::<5>(many);
            everything_is_found::<6>(many);
            everything_is_found::<7>(many);
            everything_is_found::<8>(many);
            everything_is_found::<9>(many);
            everything_is_found::<10>(many);
        }
    }

    #[test]
    fn agreeing_lanes_are_exact() {
        let hash = 0xabcd_0000_0000_0005;
        assert_eq!(agreeing(0, hash), 0);
        assert_eq!(agreeing(0x0005_7fff_0006_8005, hash), 0x8000_0000_0000_8000);
        assert_eq!(may_hold(0x8000, hash), 0x8000);
        assert_eq!(may_hold(0x8000_0000_0000_0000, hash), 0);
    }

    #[test]
    fn a_crowded_table_grows() {
        // Seeds of zeros make every key collide until random ones come.
        let keys: Vec<[u64; 1]> = (0..100).map(|i| [i]).collect();
        let mut calls = 0u64;
        let entries = keys.iter().map(|key| (&key[..], 7));
        let (table, seeds) = Table::build(1, entries, || {
            calls += 1;
            if calls <= 11 { 0 } else { calls.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
        });
        assert!(calls > 11 && table.buckets() > 50);
        assert!(keys.iter().all(|key| table.find::<1>(hash(&seeds, key), key) == Some(7)));
    }
}
