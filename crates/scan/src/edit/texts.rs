//! The texts of an edit: where they match, and where one is begun.
//!
//! Few texts are found by `aho-corasick`, with its search for some bytes at once. Of many texts the first bytes are looked up at each place, and an automaton reads from
//! those that pass; if that reads much in vain, `aho-corasick` does the rest, in two steps a byte at most.

use super::begun::{BegunFilter, Candidate};
use super::first::{First, What};
use super::prefixes::PrefixAutomaton;
use crate::error::PatternError;
use crate::filter::StartFilter;
use aho_corasick::{AhoCorasick, AhoCorasickBuilder, Input, MatchKind};
use std::collections::HashSet;
use std::ops::Range;

/// From that many texts on, their first bytes are looked up.
const MANY: usize = 64;
/// The fewest first bytes that tell enough places apart.
const MIN_FIRST_BYTES: usize = 3;

/// Texts, those that match as they are and those that match in either case.
#[derive(Debug)]
pub(super) struct EditTexts {
    searchers: Vec<TextSearcher>,
    begun: BegunFilter,
    longest: usize,
}

/// Finds texts, the longest of those that begin at the leftmost place.
#[derive(Debug)]
struct TextSearcher {
    all: AhoCorasick,
    prefixes: PrefixAutomaton,
    /// Of many texts.
    starts: Option<StartFilter>,
    /// The pattern of each text.
    patterns: Vec<u32>,
}

/// A text: its bytes, whether it ignores case, and its pattern.
pub(super) struct EditText {
    pub bytes: Vec<u8>,
    pub ignores_case: bool,
    pub pattern: u32,
}

impl EditTexts {
    /// The texts come in the order of their patterns, and are not empty.
    pub(super) fn new(texts: &[EditText]) -> Result<EditTexts, PatternError> {
        let longest = texts.iter().map(|text| text.bytes.len()).max().unwrap_or(0);
        let mut searchers = Vec::new();
        let mut bytes = [Vec::new(), Vec::new()];
        for ignores_case in [false, true] {
            let (mut kept, mut patterns) = (Vec::new(), Vec::new());
            let mut known = HashSet::new();
            for text in texts.iter().filter(|text| text.ignores_case == ignores_case) {
                let folded = if ignores_case { text.bytes.to_ascii_lowercase() } else { text.bytes.clone() };
                // Of equal ones the first has the lowest pattern.
                if known.insert(folded.clone()) {
                    kept.push(folded);
                    patterns.push(text.pattern);
                }
            }
            if !kept.is_empty() {
                let searcher = TextSearcher::new(&kept, ignores_case, patterns);
                let all = || texts.iter().map(|text| text.bytes.len()).sum();
                searchers.push(searcher.ok_or_else(|| PatternError::LongTexts(all()))?);
            }
            bytes[usize::from(ignores_case)] = kept;
        }
        let [exact, either_case] = bytes;
        Ok(EditTexts { searchers, begun: BegunFilter::new(&exact, &either_case), longest })
    }

    /// Bytes of the longest text.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Whether all texts are found in one pass.
    pub(super) fn is_one_search(&self) -> bool {
        self.searchers.len() == 1
    }

    /// What comes first of all that starts in `starts`.
    pub(super) fn first(&self, bytes: &[u8], starts: Range<usize>, is_end: bool) -> Option<First> {
        // No text that starts there reaches further.
        let stop = bytes.len().min(starts.end.saturating_add(self.longest - 1));
        let mut first = None;
        for searcher in &self.searchers {
            first = First::of(first, searcher.find(bytes, starts.start..stop));
        }
        first = first.filter(|first: &First| first.start < starts.end);
        let starts_end = first.map_or(starts.end, |first| first.start + 1);
        if is_end || starts_end + self.longest <= bytes.len() + 1 {
            return first;
        }
        let begun = self.begun_in(bytes, starts.start..starts_end);
        begun.map(|start| First { start, what: What::Begun }).or(first)
    }

    /// Where the earliest text is begun.
    #[inline]
    pub(super) fn begun(&self, bytes: &[u8], from: usize) -> Option<usize> {
        self.begun_in(bytes, from..bytes.len())
    }

    #[inline]
    fn begun_in(&self, bytes: &[u8], starts: Range<usize>) -> Option<usize> {
        match self.begun.candidate(bytes, starts.clone())? {
            Candidate::LastByte => Some(bytes.len() - 1),
            Candidate::From(start) => {
                let longest = |searcher: &TextSearcher| searcher.prefixes.longest_begun(&bytes[start..]);
                let longest = self.searchers.iter().map(longest).max().filter(|longest| *longest > 0)?;
                Some(bytes.len() - longest).filter(|start| *start < starts.end)
            }
        }
    }
}

impl TextSearcher {
    /// For texts of which none is there twice. `None` if they are too large.
    fn new(texts: &[Vec<u8>], ignores_case: bool, patterns: Vec<u32>) -> Option<TextSearcher> {
        let mut builder = AhoCorasickBuilder::new();
        builder.match_kind(MatchKind::LeftmostLongest).ascii_case_insensitive(ignores_case);
        let starts = StartFilter::new(texts);
        let is_useful = texts.len() >= MANY && starts.len() >= MIN_FIRST_BYTES;
        Some(TextSearcher {
            all: builder.build(texts).ok()?,
            prefixes: PrefixAutomaton::new(texts, ignores_case)?,
            starts: is_useful.then_some(starts),
            patterns,
        })
    }

    fn find(&self, bytes: &[u8], mut range: Range<usize>) -> Option<First> {
        let found = |start, end, text: usize| {
            let pattern = self.patterns.get(text).copied()?;
            Some(First { start, what: What::Match { end, pattern } })
        };
        if let Some(starts) = &self.starts {
            let mut budget = range.len();
            while budget > 0 {
                let start = starts.find(bytes, range.clone())?;
                let (longest, read) = self.prefixes.longest_text(bytes.get(start..range.end)?);
                if let Some((len, text)) = longest {
                    return found(start, start + len, text);
                }
                budget = budget.saturating_sub(read);
                range.start = start + 1;
            }
        }
        let hit = self.all.find(Input::new(bytes).range(range))?;
        found(hit.start(), hit.end(), hit.pattern().as_usize())
    }
}
