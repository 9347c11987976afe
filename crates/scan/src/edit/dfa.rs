//! What regexes match from one place on: their automaton made deterministic and minimal.
//!
//! Since matches have a bound, no state is reached twice from one start. A state is either dead, or more bytes may lead from it to a match, or it
//! is the end of matches that cannot become longer.

use super::nfa::{Behind, PositionNfa};
use std::collections::HashMap;
use std::rc::Rc;

/// The most states before equal ones are merged.
const MAX_STATES: usize = 1 << 18;
/// The most transitions before equal states are merged.
const MAX_TRANSITIONS: usize = 1 << 21;
/// The most positions that are moved while states are made.
const MAX_WORK: usize = 1 << 23;

/// More states than an automaton may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyStates;

/// A deterministic automaton. A state is its number, shifted left by `shift`. They come in this order: the dead one, those without a match that may
/// lead to one, those with a match that may lead to a longer one, those with a match that may not.
#[derive(Debug)]
pub(super) struct MatchDfa {
    class_of: [u8; 256],
    shift: u32,
    transitions: Vec<u32>,
    starts: [u32; 3],
    first_match: u32,
    first_end: u32,
    /// The regex with the lowest number that matches in each state from `first_match` on.
    patterns: Vec<u32>,
    longest: usize,
}

/// What regexes match from one place on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The end of the longest match, and the regex with the lowest number that has it.
    pub longest: Option<(usize, u32)>,
    /// More bytes may make a match, or a longer one.
    pub is_open: bool,
    /// The bytes that were read.
    pub read: usize,
}

impl MatchDfa {
    /// The automaton that begins where a match does.
    pub(super) fn new(nfa: &PositionNfa) -> Result<MatchDfa, TooManyStates> {
        let (class_of, samples) = nfa.classes();
        let raw = Determinizer::new(nfa, &samples).run()?;
        Ok(minimal(&raw, class_of, samples.len()))
    }

    /// The bytes of the longest match.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// What matches in `bytes` from `start` on.
    #[inline]
    pub(super) fn run(&self, bytes: &[u8], start: usize, behind: Behind) -> Run {
        let mut state = self.starts[behind as usize];
        let mut longest = None;
        let rest = bytes.get(start..).unwrap_or_default();
        for (index, byte) in rest.iter().enumerate() {
            state = self.transitions[state as usize + usize::from(self.class_of[usize::from(*byte)])];
            if state >= self.first_match {
                longest = Some((start + index + 1, self.pattern(state)));
            }
            if state == 0 || state >= self.first_end {
                return Run { longest, is_open: false, read: index + 1 };
            }
        }
        Run { longest, is_open: state != 0, read: rest.len() }
    }

    /// Whether some match begins with these bytes, or is the first of them.
    pub(super) fn can_begin_with(&self, bytes: &[u8]) -> bool {
        let goes_on = |state: u32, byte: &u8| match state {
            state if state >= self.first_match => state,
            state => self.next(state, *byte),
        };
        self.starts.iter().any(|start| bytes.iter().fold(*start, goes_on) != 0)
    }

    /// Whether a byte begins a match, and is not the whole of it.
    pub(super) fn is_open_behind(&self, byte: u8) -> bool {
        self.starts.iter().any(|start| self.is_open(self.next(*start, byte)))
    }

    /// Tells whether two bytes are in a match, but not at its end.
    pub(super) fn open_pairs(&self) -> impl Fn(u8, u8) -> bool {
        let samples = self.samples();
        let mut is_pair = vec![false; samples.len() * samples.len()];
        for state in (0..self.transitions.len() as u32 >> self.shift).map(|number| number << self.shift) {
            for (first, byte) in samples.iter().enumerate() {
                let next = self.next(state, *byte);
                if self.is_open(next) {
                    for (second, byte) in samples.iter().enumerate() {
                        is_pair[first * samples.len() + second] |= self.is_open(self.next(next, *byte));
                    }
                }
            }
        }
        let (class_of, classes) = (self.class_of, samples.len());
        let class = move |byte: u8| usize::from(class_of[usize::from(byte)]);
        move |first, second| is_pair[class(first) * classes + class(second)]
    }

    fn is_open(&self, state: u32) -> bool {
        state != 0 && state < self.first_end
    }

    /// A byte of each class.
    fn samples(&self) -> Vec<u8> {
        let classes = self.class_of.iter().max().map_or(0, |max| usize::from(*max) + 1);
        let mut samples = vec![0; classes];
        for byte in 0..=255_u8 {
            samples[usize::from(self.class_of[usize::from(byte)])] = byte;
        }
        samples
    }

    fn next(&self, state: u32, byte: u8) -> u32 {
        self.transitions[state as usize + usize::from(self.class_of[usize::from(byte)])]
    }

    fn pattern(&self, state: u32) -> u32 {
        self.patterns[((state - self.first_match) >> self.shift) as usize]
    }
}

/// States by their numbers, of which 0 is dead. They are complete, not minimal.
struct RawDfa {
    /// By state and class.
    transitions: Vec<u32>,
    patterns: Vec<Option<u32>>,
    starts: [u32; 3],
}

/// Which positions have the bytes so far led to, and whether the last one was the end of a line, if it matters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subset {
    Start(u8),
    Inner { positions: Box<[u32]>, is_behind_newline: bool },
}

struct Determinizer<'nfa> {
    nfa: &'nfa PositionNfa,
    /// The classes of each set of bytes.
    classes_of: Vec<Vec<usize>>,
    classes: usize,
    /// The class of the end of a line, if it matters.
    newline: Option<usize>,
    numbers: HashMap<Rc<Subset>, u32>,
    waiting: Vec<Rc<Subset>>,
    /// The last round in which a position of each family was seen.
    rounds: Vec<usize>,
    round: usize,
    work: usize,
}

impl Determinizer<'_> {
    fn new<'nfa>(nfa: &'nfa PositionNfa, samples: &[u8]) -> Determinizer<'nfa> {
        let classes_of = nfa
            .sets
            .iter()
            .map(|set| (0..samples.len()).filter(|class| set.contains(samples[*class])).collect());
        let newline = samples.iter().position(|byte| *byte == b'\n').filter(|_| nfa.has_inner_lines());
        Determinizer {
            nfa,
            classes_of: classes_of.collect(),
            classes: samples.len(),
            newline,
            numbers: HashMap::new(),
            waiting: Vec::new(),
            rounds: vec![0; nfa.family_count()],
            round: 0,
            work: 0,
        }
    }

    fn run(mut self) -> Result<RawDfa, TooManyStates> {
        let mut raw = RawDfa { transitions: vec![0; self.classes], patterns: vec![None], starts: [1, 2, 3] };
        for start in [Behind::Byte, Behind::Newline, Behind::StreamStart] {
            self.number(Subset::Start(start as u8))?;
        }
        let mut done = 0;
        while let Some(subset) = self.waiting.get(done).cloned() {
            done += 1;
            raw.patterns.push(self.pattern(&subset));
            let mut buckets = vec![Vec::new(); self.classes];
            for position in self.next(&subset) {
                let classes = &self.classes_of[self.nfa.set_of[position as usize] as usize];
                self.work += classes.len();
                classes.iter().for_each(|class| buckets[*class].push(position));
            }
            for (class, positions) in buckets.into_iter().enumerate() {
                let positions = self.without_covered(positions);
                let state = if positions.is_empty() {
                    0
                } else {
                    let is_behind_newline = self.newline == Some(class);
                    self.number(Subset::Inner { positions: positions.into(), is_behind_newline })?
                };
                raw.transitions.push(state);
            }
            if self.work > MAX_WORK || raw.transitions.len() > MAX_TRANSITIONS {
                return Err(TooManyStates);
            }
        }
        Ok(raw)
    }

    /// Leaves out positions behind which nothing comes that does not come behind others of them too: the later copies of what is repeated.
    fn without_covered(&mut self, positions: Vec<u32>) -> Vec<u32> {
        self.round += 1;
        let is_kept = |position: &u32| {
            let families = &self.nfa.families[*position as usize];
            // Not lazily: each has to be marked.
            let is_covered = families.iter().fold(false, |is_covered, family| {
                let last_round = std::mem::replace(&mut self.rounds[*family as usize], self.round);
                is_covered || last_round == self.round
            });
            !is_covered
        };
        positions.into_iter().filter(is_kept).collect()
    }

    fn number(&mut self, subset: Subset) -> Result<u32, TooManyStates> {
        let next = self.waiting.len() as u32 + 1;
        let subset = Rc::new(subset);
        let number = *self.numbers.entry(Rc::clone(&subset)).or_insert(next);
        if number == next {
            if self.waiting.len() == MAX_STATES {
                return Err(TooManyStates);
            }
            self.waiting.push(subset);
        }
        Ok(number)
    }

    /// The positions that come next, in ascending order.
    fn next(&mut self, subset: &Subset) -> Vec<u32> {
        let mut next = Vec::new();
        match subset {
            Subset::Start(behind) => {
                let behind = [Behind::Byte, Behind::Newline, Behind::StreamStart][usize::from(*behind)];
                next.extend(self.nfa.first.iter().filter(|(_, place)| behind.is(*place)));
            }
            Subset::Inner { positions, is_behind_newline } => {
                let behind = if *is_behind_newline { Behind::Newline } else { Behind::Byte };
                for position in positions {
                    let follow = &self.nfa.follow[*position as usize];
                    self.work += follow.len();
                    next.extend(follow.iter().filter(|(_, place)| behind.is(*place)));
                }
            }
        }
        let mut next: Vec<u32> = next.into_iter().map(|(position, _)| position).collect();
        next.sort_unstable();
        next.dedup();
        next
    }

    fn pattern(&self, subset: &Subset) -> Option<u32> {
        let Subset::Inner { positions, is_behind_newline } = subset else { return None };
        let behind = if *is_behind_newline { Behind::Newline } else { Behind::Byte };
        let matched = positions
            .iter()
            .map(|position| *position as usize)
            .filter(|position| self.nfa.last[*position].is_some_and(|place| behind.is(place)));
        matched.map(|position| self.nfa.pattern_of[position]).min()
    }
}

/// A state with its equal ones merged: its pattern and where its transitions lead.
type MergedState = (Option<u32>, Box<[u32]>);

/// Merges states from which the same is matched. Transitions lead to no state twice from one start, so each state is merged behind those that it leads to.
fn minimal(raw: &RawDfa, class_of: [u8; 256], classes: usize) -> MatchDfa {
    let mut merged: Vec<MergedState> = vec![(None, vec![0; classes].into())];
    let mut numbers = HashMap::from([(merged[0].clone(), 0)]);
    let mut depths = vec![0];
    let mut number_of = vec![0_u32; raw.patterns.len()];
    for state in behind_their_successors(raw, classes) {
        let row = &raw.transitions[state * classes..(state + 1) * classes];
        let row: Box<[u32]> = row.iter().map(|next| number_of[*next as usize]).collect();
        let depth = row.iter().filter(|next| **next > 0).map(|next| depths[*next as usize] + 1).max();
        let next = merged.len() as u32;
        let key = (raw.patterns[state], row);
        let number = *numbers.entry(key.clone()).or_insert(next);
        if number == next {
            merged.push(key);
            depths.push(depth.unwrap_or(0));
        }
        number_of[state] = number;
    }
    let starts = raw.starts.map(|start| number_of[start as usize]);
    let longest = starts.iter().map(|start| depths[*start as usize]).max().unwrap_or(0);
    layout(&merged, starts, class_of, classes, longest)
}

/// The states but the dead one, each behind all to which it leads.
fn behind_their_successors(raw: &RawDfa, classes: usize) -> Vec<usize> {
    let mut order = Vec::with_capacity(raw.patterns.len());
    let mut is_seen = vec![false; raw.patterns.len()];
    is_seen[0] = true;
    for start in raw.starts {
        let mut path = vec![(start as usize, 0)];
        is_seen[start as usize] = true;
        while let Some((state, class)) = path.pop() {
            if class == classes {
                order.push(state);
                continue;
            }
            path.push((state, class + 1));
            let next = raw.transitions[state * classes + class] as usize;
            if !std::mem::replace(&mut is_seen[next], true) {
                path.push((next, 0));
            }
        }
    }
    order
}

/// Puts states into the order of [`MatchDfa`].
fn layout(
    merged: &[MergedState],
    starts: [u32; 3],
    class_of: [u8; 256],
    classes: usize,
    longest: usize,
) -> MatchDfa {
    let is_end = |state: &MergedState| state.1.iter().all(|next| *next == 0);
    let kind = |number: usize| match &merged[number] {
        _ if number == 0 => 0,
        (None, _) => 1,
        state if !is_end(state) => 2,
        _ => 3,
    };
    let mut order: Vec<usize> = (0..merged.len()).collect();
    order.sort_by_key(|number| kind(*number));
    let shift = classes.next_power_of_two().trailing_zeros();
    let mut place_of = vec![0_u32; merged.len()];
    for (place, number) in order.iter().enumerate() {
        place_of[*number] = (place as u32) << shift;
    }
    let first_of = |min| (order.iter().filter(|number| kind(**number) < min).count() as u32) << shift;
    let mut transitions = vec![0; merged.len() << shift];
    let mut patterns = Vec::new();
    for (place, number) in order.iter().enumerate() {
        let (pattern, row) = &merged[*number];
        patterns.extend(pattern);
        for (class, next) in row.iter().enumerate() {
            transitions[(place << shift) + class] = place_of[*next as usize];
        }
    }
    MatchDfa {
        class_of,
        shift,
        transitions,
        starts: starts.map(|start| place_of[start as usize]),
        first_match: first_of(2),
        first_end: first_of(3),
        patterns,
        longest,
    }
}
