//! The places of flows: sets of lines, found by a hash.
//!
//! A set has seven places and a word: a tag of eight bits for each place, 0 if it is empty, and a bit for each that was asked for since it was
//! filled. The words of all sets are a small array, which tells most keys that are in no line without a look at a line. A place has two
//! cache lines: the number of slots, the class, the masked lanes of the key, and the slots. Slots that do not fit are in a block of their own,
//! whose number the place has instead.
//!
//! A new flow takes an empty place, or the place of one that no packet came for. If there is no such place, one flow in some loses its
//! bit instead: whoever sends many headers that never come back displaces others of that kind, and hardly the flows that have packets.

use crate::RuleSlot;
use crate::matches::MAX_KNOWN;
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
/// Blocks for slots that do not fit their place, and words of one.
const BLOCKS: usize = 1 << 14;
const BLOCK_WORDS: usize = MAX_KNOWN;
const _: () = assert!(BLOCK_WORDS as u32 <= LEN && BLOCKS <= 1 << (32 - BLOCK));
/// The first word of a place: in the lower byte the number of slots and a bit that is set if they are in a block, then the class in a byte, and
/// the number of the block.
const LEN: u32 = 0x7f;
const IN_BLOCK: u32 = 1 << 7;
const CLASS: u32 = 8;
const BLOCK: u32 = 16;
/// One in so many flows that find no place takes such a bit away. A power of two.
const AGING: u32 = 8;

/// A one in every byte, and the highest bit of the bytes of tags.
const ONES: u64 = 0x0101_0101_0101_0101;
const TAGS: u64 = 0x0080_8080_8080_8080;
/// The shift of the bits of places that were asked for.
const REFERENCED: u32 = 56;

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
    blocks: ZeroedWords,
    /// The place that each block belongs to.
    owners: Box<[u32]>,
    /// Blocks that belong to no place, and the number of those that have belonged to one since places were empty.
    free: Vec<u32>,
    taken: u32,
    /// The block that is taken from its place next, if that was not asked for.
    next: u32,
    /// Some place is not empty.
    is_used: bool,
    /// Flows that found no empty place, or no free block.
    full: u32,
}

impl FlowPlaces {
    pub(super) fn new() -> FlowPlaces {
        let heads = vec![0; SETS].into_boxed_slice();
        FlowPlaces {
            heads: heads.try_into().unwrap_or_else(|_| Box::new([0; SETS])),
            words: ZeroedWords::new(SETS * WAYS * WORDS),
            blocks: ZeroedWords::new(BLOCKS * BLOCK_WORDS),
            owners: vec![0; BLOCKS].into(),
            free: Vec::with_capacity(BLOCKS),
            taken: 0,
            next: 0,
            is_used: false,
            full: 0,
        }
    }

    /// Has the kernel give the memory of all places now.
    pub(super) fn populate(&mut self) {
        self.clear();
        self.heads.fill(0);
        self.owners.fill(0);
        self.free.resize(BLOCKS, 0);
        self.free.clear();
        self.words.populate();
        self.blocks.populate();
    }

    /// Empties all places.
    pub(super) fn clear(&mut self) {
        if self.is_used {
            self.heads.fill(0);
            self.free.clear();
            self.taken = 0;
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
            blocks: self.blocks.as_chunks().0,
            class: shape.class,
            terms,
            count,
        }
    }

    /// Gives a place to a key that has none, if there is one for it and its matches.
    pub(super) fn insert(&mut self, hash: u32, shape: &KeyShape, key: KeyAt<'_>, slots: &[RuleSlot]) {
        // A packet of the same vector may have been first.
        if slots.len() > BLOCK_WORDS || self.has(hash, shape, key) {
            return;
        }
        let set = set_of(hash);
        let block = if slots.len() > WORDS - 1 - shape.terms.len() {
            let Some(block) = self.free_block() else { return };
            Some(block)
        } else {
            None
        };
        let Some(way) = self.free_way(set) else {
            self.free.extend(block);
            return;
        };
        let number = set * WAYS + way;
        self.release_block(set, way);
        let head = &mut self.heads[set];
        *head = *head & !(0xff << (8 * way)) | u64::from(tag_of(hash)) << (8 * way);
        self.is_used = true;
        let place = &mut self.words.as_chunks_mut::<WORDS>().0[number];
        let [first, rest @ ..] = place;
        let (words, numbers) = rest.split_at_mut(shape.terms.len());
        words.iter_mut().zip(shape.words(key)).for_each(|(to, word)| *to = word);
        let (in_block, numbers) = match block {
            Some(block) => {
                self.owners[block as usize] = number as u32;
                let numbers = &mut self.blocks.as_chunks_mut::<BLOCK_WORDS>().0[block as usize];
                (block << BLOCK | IN_BLOCK, &mut numbers[..])
            }
            None => (0, numbers),
        };
        *first = in_block | shape.class << CLASS | slots.len() as u32;
        numbers.iter_mut().zip(slots).for_each(|(to, slot)| *to = slot.word());
    }

    /// A block that belongs to no place. If there is none, one is taken from a place that was not asked for, or in some
    /// flows a place loses its bit.
    fn free_block(&mut self) -> Option<u32> {
        if let Some(block) = self.free.pop() {
            return Some(block);
        }
        if (self.taken as usize) < BLOCKS {
            self.taken += 1;
            return Some(self.taken - 1);
        }
        self.full = self.full.wrapping_add(1);
        let block = self.next as usize % BLOCKS;
        let (set, way) = (self.owners[block] as usize / WAYS, self.owners[block] as usize % WAYS);
        let is_referenced = self.heads[set] >> (REFERENCED as usize + way) & 1 == 1;
        if is_referenced && !self.full.is_multiple_of(AGING) {
            return None;
        }
        self.next = self.next.wrapping_add(1);
        if is_referenced {
            self.heads[set] &= !(1 << (REFERENCED as usize + way));
            return None;
        }
        self.heads[set] &= !(0xff << (8 * way));
        Some(block as u32)
    }

    /// Takes the block of a place that is filled anew, if it has one.
    fn release_block(&mut self, set: usize, way: usize) {
        let place = &self.words.as_chunks::<WORDS>().0[set * WAYS + way];
        if self.heads[set] >> (8 * way) & 0xff != 0 && place[0] & IN_BLOCK != 0 {
            self.free.push(place[0] >> BLOCK);
        }
    }

    /// Whether a key has a place.
    #[inline]
    fn has(&self, hash: u32, shape: &KeyShape, key: KeyAt<'_>) -> bool {
        let set = set_of(hash);
        let places: &[[u32; WORDS]] = self.words.as_chunks().0;
        let is_key = |place: &[u32; WORDS]| {
            class_of(place) == shape.class
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
        let unreferenced = !(head >> REFERENCED) & 0x7f;
        self.full = self.full.wrapping_add(1);
        let start = self.full / AGING % WAYS as u32;
        let way = |from: u32| {
            let turned = unreferenced >> from | unreferenced << (WAYS as u32 - from);
            (from + turned.trailing_zeros()) as usize % WAYS
        };
        if unreferenced != 0 {
            return Some(way(start));
        }
        if self.full.is_multiple_of(AGING) {
            self.heads[set] &= !(1 << (REFERENCED + start));
        }
        None
    }
}

/// The places, and the columns that a vector's keys of a class stand in.
pub(super) struct PlaceView<'a> {
    heads: &'a mut [u64; SETS],
    places: &'a [[u32; WORDS]],
    blocks: &'a [[u32; BLOCK_WORDS]],
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
        let len = (place[0] & LEN) as usize;
        if place[0] & IN_BLOCK != 0 {
            let block = &self.blocks[(place[0] >> BLOCK) as usize % BLOCKS];
            block[..len.min(BLOCK_WORDS)].chunks(WORDS / 2).for_each(|line| prefetch(&line[0]));
        } else if len + self.count >= WORDS / 2 {
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
        self.heads[set] |= 1 << (REFERENCED as usize + way);
        let len = (words[0] & LEN) as usize;
        match words[0] & IN_BLOCK {
            0 => Some((&words[1 + self.count..], len)),
            _ => Some((&self.blocks[(words[0] >> BLOCK) as usize % BLOCKS], len)),
        }
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
        let mut differ = class_of(place) ^ self.class;
        for (word, (column, mask)) in place[1..].iter().zip(&self.terms[..self.count]) {
            differ |= word ^ (column[usize::from(key)] & mask);
        }
        differ == 0
    }
}

#[inline(always)]
fn class_of(place: &[u32; WORDS]) -> u32 {
    place[0] >> CLASS & 0xff
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
