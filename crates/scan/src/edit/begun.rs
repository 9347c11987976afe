//! Whether some bytes end with a prefix of a text, and how long a one.
//!
//! Most ends of bytes are no part of any text. Filters tell that by the last bytes, whatever the number and lengths of the texts. What passes them is for
//! an automaton to decide ([`prefixes`](super::prefixes)).
//!
//! - Ends of 1 to 4 bytes are looked up as they are.
//! - A longer end has 4 bytes from within a text at its own end: a filter has all that lie in the first [`NEAR`] bytes of texts. Only then a second filter,
//!   of the first 4 bytes of texts, is asked about each of the last [`NEAR`] places.
//! - An end of more than [`NEAR`] bytes has 8 bytes from behind these in a text at its own end. Only then a filter of the first 8 bytes of such texts is asked about the places
//!   before.
//!
//! In the worst case, bytes that are like texts but not begun ones, the cost is a look into a filter for each of the last bytes, as many as the
//! longest text has.

use crate::filter::{StringFilter, StringKey, last_8};
use std::ops::Range;

/// The longest ends that begin with 4 bytes of texts and end with 4 bytes of texts; longer ones with 8.
const NEAR: usize = 64;

/// Tells which ends of bytes may be prefixes of texts, and not the whole of them.
#[derive(Debug)]
pub(super) struct BegunFilter {
    /// The longest prefix: one less than the bytes of the longest text.
    longest: usize,
    /// The first bytes of texts of more than one byte.
    first: [bool; 256],
    /// Prefixes of 2, 3 and 4 bytes.
    short: StringFilter,
    /// 4 bytes in the first `NEAR` of prefixes, but not their first 4.
    near: StringFilter,
    /// The first 8 bytes of prefixes of more than `NEAR`.
    far_first: StringFilter,
    /// 8 bytes of prefixes that end behind their first `NEAR`.
    far: StringFilter,
}

/// An end that may be a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    /// The last byte is one; no longer end is.
    LastByte,
    /// The end from there on may be one; no longer end is.
    From(usize),
}

impl BegunFilter {
    /// For texts that match as they are, and texts that match in either case.
    pub(super) fn new(exact: &[Vec<u8>], either_case: &[Vec<u8>]) -> BegunFilter {
        let prefix_of =
            |text| <[u8]>::split_last(text).map(|(_, prefix)| prefix).filter(|prefix| !prefix.is_empty());
        let prefixes: Vec<&[u8]> =
            exact.iter().chain(either_case).filter_map(|text| prefix_of(text)).collect();
        let mut first = [false; 256];
        exact
            .iter()
            .filter_map(|text| prefix_of(text))
            .for_each(|prefix| first[usize::from(prefix[0])] = true);
        for prefix in either_case.iter().filter_map(|text| prefix_of(text)) {
            first[usize::from(prefix[0].to_ascii_lowercase())] = true;
            first[usize::from(prefix[0].to_ascii_uppercase())] = true;
        }
        let (mut short, mut near, mut far_first, mut far) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for prefix in &prefixes {
            short.extend((2..=prefix.len().min(4)).map(|len| StringKey::new(&prefix[..len])));
            near.extend(prefix[..prefix.len().min(NEAR)].windows(4).skip(1).map(StringKey::new));
            if prefix.len() > NEAR {
                far_first.push(StringKey::new(&prefix[..8]));
                far.extend(prefix[NEAR - 7..].windows(8).map(StringKey::new));
            }
        }
        let [short, near, far_first, far] = [short, near, far_first, far].map(StringFilter::new);
        let longest = prefixes.iter().map(|prefix| prefix.len()).max().unwrap_or(0);
        BegunFilter { longest, first, short, near, far_first, far }
    }

    /// The longest end that may be a prefix and begins in `starts`. `None` if none is.
    #[inline]
    pub(super) fn candidate(&self, bytes: &[u8], starts: Range<usize>) -> Option<Candidate> {
        let from = starts.start.max(bytes.len().saturating_sub(self.longest));
        // All ends that begin in `starts` are longer.
        let shorter = bytes.len().saturating_sub(starts.end);
        match self.longest_candidate(bytes.get(from..)?, shorter) {
            0 => None,
            1 => Some(Candidate::LastByte),
            len => Some(Candidate::From(bytes.len() - len)),
        }
    }

    /// No longer end is a prefix. 0 if no end is that is longer than `shorter`. 1 is exact.
    #[inline]
    fn longest_candidate(&self, tail: &[u8], shorter: usize) -> usize {
        let last_8 = last_8(tail);
        if tail.len() > NEAR
            && self.far.may_have(StringKey::last(last_8, 8))
            && let Some(len) = self.longest_far(tail, shorter)
        {
            return len;
        }
        if tail.len() > 4
            && self.near.may_have(StringKey::last(last_8, 4))
            && let Some(len) = self.longest_near(&tail[tail.len().saturating_sub(NEAR)..], shorter)
        {
            return len;
        }
        for len in [4, 3, 2] {
            if len <= tail.len() && len > shorter && self.short.may_have(StringKey::last(last_8, len)) {
                return len;
            }
        }
        match tail.last() {
            Some(last) if shorter == 0 => usize::from(self.first[usize::from(*last)]),
            _ => 0,
        }
    }

    /// As before, for ends of 5 to [`NEAR`] bytes.
    fn longest_near(&self, tail: &[u8], shorter: usize) -> Option<usize> {
        let starts = tail.len().checked_sub(shorter.max(4))?;
        let may_begin = |first: &[u8]| {
            first.first_chunk().is_some_and(|first| self.short.may_have(StringKey::of_4(*first)))
        };
        tail[..starts + 3].windows(4).position(may_begin).map(|start| tail.len() - start)
    }

    /// As before, for ends of more than [`NEAR`] bytes.
    fn longest_far(&self, tail: &[u8], shorter: usize) -> Option<usize> {
        let starts = tail.len().checked_sub(shorter.max(NEAR))?;
        let may_begin = |first: &[u8]| {
            first.first_chunk().is_some_and(|first| self.far_first.may_have(StringKey::of_8(*first)))
        };
        tail[..starts + 7].windows(8).position(may_begin).map(|start| tail.len() - start)
    }
}
