//! The grammar of named sets: `set NAME {…}`, `set NAME += {…}`, `set NAME -= {…}`, and the same with `file FILE` in place of the braces.

use super::Parser;
use super::keyword::FILE;
use crate::check::stream::is_list_name;
use crate::diagnostic::{Diagnostic, Note, TextSpan};
use crate::element::{self, DURATION, ELEMENT, TIMEOUT};
use crate::lexer::{Token, TokenKind};
use crate::phrase;
use crate::setting;
use crate::syntax::{ElementsSyntax, SetSyntax};
use mmb_policy::sets::{ElementList, NEVER, SetOperation};

impl<'t> Parser<'t, '_, '_> {
    /// Whether what follows `set` is the name of a set and what becomes of it, and not a setting.
    pub(super) fn is_set(&self) -> bool {
        let [TokenKind::Word(name), next, ..] = &[0, 1].map(|ahead| self.ahead(ahead))[..] else {
            return false;
        };
        match next {
            TokenKind::Open | TokenKind::Assign => true,
            TokenKind::Word(word) if word == FILE => !is_subject(name),
            TokenKind::Word(word) => operation(word).is_some() && *self.ahead(2) == TokenKind::Assign,
            _ => false,
        }
    }

    fn ahead(&self, tokens: usize) -> &'t TokenKind<'_> {
        let last = self.tokens.len() - 1;
        &self.tokens[(self.at + tokens).min(last)].kind
    }

    /// `NAME {…}`, `NAME += {…}`, `NAME -= {…}`, `NAME file FILE` and so on.
    pub(super) fn set_of_elements(&mut self) -> Option<SetSyntax<'t>> {
        let start = self.peek().span;
        let name = self.set_name()?;
        if is_subject(name) {
            let message = format!("`{name}` is the name of a setting");
            self.error(Diagnostic::new(start, message).expected("another name for the set"));
            return None;
        }
        let operation = self.operation()?;
        if self.take_word(FILE) {
            let (file, span) = self.file()?;
            return Some(SetSyntax { name, operation, elements: ElementsSyntax::File(file, span) });
        }
        let elements = self.elements()?;
        Some(SetSyntax { name, operation, elements: ElementsSyntax::List(elements) })
    }

    /// The name of a set.
    pub(super) fn set_name(&mut self) -> Option<&'t str> {
        let token = self.next();
        let error = match &token.kind {
            TokenKind::Word(word) if is_list_name(word) => return Some(word),
            TokenKind::Word(word) => {
                let bare = word.strip_prefix('@').filter(|bare| is_list_name(bare));
                let error = Diagnostic::new(token.span, format!("`{word}` is no name of a set"));
                error.expected("letters, digits, `-`, `_` and `.`").suggest(bare)
            }
            _ => Diagnostic::new(token.span, "the name of a set is missing")
                .expected("a word, by which rules name the set as @NAME"),
        };
        self.error(error);
        None
    }

    /// `+=`, `-=`, or nothing.
    fn operation(&mut self) -> Option<SetOperation> {
        let token = self.peek();
        if let Some(operation) = self.peek_word().and_then(operation) {
            self.next();
            // There is an `=`: see `is_set`.
            self.next();
            return Some(operation);
        }
        if token.kind == TokenKind::Assign {
            let error = Diagnostic::new(token.span, "`=` has no place here");
            self.error(error.expected("`{`, `+=`, `-=` or `file`"));
            return None;
        }
        Some(SetOperation::Replace)
    }

    /// `{ELEMENT [timeout TIME], …}`, also without elements.
    fn elements(&mut self) -> Option<ElementList> {
        let token = self.next();
        if token.kind != TokenKind::Open {
            let error = Diagnostic::new(token.span, "the elements of the set are missing");
            self.error(error.expected("`{ELEMENT, …}` or `file FILE`"));
            return None;
        }
        let mut list = ElementList::default();
        if self.peek().kind == TokenKind::Close {
            self.next();
            return Some(list);
        }
        loop {
            self.element(&mut list);
            if self.errors.is_full() {
                return None;
            }
            let token = self.next();
            match &token.kind {
                TokenKind::Comma => {}
                TokenKind::Close => return (!self.is_broken()).then_some(list),
                kind => {
                    let message = match kind {
                        TokenKind::End => "the set has no end",
                        _ => "this has no place in a set",
                    };
                    let expected = format!("`,`, `{TIMEOUT}` or `}}`");
                    self.error(Diagnostic::new(token.span, message).expected(expected));
                    return None;
                }
            }
        }
    }

    /// `ELEMENT [timeout TIME]`
    fn element(&mut self, list: &mut ElementList) {
        let token = self.peek();
        let TokenKind::Word(word) = &token.kind else {
            self.error(Diagnostic::new(token.span, "an element is missing").expected(ELEMENT));
            if !matches!(token.kind, TokenKind::Comma | TokenKind::Close) {
                self.next();
            }
            return;
        };
        self.next();
        let timeout_ms = if self.take_word(TIMEOUT) { self.timeout() } else { Some(NEVER) };
        match element::read(word, timeout_ms.unwrap_or(NEVER), list) {
            Ok(false) => {}
            Ok(true) => self.note_masked(token, word),
            Err(error) => self.error(element::refused(word, token.span, error)),
        }
    }

    fn note_masked(&mut self, token: &Token<'_>, word: &str) {
        self.notes.push(Note::new(token.span, format!("`{word}` has host bits set; they are taken as zero")));
    }

    fn timeout(&mut self) -> Option<u64> {
        let token = self.peek();
        let timeout = self.peek_word().and_then(element::timeout);
        if timeout.is_none() {
            let message = match token.word() {
                "" => "the time is missing".to_owned(),
                word => format!("`{word}` is no timeout"),
            };
            self.error(Diagnostic::new(token.span, message).expected(DURATION));
        }
        if self.peek_word().is_some() {
            self.next();
        }
        timeout
    }

    /// The name of a file.
    pub(super) fn file(&mut self) -> Option<(&'t str, TextSpan)> {
        let token = self.next();
        let file = match &token.kind {
            TokenKind::Word(word) => Some(&**word),
            TokenKind::Text(text) | TokenKind::Bytes(text) => std::str::from_utf8(text).ok(),
            _ => None,
        };
        let file = file.filter(|file| !file.is_empty() && !file.contains('\0'));
        if file.is_none() {
            let error = Diagnostic::new(token.span, "the name of a file is missing");
            self.error(error.expected("a word, or a \"text\" if the name has blanks"));
        }
        Some((file?, token.span))
    }
}

/// What `+` and `-` before `=` mean.
fn operation(word: &str) -> Option<SetOperation> {
    match word {
        "+" => Some(SetOperation::Add),
        "-" => Some(SetOperation::Remove),
        _ => None,
    }
}

/// Whether settings' names begin with a word.
fn is_subject(name: &str) -> bool {
    phrase::longer(setting::names(), "", name).is_some()
}
