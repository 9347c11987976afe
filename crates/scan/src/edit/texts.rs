//! The texts of an edit: where they match, by `aho-corasick`, and where one is begun.

use super::begun::BegunTexts;
use super::first::{First, What};
use crate::error::PatternError;
use aho_corasick::{AhoCorasick, AhoCorasickBuilder, Input, MatchKind};
use std::collections::HashMap;
use std::ops::Range;

/// Texts, those that match as they are and those that match in either case.
#[derive(Debug)]
pub(super) struct EditTexts {
    searchers: Vec<TextSearcher>,
    begun: BegunTexts,
    longest: usize,
}

/// Finds texts, the longest of those that begin at the leftmost place.
#[derive(Debug)]
struct TextSearcher {
    automaton: AhoCorasick,
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
    pub(super) fn new(texts: Vec<EditText>) -> Result<EditTexts, PatternError> {
        let all: usize = texts.iter().map(|text| text.bytes.len()).sum();
        let longest = texts.iter().map(|text| text.bytes.len()).max().unwrap_or(0);
        let mut searchers = Vec::new();
        let mut bytes = [Vec::new(), Vec::new()];
        for ignores_case in [false, true] {
            let (mut kept, mut patterns) = (Vec::new(), Vec::new());
            let mut known = HashMap::new();
            for text in texts.iter().filter(|text| text.ignores_case == ignores_case) {
                let folded = if ignores_case { text.bytes.to_ascii_lowercase() } else { text.bytes.clone() };
                // Of equal ones the first has the lowest pattern.
                if known.insert(folded.clone(), ()).is_none() {
                    kept.push(folded);
                    patterns.push(text.pattern);
                }
            }
            if !kept.is_empty() {
                let mut builder = AhoCorasickBuilder::new();
                builder.match_kind(MatchKind::LeftmostLongest).ascii_case_insensitive(ignores_case);
                let automaton = builder.build(&kept).map_err(|_| PatternError::LongTexts(all))?;
                searchers.push(TextSearcher { automaton, patterns });
            }
            bytes[usize::from(ignores_case)] = kept;
        }
        let [exact, either_case] = bytes;
        let begun = BegunTexts::new(&exact, &either_case).ok_or(PatternError::LongTexts(all))?;
        Ok(EditTexts { searchers, begun, longest })
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
        let begun = self.begun(bytes, starts.start).filter(|start| *start < starts_end);
        begun.map(|start| First { start, what: What::Begun }).or(first)
    }

    /// Where the earliest text is begun.
    #[inline]
    pub(super) fn begun(&self, bytes: &[u8], from: usize) -> Option<usize> {
        self.begun.earliest(bytes, from)
    }
}

impl TextSearcher {
    fn find(&self, bytes: &[u8], range: Range<usize>) -> Option<First> {
        let hit = self.automaton.find(Input::new(bytes).range(range))?;
        let pattern = self.patterns.get(hit.pattern().as_usize()).copied()?;
        Some(First { start: hit.start(), what: What::Match { end: hit.end(), pattern } })
    }
}
