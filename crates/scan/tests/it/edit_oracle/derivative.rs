//! What is left of a regex behind a byte.

use mmb_scan::{Pattern, PatternKind};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};
use std::rc::Rc;

/// A regex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Derivative {
    /// Matches nowhere.
    Never,
    /// Matches what is empty.
    Empty,
    /// Matches what is empty at the start of the stream.
    StreamStart,
    /// Matches what is empty at the start of a line.
    LineStart,
    Byte(Rc<Vec<(u8, u8)>>),
    Concat(Rc<Derivative>, Rc<Derivative>),
    Or(Rc<Derivative>, Rc<Derivative>),
}

use Derivative::{Byte, Concat, Empty, LineStart, Never, Or, StreamStart};

impl Derivative {
    pub(crate) fn of(pattern: &Pattern) -> Derivative {
        let source = match &pattern.kind {
            PatternKind::Text(bytes) => bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect(),
            PatternKind::Regex(source) => source.clone(),
        };
        let mut parser = ParserBuilder::new();
        parser.unicode(false).utf8(false).case_insensitive(pattern.ignores_case);
        Derivative::of_hir(&parser.build().parse(&source).expect("a regex that was compiled before"))
    }

    fn of_hir(hir: &Hir) -> Derivative {
        match hir.kind() {
            HirKind::Empty => Empty,
            HirKind::Literal(literal) => literal
                .0
                .iter()
                .rev()
                .fold(Empty, |rest, byte| concat(Byte(Rc::new(vec![(*byte, *byte)])), rest)),
            HirKind::Class(Class::Bytes(class)) => {
                Byte(Rc::new(class.ranges().iter().map(|range| (range.start(), range.end())).collect()))
            }
            HirKind::Class(Class::Unicode(class)) => {
                let class = class.to_byte_class().expect("ASCII");
                Byte(Rc::new(class.ranges().iter().map(|range| (range.start(), range.end())).collect()))
            }
            HirKind::Look(Look::Start) => StreamStart,
            HirKind::Look(Look::StartLF) => LineStart,
            HirKind::Look(_) => panic!("not in regexes of edits"),
            HirKind::Capture(capture) => Derivative::of_hir(&capture.sub),
            HirKind::Concat(parts) => {
                parts.iter().rev().fold(Empty, |rest, part| concat(Derivative::of_hir(part), rest))
            }
            HirKind::Alternation(parts) => {
                parts.iter().rev().fold(Never, |rest, part| or(Derivative::of_hir(part), rest))
            }
            HirKind::Repetition(repetition) => {
                let once = Derivative::of_hir(&repetition.sub);
                let max = repetition.max.unwrap_or(repetition.min.max(1));
                let optional =
                    (repetition.min..max).fold(Empty, |rest, _| or(concat(once.clone(), rest), Empty));
                (0..repetition.min).fold(optional, |rest, _| concat(once.clone(), rest))
            }
        }
    }

    /// What is left behind a byte that has another before it.
    pub(crate) fn behind(&self, before: Option<u8>, byte: u8) -> Derivative {
        match self {
            Never | Empty | StreamStart | LineStart => Never,
            Byte(ranges) if ranges.iter().any(|(first, last)| (*first..=*last).contains(&byte)) => Empty,
            Byte(_) => Never,
            Or(left, right) => or(left.behind(before, byte), right.behind(before, byte)),
            Concat(left, right) => {
                let behind = concat(left.behind(before, byte), (**right).clone());
                if left.matches_nothing_at(before) { or(behind, right.behind(before, byte)) } else { behind }
            }
        }
    }

    /// Whether it matches what is empty, behind a byte.
    pub(crate) fn matches_nothing_at(&self, before: Option<u8>) -> bool {
        match self {
            Never | Byte(_) => false,
            Empty => true,
            StreamStart => before.is_none(),
            LineStart => before.is_none_or(|before| before == b'\n'),
            Or(left, right) => left.matches_nothing_at(before) || right.matches_nothing_at(before),
            Concat(left, right) => left.matches_nothing_at(before) && right.matches_nothing_at(before),
        }
    }

    pub(crate) fn is_never(&self) -> bool {
        *self == Never
    }

    /// Whether more bytes can make it match.
    pub(crate) fn can_go_on(&self, before: Option<u8>) -> bool {
        if !self.has_look() {
            return self.has_bytes();
        }
        (0..=255).any(|byte| {
            let behind = self.behind(before, byte);
            behind.matches_nothing_at(Some(byte)) || behind.can_go_on(Some(byte))
        })
    }

    fn has_look(&self) -> bool {
        match self {
            Never | Empty | Byte(_) => false,
            StreamStart | LineStart => true,
            Or(left, right) | Concat(left, right) => left.has_look() || right.has_look(),
        }
    }

    /// Whether it matches what is not empty. [`Never`] is never a part of another.
    fn has_bytes(&self) -> bool {
        match self {
            Never | Empty | StreamStart | LineStart => false,
            Byte(_) => true,
            Or(left, right) | Concat(left, right) => left.has_bytes() || right.has_bytes(),
        }
    }
}

fn concat(left: Derivative, right: Derivative) -> Derivative {
    match (left, right) {
        (Never, _) | (_, Never) => Never,
        (Empty, other) | (other, Empty) => other,
        (left, right) => Concat(Rc::new(left), Rc::new(right)),
    }
}

fn or(left: Derivative, right: Derivative) -> Derivative {
    match (left, right) {
        (Never, other) | (other, Never) => other,
        (left, right) if left == right => left,
        (left, right) => Or(Rc::new(left), Rc::new(right)),
    }
}
