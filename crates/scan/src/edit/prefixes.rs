//! Which texts begin some bytes, and with which prefix of one they end: an Aho-Corasick automaton.

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::{Builder, NFA};
use aho_corasick::{Anchored, MatchKind};

/// An automaton of texts, with the length of the longest proper prefix of a text that ends in each state.
#[derive(Debug)]
pub(super) struct PrefixAutomaton {
    nfa: NFA,
    start: StateID,
    /// By state.
    begun: Vec<u16>,
}

impl PrefixAutomaton {
    /// The automaton of texts of less than 64 KiB, of which none is there twice. `None` if they are too large.
    pub(super) fn new(texts: &[Vec<u8>], ignores_case: bool) -> Option<PrefixAutomaton> {
        let mut builder = Builder::new();
        builder.match_kind(MatchKind::Standard).ascii_case_insensitive(ignores_case).prefilter(false);
        let nfa = builder.build(texts).ok()?;
        let start = nfa.start_state(Anchored::No).ok()?;
        let mut automaton = PrefixAutomaton { nfa, start, begun: Vec::new() };
        for text in texts {
            let mut state = start;
            for (index, byte) in text[..text.len().saturating_sub(1)].iter().enumerate() {
                state = automaton.next(state, *byte);
                automaton.set_begun(state, index + 1);
            }
        }
        // A whole text, if it is the prefix of no other, has begun what the rest of it has begun. That is shorter: it is known by then.
        let mut by_length: Vec<&Vec<u8>> = texts.iter().collect();
        by_length.sort_by_key(|text| text.len());
        for text in by_length {
            let whole = text.iter().fold(start, |state, byte| automaton.next(state, *byte));
            if automaton.begun(whole) == 0 {
                let rest = text[1..].iter().fold(start, |state, byte| automaton.next(state, *byte));
                automaton.set_begun(whole, automaton.begun(rest));
            }
        }
        Some(automaton)
    }

    /// The bytes of the longest end of `bytes` that is a prefix of a text, and not all of it. One step a byte, each of at most two on average.
    pub(super) fn longest_begun(&self, bytes: &[u8]) -> usize {
        self.begun(bytes.iter().fold(self.start, |state, byte| self.next(state, *byte)))
    }

    /// The longest text with which `bytes` begin, by its length and its place in the list; and the number of bytes that were read.
    pub(super) fn longest_text(&self, bytes: &[u8]) -> (Option<(usize, usize)>, usize) {
        let (mut state, mut longest) = (self.start, None);
        for (byte, len) in bytes.iter().zip(1..) {
            state = self.nfa.next_state(Anchored::Yes, state, *byte);
            if self.nfa.is_dead(state) {
                return (longest, len);
            }
            if self.nfa.is_match(state) {
                // The others are ends of what was read.
                let texts = (0..self.nfa.match_len(state)).map(|index| self.nfa.match_pattern(state, index));
                let mut whole = texts.filter(|text| self.nfa.pattern_len(*text) == len);
                longest = whole.next().map(|text| (len, text.as_usize())).or(longest);
            }
        }
        (longest, bytes.len())
    }

    fn next(&self, state: StateID, byte: u8) -> StateID {
        self.nfa.next_state(Anchored::No, state, byte)
    }

    fn begun(&self, state: StateID) -> usize {
        self.begun.get(state.as_usize()).copied().map_or(0, usize::from)
    }

    fn set_begun(&mut self, state: StateID, length: usize) {
        if self.begun.len() <= state.as_usize() {
            self.begun.resize(state.as_usize() + 1, 0);
        }
        self.begun[state.as_usize()] = length as u16;
    }
}
