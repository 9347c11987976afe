//! The places of flows: sets of lines, found by a hash.
//!
//! A set has seven places and a word: a tag of eight bits for each place, 0 if it is empty, and a bit for each that was asked for since it was
//! filled. The words of all sets are a small array, which tells most keys that are in no line without a look at a line. A place has two
//! cache lines: the number of slots, the class, the masked lanes of the key, and the slots.
//!
//! A new flow takes an empty place, or the place of one that no packet came for. If there is no such place, one flow in some loses its
//! mark instead: whoever sends many headers that never come back displaces others of that kind, and hardly the flows that have packets.

use crate::RuleSlot;
use crate::simd::{Seeds, Term};
use mmb_base::{ZeroedWords, prefetch};
use mmb_packet::columns::Column;

/// Sets.
const SETS: usize = 1 << 14;
/// Places of a set.
const WAYS: usize = 7;
/// The most lanes of a key.
const LANES: usize = Seeds::TERMS;
/// Words of a place.
const WORDS: usize = 32;
/// One in so many flows that find no place takes a mark away. A power of two.
const AGING: u32 = 8;

/// A one in every byte, and the highest bit of the bytes of tags.
const ONES: u64 = 0x0101_0101_0101_0101;
const TAGS: u64 = 0x0080_8080_8080_8080;
/// The shift of the marks.
const MARKS: u32 = 56;

/// No place.
pub(super) const NO_PLACE: u32 = u32::MAX;

/// How keys of a class stand in their places.
#[derive(Debug)]
pub(super) struct KeyShape {
    class: u32,
    /// The bits of keys that count.
    pub(super) terms: Vec<Term>,
}

/// A key: a number in columns.
type KeyAt<'a> = (&'a [Column], usize);

impl KeyShape {
    /// A class without bits.
    pub(super) fn new(class: u32) -> KeyShape {
        KeyShape { class, terms: Vec::with_capacity(LANES) }
    }

    /// The masked words of a key.
    #[inline(always)]
    fn words<'a>(&'a self, (lanes, key): KeyAt<'a>) -> impl Iterator<Item = u32> + 'a {
        self.terms.iter().map(move |term| lanes[usize::from(term.lane)][key] & term.mask)
    }
}

/// All places.
#[derive(Debug)]
pub(super) struct FlowPlaces {
    heads: Box<[u64; SETS]>,
    words: ZeroedWords,
    /// Some place is not empty.
    is_used: bool,
    /// Flows that found no place.
    refused: u32,
}

impl FlowPlaces {
    pub(super) fn new() -> FlowPlaces {
        let heads = vec![0; SETS].into_boxed_slice();
        FlowPlaces {
            heads: heads.try_into().unwrap_or_else(|_| Box::new([0; SETS])),
            words: ZeroedWords::new(SETS * WAYS * WORDS),
            is_used: false,
            refused: 0,
        }
    }

    /// Has the kernel give the memory of all places now.
    pub(super) fn populate(&mut self) {
        self.clear();
        self.heads.fill(0);
        self.words.populate();
    }

    /// Empties all places.
    pub(super) fn clear(&mut self) {
        if self.is_used {
            self.heads.fill(0);
            self.is_used = false;
        }
    }

    /// The places as a vector's keys are looked for in them.
    #[inline(always)]
    pub(super) fn view<'a>(&'a mut self, shape: &'a KeyShape, lanes: &'a [Column]) -> PlaceView<'a> {
        let mut terms = [(&lanes[0], 0); LANES];
        for (to, term) in terms.iter_mut().zip(&shape.terms) {
            *to = (&lanes[usize::from(term.lane)], term.mask);
        }
        let count = shape.terms.len().min(LANES);
        PlaceView {
            heads: &mut self.heads,
            places: self.words.as_chunks().0,
            class: shape.class,
            terms,
            count,
        }
    }

    /// Gives a place to a key that has none, if there is one for it and its matches.
    pub(super) fn insert(&mut self, hash: u32, shape: &KeyShape, key: KeyAt<'_>, slots: &[RuleSlot]) {
        let set = set_of(hash);
        let room = WORDS - 1 - shape.terms.len();
        // A packet of the same vector may have been first.
        if slots.len() > room || self.has(hash, shape, key) {
            return;
        }
        let Some(way) = self.free_way(set) else { return };
        let head = &mut self.heads[set];
        *head = *head & !(0xff << (8 * way)) | u64::from(tag_of(hash)) << (8 * way);
        self.is_used = true;
        let place = &mut self.words.as_chunks_mut::<WORDS>().0[set * WAYS + way];
        place[0] = shape.class << 8 | slots.len() as u32;
        let (words, numbers) = place[1..].split_at_mut(shape.terms.len());
        words.iter_mut().zip(shape.words(key)).for_each(|(to, word)| *to = word);
        numbers.iter_mut().zip(slots).for_each(|(to, slot)| *to = slot.word());
    }

    /// Whether a key has a place.
    #[inline]
    fn has(&self, hash: u32, shape: &KeyShape, key: KeyAt<'_>) -> bool {
        let set = set_of(hash);
        let places: &[[u32; WORDS]] = self.words.as_chunks().0;
        let is_key = |place: &[u32; WORDS]| {
            place[0] >> 8 == shape.class
                && place[1..].iter().zip(shape.words(key)).all(|(word, own)| *word == own)
        };
        ways(self.heads[set], hash).any(|way| is_key(&places[set * WAYS + way]))
    }

    /// A place of a set that may be filled.
    #[inline]
    fn free_way(&mut self, set: usize) -> Option<usize> {
        let head = self.heads[set];
        let empty = zero_bytes(head);
        if empty != 0 {
            return Some(empty.trailing_zeros() as usize / 8);
        }
        let unmarked = !(head >> MARKS) & 0x7f;
        self.refused = self.refused.wrapping_add(1);
        let start = self.refused / AGING % WAYS as u32;
        let way = |from: u32| {
            let turned = unmarked >> from | unmarked << (WAYS as u32 - from);
            (from + turned.trailing_zeros()) as usize % WAYS
        };
        if unmarked != 0 {
            return Some(way(start));
        }
        if self.refused.is_multiple_of(AGING) {
            self.heads[set] &= !(1 << (MARKS + start));
        }
        None
    }
}

/// The places, and the columns that a vector's keys of a class stand in.
pub(super) struct PlaceView<'a> {
    heads: &'a mut [u64; SETS],
    places: &'a [[u32; WORDS]],
    class: u32,
    /// The columns and the bits of them that count: so many.
    terms: [(&'a Column, u32); LANES],
    count: usize,
}

impl PlaceView<'_> {
    /// The first place whose tag is that of a hash, or [`NO_PLACE`].
    #[inline(always)]
    pub(super) fn candidate(&self, hash: u32) -> u32 {
        let set = set_of(hash);
        let tagged = tagged(self.heads[set], hash);
        let place = (set * WAYS) as u32 + tagged.trailing_zeros() / 8;
        if tagged == 0 { NO_PLACE } else { place }
    }

    /// Asks for the first line of a place.
    #[inline(always)]
    pub(super) fn fetch(&self, place: u32) {
        prefetch(&self.places[place as usize][0]);
    }

    /// Asks for the rest of a place, if its first line, which has been asked for, says that there is more.
    #[inline(always)]
    pub(super) fn fetch_rest(&self, place: u32) {
        let place = &self.places[place as usize];
        if (place[0] & 0xff) as usize + self.count >= WORDS / 2 {
            prefetch(&place[WORDS / 2]);
        }
    }

    /// The numbers of the slots of a key's flow, of which the first so many count, if it is there. `place` is its
    /// [`PlaceView::candidate`].
    #[inline(always)]
    pub(super) fn slots(&mut self, hash: u32, place: u32, key: u8) -> Option<(&[u32], usize)> {
        let set = set_of(hash);
        let mut way = place as usize - set * WAYS;
        let mut words = &self.places[place as usize];
        if !self.is_key(words, key) {
            way = self.other(hash, way, key)?;
            words = &self.places[set * WAYS + way];
        }
        self.heads[set] |= 1 << (MARKS as usize + way);
        Some((&words[1 + self.count..], (words[0] & 0xff) as usize))
    }

    /// The place in its set of a key that is not where its first candidate is.
    #[cold]
    fn other(&self, hash: u32, first: usize, key: u8) -> Option<usize> {
        let set = set_of(hash);
        let mut others = ways(self.heads[set], hash).filter(|way| *way != first);
        others.find(|way| self.is_key(&self.places[set * WAYS + way], key))
    }

    /// Whether a place has a key.
    #[inline(always)]
    fn is_key(&self, place: &[u32; WORDS], key: u8) -> bool {
        let mut differ = place[0] >> 8 ^ self.class;
        for (word, (column, mask)) in place[1..].iter().zip(&self.terms[..self.count]) {
            differ |= word ^ (column[usize::from(key)] & mask);
        }
        differ == 0
    }
}

/// The ways of a set that have the tag of a hash.
fn ways(head: u64, hash: u32) -> impl Iterator<Item = usize> {
    (0..WAYS).filter(move |way| (head >> (8 * way)) as u8 == tag_of(hash))
}

#[inline(always)]
fn set_of(hash: u32) -> usize {
    hash as usize % SETS
}

/// A byte of the hash that the set does not depend on; not 0, and not 1: see [`zero_bytes`].
#[inline(always)]
fn tag_of(hash: u32) -> u8 {
    ((hash >> 24) as u8).max(2)
}

/// The highest bit of each byte of tags that is zero, and perhaps of bytes above the first of these: of those that are 1, by the borrow. So an
/// empty byte never seems to have a tag, which differs from it in more than the lowest bit.
#[inline(always)]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & TAGS
}

/// The highest bit of each byte with the tag of a hash, and perhaps of others above the first.
#[inline(always)]
fn tagged(head: u64, hash: u32) -> u64 {
    zero_bytes(head ^ (u64::from(tag_of(hash)) * ONES))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Empty places once seemed to have a tag that was in a place below them, and what an earlier policy had left there was found.
    #[test]
    fn an_empty_place_never_seems_to_have_a_tag() {
        for byte in 0..=u8::MAX {
            let hash = u32::from(byte) << 24;
            for lower in 0..=u8::MAX {
                // A tag or none below an empty byte, and one above it.
                let head = u64::from(lower) | u64::from(byte) << 16 | u64::from(tag_of(hash)) << 32;
                let found = tagged(head, hash);
                assert_eq!(found >> 8 & 0xff, 0, "{byte:#x} {lower:#x}");
                assert_eq!(found >> 39 & 1, 1);
                let its: Vec<usize> = ways(head, hash).collect();
                assert!(its.contains(&4) && !its.contains(&1));
            }
        }
    }
}
