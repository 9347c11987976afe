//! The arguments of targets, as [`Slot`]s say them.

use super::word_list::list;
use super::{Parser, remedy, unknown};
use crate::diagnostic::{Diagnostic, TextSpan};
use crate::lexer::TokenKind;
use crate::nearest::nearest;
use crate::syntax::value::{ItemKind, ItemSyntax};
use crate::target::info::{Slot, TargetArguments, TargetInfo};
use crate::target::limit;
use crate::value;

impl<'t> Parser<'t, '_, '_> {
    /// The arguments of a target, whose word was the last token.
    pub(super) fn target(&mut self, target: &TargetInfo) -> Option<TargetArguments<'t>> {
        let mut arguments = TargetArguments::default();
        if self.is_text_for_a_field(target) {
            return None;
        }
        for slot in target.slots {
            match slot {
                Slot::Field(expected) => arguments.field = Some(self.field(expected)?),
                Slot::Selection => self.selection(&mut arguments)?,
                Slot::Value => {
                    let field = arguments.field?;
                    arguments.value =
                        Some(self.value(field.field.info(), field.span, value::written_form)?);
                }
                Slot::WeightedValue => {
                    let field = arguments.field?;
                    let info = field.field.info();
                    arguments.value = Some(match self.peek().kind {
                        TokenKind::Open => self.set(info, Some(&mut arguments.weights))?,
                        _ => self.value(info, field.span, value::written_form)?,
                    });
                }
                Slot::OptionalValue => {
                    arguments.value = self.optional_value(arguments.field?.field.info())?
                }
                Slot::Percentage => arguments.percentage = self.percentage(),
                Slot::Rate => arguments.rate = Some(self.argument(target.name, limit::RATE)?),
                // The first of these slots reads what all of them take.
                Slot::Behind { .. } => return self.behind(target, arguments),
                Slot::OptionalText => arguments.text = self.text(),
                Slot::Choice(kind, words) => arguments.choice = self.choice(target, kind, words)?,
                Slot::Name(kind, words) => arguments.choice = Some(self.named(target, kind, words)?),
                Slot::Code { behind, words } if arguments.choice == Some(behind) => {
                    arguments.code = self.code(behind, words)?;
                }
                Slot::Code { .. } => {}
            }
        }
        Some(arguments)
    }

    /// Reports a text right behind a target that edits what a field finds. Returns whether there is one.
    fn is_text_for_a_field(&mut self, target: &TargetInfo) -> bool {
        let with = match target.name {
            "mask" | "strip" => "",
            "mod" => " \"NEW\"",
            _ => return false,
        };
        let token = self.peek();
        let shown = match &token.kind {
            TokenKind::Text(text) => remedy::shown(text).filter(|text| !text.is_empty()).unwrap_or("TEXT"),
            TokenKind::Bytes(_) | TokenKind::Replacement(_) | TokenKind::Regex(_) => "TEXT",
            _ => return false,
        };
        let name = target.name;
        let message = format!("what `{name}` acts on is found by a constraint, and `{name}` names its field");
        let expected = format!("`stream \"{shown}\" {name} stream{with}`, or the same with `http-body`");
        self.error(Diagnostic::new(token.span, message).expected(expected));
        while matches!(
            self.peek().kind,
            TokenKind::Text(_) | TokenKind::Bytes(_) | TokenKind::Replacement(_) | TokenKind::Regex(_)
        ) {
            self.next();
        }
        true
    }

    /// `all`, or `[!] FIELD`
    fn selection(&mut self, arguments: &mut TargetArguments<'t>) -> Option<()> {
        arguments.all = self.take_word("all");
        if arguments.all {
            return Some(());
        }
        arguments.negated = self.peek().kind == TokenKind::Bang;
        if arguments.negated {
            self.next();
        }
        let expected = match arguments.negated {
            true => "a TCP option or `http-header`",
            false => "a TCP option, `!`, `all`, or a field of streams or HTTP",
        };
        arguments.field = Some(self.field(expected)?);
        Some(())
    }

    /// `"text"`, if the next token is one.
    fn text(&mut self) -> Option<(&'t [u8], TextSpan)> {
        let token = self.peek();
        let text = match &token.kind {
            TokenKind::Text(text) => text,
            TokenKind::Replacement(_) => {
                self.error(value::nothing_matched(token.span));
                self.next();
                return None;
            }
            _ => return None,
        };
        self.next();
        Some((text, token.span))
    }

    /// The words of [`Slot::Behind`] that are there, in any order, each with its argument.
    fn behind(
        &mut self,
        target: &TargetInfo,
        mut arguments: TargetArguments<'t>,
    ) -> Option<TargetArguments<'t>> {
        loop {
            let token = self.peek();
            let slot = self.peek_word().and_then(|found| {
                target.slots.iter().find_map(|slot| match slot {
                    Slot::Behind { word, expected, .. } if *word == found => Some((*word, *expected)),
                    _ => None,
                })
            });
            let Some((word, expected)) = slot else { return Some(arguments) };
            self.next();
            if arguments.behind(word).is_some() {
                self.error(Diagnostic::new(token.span, format!("`{word}` is given twice")));
            }
            arguments.put_behind(word, self.argument(word, expected)?);
        }
    }

    /// The word behind `before`.
    fn argument(&mut self, before: &str, expected: &str) -> Option<ItemSyntax<'t>> {
        let token = self.peek();
        let Some(word) = self.peek_word() else {
            let error = Diagnostic::new(token.span, format!("what follows `{before}` is missing"));
            self.error(error.expected(expected));
            return None;
        };
        self.next();
        Some(ItemSyntax { kind: ItemKind::Word(word), span: token.span })
    }

    fn percentage(&mut self) -> Option<ItemSyntax<'t>> {
        let token = self.peek();
        let word =
            self.peek_word().filter(|word| word.starts_with(|c: char| c.is_ascii_digit() || c == '.'))?;
        self.next();
        Some(ItemSyntax { kind: ItemKind::Word(word), span: token.span })
    }

    /// One of the words, or none. The outer `None` is an error.
    fn choice(
        &mut self,
        target: &TargetInfo,
        kind: &str,
        words: &[(&'static str, &str)],
    ) -> Option<Option<&'static str>> {
        let token = self.peek();
        let names = || words.iter().map(|(name, _)| *name);
        let is_chosen = |word: &&str| names().any(|name| name == *word) || !unknown::is_keyword(word);
        let Some(word) = self.peek_word().filter(is_chosen) else {
            return Some(None);
        };
        self.next();
        let chosen = names().find(|name| *name == word);
        if chosen.is_none() {
            let error = Diagnostic::new(token.span, format!("`{word}` is no {kind} of `{}`", target.name));
            self.error(error.expected(list(names())).suggest(nearest(word, names())));
            return None;
        }
        Some(chosen)
    }

    /// One of the words. `None` is an error.
    fn named(
        &mut self,
        target: &TargetInfo,
        kind: &str,
        words: &[(&'static str, &str)],
    ) -> Option<&'static str> {
        let token = self.peek();
        let chosen = self.choice(target, kind, words)?;
        if chosen.is_none() {
            let names = list(words.iter().map(|(name, _)| *name));
            let error = Diagnostic::new(token.span, format!("the {kind} of `{}` is missing", target.name));
            self.error(error.expected(names));
        }
        chosen
    }

    /// One of the words or a number, or nothing. The outer `None` is an error.
    fn code(&mut self, kind: &str, words: &[(&'static str, &str)]) -> Option<Option<ItemSyntax<'t>>> {
        let token = self.peek();
        let Some(word) = self.peek_word().filter(|word| !unknown::is_keyword(word)) else {
            return Some(None);
        };
        self.next();
        let names = || words.iter().map(|(name, _)| *name);
        if word.starts_with(is_digit_like) || names().any(|name| name == word) {
            return Some(Some(ItemSyntax { kind: ItemKind::Word(word), span: token.span }));
        }
        let error = Diagnostic::new(token.span, format!("`{word}` is no code of `{kind}`"));
        let expected = format!("{}, or a number", list(names()));
        self.error(error.expected(expected).suggest(nearest(word, names())));
        None
    }
}

pub(super) fn is_digit_like(c: char) -> bool {
    c.is_ascii_digit() || c == 'x' || c == 'X'
}
