//! The grammar of `server`: `ORDER VALUE [in RULE] [because "TEXT"] [--kill]`.

use super::Parser;
use super::keyword::KILL;
use super::word_list::list;
use crate::command::Command;
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::nearest::nearest;
use mmb_policy::{ServerCommand, ServerName, ServerOrder};

/// Names the rule.
pub(crate) const IN: &str = "in";
/// Begins the reason.
pub(crate) const BECAUSE: &str = "because";

/// The words of orders, with their help.
pub(crate) static ORDERS: [(&str, &str); ServerOrder::ALL.len()] = {
    let mut words = [("", ""); ServerOrder::ALL.len()];
    let mut at = 0;
    while at < words.len() {
        let (order, help) = ServerOrder::ALL[at];
        words[at] = (order.word(), help);
        at += 1;
    }
    words
};

impl Parser<'_, '_, '_> {
    /// Parses the arguments of `server`.
    pub(super) fn server(&mut self) -> Option<Command> {
        let order = self.server_order()?;
        let server = self.server_name()?;
        let rule = if self.take_word(IN) { Some(self.rule_id()?) } else { None };
        let reason = if self.take_word(BECAUSE) { Some(self.reason()?) } else { None };
        let kill = self.take_word(KILL);
        if kill && matches!(order, ServerOrder::Up | ServerOrder::Healthy) {
            let message = format!("`{}` ends no connections", order.word());
            self.error(Diagnostic::new(self.last_span(), message).expected("the end of the command"));
            return None;
        }
        Some(Command::Server(ServerCommand { order, server, rule, reason, kill }))
    }

    fn server_order(&mut self) -> Option<ServerOrder> {
        let token = self.next();
        let word = token.word();
        let order = ServerOrder::ALL.into_iter().find(|(order, _)| order.word() == word);
        if order.is_none() {
            let message = match word {
                "" => "what is with the server?".to_owned(),
                _ => format!("a server cannot be `{word}`"),
            };
            let words = || ORDERS.iter().map(|(word, _)| *word);
            let error = Diagnostic::new(token.span, message).expected(list(words()));
            self.error(error.suggest(nearest(word, words())));
        }
        order.map(|(order, _)| order)
    }

    fn server_name(&mut self) -> Option<ServerName> {
        let token = self.next();
        let name = token.word().parse().ok();
        if name.is_none() {
            let message = match token.word() {
                "" => "a server is missing".to_owned(),
                word => format!("`{word}` is no server"),
            };
            self.error(Diagnostic::new(token.span, message).expected("an address or a port of an `lb`"));
        }
        name
    }

    /// A text, or the words up to `--kill`.
    fn reason(&mut self) -> Option<String> {
        if let TokenKind::Text(text) | TokenKind::Bytes(text) = &self.peek().kind
            && let Ok(text) = std::str::from_utf8(text)
        {
            self.next();
            return Some(text.to_owned());
        }
        let mut words = Vec::new();
        while let Some(word) = self.peek_word().filter(|word| *word != KILL) {
            words.push(word);
            self.next();
        }
        if words.is_empty() {
            self.error(Diagnostic::new(self.peek().span, "a reason is missing").expected("a \"text\""));
            return None;
        }
        Some(words.join(" "))
    }
}
