//! The earliest start of all, in one pass: an automaton that reads bytes backward and keeps the positions from which what it has read matches, or is
//! begun, a bit each (the shift-and method of Baeza-Yates and Gonnet, *A new approach to text searching*, 1992, with jumps).
//!
//! It costs some operations on words of 64 positions for each byte, however many starts there are and however far each of them goes.

use super::nfa::{Behind, Place, PositionNfa};
use std::ops::Range;

/// The most words of positions.
const MAX_WORDS: usize = 256;
/// The most words of all jumps.
const MAX_JUMP_WORDS: usize = 1 << 14;

/// Reads backward. Sets of positions are words of bits, position 0 the lowest bit of the first.
#[derive(Debug)]
pub(super) struct BackwardNfa {
    words: usize,
    class_of: [u8; 256],
    /// By class: the positions that have it.
    having: Vec<u64>,
    /// Where a match can end.
    last: Vec<u64>,
    /// Behind which something follows.
    inner: Vec<u64>,
    /// Behind which the next position follows.
    chained: Vec<u64>,
    /// Which follow others than the position before: the words that have some.
    jumped_to: Vec<(u32, u64)>,
    /// By position: words of those that it follows.
    jumps: Vec<Range<u32>>,
    jump_words: Vec<(u32, u64)>,
    /// Where a match can begin, by what is behind its start: the words that have some.
    first: [Vec<(u32, u64)>; 3],
}

/// What a start has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// A match will do.
    pub matches: bool,
    /// What is begun at the end will do.
    pub begun: bool,
}

impl BackwardNfa {
    /// `None` if it would be large, or if more than the first position depends on starts of lines.
    pub(super) fn new(nfa: &PositionNfa) -> Option<BackwardNfa> {
        let positions = nfa.set_of.len();
        let words = positions.div_ceil(64);
        if nfa.has_inner_lines() || words > MAX_WORDS {
            return None;
        }
        let (class_of, samples) = nfa.classes();
        let bits = |is_in: &dyn Fn(usize) -> bool| {
            let mut bits = vec![0; words];
            (0..positions)
                .filter(|position| is_in(*position))
                .for_each(|position| insert(&mut bits, position));
            bits
        };
        let has = |position: usize, byte| nfa.sets[nfa.set_of[position] as usize].contains(byte);
        let having = samples.iter().flat_map(|byte| bits(&|position| has(position, *byte))).collect();
        let (jumped_to, jumps, jump_words) = jumps(nfa, words)?;
        let first = [Behind::Byte, Behind::Newline, Behind::StreamStart].map(|behind| {
            let mut first = vec![0; words];
            let possible = nfa.first.iter().filter(|(_, place)| behind.is(*place));
            possible.for_each(|(position, _)| insert(&mut first, *position as usize));
            filled(&first)
        });
        Some(BackwardNfa {
            words,
            class_of,
            having,
            last: bits(&|position| nfa.last[position] == Some(Place::Anywhere)),
            inner: bits(&|position| !nfa.follow[position].is_empty()),
            chained: bits(&|position| follows(nfa, position, position + 1)),
            jumped_to,
            jumps,
            jump_words,
            first,
        })
    }

    /// Words of working memory.
    pub(super) fn scratch_words(&self) -> usize {
        2 * (self.words + 1)
    }

    /// What reading a byte costs, in bytes that a deterministic automaton reads.
    pub(super) fn cost(&self) -> usize {
        1 + self.words / 8 + self.jump_words.len() / 16
    }

    /// The earliest place in `starts` where something wanted starts. `None` too if there is too little working memory.
    pub(super) fn earliest(
        &self,
        scratch: &mut [u64],
        bytes: &[u8],
        starts: Range<usize>,
        before: Option<u8>,
        wanted: Wanted,
    ) -> Option<usize> {
        // A set has one word more, which is 0.
        let (mut set, mut next) = scratch.get_mut(..self.scratch_words())?.split_at_mut(self.words + 1);
        set.fill(0);
        next.fill(0);
        let mut earliest = None;
        for (place, byte) in bytes.iter().enumerate().skip(starts.start).rev() {
            let having =
                &self.having[usize::from(self.class_of[usize::from(*byte)]) * self.words..][..self.words];
            if wanted.begun && place + 1 == bytes.len() {
                self.begin(next, having, wanted.matches);
            } else if wanted.matches {
                self.step::<true>(set, next, having);
            } else {
                self.step::<false>(set, next, having);
                if next.iter().all(|word| *word == 0) {
                    break;
                }
            }
            std::mem::swap(&mut set, &mut next);
            if place < starts.end {
                let behind = place.checked_sub(1).map_or(before, |last| bytes.get(last).copied());
                let first = &self.first[Behind::of(behind) as usize];
                if first.iter().any(|(word, bits)| set[*word as usize] & bits != 0) {
                    earliest = Some(place);
                }
            }
        }
        earliest
    }

    /// The positions that have the last byte and are inside a match, or end one.
    fn begin(&self, next: &mut [u64], having: &[u64], matches: bool) {
        for (index, next) in next[..self.words].iter_mut().enumerate() {
            let last = if matches { self.last[index] } else { 0 };
            *next = (self.inner[index] | last) & having[index];
        }
    }

    /// The positions that have a byte and go on in `set`, or end a match.
    #[inline]
    fn step<const MATCHES: bool>(&self, set: &[u64], next: &mut [u64], having: &[u64]) {
        let words = self.words;
        let (low, above, next) = (&set[..words], &set[1..=words], &mut next[..words]);
        let (chained, last, having) = (&self.chained[..words], &self.last[..words], &having[..words]);
        for index in 0..words {
            let shifted = (low[index] >> 1 | above[index] << 63) & chained[index];
            next[index] = if MATCHES { shifted | last[index] } else { shifted } & having[index];
        }
        for (index, jumped_to) in &self.jumped_to {
            let mut targets = low[*index as usize] & jumped_to;
            while targets != 0 {
                let jumps = &self.jumps[*index as usize * 64 + targets.trailing_zeros() as usize];
                for (word, bits) in &self.jump_words[jumps.start as usize..jumps.end as usize] {
                    next[*word as usize] |= bits & having[*word as usize];
                }
                targets &= targets - 1;
            }
        }
    }
}

/// The positions that follow others than the one before them, and for each the words of these.
type Jumps = (Vec<(u32, u64)>, Vec<Range<u32>>, Vec<(u32, u64)>);

fn jumps(nfa: &PositionNfa, words: usize) -> Option<Jumps> {
    let mut from = vec![Vec::new(); nfa.set_of.len()];
    for (position, follow) in nfa.follow.iter().enumerate() {
        let others = follow.iter().map(|(to, _)| *to as usize).filter(|to| *to != position + 1);
        others.for_each(|to| from[to].push(position));
    }
    let (mut jumped_to, mut jumps, mut jump_words) = (vec![0; words], Vec::new(), Vec::<(u32, u64)>::new());
    for (to, from) in from.iter().enumerate() {
        let begin = jump_words.len();
        // In ascending order.
        for position in from {
            let (word, bit) = ((position / 64) as u32, 1 << (position % 64));
            match jump_words[begin..].last_mut() {
                Some((last, bits)) if *last == word => *bits |= bit,
                _ => jump_words.push((word, bit)),
            }
        }
        if jump_words.len() > MAX_JUMP_WORDS {
            return None;
        }
        if !from.is_empty() {
            insert(&mut jumped_to, to);
        }
        jumps.push(begin as u32..jump_words.len() as u32);
    }
    Some((filled(&jumped_to), jumps, jump_words))
}

/// The words that are not 0, with their indexes.
fn filled(words: &[u64]) -> Vec<(u32, u64)> {
    (0..).zip(words.iter().copied()).filter(|(_, bits)| *bits != 0).collect()
}

fn insert(bits: &mut [u64], position: usize) {
    bits[position / 64] |= 1 << (position % 64);
}

fn follows(nfa: &PositionNfa, position: usize, next: usize) -> bool {
    nfa.follow[position].iter().any(|(to, _)| *to as usize == next)
}
