//! The regexes of an edit: where they match and where one is begun.
//!
//! Each place where a match can begin, by its first byte, is tried in order with a deterministic automaton. Bytes that make it read far from many
//! places in vain are searched backward instead, once: see [`backward`](super::backward).

use super::backward::{BackwardNfa, Wanted};
use super::candidates::{FirstBytes, LastBytes};
use super::dfa::{MatchDfa, Run, TooManyStates};
use super::first::{First, What};
use super::nfa::{Behind, PositionNfa};
use crate::error::{PatternError, PatternRefusal};
use regex_syntax::hir::Hir;
use std::ops::Range;

/// The most automata of an edit. Regexes whose common automaton would be too large get one for each part of them.
const MAX_GROUPS: usize = 16;

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
    backward: Option<BackwardNfa>,
}

/// Makes groups of regexes, which come in the order of their patterns.
pub(super) fn regex_groups(regexes: &[EditHir]) -> Result<Vec<RegexGroup>, PatternError> {
    let mut groups = Vec::new();
    let mut waiting = vec![regexes];
    while let Some(regexes) = waiting.pop().filter(|regexes| !regexes.is_empty()) {
        match RegexGroup::new(regexes)? {
            Ok(_) if groups.len() == MAX_GROUPS => return Err(PatternError::TooManyStates),
            Ok(group) => groups.push(group),
            Err(TooManyStates) if regexes.len() == 1 => {
                let refusal = PatternRefusal::TooManyStates;
                return Err(PatternError::Refused { index: regexes[0].pattern as usize, refusal });
            }
            Err(TooManyStates) if groups.len() + waiting.len() + 2 > MAX_GROUPS => {
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
            RegexGroup { dfa, first_bytes, last_bytes, backward: BackwardNfa::new(&nfa) }
        }))
    }

    /// Words of working memory.
    pub(super) fn scratch_words(&self) -> usize {
        self.backward.as_ref().map_or(0, BackwardNfa::scratch_words)
    }

    /// What comes first of all that starts in `starts`, which is not beyond the end.
    pub(super) fn first(
        &self,
        scratch: &mut [u64],
        bytes: &[u8],
        starts: Range<usize>,
        before: Option<u8>,
        is_end: bool,
    ) -> Option<First> {
        let (start, run) =
            self.search(scratch, bytes, starts, before, Wanted { matches: true, begun: !is_end })?;
        let what = match run.longest {
            _ if run.is_open && !is_end => What::Begun,
            Some((end, pattern)) => What::Match { end, pattern },
            None => return None,
        };
        Some(First { start, what })
    }

    /// Where the earliest match is begun.
    #[inline]
    pub(super) fn begun(
        &self,
        scratch: &mut [u64],
        bytes: &[u8],
        from: usize,
        before: Option<u8>,
    ) -> Option<usize> {
        let from = from.max((bytes.len() + 1).saturating_sub(self.dfa.longest()));
        if !self.last_bytes.may_be_inside(bytes.get(from..)?) {
            return None;
        }
        let wanted = Wanted { matches: false, begun: true };
        self.search(scratch, bytes, from..bytes.len(), before, wanted).map(|(start, _)| start)
    }

    /// The first place in `starts` where something wanted starts, and what that is.
    fn search(
        &self,
        scratch: &mut [u64],
        bytes: &[u8],
        starts: Range<usize>,
        before: Option<u8>,
        wanted: Wanted,
    ) -> Option<(usize, Run)> {
        let run = |start| self.dfa.run(bytes, start, behind(bytes, start, before));
        let is_wanted = |run: &Run| run.is_open && wanted.begun || run.longest.is_some() && wanted.matches;
        let mut rest = starts;
        let reach = bytes.len().min(rest.end + self.dfa.longest());
        // Once the bytes that were read in vain cost what it costs to read all of them backward.
        let backward = self.backward.as_ref().filter(|backward| backward.scratch_words() <= scratch.len());
        let mut budget = backward.map_or(usize::MAX, |backward| backward.cost() * (reach - rest.start));
        while let Some(start) = self.first_bytes.find(bytes, rest.clone()) {
            let run_here = run(start);
            if is_wanted(&run_here) {
                return Some((start, run_here));
            }
            rest.start = start + 1;
            budget = budget.saturating_sub(run_here.read);
            if budget == 0
                && let Some(backward) = backward
            {
                let wanted = Wanted { begun: wanted.begun && reach == bytes.len(), ..wanted };
                let start = backward.earliest(scratch, &bytes[..reach], rest, before, wanted)?;
                return Some((start, run(start)));
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use regex_syntax::ParserBuilder;

    /// A sequence that repeats from its seed (Knuth's linear congruential generator).
    struct Sequence(u64);

    impl Sequence {
        fn next(&mut self, below: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % below
        }
    }

    fn parse(sources: &[impl AsRef<str>]) -> Vec<EditHir> {
        let mut parser = ParserBuilder::new();
        parser.unicode(false).utf8(false);
        let parse = |source: &str| parser.build().parse(source).expect("a regex");
        sources
            .iter()
            .zip(0..)
            .map(|(source, pattern)| EditHir { hir: parse(source.as_ref()), pattern })
            .collect()
    }

    fn group(sources: &[&str]) -> RegexGroup {
        RegexGroup::new(&parse(sources)).expect("regexes").expect("few states")
    }

    /// tests/it/edits.rs has them too.
    #[test]
    fn regexes_that_are_too_large_together_come_in_groups() {
        let regex = |letter: u8| format!("[^{0}xy]{{1,90}}{0}{{2}}[xy]?", char::from(letter));
        let regexes: Vec<_> = (b'a'..b'n').map(regex).collect();
        let groups = regex_groups(&parse(&regexes)).expect("groups");
        assert_eq!(groups.len(), 2);
        assert!(groups.iter().all(|group| group.dfa.longest() == 93));
    }

    #[test]
    fn reading_backward_finds_what_trying_each_place_finds() {
        let lists: &[&[&str]] = &[
            &["a{1,20}", "ba{2,70}b"],
            &["<[^>]{0,150}>"],
            &["a.{0,40}b.{0,40}c", "(?m)^b[ab]{2,90}c"],
            &["(?:ab?|b[ac]{2}){2,30}c"],
            &["^[ab]{3,9}c", "(?:a|ab)(?:c|bcd){0,30}", "(?:a?b?c?){1,40}<"],
            &["(?:[ab]{1,20}\n){1,9}c"],
        ];
        let mut random = Sequence(7);
        let (mut found, mut not_found) = (0, 0);
        for list in lists {
            let group = group(list);
            let backward = group.backward.as_ref().expect("few positions");
            let mut scratch = vec![u64::MAX; backward.scratch_words()];
            for _ in 0..4000 {
                let letters = b"abab<>c\n";
                let kinds = 1 + random.next(letters.len());
                let bytes: Vec<u8> = (0..random.next(200)).map(|_| letters[random.next(kinds)]).collect();
                let before = [None, Some(b'\n'), Some(b'x')][random.next(3)];
                let from = random.next(bytes.len() + 1);
                let starts = from..from + random.next(bytes.len() - from + 1);
                let wanted = [(true, true), (true, false), (false, true)][random.next(3)];
                let wanted = Wanted { matches: wanted.0, begun: wanted.1 };
                let each = starts.clone().find(|start| {
                    let run = group.dfa.run(&bytes, *start, behind(&bytes, *start, before));
                    run.is_open && wanted.begun || run.longest.is_some() && wanted.matches
                });
                let all = backward.earliest(&mut scratch, &bytes, starts.clone(), before, wanted);
                assert_eq!(all, each, "{list:?} from {starts:?} of {bytes:?}");
                let search = group.search(&mut scratch, &bytes, starts.clone(), before, wanted);
                assert_eq!(search.map(|(start, _)| start), each, "{list:?} from {starts:?} of {bytes:?}");
                *if each.is_some() { &mut found } else { &mut not_found } += 1;
            }
        }
        assert!(found > 5000 && not_found > 3000, "{found} found, {not_found} not");
    }

    #[test]
    fn too_little_working_memory_finds_the_same() {
        let group = group(&["<[^>]{0,150}>"]);
        let bytes = b"<".repeat(900);
        let wanted = Wanted { matches: true, begun: true };
        let found = [group.scratch_words(), 1, 0].map(|words| {
            group.search(&mut vec![0; words], &bytes, 0..bytes.len(), None, wanted).map(|(start, _)| start)
        });
        assert_eq!(found, [Some(749); 3]);
    }
}
