//! Whether some bytes end with a prefix of a text, and how long a one.
//!
//! Most ends of bytes are no part of any text. Filters tell that by the last bytes, whatever the number and lengths of the texts; an
//! automaton is asked about the rest.
//!
//! - Ends of 1 to 4 bytes are looked up as they are.
//! - A longer end has 4 bytes from within a text at its own end: a filter has all that lie in the first [`NEAR`] bytes of texts. Only then a second filter,
//!   of the first 4 bytes of texts, is asked about each of the last [`NEAR`] places.
//! - An end of more than [`NEAR`] bytes has 8 bytes from behind these in a text at its own end. Only then a filter of the first 8 bytes of such texts is asked about the places
//!   before.
//!
//! The automaton reads from the first place that passes to the end. In the worst case, bytes that are like texts but not begun ones, the cost is
//! a look into a filter and a step of the automaton for each of the last bytes, as many as the longest text has.

use super::filter::{StringFilter, StringKey};
use super::prefixes::PrefixAutomaton;

/// The longest ends that begin with 4 bytes of texts and end with 4 bytes of texts; longer ones with 8.
const NEAR: usize = 64;

/// Finds ends of bytes that are prefixes of texts, and not the whole of them.
#[derive(Debug)]
pub(super) struct BegunTexts {
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
    automata: Vec<PrefixAutomaton>,
}

impl BegunTexts {
    /// For texts that match as they are, and texts that match in either case. `None` if they are too large.
    pub(super) fn new(exact: &[Vec<u8>], either_case: &[Vec<u8>]) -> Option<BegunTexts> {
        let mut automata = Vec::new();
        for (texts, ignores_case) in [(exact, false), (either_case, true)] {
            if texts.iter().any(|text| text.len() > 1) {
                automata.push(PrefixAutomaton::new(texts, ignores_case)?);
            }
        }
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
        Some(BegunTexts { longest, first, short, near, far_first, far, automata })
    }

    /// The earliest place at or behind `from` whence the bytes up to their end are a prefix of a text.
    #[inline]
    pub(super) fn earliest(&self, bytes: &[u8], from: usize) -> Option<usize> {
        let tail = bytes.get(from.max(bytes.len().saturating_sub(self.longest))..)?;
        match self.longest_candidate(tail) {
            0 => None,
            1 => Some(bytes.len() - 1),
            longest => {
                let candidate = &tail[tail.len() - longest..];
                let begun = self.automata.iter().map(|automaton| automaton.longest_begun(candidate));
                begun.max().filter(|begun| *begun > 0).map(|begun| bytes.len() - begun)
            }
        }
    }

    /// No longer end is a prefix. 1 and 0 are exact.
    #[inline]
    fn longest_candidate(&self, tail: &[u8]) -> usize {
        if tail.len() > 4 {
            if tail.len() > NEAR
                && let Some(len) = self.longest_far(tail)
            {
                return len;
            }
            if let Some(len) = self.longest_near(&tail[tail.len().saturating_sub(NEAR)..]) {
                return len;
            }
        }
        for len in (2..=tail.len().min(4)).rev() {
            if self.short.may_have(StringKey::new(&tail[tail.len() - len..])) {
                return len;
            }
        }
        tail.last().map_or(0, |last| usize::from(self.first[usize::from(*last)]))
    }

    /// As before, for ends of 5 to [`NEAR`] bytes.
    #[inline]
    fn longest_near(&self, tail: &[u8]) -> Option<usize> {
        if !self.near.may_have(StringKey::of_4(*tail.last_chunk()?)) {
            return None;
        }
        let mut starts = tail[..tail.len() - 1].windows(4);
        let start = starts.position(|first| {
            first.first_chunk().is_some_and(|first| self.short.may_have(StringKey::of_4(*first)))
        });
        start.map(|start| tail.len() - start)
    }

    /// As before, for ends of more than [`NEAR`] bytes.
    fn longest_far(&self, tail: &[u8]) -> Option<usize> {
        if !self.far.may_have(StringKey::of_8(*tail.last_chunk()?)) {
            return None;
        }
        let mut starts = tail[..tail.len() - NEAR + 7].windows(8);
        let start = starts.position(|first| {
            first.first_chunk().is_some_and(|first| self.far_first.may_have(StringKey::of_8(*first)))
        });
        start.map(|start| tail.len() - start)
    }
}
