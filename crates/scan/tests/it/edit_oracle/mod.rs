//! What edits are, in the plainest way: every start in order, every length, by the `regex` crate and by derivatives of regexes
//! (Brzozowski, *Derivatives of regular expressions*, 1964), which also tell what more bytes may match.

mod derivative;

use derivative::Derivative;
use mmb_scan::{EditStep, Pattern, PatternKind};
use regex::bytes::{Regex, RegexBuilder};

/// A match that is edited: its start, its end, the pattern's id.
pub(crate) type Edit = (usize, usize, u32);

/// Patterns, each as a regex whose matches end with what is searched.
pub(crate) struct WholeOracle {
    regexes: Vec<(Regex, u32)>,
}

impl WholeOracle {
    pub(crate) fn new(patterns: &[Pattern]) -> WholeOracle {
        let compile = |pattern: &Pattern| {
            let source = match &pattern.kind {
                PatternKind::Text(bytes) => bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect(),
                PatternKind::Regex(source) => source.clone(),
            };
            let mut builder = RegexBuilder::new(&format!("(?:{source})\\z"));
            builder.unicode(false).case_insensitive(pattern.ignores_case);
            (builder.build().expect("a regex that was compiled before"), pattern.id)
        };
        WholeOracle { regexes: patterns.iter().map(compile).collect() }
    }

    /// The edits of a whole stream.
    pub(crate) fn edits(&self, stream: &[u8]) -> Vec<Edit> {
        let mut edits = Vec::new();
        let mut start = 0;
        while start < stream.len() {
            let lengths = (start + 1..=stream.len()).rev();
            let longest = lengths.into_iter().find_map(|end| {
                let matches = |regex: &Regex| {
                    regex.find_at(&stream[..end], start).is_some_and(|found| found.start() == start)
                };
                self.regexes.iter().find(|(regex, _)| matches(regex)).map(|(_, id)| (start, end, *id))
            });
            edits.extend(longest);
            start = longest.map_or(start + 1, |(_, end, _)| end);
        }
        edits
    }
}

/// Patterns, each as what it matches from one place on.
pub(crate) struct StepOracle {
    patterns: Vec<(Derivative, u32)>,
}

impl StepOracle {
    pub(crate) fn new(patterns: &[Pattern]) -> StepOracle {
        StepOracle {
            patterns: patterns.iter().map(|pattern| (Derivative::of(pattern), pattern.id)).collect(),
        }
    }

    /// What is next, as [`mmb_scan::EditPatterns::next`] has it.
    pub(crate) fn next(&self, bytes: &[u8], from: usize, before: Option<u8>, is_end: bool) -> EditStep {
        for start in from..bytes.len() {
            let mut longest: Option<(usize, u32)> = None;
            for (pattern, id) in &self.patterns {
                let (end, is_open) = run(pattern, bytes, start, before);
                if is_open && !is_end {
                    return EditStep::Begun { start };
                }
                if end.is_some_and(|end| longest.is_none_or(|(longest, _)| end > longest)) {
                    longest = end.map(|end| (end, *id));
                }
            }
            if let Some((end, id)) = longest {
                return EditStep::Match { start, end, id };
            }
        }
        EditStep::Nothing
    }

    /// The earliest place whence more bytes may make a match or a longer one.
    pub(crate) fn begun(&self, bytes: &[u8], from: usize, before: Option<u8>) -> Option<usize> {
        let is_open =
            |start: &usize| self.patterns.iter().any(|(pattern, _)| run(pattern, bytes, *start, before).1);
        (from..bytes.len()).find(is_open)
    }
}

/// The end of the longest match from `start` on, and whether more bytes may make a longer one.
fn run(pattern: &Derivative, bytes: &[u8], start: usize, before: Option<u8>) -> (Option<usize>, bool) {
    let mut behind = if start == 0 { before } else { Some(bytes[start - 1]) };
    let (mut left, mut longest) = (pattern.clone(), None);
    for (end, byte) in (start + 1..).zip(&bytes[start..]) {
        left = left.behind(behind, *byte);
        behind = Some(*byte);
        if left.matches_nothing_at(behind) {
            longest = Some(end);
        }
        if left.is_never() {
            return (longest, false);
        }
    }
    (longest, left.can_go_on(behind))
}
