//! A table: the rules of one tuple, or of several that share a relaxed mask, in one extendible hash index.
//!
//! Keys are hashed under the *relaxed mask*, bits that all *members* (tuples of the table) fix; what is found is
//! compared under the entry's own mask. Merging tuples so is the idea of TupleMerge (Daly, Bruschi, Linguaglossa, Pontarelli,
//! Rossi, Tollet, Torng, Yourtchenko: ToN 2019); `merge` decides who shares a table.
//!
//! The index is a directory of segments (Fagin, Nievergelt, Pippenger, Strong: extendible hashing, TODS 1979): the hash's upper
//! bits choose the segment, its lower bits the bucket in it. A segment that is full is split in two; no insertion ever
//! moves more than one segment's entries. The directory has two levels, so that a copy of the table for a snapshot is a
//! short list of references, and a change copies one page of the directory and one segment.
//!
//! In front of the index lies a filter (Bloom, CACM 1970, a word a bucket): it holds three bits of every key whose hash selects
//! the bucket. A key that is not there costs a look at the filter, which is small enough for the cache, and seldom one at
//! memory.
//!
//! Writers: the control side's copy. Workers read clones; `probe` is how they search.

use crate::lane_mask::LaneMask;
use crate::segment::{
    self, NoFreePlace, Segment, SegmentEntry, SegmentHasher, SegmentReader, SegmentShape, SegmentWriter,
};
use crate::simd::{Seeds, Term};
use mmb_base::SharedSlice;
use std::ops::Range;
use std::sync::Arc;

/// Buckets of a segment when a table has one, at first; and of every segment when it has several.
const MIN_BUCKETS: usize = 16;
const MAX_BUCKETS: usize = 256;
/// Segments of a page of the directory, as a power of two.
const PAGE_BITS: u32 = 6;
/// Words of a page of the filter, as a power of two and as a number.
const FILTER_BITS: u32 = 12;
const FILTER_WORDS: usize = 1 << FILTER_BITS;
/// Upper bits of a hash that choose a segment, at most.
const MAX_DEPTH: u32 = 22;
/// The most members of a table: their numbers fit a byte.
pub(crate) const MAX_MEMBERS: usize = 256;

/// A tuple of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    /// Its mask over all lanes.
    mask: LaneMask,
    /// Its entries.
    entries: usize,
}

/// A page of the directory.
type Page = Arc<[Segment]>;

/// The table. A clone shares the segments.
#[derive(Clone, Debug)]
pub(crate) struct TupleTable {
    pub(crate) shape: SegmentShape,
    /// The lanes that keys hold, ascending; `shape.lanes` may be more.
    pub(crate) lanes: Vec<u8>,
    /// The bits that are hashed, by lane of the packet's key and by lane of the table's.
    pub(crate) terms: Vec<Term>,
    compact_terms: Vec<(u8, u32)>,
    pub(crate) seeds: Seeds,
    members: Vec<Member>,
    /// The members' masks over the table's lanes, one after the other.
    pub(crate) masks: Vec<u32>,
    /// Buckets of a segment.
    buckets: usize,
    depth: u32,
    pages: Vec<Page>,
    /// A word for each bucket of each place of the directory, in pages.
    filter: Vec<SharedSlice<u32>>,
    entries: usize,
}

impl TupleTable {
    /// An empty table for members whose lanes are among those of `span` and that fix all bits of `relaxed`, with room for
    /// `entries`. `random` gives seeds.
    pub(crate) fn new(
        relaxed: &LaneMask,
        span: &LaneMask,
        entries: usize,
        random: impl FnMut() -> u64,
    ) -> TupleTable {
        let lanes: Vec<u8> = (0..).zip(span).filter(|(_, mask)| **mask != 0).map(|(lane, _)| lane).collect();
        let terms: Vec<Term> = (0..)
            .zip(relaxed)
            .filter(|(_, mask)| **mask != 0)
            .map(|(lane, &mask)| Term { lane, mask })
            .collect();
        let place = |lane| lanes.iter().position(|&other| other == lane).map(|index| index as u8);
        let compact_terms = terms.iter().filter_map(|term| Some((place(term.lane)?, term.mask))).collect();
        let shape = SegmentShape::for_lanes(lanes.len());
        let mut table = TupleTable {
            shape,
            lanes,
            terms,
            compact_terms,
            seeds: Seeds::draw(random),
            members: Vec::new(),
            masks: Vec::new(),
            buckets: MIN_BUCKETS,
            depth: 0,
            pages: Vec::new(),
            filter: Vec::new(),
            entries: 0,
        };
        table.clear(entries);
        table
    }

    /// Throws all entries away and makes room for so many, three quarters full.
    fn clear(&mut self, entries: usize) {
        let wanted = (entries * 4).div_ceil(3 * self.shape.places).next_power_of_two();
        self.buckets = wanted.clamp(MIN_BUCKETS, MAX_BUCKETS);
        self.depth = wanted.div_ceil(self.buckets).trailing_zeros().min(MAX_DEPTH);
        self.entries = 0;
        let new = || segment::empty(self.shape, self.buckets, self.depth);
        let page = 1 << self.depth.min(PAGE_BITS);
        let pages = 1 << self.depth.saturating_sub(PAGE_BITS);
        self.pages = (0..pages).map(|_| (0..page).map(|_| new()).collect()).collect();
        self.filter = filter_pages(std::iter::repeat_n(0, self.buckets << self.depth));
        self.members.iter_mut().for_each(|member| member.entries = 0);
    }

    /// Whether a tuple of this mask could be a member: it fixes what is hashed, and keys have its lanes.
    pub(crate) fn admits(&self, mask: &LaneMask) -> bool {
        self.has_room()
            && self.terms.iter().all(|term| mask[usize::from(term.lane)] & term.mask == term.mask)
            && (0..).zip(mask).all(|(lane, mask)| *mask == 0 || self.lanes.contains(&lane))
    }

    /// Whether one more member's number fits.
    pub(crate) fn has_room(&self) -> bool {
        self.members.len() < MAX_MEMBERS
    }

    /// Makes a tuple a member; returns its number.
    pub(crate) fn join(&mut self, mask: &LaneMask) -> u8 {
        let number = self.members.len();
        self.members.push(Member { mask: *mask, entries: 0 });
        let masks = self.compact(mask);
        self.masks.extend(&masks[..self.shape.lanes]);
        number as u8
    }

    /// The relaxed mask.
    pub(crate) fn relaxed(&self) -> LaneMask {
        let mut relaxed = LaneMask::default();
        for term in &self.terms {
            relaxed[usize::from(term.lane)] = term.mask;
        }
        relaxed
    }

    /// Bits of the relaxed mask.
    pub(crate) fn hashed_bits(&self) -> u32 {
        self.terms.iter().map(|term| term.mask.count_ones()).sum()
    }

    /// The lanes of a key or mask that the table's keys hold.
    fn compact(&self, lanes: &LaneMask) -> LaneMask {
        let mut compact = LaneMask::default();
        for (part, &lane) in compact.iter_mut().zip(&self.lanes) {
            *part = lanes[usize::from(lane)];
        }
        compact
    }

    fn hasher(&self) -> SegmentHasher<'_> {
        SegmentHasher { terms: &self.compact_terms, seeds: &self.seeds }
    }

    #[inline(always)]
    fn slot(&self, hash: u32) -> usize {
        if self.depth == 0 { 0 } else { (hash >> (32 - self.depth)) as usize }
    }

    /// The segment of a hash.
    #[inline(always)]
    pub(crate) fn reader(&self, hash: u32) -> SegmentReader<'_> {
        let slot = self.slot(hash);
        SegmentReader::new(&self.pages[slot >> PAGE_BITS][slot & ((1 << PAGE_BITS) - 1)], self.buckets)
    }

    /// The value of a member's key, given over all lanes.
    pub(crate) fn value(&self, member: u8, key: &LaneMask) -> Option<u32> {
        let key = self.compact(key);
        let (hash, _) = self.hasher().hash(&key);
        self.reader(hash).value(self.shape, hash, member, &key[..self.shape.lanes])
    }

    /// Entries that a search for a key compares.
    pub(crate) fn chain(&self, key: &LaneMask) -> usize {
        let (hash, _) = self.hasher().hash(&self.compact(key));
        self.reader(hash).chain(self.shape, hash)
    }

    /// The number of a hash's filter word.
    #[inline(always)]
    fn word(&self, hash: u32) -> usize {
        self.slot(hash) * self.buckets + (hash as usize & (self.buckets - 1))
    }

    /// The filter word of a hash.
    #[inline(always)]
    pub(crate) fn filter(&self, hash: u32) -> &u32 {
        let word = self.word(hash);
        &self.filter[word >> FILTER_BITS][word & (FILTER_WORDS - 1)]
    }

    /// Words of the filter.
    pub(crate) fn filter_words(&self) -> usize {
        self.buckets << self.depth
    }

    fn filter_word(&mut self, number: usize) -> &mut u32 {
        &mut self.filter[number >> FILTER_BITS].make_mut()[number & (FILTER_WORDS - 1)]
    }

    /// Makes the filter words of all keys in the segment of a hash say what is there.
    fn rebuild_filter(&mut self, hash: u32) {
        let (shape, buckets) = (self.shape, self.buckets);
        let slots = self.places(hash);
        (slots.start * buckets..slots.end * buckets).for_each(|word| *self.filter_word(word) = 0);
        let segment = self.place(slots.start).clone();
        for entry in SegmentReader::new(&segment, buckets).entries(shape) {
            let (hash, marks) = self.hasher().hash(&entry.key);
            let word = self.word(hash);
            *self.filter_word(word) |= marks;
        }
    }

    fn place(&mut self, slot: usize) -> &mut Segment {
        &mut Arc::make_mut(&mut self.pages[slot >> PAGE_BITS])[slot & ((1 << PAGE_BITS) - 1)]
    }

    /// The places of the directory in which the segment of a hash stands.
    fn places(&self, hash: u32) -> Range<usize> {
        let count = 1 << (self.depth - self.reader(hash).depth());
        let first = self.slot(hash) & !(count - 1);
        first..first + count
    }

    /// Lets `change` have the segment of a hash. Wherever it stood it stands changed: if only one place got it, a split
    /// would lose what was added by another.
    fn write<R>(&mut self, hash: u32, change: impl FnOnce(SegmentWriter<'_>) -> R) -> R {
        let (shape, buckets, places) = (self.shape, self.buckets, self.places(hash));
        let mut segment = self.place(places.start).clone();
        // What is not shared with a snapshot is changed where it is.
        places.clone().for_each(|slot| *self.place(slot) = Segment::default());
        let done = change(SegmentWriter::new(segment.make_mut(), shape, buckets));
        places.for_each(|slot| *self.place(slot) = segment.clone());
        done
    }

    /// Gives a key that is there another value.
    pub(crate) fn set(&mut self, member: u8, key: &LaneMask, value: u32) {
        let key = self.compact(key);
        let (hash, _) = self.hasher().hash(&key);
        let lanes = self.shape.lanes;
        self.write(hash, |mut writer| writer.set(hash, member, &key[..lanes], value));
    }

    /// Removes a key; returns the value that it had.
    pub(crate) fn remove(&mut self, member: u8, key: &LaneMask) -> Option<u32> {
        let key = self.compact(key);
        let (hash, _) = self.hasher().hash(&key);
        let lanes = self.shape.lanes;
        let value = self.write(hash, |mut writer| writer.remove(hash, member, &key[..lanes]))?;
        let word = self.word(hash);
        let near = self.reader(hash).near(self.shape, hash).map(|entry| self.hasher().hash(&entry.key));
        let left = near.filter(|(hash, _)| self.word(*hash) == word).fold(0, |all, (_, marks)| all | marks);
        *self.filter_word(word) = left;
        self.entries -= 1;
        self.members[usize::from(member)].entries -= 1;
        Some(value)
    }

    /// Adds a key that is not there.
    ///
    /// # Errors
    /// Too many entries have the same relaxed key for one to be found quickly; nothing is changed.
    pub(crate) fn insert(&mut self, member: u8, key: &LaneMask, value: u32) -> Result<(), NoFreePlace> {
        let entry = SegmentEntry { key: self.compact(key), member, value };
        let (hash, marks) = self.hasher().hash(&entry.key);
        while self.write(hash, |mut writer| writer.insert(hash, &entry)).is_err() {
            self.grow(hash)?;
        }
        let word = self.word(hash);
        *self.filter_word(word) |= marks;
        self.entries += 1;
        self.members[usize::from(member)].entries += 1;
        Ok(())
    }

    /// Makes room where a hash leads.
    fn grow(&mut self, hash: u32) -> Result<(), NoFreePlace> {
        let reader = self.reader(hash);
        // With room everywhere but here, the entries here have one hash, and no split would part them.
        if reader.used() * 2 < self.buckets * self.shape.places {
            return Err(NoFreePlace);
        }
        if self.buckets < MAX_BUCKETS { self.double() } else { self.split(hash) }
    }

    /// Makes the only segment twice as large.
    fn double(&mut self) -> Result<(), NoFreePlace> {
        let (shape, old) = (self.shape, self.reader(0));
        let buckets = self.buckets * 2;
        let mut new = segment::empty(shape, buckets, 0);
        fill(&mut new, shape, buckets, old.entries(shape), self.hasher())?;
        self.pages = vec![[new].into()];
        self.buckets = buckets;
        self.filter = filter_pages(std::iter::repeat_n(0, buckets));
        self.rebuild_filter(0);
        Ok(())
    }

    /// Splits the segment of a hash in two.
    fn split(&mut self, hash: u32) -> Result<(), NoFreePlace> {
        let (shape, buckets) = (self.shape, self.buckets);
        let old = self.reader(hash);
        let depth = old.depth() + 1;
        if depth > MAX_DEPTH {
            return Err(NoFreePlace);
        }
        let mut halves = [0, 1].map(|_| segment::empty(shape, buckets, depth));
        for (bit, half) in (0..).zip(&mut halves) {
            let its = |entry: &SegmentEntry| self.hasher().hash(&entry.key).0 >> (32 - depth) & 1 == bit;
            fill(half, shape, buckets, old.entries(shape).filter(its), self.hasher())?;
        }
        if depth > self.depth {
            self.deepen();
        }
        let places = self.places(hash);
        let middle = places.start + places.len() / 2;
        for slot in places {
            *self.place(slot) = halves[usize::from(slot >= middle)].clone();
        }
        // What the directory's growth doubled may say too much.
        self.rebuild_filter(hash);
        self.rebuild_filter(hash ^ 1 << (32 - depth));
        Ok(())
    }

    /// Doubles the directory: each segment stands twice.
    fn deepen(&mut self) {
        let mut twice = self.pages.iter().flat_map(|page| page.iter()).flat_map(|s| [s.clone(), s.clone()]);
        let mut pages = Vec::new();
        loop {
            let page: Vec<Segment> = twice.by_ref().take(1 << PAGE_BITS).collect();
            if page.is_empty() {
                break;
            }
            pages.push(page.into());
        }
        drop(twice);
        self.pages = pages;
        let words: Vec<u32> = self.filter.iter().flat_map(|page| page.iter().copied()).collect();
        let twice = words.chunks_exact(self.buckets).flat_map(|slot| [slot, slot]).flatten().copied();
        self.filter = filter_pages(twice);
        self.depth += 1;
    }

    /// Every entry, once, with its key over all lanes.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u8, LaneMask, u32)> {
        let segments = self.pages.iter().flat_map(|page| page.iter());
        let mut last: Option<&Segment> = None;
        let distinct = segments.filter(move |segment| {
            let again = last.is_some_and(|last| last.ptr_eq(segment));
            last = Some(segment);
            !again
        });
        distinct.flat_map(|segment| SegmentReader::new(segment, self.buckets).entries(self.shape)).map(
            |entry| {
                let mut key = LaneMask::default();
                for (part, &lane) in entry.key.iter().zip(&self.lanes) {
                    key[usize::from(lane)] = *part;
                }
                (entry.member, key, entry.value)
            },
        )
    }

    /// Entries of the table.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Buckets, and the places for entries in them.
    pub(crate) fn room(&self) -> (usize, usize) {
        let segments: usize = self
            .pages
            .iter()
            .flat_map(|page| page.iter())
            .map(|s| 1 << (self.depth - SegmentReader::new(s, self.buckets).depth()))
            .map(|copies: usize| (1 << MAX_DEPTH) / copies)
            .sum();
        let buckets = (segments * self.buckets) >> MAX_DEPTH;
        (buckets, buckets * self.shape.places)
    }
}

/// Fills an empty segment that nobody shares.
fn fill(
    segment: &mut Segment,
    shape: SegmentShape,
    buckets: usize,
    entries: impl Iterator<Item = SegmentEntry>,
    hasher: SegmentHasher<'_>,
) -> Result<(), NoFreePlace> {
    let mut writer = SegmentWriter::new(segment.make_mut(), shape, buckets);
    for entry in entries {
        writer.insert(hasher.hash(&entry.key).0, &entry)?;
    }
    Ok(())
}

/// Filter words in pages.
fn filter_pages(words: impl Iterator<Item = u32>) -> Vec<SharedSlice<u32>> {
    let words: Vec<u32> = words.collect();
    words.chunks(FILTER_WORDS).map(|page| page.to_vec().into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VECTOR;
    use crate::probe::ProbeColumns;
    use mmb_base::simd::SimdLevel;
    use mmb_packet::columns::Column;
    use mmb_random::RepeatableRandom;
    use std::collections::HashMap;

    /// A segment that stood twice in the directory was once split after it had been changed at one place only.
    #[test]
    fn no_entry_is_lost_while_the_directory_grows() {
        let key = |number: u32| {
            let mut key = LaneMask::default();
            key[3] = number.wrapping_mul(0x9e37_79b9);
            key
        };
        let mut mask = LaneMask::default();
        mask[3] = u32::MAX;
        let mut seed = 1;
        let mut table = TupleTable::new(&mask, &mask, 0, || {
            seed += 2_u64;
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        let member = table.join(&mask);
        for number in 0..100_000 {
            table.insert(member, &key(number), number).expect("room");
            if number % 1000 == 0 {
                let lost = (0..number).find(|&before| table.value(member, &key(before)) != Some(before));
                assert_eq!(lost, None, "after {number}");
            }
        }
        assert_eq!(table.entries().count(), 100_000);
        for number in 0..100_000 {
            assert_eq!(table.remove(member, &key(number)), Some(number));
        }
        assert_eq!(table.len(), 0);
    }

    /// Two members: the first lane whole, or 24 bits of it and the second lane.
    fn masks() -> [LaneMask; 2] {
        let (mut narrow, mut wide) = (LaneMask::default(), LaneMask::default());
        narrow[13] = u32::MAX;
        (wide[13], wide[14]) = (0x00ff_ffff, u32::MAX);
        [narrow, wide]
    }

    fn table(seeds: Seeds) -> TupleTable {
        let [narrow, wide] = masks();
        let (relaxed, span) =
            (std::array::from_fn(|l| narrow[l] & wide[l]), std::array::from_fn(|l| narrow[l] | wide[l]));
        let mut table = TupleTable::new(&relaxed, &span, 0, || 0);
        table.seeds = seeds;
        masks().iter().for_each(|mask| _ = table.join(mask));
        table
    }

    fn check(table: &TupleTable, model: &HashMap<(u8, LaneMask), u32>) {
        assert_eq!(table.len(), model.len());
        assert_eq!(table.entries().count(), model.len());
        for ((member, key), value) in model {
            assert_eq!(table.value(*member, key), Some(*value));
            let lanes: Vec<Column> = key.iter().map(|lane| [*lane; VECTOR]).collect();
            let mut probe = ProbeColumns::default();
            probe.filter(SimdLevel::detect(), |_| table, &lanes, 1, 0);
            probe.finish(SimdLevel::detect(), |_| table);
            let mut found = Vec::new();
            probe.verify(SimdLevel::detect(), |_| table, &lanes, |_, value| found.push(value));
            assert!(found.contains(value), "{value} is not among {found:?}");
        }
    }

    /// Adds and removes keys, `keys` different ones at most, for so many steps.
    fn live(seeds: Seeds, keys: u64, steps: usize, seed: u64) {
        let (mut table, mut model) = (table(seeds), HashMap::new());
        let mut state = RepeatableRandom::new(seed);
        for step in 0..steps {
            let member = (state.word() % 2) as u8;
            let mut key = LaneMask::default();
            key[13] = (state.word() % keys) as u32;
            key[14] = (state.word() % keys) as u32;
            let mask = masks()[usize::from(member)];
            let key = std::array::from_fn(|lane| key[lane] & mask[lane]);
            // Mostly additions, then mostly removals.
            let adds = state.word() % 8 < if step < steps / 2 { 6 } else { 2 };
            match (adds, model.contains_key(&(member, key))) {
                (true, false) => {
                    if table.insert(member, &key, step as u32).is_ok() {
                        model.insert((member, key), step as u32);
                    }
                }
                (true, true) => {
                    table.set(member, &key, step as u32);
                    model.insert((member, key), step as u32);
                }
                (false, _) => assert_eq!(table.remove(member, &key), model.remove(&(member, key))),
            }
            if step % (steps / 16) == 0 {
                check(&table, &model);
            }
        }
        check(&table, &model);
    }

    #[test]
    fn keys_come_and_go() {
        for seed in 1..4 {
            let mut state = RepeatableRandom::new(seed);
            live(Seeds::draw(|| state.word()), 20, 4000, seed);
            live(Seeds::draw(|| state.word()), 40, 8000, seed);
        }
    }

    #[test]
    fn keys_whose_hashes_collide_are_found_or_refused() {
        // All hashes equal; hashes with even upper bits only; hashes that differ in few bits.
        for (terms, fold) in
            [([0; 20], [0, 0]), ([0; 20], [1, 1]), ([1; 20], [0x100, 0x1000]), ([7; 20], [3, 0])]
        {
            live(Seeds { terms, fold }, 20, 4000, 9);
            live(Seeds { terms, fold }, 200, 3000, 9);
        }
    }
}
