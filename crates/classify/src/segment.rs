//! A segment: a piece of a table's hash index, buckets of one or two cache lines.
//!
//! One allocation: a header line and the buckets. A bucket holds as many entries as fit, each with the key's lanes, its
//! value and the number of its member mask, and counts the entries that found it full and went on to a later bucket, so
//! that a search ends at the first bucket that nobody passed.
//!
//! Life-cycle: segments are shared between the writer's table and the snapshots that workers read, and copied by the
//! writer before its first change after a snapshot (`SharedSlice::make_mut`). Nobody else writes.

use crate::simd::{Seeds, hash_one};
use mmb_base::SharedSlice;

/// Words of a cache line.
const LINE_WORDS: usize = 16;
/// No value: the place is free.
pub(crate) const NONE: u32 = u32::MAX;
/// The most buckets that an entry may lie behind the one that its hash selects: fewer than any segment has.
const REACH: usize = 15;
/// A count that has come so far stays: it says at least so many.
const MANY: u32 = 255;

/// A cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct SegmentLine([u32; LINE_WORDS]);

/// A shared segment.
pub(crate) type Segment = SharedSlice<SegmentLine>;

/// The layout of buckets for keys of some number of lanes: the lanes of every place, their values, and in the last word
/// the member numbers (a byte a place) and the count of entries that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentShape {
    /// Lanes of a key.
    pub(crate) lanes: usize,
    /// Entries of a bucket.
    pub(crate) places: usize,
    /// Cache lines of a bucket.
    pub(crate) lines: usize,
}

impl SegmentShape {
    /// Five-tuples of IPv4, and everything else in four lanes.
    pub(crate) const SMALL: SegmentShape = SegmentShape::new(4, 3, 1);
    pub(crate) const MIDDLE: SegmentShape = SegmentShape::new(6, 2, 1);
    pub(crate) const LARGE: SegmentShape = SegmentShape::new(14, 1, 1);
    /// Whole IPv6 keys.
    pub(crate) const WHOLE: SegmentShape = SegmentShape::new(20, 1, 2);

    const fn new(lanes: usize, places: usize, lines: usize) -> SegmentShape {
        assert!((lanes + 1) * places < lines * LINE_WORDS && places <= 3);
        SegmentShape { lanes, places, lines }
    }

    /// The smallest shape for keys of so many lanes.
    pub(crate) fn for_lanes(lanes: usize) -> SegmentShape {
        let shapes = [SegmentShape::SMALL, SegmentShape::MIDDLE, SegmentShape::LARGE];
        shapes.into_iter().find(|shape| lanes <= shape.lanes).unwrap_or(SegmentShape::WHOLE)
    }

    const fn values(self) -> usize {
        self.lanes * self.places
    }

    const fn value(self, place: usize) -> usize {
        self.values() + place
    }

    const fn last_word(self) -> usize {
        self.lines * LINE_WORDS - 1
    }
}

/// Hashes the key of an entry again: the relaxed mask over the key's lanes, and the seeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentHasher<'a> {
    /// Numbers of lanes of a key, with the bits that are hashed.
    pub(crate) terms: &'a [(u8, u32)],
    pub(crate) seeds: &'a Seeds,
}

impl SegmentHasher<'_> {
    /// Hash and marks of a key.
    pub(crate) fn hash(self, key: &[u32]) -> (u32, u32) {
        hash_one(self.seeds, self.terms.iter().map(|&(lane, mask)| key[usize::from(lane)] & mask))
    }
}

/// An entry: its key, the number of the mask that the key is under, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentEntry {
    pub(crate) key: [u32; SegmentShape::WHOLE.lanes],
    pub(crate) member: u8,
    pub(crate) value: u32,
}

/// No place within reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoFreePlace;

/// Lines of a segment in front of its buckets.
const HEAD: usize = 1;

/// An empty segment of `buckets`, a power of two of at least 16, whose hashes share their `depth` upper bits.
pub(crate) fn empty(shape: SegmentShape, buckets: usize, depth: u32) -> Segment {
    let mut lines = vec![SegmentLine::default(); HEAD + buckets * shape.lines];
    lines[0].0[0] = depth;
    for bucket in 0..buckets {
        let first = HEAD + bucket * shape.lines;
        for place in 0..shape.places {
            let word = shape.value(place);
            lines[first + word / LINE_WORDS].0[word % LINE_WORDS] = NONE;
        }
    }
    lines.into()
}

/// A bucket that was compared with a key.
#[derive(Clone, Copy)]
pub(crate) struct ComparedBucket<'a, const LANES: usize, const PLACES: usize, const LINES: usize> {
    lines: &'a [SegmentLine],
    /// A bit for each place whose key agrees.
    agree: u32,
    /// The last word.
    numbers: u32,
}

impl<const LANES: usize, const PLACES: usize, const LINES: usize> ComparedBucket<'_, LANES, PLACES, LINES> {
    /// The value of a place, or [`NONE`] if it is not the key's.
    #[inline(always)]
    pub(crate) fn value(&self, place: usize) -> u32 {
        let value = word_of(self.lines, const { SegmentShape::new(LANES, PLACES, LINES) }.value(place));
        // In a free place, which may hold an old key, it is none.
        if self.agree >> place & 1 != 0 { value } else { NONE }
    }

    /// The value of a key that has at most one in this bucket, or [`NONE`].
    #[inline(always)]
    pub(crate) fn only(&self) -> u32 {
        // Which place it is in is a coin toss: it is an index, not a branch. Without any it is the last one.
        let live = (0..PLACES).fold(0, |live, place| live | u32::from(self.value(place) != NONE) << place);
        self.value((live | 1 << (PLACES - 1)).trailing_zeros() as usize)
    }

    /// Whether entries of the key may lie in the next bucket.
    #[inline(always)]
    pub(crate) fn continues(&self) -> bool {
        self.numbers >> 24 != 0
    }
}

#[inline(always)]
fn word_of(lines: &[SegmentLine], word: usize) -> u32 {
    lines[word / LINE_WORDS].0[word % LINE_WORDS]
}

/// A segment being looked at: by readers.
#[derive(Clone, Copy)]
pub(crate) struct SegmentReader<'a> {
    lines: &'a [SegmentLine],
    buckets: usize,
}

impl<'a> SegmentReader<'a> {
    #[inline(always)]
    pub(crate) fn new(lines: &'a [SegmentLine], buckets: usize) -> SegmentReader<'a> {
        SegmentReader { lines, buckets }
    }

    /// The line to fetch ahead for a hash.
    #[inline(always)]
    pub(crate) fn line(self, shape: SegmentShape, hash: u32) -> &'a SegmentLine {
        let bucket = hash as usize & (self.buckets - 1);
        &self.lines[HEAD + bucket * shape.lines]
    }

    /// Compares the bucket that a hash selects with a key: of `masks`, each entry under that of its member number. See
    /// [`SegmentReader::find_beyond`] for the next ones.
    #[inline(always)]
    pub(crate) fn compare<const LANES: usize, const PLACES: usize, const LINES: usize>(
        self,
        hash: u32,
        key: &[u32; LANES],
        masks: &[[u32; LANES]],
    ) -> ComparedBucket<'a, LANES, PLACES, LINES> {
        let bucket = hash as usize & (self.buckets - 1);
        let first = HEAD + bucket * LINES;
        let lines = &self.lines[first..first + LINES];
        let numbers = word_of(lines, const { SegmentShape::new(LANES, PLACES, LINES).last_word() });
        let mut agree = 0;
        for place in 0..PLACES {
            let mask = &masks[(numbers >> (place * 8)) as usize & 0xff];
            let mut differ = 0;
            for lane in 0..LANES {
                differ |= (key[lane] & mask[lane]) ^ word_of(lines, place * LANES + lane);
            }
            agree |= u32::from(differ == 0) << place;
        }
        ComparedBucket { lines, agree, numbers }
    }

    /// Calls `hit` with the value of every entry of this hash whose key agrees with `key`, of those behind its first bucket, from which the
    /// search goes on.
    #[inline(always)]
    pub(crate) fn find_beyond<const LANES: usize, const PLACES: usize, const LINES: usize>(
        self,
        hash: u32,
        key: &[u32; LANES],
        masks: &[[u32; LANES]],
        mut hit: impl FnMut(u32),
    ) {
        for step in 1..=REACH as u32 {
            let bucket = self.compare::<LANES, PLACES, LINES>(hash.wrapping_add(step), key, masks);
            (0..PLACES).map(|place| bucket.value(place)).filter(|&value| value != NONE).for_each(&mut hit);
            if !bucket.continues() {
                return;
            }
        }
    }

    /// Entries in the segment.
    pub(crate) fn used(self) -> usize {
        self.lines[0].0[1] as usize
    }

    /// Upper bits that the hashes of the segment share.
    pub(crate) fn depth(self) -> u32 {
        self.lines[0].0[0]
    }

    /// Every entry.
    pub(crate) fn entries(self, shape: SegmentShape) -> impl Iterator<Item = SegmentEntry> {
        (0..self.buckets).flat_map(move |bucket| {
            (0..shape.places).filter_map(move |place| self.entry(shape, bucket, place))
        })
    }

    fn word(self, shape: SegmentShape, bucket: usize, word: usize) -> u32 {
        self.lines[HEAD + bucket * shape.lines + word / LINE_WORDS].0[word % LINE_WORDS]
    }

    fn passed(self, shape: SegmentShape, bucket: usize) -> u32 {
        self.word(shape, bucket, shape.last_word()) >> 24
    }

    fn entry(self, shape: SegmentShape, bucket: usize, place: usize) -> Option<SegmentEntry> {
        let value = self.word(shape, bucket, shape.value(place));
        let member = (self.word(shape, bucket, shape.last_word()) >> (place * 8)) as u8;
        let mut key = [0; SegmentShape::WHOLE.lanes];
        for (lane, part) in key.iter_mut().enumerate().take(shape.lanes) {
            *part = self.word(shape, bucket, place * shape.lanes + lane);
        }
        (value != NONE).then_some(SegmentEntry { key, member, value })
    }

    /// The place of a key of a member.
    fn locate(self, shape: SegmentShape, hash: u32, member: u8, key: &[u32]) -> Option<(usize, usize)> {
        let home = hash as usize & (self.buckets - 1);
        for step in 0..=REACH {
            let bucket = (home + step) & (self.buckets - 1);
            for place in 0..shape.places {
                let same = |entry: &SegmentEntry| entry.member == member && entry.key[..key.len()] == *key;
                if self.entry(shape, bucket, place).is_some_and(|entry| same(&entry)) {
                    return Some((bucket, place));
                }
            }
            if self.passed(shape, bucket) == 0 {
                return None;
            }
        }
        None
    }

    /// The value of a key of a member.
    pub(crate) fn value(self, shape: SegmentShape, hash: u32, member: u8, key: &[u32]) -> Option<u32> {
        let (bucket, place) = self.locate(shape, hash, member, key)?;
        Some(self.word(shape, bucket, shape.value(place)))
    }

    /// Entries of the buckets that a search for this hash looks at.
    pub(crate) fn near(self, shape: SegmentShape, hash: u32) -> impl Iterator<Item = SegmentEntry> {
        let home = hash as usize & (self.buckets - 1);
        let mut continues = true;
        let buckets =
            (0..=REACH).map(move |step| (home + step) & (self.buckets - 1)).take_while(move |bucket| {
                let looked_at = continues;
                continues = self.passed(shape, *bucket) > 0;
                looked_at
            });
        buckets.flat_map(move |bucket| {
            (0..shape.places).filter_map(move |place| self.entry(shape, bucket, place))
        })
    }

    /// Entries that a search for this hash compares.
    pub(crate) fn chain(self, shape: SegmentShape, hash: u32) -> usize {
        self.near(shape, hash).count()
    }
}

/// A segment being changed: by the writer that owns it.
pub(crate) struct SegmentWriter<'a> {
    lines: &'a mut [SegmentLine],
    shape: SegmentShape,
    buckets: usize,
}

impl<'a> SegmentWriter<'a> {
    pub(crate) fn new(
        lines: &'a mut [SegmentLine],
        shape: SegmentShape,
        buckets: usize,
    ) -> SegmentWriter<'a> {
        SegmentWriter { lines, shape, buckets }
    }

    fn reader(&self) -> SegmentReader<'_> {
        SegmentReader { lines: self.lines, buckets: self.buckets }
    }

    fn word(&mut self, bucket: usize, word: usize) -> &mut u32 {
        &mut self.lines[HEAD + bucket * self.shape.lines + word / LINE_WORDS].0[word % LINE_WORDS]
    }

    /// Adds an entry whose key is not there yet.
    pub(crate) fn insert(&mut self, hash: u32, entry: &SegmentEntry) -> Result<(), NoFreePlace> {
        let shape = self.shape;
        let home = hash as usize & (self.buckets - 1);
        for step in 0..=REACH {
            let bucket = (home + step) & (self.buckets - 1);
            let free = (0..shape.places).find(|&place| *self.word(bucket, shape.value(place)) == NONE);
            let Some(place) = free else { continue };
            for (lane, part) in entry.key[..shape.lanes].iter().enumerate() {
                *self.word(bucket, place * shape.lanes + lane) = *part;
            }
            *self.word(bucket, shape.value(place)) = entry.value;
            let numbers = self.word(bucket, shape.last_word());
            *numbers = *numbers & !(0xff << (place * 8)) | u32::from(entry.member) << (place * 8);
            for step in 0..step {
                let passed = self.word((home + step) & (self.buckets - 1), shape.last_word());
                if *passed >> 24 < MANY {
                    *passed += 1 << 24;
                }
            }
            self.lines[0].0[1] += 1;
            return Ok(());
        }
        Err(NoFreePlace)
    }

    /// Gives a key that is there another value; returns whether it is.
    pub(crate) fn set(&mut self, hash: u32, member: u8, key: &[u32], value: u32) -> bool {
        let Some((bucket, place)) = self.reader().locate(self.shape, hash, member, key) else { return false };
        *self.word(bucket, self.shape.value(place)) = value;
        true
    }

    /// Removes a key; returns the value that it had.
    pub(crate) fn remove(&mut self, hash: u32, member: u8, key: &[u32]) -> Option<u32> {
        let shape = self.shape;
        let (bucket, place) = self.reader().locate(shape, hash, member, key)?;
        let value = std::mem::replace(self.word(bucket, shape.value(place)), NONE);
        let home = hash as usize & (self.buckets - 1);
        let mut passed = home;
        while passed != bucket {
            let count = self.word(passed, shape.last_word());
            if *count >> 24 < MANY {
                *count -= 1 << 24;
            }
            passed = (passed + 1) & (self.buckets - 1);
        }
        self.lines[0].0[1] -= 1;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const BUCKETS: usize = 16;

    /// A hash as bad as can be: a few neighbouring buckets, the last and the first among them.
    fn hash(relaxed: u32) -> u32 {
        [3, 3, 4, 15, 14, 0x8000_0003][relaxed as usize % 6]
    }

    /// A key of a member, in its first lane and its last. The first member has it whole, the second its lower bits.
    fn key<const LANES: usize>(member: u8, number: u32) -> [u32; LANES] {
        let mut key = [0; LANES];
        key[0] = number & mask(member);
        key[LANES - 1] = number & mask(member);
        key
    }

    fn mask(member: u8) -> u32 {
        if member == 0 { u32::MAX } else { 0xff }
    }

    /// Entries by member and key.
    type Model = BTreeMap<(u8, u32), u32>;

    fn check<const LANES: usize, const PLACES: usize, const LINES: usize>(
        reader: SegmentReader<'_>,
        model: &Model,
    ) {
        let masks = [0, 1].map(|member| {
            let mut all = [0; LANES];
            (all[0], all[LANES - 1]) = (mask(member), mask(member));
            all
        });
        assert_eq!(reader.used(), model.len());
        assert_eq!(reader.entries(SegmentShape::new(LANES, PLACES, LINES)).count(), model.len());
        for number in (0..40).flat_map(|low| [low, low | 0x100]) {
            let (hash, packet) = (hash(number & 0xff), key::<LANES>(0, number));
            let its = |member: u8| model.get(&(member, number & mask(member))).copied();
            let mut expected: Vec<u32> = [0, 1].into_iter().filter_map(its).collect();
            let bucket = reader.compare::<LANES, PLACES, LINES>(hash, &packet, &masks);
            let mut found: Vec<u32> =
                (0..PLACES).map(|place| bucket.value(place)).filter(|&value| value != NONE).collect();
            if expected.len() == 1 && !found.is_empty() {
                assert_eq!(bucket.only(), found[0]);
            }
            let first = found.len();
            reader.find_beyond::<LANES, PLACES, LINES>(hash, &packet, &masks, |value| found.push(value));
            assert!(bucket.continues() || found.len() == first, "{number:#x}");
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{number:#x}");
        }
    }

    /// Keys come, get other values and go.
    fn live<const LANES: usize, const PLACES: usize, const LINES: usize>(steps: &[(u8, u8, u32)]) {
        let shape = SegmentShape::new(LANES, PLACES, LINES);
        let mut segment = empty(shape, BUCKETS, 3);
        let untouched = segment.clone();
        let (mut model, lines) = (Model::new(), segment.make_mut());
        let entry = |member, number, value| {
            let mut wide = [0; SegmentShape::WHOLE.lanes];
            wide[..LANES].copy_from_slice(&key::<LANES>(member, number));
            SegmentEntry { key: wide, member, value }
        };
        for (at, &(what, member, number)) in steps.iter().enumerate() {
            let (number, value) = (number & mask(member), at as u32);
            let (hash, own) = (hash(number & 0xff), key::<LANES>(member, number));
            let mut writer = SegmentWriter::new(lines, shape, BUCKETS);
            if what == 0 {
                assert_eq!(writer.remove(hash, member, &own), model.remove(&(member, number)));
            } else if let Some(before) = model.get_mut(&(member, number)) {
                assert!(writer.set(hash, member, &own, value));
                *before = value;
            } else {
                assert!(!writer.set(hash, member, &own, value));
                match writer.insert(hash, &entry(member, number, value)) {
                    Ok(()) => _ = model.insert((member, number), value),
                    // As small a segment is all within reach.
                    Err(NoFreePlace) => assert_eq!(model.len(), BUCKETS * PLACES),
                }
            }
            if at % 8 == 0 {
                check::<LANES, PLACES, LINES>(SegmentReader::new(lines, BUCKETS), &model);
            }
        }
        check::<LANES, PLACES, LINES>(SegmentReader::new(lines, BUCKETS), &model);
        for (member, number) in model.keys().copied().collect::<Vec<_>>() {
            let own = key::<LANES>(member, number);
            SegmentWriter::new(lines, shape, BUCKETS).remove(hash(number & 0xff), member, &own);
        }
        check::<LANES, PLACES, LINES>(SegmentReader::new(lines, BUCKETS), &Model::new());
        let (reader, untouched) =
            (SegmentReader::new(lines, BUCKETS), SegmentReader::new(&untouched, BUCKETS));
        assert!(
            (0..BUCKETS).all(|bucket| reader.passed(shape, bucket) == 0),
            "nobody passed an empty bucket"
        );
        assert_eq!((reader.used(), reader.depth()), (untouched.used(), 3));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]

        #[test]
        fn entries_that_crowd_few_buckets_are_found(
            steps in vec((0..4_u8, 0..2_u8, prop_oneof![0..40_u32, 0x100..0x128_u32]), 1..200),
        ) {
            live::<4, 3, 1>(&steps);
            live::<6, 2, 1>(&steps);
            live::<14, 1, 1>(&steps);
            live::<20, 1, 2>(&steps);
        }
    }

    #[test]
    fn an_entry_out_of_reach_is_refused_and_changes_nothing() {
        let (shape, buckets) = (SegmentShape::SMALL, 64);
        let mut segment = empty(shape, buckets, 0);
        let lines = segment.make_mut();
        let mut writer = SegmentWriter::new(lines, shape, buckets);
        let entry = |value| SegmentEntry { key: [value; SegmentShape::WHOLE.lanes], member: 0, value };
        let room = ((REACH + 1) * shape.places) as u32;
        (0..room).for_each(|value| writer.insert(60, &entry(value)).expect("room"));
        assert_eq!(writer.insert(60, &entry(room)), Err(NoFreePlace));
        assert_eq!(
            (writer.reader().used(), writer.reader().chain(shape, 60)),
            (room as usize, room as usize)
        );
        // With one gone from the middle there is room for another, wherever that was.
        assert_eq!(writer.remove(60, 0, &[20; 4]), Some(20));
        assert_eq!(writer.insert(60, &entry(room)), Ok(()));
        assert_eq!(writer.reader().value(shape, 60, 0, &[room; 4]), Some(room));
        assert_eq!(writer.reader().value(shape, 60, 0, &[20; 4]), None);
    }
}
