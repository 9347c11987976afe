//! Regexes as automata whose states are positions: the bytes and classes of a regex, each as often as it is repeated (Glushkov, *The abstract
//! theory of automata*, 1961). There are no empty transitions: a position follows another, may be the first, may be the last.
//!
//! Matches have a bound, so that none passes a position twice: a position is followed only by those with higher numbers.

use crate::error::PatternRefusal;
use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};
use std::collections::HashMap;

/// The most positions of a regex.
const MAX_POSITIONS: usize = 1 << 16;
/// The most pairs of a position and one that follows it.
const MAX_EDGES: usize = 1 << 20;

/// Where a position may come. A stream's start is a line's start too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Anywhere,
    LineStart,
    StreamStart,
}

/// What the bytes before a place are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    Byte,
    Newline,
    StreamStart,
}

impl Behind {
    pub(super) fn of(byte: Option<u8>) -> Behind {
        match byte {
            None => Behind::StreamStart,
            Some(b'\n') => Behind::Newline,
            Some(_) => Behind::Byte,
        }
    }

    pub(super) fn is(self, place: Place) -> bool {
        match place {
            Place::Anywhere => true,
            Place::LineStart => self != Behind::Byte,
            Place::StreamStart => self == Behind::StreamStart,
        }
    }
}

/// Positions by number, each with a place.
type Places = Vec<(u32, Place)>;

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    pub(super) fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    pub(super) fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 != 0
    }
}

/// The automaton of regexes.
#[derive(Debug, Default)]
pub(super) struct PositionNfa {
    /// The set of bytes of each position, as a number of one of `sets`.
    pub set_of: Vec<u32>,
    /// The regex of each position.
    pub pattern_of: Vec<u32>,
    pub sets: Vec<ByteSet>,
    /// Where a match can begin.
    pub first: Places,
    /// What follows each position, in ascending order. Never [`Place::StreamStart`].
    pub follow: Vec<Places>,
    /// Where a match can end, by position: at once, or before what is the start of a line. Never [`Place::StreamStart`].
    pub last: Vec<Option<Place>>,
    /// The families of each position. What may come behind a position may come behind each position with a lower number in one of its
    /// families too.
    pub families: Vec<Vec<u32>>,
    family_count: u32,
}

/// A part of a regex.
#[derive(Clone, Debug)]
struct Part {
    /// Where it matches nothing.
    empty: Option<Place>,
    first: Places,
    last: Places,
}

impl PositionNfa {
    /// Adds a regex, whose matches have a bound. `pattern` is told by states in which it matches.
    pub(super) fn add(&mut self, hir: &Hir, pattern: u32) -> Result<(), PatternRefusal> {
        let mut builder = Builder { nfa: self, sets: HashMap::new(), pattern, begin: 0, edges: 0 };
        builder.begin = builder.nfa.set_of.len();
        let sets = builder.nfa.sets.iter().zip(0..);
        builder.sets = sets.map(|(set, number)| (*set, number)).collect();
        let whole = builder.part(hir)?;
        for (position, place) in whole.last {
            if place == Place::StreamStart {
                return Err(PatternRefusal::InnerAnchor);
            }
            let last = &mut self.last[position as usize];
            *last = weaker(*last, Some(place));
        }
        self.first.extend(whole.first);
        for follow in &mut self.follow {
            // The weakest place of each position.
            follow.sort_unstable();
            follow.dedup_by_key(|(position, _)| *position);
        }
        Ok(())
    }

    /// Classes of bytes that no position tells apart, and a byte of each class.
    pub(super) fn classes(&self) -> ([u8; 256], Vec<u8>) {
        let mut class_of = [0_u8; 256];
        let mut samples = vec![0];
        let mut split = |is_in: &dyn Fn(u8) -> bool| {
            let mut parts: HashMap<(u8, bool), u8> = HashMap::new();
            samples.clear();
            for byte in 0..=255_u8 {
                let class = &mut class_of[usize::from(byte)];
                let next = samples.len() as u8;
                let part = *parts.entry((*class, is_in(byte))).or_insert(next);
                if part == next && usize::from(next) == samples.len() {
                    samples.push(byte);
                }
                *class = part;
            }
        };
        self.sets.iter().for_each(|set| split(&|byte| set.contains(byte)));
        if self.has_inner_lines() {
            split(&|byte| byte == b'\n');
        }
        (class_of, samples)
    }

    /// Families have lower numbers.
    pub(super) fn family_count(&self) -> usize {
        self.family_count as usize
    }

    /// Whether some transition or end needs the start of a line, behind a match's start.
    pub(super) fn has_inner_lines(&self) -> bool {
        let follows = self.follow.iter().flatten().any(|(_, place)| *place == Place::LineStart);
        follows || self.last.contains(&Some(Place::LineStart))
    }
}

struct Builder<'nfa> {
    nfa: &'nfa mut PositionNfa,
    sets: HashMap<ByteSet, u32>,
    pattern: u32,
    /// The first position of the regex.
    begin: usize,
    edges: usize,
}

impl Builder<'_> {
    fn part(&mut self, hir: &Hir) -> Result<Part, PatternRefusal> {
        match hir.kind() {
            HirKind::Empty => Ok(Part::empty(Place::Anywhere)),
            HirKind::Look(Look::Start) => Ok(Part::empty(Place::StreamStart)),
            HirKind::Look(Look::StartLF) => Ok(Part::empty(Place::LineStart)),
            HirKind::Look(Look::End) => Err(PatternRefusal::EditAtEnd),
            HirKind::Look(Look::EndLF | Look::StartCRLF | Look::EndCRLF) => Err(PatternRefusal::LineEnd),
            HirKind::Look(_) => Err(PatternRefusal::WordBoundary),
            HirKind::Literal(literal) => {
                let mut whole = Part::empty(Place::Anywhere);
                for byte in &literal.0 {
                    let mut set = ByteSet::default();
                    set.insert(*byte);
                    let part = self.position(set)?;
                    whole = self.concat(whole, part)?;
                }
                Ok(whole)
            }
            HirKind::Class(class) => self.position(bytes_of(class)?),
            HirKind::Capture(capture) => self.part(&capture.sub),
            HirKind::Concat(parts) => {
                let mut whole = Part::empty(Place::Anywhere);
                for part in parts {
                    let part = self.part(part)?;
                    whole = self.concat(whole, part)?;
                }
                Ok(whole)
            }
            HirKind::Alternation(parts) => {
                let mut whole = Part { empty: None, first: Vec::new(), last: Vec::new() };
                for part in parts {
                    let part = self.part(part)?;
                    whole.empty = weaker(whole.empty, part.empty);
                    whole.first.extend(part.first);
                    whole.last.extend(part.last);
                }
                Ok(whole)
            }
            HirKind::Repetition(repetition) => self.repetition(repetition),
        }
    }

    fn position(&mut self, set: ByteSet) -> Result<Part, PatternRefusal> {
        let position = self.nfa.set_of.len();
        if position - self.begin == MAX_POSITIONS {
            return Err(PatternRefusal::TooManyStates);
        }
        let next = self.nfa.sets.len() as u32;
        let set_number = *self.sets.entry(set).or_insert(next);
        if set_number == next {
            self.nfa.sets.push(set);
        }
        self.nfa.set_of.push(set_number);
        self.nfa.pattern_of.push(self.pattern);
        self.nfa.follow.push(Vec::new());
        self.nfa.last.push(None);
        self.nfa.families.push(Vec::new());
        let here = vec![(position as u32, Place::Anywhere)];
        Ok(Part { empty: None, first: here.clone(), last: here })
    }

    fn follow(&mut self, last: &Places, first: &Places) -> Result<(), PatternRefusal> {
        self.edges += last.len() * first.len();
        if self.edges > MAX_EDGES {
            return Err(PatternRefusal::TooManyStates);
        }
        for (from, before) in last {
            for (to, behind) in first {
                let place = *before.max(behind);
                if place == Place::StreamStart {
                    return Err(PatternRefusal::InnerAnchor);
                }
                self.nfa.follow[*from as usize].push((*to, place));
            }
        }
        Ok(())
    }

    fn concat(&mut self, left: Part, right: Part) -> Result<Part, PatternRefusal> {
        self.follow(&left.last, &right.first)?;
        let empty = left.empty.and_then(|left| right.empty.map(|right| left.max(right)));
        let (mut first, mut last) = (left.first, right.last);
        if let Some(place) = left.empty {
            first.extend(at(&right.first, place));
        }
        if let Some(place) = right.empty {
            let ends = at(&left.last, place);
            last.splice(0..0, ends);
        }
        Ok(Part { empty, first, last })
    }

    fn repetition(&mut self, repetition: &Repetition) -> Result<Part, PatternRefusal> {
        let begin = self.nfa.set_of.len();
        let once = match repetition.max {
            Some(0) => return Ok(Part::empty(Place::Anywhere)),
            _ => self.part(&repetition.sub)?,
        };
        // Only what matches nothing but the empty string may be repeated without a bound.
        let max = match repetition.max {
            Some(max) => max,
            None if once.first.is_empty() => repetition.min.max(1),
            None => return Err(PatternRefusal::UnboundedMatch),
        };
        match once.empty {
            None | Some(Place::Anywhere) => self.chain(begin, once, repetition, max),
            Some(_) => self.unroll(once, repetition, max),
        }
    }

    /// Repeats a part that matches nothing nowhere, or everywhere: each copy follows the one before it, no other.
    fn chain(
        &mut self,
        begin: usize,
        once: Part,
        repetition: &Repetition,
        max: u32,
    ) -> Result<Part, PatternRefusal> {
        let required = if once.empty.is_some() { 0 } else { repetition.min };
        let len = self.nfa.set_of.len() - begin;
        let mut whole = once.clone();
        let mut before = once.last;
        for copy in 2..=max {
            if copy <= required {
                whole.last.clear();
            }
            let next = self.part(&repetition.sub)?;
            self.follow(&before, &next.first)?;
            whole.last.extend(&next.last);
            before = next.last;
        }
        // Behind an earlier copy more copies may come, unless it is one that others have to follow.
        let first_family = self.nfa.family_count;
        self.nfa.family_count += len as u32;
        let optional = begin + len * required.saturating_sub(1) as usize;
        for (families, index) in self.nfa.families[optional..].iter_mut().zip(0..) {
            families.push(first_family + index % len.max(1) as u32);
        }
        whole.empty = (required == 0).then_some(Place::Anywhere);
        Ok(whole)
    }

    /// Repeats a part that matches nothing at some places.
    fn unroll(&mut self, once: Part, repetition: &Repetition, max: u32) -> Result<Part, PatternRefusal> {
        let mut whole = Part::empty(Place::Anywhere);
        let mut copy = once;
        for number in 1..=max {
            if number > repetition.min {
                copy.empty = Some(Place::Anywhere);
            }
            whole = self.concat(whole, copy)?;
            if number == max {
                break;
            }
            copy = self.part(&repetition.sub)?;
        }
        Ok(whole)
    }
}

impl Part {
    fn empty(place: Place) -> Part {
        Part { empty: Some(place), first: Vec::new(), last: Vec::new() }
    }
}

/// Positions that may also come only at a place.
fn at(positions: &Places, place: Place) -> Places {
    positions.iter().map(|(position, own)| (*position, place.max(*own))).collect()
}

/// The weaker of two places, of which `None` is the strongest.
fn weaker(one: Option<Place>, other: Option<Place>) -> Option<Place> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn bytes_of(class: &Class) -> Result<ByteSet, PatternRefusal> {
    let class = match class {
        Class::Bytes(class) => class.clone(),
        Class::Unicode(class) => class.to_byte_class().ok_or(PatternRefusal::Unicode)?,
    };
    let mut set = ByteSet::default();
    for range in class.ranges() {
        (range.start()..=range.end()).for_each(|byte| set.insert(byte));
    }
    Ok(set)
}
