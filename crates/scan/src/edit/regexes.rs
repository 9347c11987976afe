//! The regexes of an edit: where they match and where one is begun.
//!
//! Each place where a match can begin, by its first byte, is tried in order with a deterministic automaton.

use super::candidates::{FirstBytes, LastBytes};
use super::dfa::{Behind, MatchDfa, TooManyStates};
use super::first::{First, What};
use super::nfa::PositionNfa;
use crate::error::{PatternError, PatternRefusal};
use regex_syntax::hir::Hir;
use std::ops::Range;

/// The most automata of an edit. Regexes whose common automaton would be too large get one for each part of them.
const MOST_GROUPS: usize = 16;

/// A regex, and its pattern.
pub(super) struct EditHir {
    pub hir: Hir,
    pub pattern: u32,
}

/// Regexes that are matched together.
#[derive(Debug)]
pub(super) struct RegexGroup {
    dfa: MatchDfa,
    first_bytes: FirstBytes,
    last_bytes: LastBytes,
}

/// Makes groups of regexes, which come in the order of their patterns.
pub(super) fn regex_groups(regexes: &[EditHir]) -> Result<Vec<RegexGroup>, PatternError> {
    let mut groups = Vec::new();
    let mut waiting = vec![regexes];
    while let Some(regexes) = waiting.pop().filter(|regexes| !regexes.is_empty()) {
        match RegexGroup::new(regexes)? {
            Ok(_) if groups.len() == MOST_GROUPS => return Err(PatternError::TooManyStates),
            Ok(group) => groups.push(group),
            Err(TooManyStates) if regexes.len() == 1 => {
                let refusal = PatternRefusal::TooManyStates;
                return Err(PatternError::Refused { index: regexes[0].pattern as usize, refusal });
            }
            Err(TooManyStates) if groups.len() + waiting.len() + 2 > MOST_GROUPS => {
                return Err(PatternError::TooManyStates);
            }
            Err(TooManyStates) => {
                let (left, right) = regexes.split_at(regexes.len() / 2);
                waiting.extend([right, left]);
            }
        }
    }
    Ok(groups)
}

impl RegexGroup {
    fn new(regexes: &[EditHir]) -> Result<Result<RegexGroup, TooManyStates>, PatternError> {
        let mut nfa = PositionNfa::default();
        for EditHir { hir, pattern } in regexes {
            let refused = |refusal| PatternError::Refused { index: *pattern as usize, refusal };
            nfa.add(hir, *pattern).map_err(refused)?;
        }
        Ok(MatchDfa::new(&nfa).map(|dfa| {
            let (first_bytes, last_bytes) = (FirstBytes::of(&dfa), LastBytes::of(&dfa));
            RegexGroup { dfa, first_bytes, last_bytes }
        }))
    }

    /// What comes first of all that starts in `starts`, which is not beyond the end.
    pub(super) fn first(
        &self,
        bytes: &[u8],
        starts: Range<usize>,
        before: Option<u8>,
        is_end: bool,
    ) -> Option<First> {
        let mut rest = starts;
        while let Some(start) = self.first_bytes.find(bytes, rest.clone()) {
            let run = self.dfa.run(bytes, start, behind(bytes, start, before));
            if run.is_open && !is_end {
                return Some(First { start, what: What::Begun });
            }
            if let Some((end, pattern)) = run.longest {
                return Some(First { start, what: What::Match { end, pattern } });
            }
            rest.start = start + 1;
        }
        None
    }

    /// Where the earliest match is begun.
    #[inline]
    pub(super) fn begun(&self, bytes: &[u8], from: usize, before: Option<u8>) -> Option<usize> {
        let from = from.max((bytes.len() + 1).saturating_sub(self.dfa.longest()));
        if !self.last_bytes.may_be_inside(bytes.get(from..)?) {
            return None;
        }
        let mut rest = from..bytes.len();
        while let Some(start) = self.first_bytes.find(bytes, rest.clone()) {
            if self.dfa.run(bytes, start, behind(bytes, start, before)).is_open {
                return Some(start);
            }
            rest.start = start + 1;
        }
        None
    }
}

/// What is behind a place: the byte in front of it.
fn behind(bytes: &[u8], place: usize, before: Option<u8>) -> Behind {
    match place.checked_sub(1) {
        None => Behind::of(before),
        Some(last) => Behind::of(bytes.get(last).copied()),
    }
}
