//! Samples of texts, and where texts have them.

use super::number::first_8;
use super::sampling::Sampling;
use super::table::Table;
use crate::filter::{BLOCK, StringFilter, StringKey, block_bytes, place_of_bit};
use mmb_base::simd::SimdLevel;
use std::collections::HashMap;

/// Blocks of places that are searched before what is found there is looked at: a segment at a step of 4.
pub(super) const STRETCH: usize = 8;

/// The most lengths and offsets of the texts that have a sample.
pub(super) const MAX_PER_SAMPLE: usize = 8;

/// The samples of texts.
#[derive(Debug)]
pub(super) struct Samples {
    pub(super) sampling: Sampling,
    level: SimdLevel,
    filter: StringFilter,
    uses: Table<[Use; MAX_PER_SAMPLE]>,
}

/// Texts that have a sample: all of one length that have it at one offset. None if the length is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Use {
    offset: u8,
    len: u8,
}

/// Samples of texts that are added one by one.
#[derive(Debug)]
pub(super) struct SamplesBuilder {
    sampling: Sampling,
    uses: HashMap<StringKey, SampleUses>,
}

/// What is known of a sample.
#[derive(Debug, Default)]
struct SampleUses {
    texts: usize,
    uses: Vec<Use>,
}

impl SamplesBuilder {
    pub(super) fn new(sampling: Sampling) -> SamplesBuilder {
        SamplesBuilder { sampling, uses: HashMap::new() }
    }

    /// Adds a text by those of its samples that the fewest others have. False if all have too many uses.
    pub(super) fn add(&mut self, text: &[u8]) -> bool {
        let sampling = self.sampling;
        let windows = sampling.windows(text.len());
        let loads = windows.filter_map(|window| Some((self.load(text, window)?, window)));
        let Some((_, window)) = loads.min() else { return false };
        for (key, at) in uses(sampling, text, window) {
            let known = self.uses.entry(key).or_default();
            known.texts += 1;
            if !known.uses.contains(&at) {
                known.uses.push(at);
            }
        }
        true
    }

    /// How many texts have the samples of a window: the most that have one of them, and all. `None` if one has too many uses.
    fn load(&self, text: &[u8], window: usize) -> Option<(usize, usize)> {
        let (mut max, mut all) = (0, 0);
        for (index, (key, at)) in uses(self.sampling, text, window).enumerate() {
            let known = self.uses.get(&key);
            let is_new = |at: &Use| known.is_none_or(|known| !known.uses.contains(at));
            let same = uses(self.sampling, text, window).take(index).filter(|(other, _)| *other == key);
            let new = same.chain([(key, at)]).filter(|(_, at)| is_new(at)).count();
            if known.map_or(0, |known| known.uses.len()) + new > MAX_PER_SAMPLE {
                return None;
            }
            let texts = known.map_or(0, |known| known.texts);
            (max, all) = (max.max(texts), all + texts);
        }
        Some((max, all))
    }

    /// `None` without memory.
    pub(super) fn build(self) -> Option<Samples> {
        let keys = self.uses.keys().copied().collect();
        let uses = self.uses.into_iter().map(|(key, known)| {
            let mut uses = [Use::default(); MAX_PER_SAMPLE];
            uses.iter_mut().zip(known.uses).for_each(|(place, known)| *place = known);
            (key.number(), uses)
        });
        Some(Samples {
            sampling: self.sampling,
            level: SimdLevel::detect(),
            filter: StringFilter::new(keys),
            uses: Table::new(uses)?,
        })
    }
}

/// The samples of a window of a text, and how the text has each.
fn uses(sampling: Sampling, text: &[u8], window: usize) -> impl Iterator<Item = (StringKey, Use)> {
    let at = move |offset| Use { offset: offset as u8, len: text.len() as u8 };
    sampling.keys(text, window).zip(window..).map(move |(key, offset)| (key, at(offset)))
}

impl Samples {
    /// Calls `on_text` with each place at which a text of some length may begin, and that length: by the samples at the next [`STRETCH`] blocks of
    /// places from `at` on, in any order. What it reads of the table comes while it searches on.
    #[inline]
    pub(super) fn each(&self, bytes: &[u8], at: usize, on_text: impl FnMut(usize, usize)) {
        match self.sampling.step {
            1 => self.each_by::<1>(bytes, at, on_text),
            2 => self.each_by::<2>(bytes, at, on_text),
            4 => self.each_by::<4>(bytes, at, on_text),
            _ => self.each_by::<8>(bytes, at, on_text),
        }
    }

    #[inline]
    fn each_by<const STEP: usize>(&self, bytes: &[u8], at: usize, mut on_text: impl FnMut(usize, usize)) {
        let mut stretch = [0; STRETCH];
        let blocks = (at..bytes.len()).step_by(BLOCK * STEP);
        for (found, block) in stretch.iter_mut().zip(blocks.clone()) {
            *found = self.search_block::<STEP>(bytes, block);
            for place in places::<STEP>(*found, block) {
                self.uses.prefetch(self.number_at(bytes, place));
            }
        }
        for (found, block) in stretch.into_iter().zip(blocks) {
            for place in places::<STEP>(found, block) {
                let uses = self.uses.get(self.number_at(bytes, place)).into_iter().flatten();
                for Use { offset, len } in uses.take_while(|at| at.len > 0) {
                    if let Some(start) = place.checked_sub(usize::from(*offset)) {
                        on_text(start, usize::from(*len));
                    }
                }
            }
        }
    }

    #[inline]
    fn search_block<const STEP: usize>(&self, bytes: &[u8], at: usize) -> u64 {
        let (rest, mask) = (bytes.get(at..).unwrap_or_default(), self.sampling.mask);
        if rest.len() >= block_bytes(STEP) {
            return self.filter.search_block::<STEP>(rest, mask, self.level);
        }
        // The last places: what seems to be found where bytes are missing is no sample of a text.
        let mut block = [0; block_bytes(8)];
        let block = &mut block[..block_bytes(STEP)];
        block[..rest.len()].copy_from_slice(rest);
        self.filter.search_block::<STEP>(block, mask, self.level)
    }

    /// The number of the sample that begins there; zero, which is none's, where bytes are missing.
    #[inline]
    fn number_at(&self, bytes: &[u8], place: usize) -> u64 {
        match bytes.get(place..) {
            Some(sample) if sample.len() >= self.sampling.len => self.sampling.key(first_8(sample)).number(),
            _ => 0,
        }
    }
}

/// The places of a block's bits.
#[inline]
fn places<const STEP: usize>(mut found: u64, block: usize) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (found != 0).then(|| found.trailing_zeros() as usize)?;
        found &= found - 1;
        Some(block + place_of_bit::<STEP>(bit))
    })
}
