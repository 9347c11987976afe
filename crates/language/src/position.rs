//! The words that may stand at a place of an unfinished command, for completion and help.
//!
//! A small automaton runs over the tokens before the place. It follows the grammar of [`crate::parser`] but never
//! complains: on a word that it does not know it goes on as the parser's recovery would.

mod expect;
mod rule;

use crate::command::Show;
use crate::diagnostic::Errors;
use crate::element::TIMEOUT;
use crate::filter;
use crate::filter::FilterTerm;
use crate::lexer::{Lexer, Token, TokenKind};
use crate::parser::keyword::{COUNTERS, FILE, KEEP, KILL, NAME, SET, SUMMARY, TERSE, VERBOSE};
use crate::parser::look::{CAPTURE_OPTIONS, POINTS, TRACE_OPTIONS, option_help};
use crate::parser::server::{BECAUSE, IN, ORDERS};
use crate::phrase;
use crate::setting;
use crate::verb;
use crate::verb::{Argument, SHOWS};
pub(crate) use expect::Expect;
use mmb_policy::setting_table;
use rule::PositionWalk;

/// A place in a command.
#[derive(Debug)]
pub(crate) struct Position<'a> {
    /// The first byte of the word under the cursor.
    pub(crate) start: usize,
    /// The word under the cursor, up to the cursor.
    pub(crate) word: &'a str,
    /// The kinds of words that may stand there.
    pub(crate) expects: Vec<Expect>,
}

/// Looks at the place `cursor` (in bytes; beyond the end: the end) of a command.
pub(crate) fn at(line: &str, cursor: usize) -> Position<'_> {
    let mut cursor = cursor.min(line.len());
    while !line.is_char_boundary(cursor) {
        cursor -= 1;
    }
    let before = &line[..cursor];
    let mut lexer = Lexer::new(before);
    let (mut tokens, mut errors) = (Vec::new(), Errors::default());
    // Of several lines, the last one counts.
    loop {
        lexer.command(&mut tokens, &mut errors);
        if lexer.is_done() && !before.ends_with('\n') {
            break;
        }
        if lexer.is_done() {
            tokens.clear();
            break;
        }
    }
    tokens.retain(|token| token.kind != TokenKind::End);
    let under_cursor = match tokens.last() {
        Some(Token { kind: TokenKind::Word(_), span }) if span.end == cursor => {
            tokens.pop().map(|t| t.span.start)
        }
        // Inside a text, bytes or a comment there is nothing to say.
        Some(Token {
            kind: TokenKind::Text(_) | TokenKind::Replacement(_) | TokenKind::Bytes(_) | TokenKind::Regex(_),
            span,
        }) if span.end == cursor => {
            return Position { start: cursor, word: "", expects: Vec::new() };
        }
        _ => None,
    };
    let start = under_cursor.unwrap_or(cursor);
    Position { start, word: &before[start..], expects: expectations(&tokens) }
}

fn expectations(tokens: &[Token<'_>]) -> Vec<Expect> {
    let mut tokens = tokens;
    if let Some((Token { kind: TokenKind::Word(word), .. }, rest)) = tokens.split_first()
        && word == "mmb"
    {
        tokens = rest;
    }
    let Some((first, rest)) = tokens.split_first() else { return vec![Expect::Command] };
    let info = match &first.kind {
        TokenKind::Word(word) => verb::named(word),
        _ => None,
    };
    let Some(info) = info else { return Vec::new() };
    let only = |expect: Expect| if rest.is_empty() { vec![expect] } else { vec![Expect::End] };
    match info.argument {
        Argument::None => vec![Expect::End],
        Argument::RuleId => deletion_expectations(rest),
        Argument::Replacement => match rest {
            [] => vec![Expect::RuleId],
            [_, rest @ ..] => replacement_expectations(rest),
        },
        Argument::Terse if rest.is_empty() => {
            vec![Expect::Word(TERSE, "rules only, without counters"), Expect::End]
        }
        Argument::Terse => vec![Expect::End],
        Argument::Show => show_expectations(rest),
        Argument::Conn => match rest {
            [] => vec![Expect::Word("kill", "ends connections")],
            [first, terms @ ..] if first.word() == "kill" => {
                let all = Expect::Word("all", "every connection");
                if terms.is_empty() { vec![all, Expect::Term] } else { filter_expectations(terms, None) }
            }
            _ => Vec::new(),
        },
        Argument::Server => server_expectations(rest),
        Argument::Counters => only(Expect::Word(COUNTERS, "of rules, drops, ports, stages and connections")),
        Argument::Port => only(Expect::Port),
        Argument::File => only(Expect::File),
        Argument::Entries if rest.is_empty() => {
            vec![Expect::Number("so many entries, the last ones"), Expect::End]
        }
        Argument::Versions if rest.len() < 2 => {
            vec![Expect::Number("a version of the policy, as `history` shows it"), Expect::End]
        }
        Argument::Confirm if rest.is_empty() => {
            vec![Expect::Number("the version that waits; without it whatever waits"), Expect::End]
        }
        Argument::Entries | Argument::Versions | Argument::Confirm => vec![Expect::End],
        Argument::Rollback => rollback_expectations(rest),
        Argument::OptionalFile if rest.is_empty() => vec![Expect::File, Expect::End],
        Argument::OptionalFile => vec![Expect::End],
        Argument::Patterns => match rest {
            [] => vec![Expect::List],
            [_] => vec![Expect::File],
            _ => vec![Expect::End],
        },
        Argument::Setting => setting_expectations(rest),
        Argument::Trace => look_expectations(rest, TRACE_OPTIONS, false),
        Argument::Capture => look_expectations(rest, CAPTURE_OPTIONS, true),
        Argument::Rule => {
            let mut walk = PositionWalk::new(info.verb == verb::Verb::AddStateful);
            for token in rest {
                walk.step(&token.kind);
            }
            walk.expects()
        }
    }
}

fn server_expectations(tokens: &[Token<'_>]) -> Vec<Expect> {
    let [_, _, rest @ ..] = tokens else {
        return vec![if tokens.is_empty() { Expect::Choice(&ORDERS) } else { Expect::Server }];
    };
    let has = |word: &str| rest.iter().any(|token| token.word() == word);
    match rest.last().map_or("", Token::word) {
        IN => vec![Expect::RuleId],
        BECAUSE => vec![Expect::Text],
        _ => {
            let mut expects = Vec::new();
            if !has(IN) && !has(BECAUSE) {
                expects.push(Expect::Word(IN, "only as a server of this rule"));
            }
            if !has(BECAUSE) {
                expects.push(Expect::Word(BECAUSE, "the reason, which `show servers` shows"));
            }
            if !has(KILL) {
                expects.push(Expect::Word(KILL, "ends the server's connections too"));
            }
            expects.push(Expect::End);
            expects
        }
    }
}

fn deletion_expectations(tokens: &[Token<'_>]) -> Vec<Expect> {
    match tokens {
        [] => vec![
            Expect::RuleId,
            Expect::Word(NAME, "every rule of that name"),
            Expect::Word(SET, "deletes a named set"),
        ],
        [first] if first.word() == SET => vec![Expect::Set],
        [first, ..] if first.word() == SET => vec![Expect::End],
        [name] if name.word() == NAME => vec![Expect::AttributeValue(NAME)],
        [name, _] if name.word() != NAME => vec![Expect::End],
        [_] | [_, _] => vec![
            Expect::Word(KILL, "ends the rule's connections too"),
            Expect::Word(KEEP, "has the rule's connections keep it until they end"),
            Expect::End,
        ],
        _ => vec![Expect::End],
    }
}

fn rollback_expectations(tokens: &[Token<'_>]) -> Vec<Expect> {
    let is_option = |token: &Token<'_>| token.word().starts_with('-');
    if tokens.len() > 1 && tokens.iter().any(is_option) || tokens.first().is_some_and(is_option) {
        return vec![Expect::End];
    }
    let number = Expect::Number("a version of the policy, as `history` shows it; without it the one before");
    let options = [
        Expect::Word(KILL, "ends the connections of rules that go"),
        Expect::Word(KEEP, "has the connections of rules that go keep them until they end"),
        Expect::End,
    ];
    let number = tokens.is_empty().then_some(number);
    number.into_iter().chain(options).collect()
}

fn replacement_expectations(tokens: &[Token<'_>]) -> Vec<Expect> {
    if tokens.last().is_some_and(|last| last.word() == KILL) {
        return vec![Expect::End];
    }
    let mut walk = PositionWalk::of_successor();
    tokens.iter().for_each(|token| walk.step(&token.kind));
    let mut expects = walk.expects();
    if expects.iter().any(|expect| matches!(expect, Expect::End)) {
        expects.push(Expect::Word(KILL, "ends the rule's connections"));
    }
    expects
}

fn show_expectations(tokens: &[Token<'_>]) -> Vec<Expect> {
    match tokens {
        [first] if first.word() == SET => return vec![Expect::Set],
        [first, ..] if first.word() == SET => return vec![Expect::End],
        _ => {}
    }
    let mut begun = "";
    for (at, token) in tokens.iter().enumerate() {
        let names = SHOWS.iter().map(|(name, ..)| *name);
        let Some(longer) = phrase::longer(names, begun, token.word()) else { return Vec::new() };
        begun = longer;
        match SHOWS.iter().find(|(name, ..)| *name == begun) {
            None => {}
            Some((_, Show::Streams { .. }, _))
                if tokens.get(at + 1).is_some_and(|next| next.word() == SUMMARY) =>
            {
                return vec![Expect::End];
            }
            Some((_, show @ (Show::Connections { .. } | Show::Streams { .. }), _)) => {
                let verbose = Expect::Word(VERBOSE, "also shows the worker and the id of each connection");
                let rest = &tokens[at + 1..];
                let mut expects = filter_expectations(rest, Some(verbose));
                if matches!(show, Show::Streams { .. }) && rest.is_empty() {
                    expects.push(Expect::Word(
                        SUMMARY,
                        "numbers instead of a list, and the limits that are reached",
                    ));
                }
                return expects;
            }
            Some((_, Show::Servers { .. }, _)) if tokens.len() == at + 1 => {
                return vec![Expect::Word(TERSE, "without packets and bytes"), Expect::End];
            }
            Some(_) => return vec![Expect::End],
        }
    }
    let mut expects = vec![Expect::Show(begun)];
    if tokens.is_empty() {
        expects.push(Expect::Word(SET, "the elements of a named set, and the times that they have left"));
    }
    expects
}

/// The words that may follow in a filter, behind which `last` may stand.
fn filter_expectations(tokens: &[Token<'_>], last: Option<Expect>) -> Vec<Expect> {
    let mut term = None;
    for token in tokens {
        let ends = term.is_none() && matches!(token.word(), "all" | VERBOSE);
        if ends {
            return vec![Expect::End];
        }
        term = match (term, &token.kind) {
            (term @ Some(_), TokenKind::Cond(_)) => term,
            (Some(_), _) => None,
            (None, _) => filter::term_named(token.word()),
        };
    }
    match term.map(|term| (term.field, term.subject)) {
        None => [Expect::Term].into_iter().chain(last).chain([Expect::End]).collect(),
        Some((Some(id), _)) => vec![Expect::Value(id.info())],
        Some((None, FilterTerm::State)) => vec![Expect::State],
        Some(_) => vec![Expect::RuleId],
    }
}

/// The words that may follow in `trace`, or in `capture`, which names a file.
fn look_expectations(
    tokens: &[Token<'_>],
    options: &'static [&'static str],
    names_file: bool,
) -> Vec<Expect> {
    let mut walk = PositionWalk::new(false);
    let mut waiting = None;
    for token in tokens {
        if waiting.take().is_some() {
            continue;
        }
        let option = options.iter().copied().chain(names_file.then_some(FILE_OPTION));
        let option = option.into_iter().find(|option| *option == token.word());
        match option.filter(|_| walk.may_end()) {
            Some(option) => {
                waiting = Some(option);
                walk.begin_anew();
            }
            None => walk.step(&token.kind),
        }
    }
    match waiting {
        Some(FILE_OPTION) => return vec![Expect::File],
        Some("at") => return vec![Expect::Choice(POINTS)],
        Some(option) => return vec![Expect::AttributeValue(option)],
        None => {}
    }
    let mut expects = walk.expects();
    expects.retain(|expect| !matches!(expect, Expect::Attribute(_) | Expect::Target(_)));
    if walk.may_end() {
        expects.extend(options.iter().map(|option| Expect::Word(option, option_help(option))));
        if names_file {
            expects.push(Expect::Word(FILE_OPTION, "the file; - is standard output"));
        }
        expects.push(Expect::End);
    }
    expects
}

/// Names the file of `capture`. It is an option of the client.
const FILE_OPTION: &str = "-w";

fn setting_expectations(tokens: &[Token<'_>]) -> Vec<Expect> {
    let mut begun = "";
    if let [first, rest @ ..] = tokens
        && phrase::longer(setting::names(), "", first.word()).is_none()
    {
        return set_expectations(rest);
    }
    for (at, token) in tokens.iter().enumerate() {
        let Some(longer) = phrase::longer(setting::names(), begun, token.word()) else { return Vec::new() };
        begun = longer;
        if let Some(info) = setting_table::named(begun) {
            let behind = tokens.len() - at - 1;
            return vec![if behind == 0 { Expect::SettingValue(info) } else { Expect::End }];
        }
    }
    let mut expects = vec![Expect::Setting(begun)];
    if tokens.is_empty() {
        expects.push(Expect::Set);
    }
    expects
}

/// The words that may follow behind `set NAME`.
fn set_expectations(tokens: &[Token<'_>]) -> Vec<Expect> {
    let elements = [
        Expect::Word("{", "the elements of the set"),
        Expect::Word(FILE, "the elements in a file, one a line"),
    ];
    let tokens = match tokens {
        [sign, equals, rest @ ..] if matches!(sign.word(), "+" | "-") && equals.kind == TokenKind::Assign => {
            rest
        }
        [] => {
            let changes = [Expect::Word("+=", "adds elements"), Expect::Word("-=", "removes elements")];
            return elements.into_iter().chain(changes).collect();
        }
        tokens => tokens,
    };
    match tokens {
        [] => elements.into(),
        [first] if first.word() == FILE => vec![Expect::File],
        [first, ..] if first.word() == FILE => vec![Expect::End],
        [.., last] => match &last.kind {
            TokenKind::Open | TokenKind::Comma => vec![Expect::Element],
            TokenKind::Close => vec![Expect::End],
            TokenKind::Word(word) if *word == TIMEOUT => vec![Expect::Duration],
            _ => vec![Expect::Word(TIMEOUT, "the element expires after a time"), Expect::InSet],
        },
    }
}
