//! The grammar of `trace` and `capture`: constraints as those of a rule, then options.

use super::word_list::list;
use super::{Parser, unknown};
use crate::command::CapturePoints;
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::nearest::nearest;
use crate::syntax::{CommandSyntax, LookSyntax, RuleSyntax};
use crate::value;
use mmb_policy::field::FieldId;

/// The options of `trace`, and those of `capture`.
pub(crate) const TRACE_OPTIONS: &[&str] = &["count"];
pub(crate) const CAPTURE_OPTIONS: &[&str] = &["at", "reason", "count", "snaplen"];

/// Behind `at`, with their help.
pub(crate) const POINTS: &[(&str, &str)] = &[
    ("rx", "packets as they are received"),
    ("tx", "packets as they are sent, after rewriting"),
    ("drop", "packets as they are dropped"),
];

/// The help of an option.
pub(crate) fn option_help(option: &str) -> &'static str {
    match option {
        "at" => "where packets are captured; may be given several times",
        "reason" => "a drop reason, as `show errors` has them",
        "snaplen" => "the most bytes of a packet, 14 to 16384",
        _ => "how many packets",
    }
}

/// The most packets that are asked for.
const MAX_PACKETS: u32 = 1_000_000_000;
/// The bounds of `snaplen`: an Ethernet header, and the most that is kept of a packet.
const SNAPLENS: (u32, u32) = (14, 16_384);

impl<'t> Parser<'t, '_, '_> {
    /// Parses the arguments of `trace`, or of `capture`.
    pub(super) fn look(&mut self, captures: bool) -> CommandSyntax<'t> {
        self.options = if captures { CAPTURE_OPTIONS } else { TRACE_OPTIONS };
        let filter = RuleSyntax {
            stateful: false,
            id: None,
            prio: None,
            name: None,
            draining: None,
            all: None,
            matches: Vec::new(),
            targets: Vec::new(),
            broken: false,
        };
        let mut look = LookSyntax { filter, captures, options: Default::default() };
        while !self.errors.is_full() {
            let token = self.peek();
            match &token.kind {
                TokenKind::End => break,
                TokenKind::Bang => self.constraint(&mut look.filter),
                TokenKind::Word(word) => match &**word {
                    "all" => self.all(&mut look.filter),
                    word if self.options.contains(&word) => self.option(&mut look),
                    word if FieldId::named(word).is_some() => self.constraint(&mut look.filter),
                    word => self.no_word_of_look(word),
                },
                _ => {
                    let expected = self.expected_next();
                    self.error(Diagnostic::new(token.span, "this has no place here").expected(expected));
                    self.next();
                    self.recover();
                }
            }
        }
        look.filter.broken = self.is_broken();
        CommandSyntax::Look(look)
    }

    fn no_word_of_look(&mut self, word: &str) {
        let span = self.next().span;
        let meant = nearest(word, self.options.iter().copied()).or_else(|| unknown::field(word));
        let expected = self.expected_next();
        let error = Diagnostic::new(span, format!("unknown word `{word}`"));
        self.error(error.expected(expected).suggest(meant));
        self.recover();
    }

    /// An option and its value.
    fn option(&mut self, look: &mut LookSyntax<'t>) {
        let token = self.next();
        let options = &mut look.options;
        let (word, is_given) = match token.word() {
            "at" => return self.point(&mut look.options.points),
            "reason" => ("reason", options.reason.is_some()),
            "count" => ("count", options.count.is_some()),
            _ => ("snaplen", options.snaplen.is_some()),
        };
        if is_given {
            self.error(Diagnostic::new(token.span, format!("`{word}` is given twice")));
        }
        match word {
            "reason" => options.reason = self.drop_reason(),
            "count" => options.count = self.bounded(word, (1, MAX_PACKETS)),
            _ => options.snaplen = self.bounded(word, SNAPLENS),
        }
    }

    fn point(&mut self, points: &mut CapturePoints) {
        let token = self.peek();
        match token.word() {
            "rx" => points.rx = true,
            "tx" => points.tx = true,
            "drop" => points.drop = true,
            word => {
                let names = || POINTS.iter().map(|(name, _)| *name);
                let message = match word {
                    "" => "a point is missing behind `at`".to_owned(),
                    _ => format!("`{word}` is no point of a packet's way"),
                };
                let error = Diagnostic::new(token.span, message).expected(list(names()));
                self.error(error.suggest(nearest(word, names())));
            }
        }
        self.next();
    }

    fn drop_reason(&mut self) -> Option<String> {
        let token = self.next();
        if let TokenKind::Word(word) = &token.kind {
            return Some(word.to_string());
        }
        let error = Diagnostic::new(token.span, "a drop reason is missing");
        self.error(error.expected("a name as `show errors` has them"));
        None
    }

    fn bounded(&mut self, option: &str, (first, last): (u32, u32)) -> Option<u32> {
        let token = self.next();
        if let TokenKind::Word(word) = &token.kind
            && let Ok(number) = value::number(word)
            && let Ok(number) = u32::try_from(number)
            && (first..=last).contains(&number)
        {
            return Some(number);
        }
        let message = match token.word() {
            "" => format!("the number behind `{option}` is missing"),
            word => format!("`{word}` is no `{option}`"),
        };
        self.error(Diagnostic::new(token.span, message).expected(format!("a number {first} to {last}")));
        None
    }
}
