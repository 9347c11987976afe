//! The grammar of filters: words and values, one after the other.

use super::keyword::VERBOSE;
use super::word_list::list;
use super::{Parser, unknown};
use crate::diagnostic::{Diagnostic, TextSpan};
use crate::filter;
use crate::filter::{FilterTerm, TERMS, TermInfo};
use crate::lexer::TokenKind;
use crate::nearest::nearest;
use crate::syntax::value::{ItemKind, ItemSyntax};
use crate::syntax::{CommandSyntax, FilterSyntax, TermSyntax};
use crate::value;
use mmb_policy::filter::STATES;
use mmb_policy::rule::Cond;

/// The words of a filter in short; there are many.
const A_TERM: &str = "a field of the protocol, an address or a port, `state` or `rule`";

impl<'t> Parser<'t, '_, '_> {
    /// Parses the arguments of `show connections` and `show streams`: a filter, and whether the answer is to be verbose.
    pub(super) fn shown_connections(&mut self) -> Option<(FilterSyntax<'t>, bool)> {
        let filter = self.filter(&[VERBOSE])?;
        let verbose = self.take_word(VERBOSE);
        Some((filter, verbose))
    }

    /// Parses the arguments of `conn`.
    pub(super) fn conn(&mut self) -> Option<CommandSyntax<'t>> {
        let token = self.next();
        if token.word() != "kill" {
            let message = match token.word() {
                "" => "what to do with connections?".to_owned(),
                word => format!("`{word}` cannot be done with connections"),
            };
            let meant = nearest(token.word(), ["kill"]);
            self.error(Diagnostic::new(token.span, message).expected("`kill`").suggest(meant));
            return None;
        }
        if self.take_word("all") {
            return Some(CommandSyntax::Kill(Vec::new()));
        }
        let filter = self.filter(&[])?;
        if filter.is_empty() {
            let error = Diagnostic::new(self.peek().span, "which connections?");
            self.error(error.expected(format!("`all`, {A_TERM}")));
            return None;
        }
        Some(CommandSyntax::Kill(filter))
    }

    /// Words and values up to the end, or up to one of the words `last`.
    fn filter(&mut self, last: &[&'static str]) -> Option<FilterSyntax<'t>> {
        let mut terms = Vec::new();
        let errors_before = self.errors.len();
        while !self.errors.is_full() {
            let token = self.peek();
            let word = token.word();
            if token.kind == TokenKind::End || last.contains(&word) {
                break;
            }
            self.next();
            match filter::term_named(word) {
                Some(term) => terms.extend(self.term(term, token.span)),
                None => self.no_term(word, token.span, last),
            }
        }
        (self.errors.len() == errors_before).then_some(terms)
    }

    /// The value of a term whose word stands at `span`.
    fn term(&mut self, term: &'static TermInfo, span: TextSpan) -> Option<TermSyntax<'t>> {
        if self.peek().kind == TokenKind::Cond(Cond::Eq) {
            self.next();
        }
        let token = self.peek();
        let kind = match &token.kind {
            TokenKind::Word(word) if filter::term_named(word).is_none() => ItemKind::Word(word),
            kind => {
                let at = if *kind == TokenKind::End { span } else { token.span };
                let message = match kind {
                    TokenKind::Cond(_) | TokenKind::Open => {
                        format!(
                            "in a filter `{}` is compared for equality with one value or range",
                            term.name
                        )
                    }
                    _ => format!("a value of `{}` is missing", term.name),
                };
                self.error(Diagnostic::new(at, message).expected(expectation(term)));
                self.skip_to_term();
                return None;
            }
        };
        self.next();
        Some(TermSyntax { term, span, value: ItemSyntax { kind, span: token.span } })
    }

    fn no_term(&mut self, word: &str, span: TextSpan, last: &[&'static str]) {
        let message = match word {
            "" => "this has no place in a filter of connections".to_owned(),
            _ => format!("`{word}` is no word of a filter of connections"),
        };
        let known = || names().chain(last.iter().copied());
        let meant = unknown::field(word).filter(|name| filter::term_named(name).is_some());
        let meant = nearest(word, known()).or(meant).map(str::to_owned);
        let last: String = last.iter().map(|word| format!(", or `{word}`")).collect();
        self.error(Diagnostic::new(span, message).expected(format!("{A_TERM}{last}")).suggest(meant));
        self.skip_to_term();
    }

    /// Skips to what begins a term.
    fn skip_to_term(&mut self) {
        while self.peek().kind != TokenKind::End && filter::term_named(self.peek().word()).is_none() {
            self.next();
        }
    }
}

/// The form of a term's values, as a text for people.
fn expectation(term: &TermInfo) -> String {
    match (term.field, term.subject) {
        (Some(id), _) => value::expectation(id.info()),
        (None, FilterTerm::State) => list(STATES.iter().map(|(name, _)| *name)),
        (None, _) => "a number 1 to 4294967295".to_owned(),
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    TERMS.iter().map(|info| info.name)
}
