//! The words that may stand at a place of an unfinished command, for completion and help.
//!
//! A small automaton runs over the tokens before the place. It follows the grammar of [`crate::parser`] but never
//! complains: on a word that it does not know it goes on as the parser's recovery would.

use crate::command::Show;
use crate::diagnostic::Errors;
use crate::element::TIMEOUT;
use crate::filter;
use crate::filter::FilterTerm;
use crate::lexer::{Lexer, Token, TokenKind};
use crate::parser::filter::{SUMMARY, VERBOSE};
use crate::parser::look::{CAPTURE_OPTIONS, POINTS, TRACE_OPTIONS, option_help};
use crate::parser::rule::WEIGHT;
use crate::parser::server::{BECAUSE, IN, ORDERS};
use crate::parser::sets::{FILE, SET};
use crate::setting;
use crate::target;
use crate::target::info::{Slot, TargetInfo};
use crate::target::limit;
use crate::verb;
use crate::verb::{Argument, SHOWS};
use crate::{parser, phrase, value};
use mmb_policy::ElementKind;
use mmb_policy::field::{Field, FieldId, FieldInfo, FieldPlace, ValueKind};
use mmb_policy::setting_table::{self, SettingInfo};

/// A kind of word that may stand at a place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect {
    /// A command's first word.
    Command,
    /// A rule's number.
    RuleId,
    /// This word, with its meaning.
    Word(&'static str, &'static str),
    /// A subject of `show` whose name begins with this.
    Show(&'static str),
    /// A number, with its meaning.
    Number(&'static str),
    /// A word of a filter.
    Term,
    /// The state of a connection.
    State,
    /// A port's name.
    Port,
    /// A setting whose name begins with this.
    Setting(&'static str),
    /// A setting's value.
    SettingValue(&'static SettingInfo),
    /// The name of a list of patterns.
    List,
    /// The name of a set.
    Set,
    /// A set as the value of a constraint.
    SetValue,
    /// An element of a set.
    Element,
    /// The time for which an element stays.
    Duration,
    /// A file's name.
    File,
    /// `id`, `prio`, `name` or `draining`.
    Attribute(&'static str),
    /// The value of one of these.
    AttributeValue(&'static str),
    /// `all`
    All,
    /// `!`, with its meaning.
    Bang(&'static str),
    /// A field to compare; `true`: in a stateful rule, which may also be about streams.
    Field(bool),
    /// A field that a target takes; `true`: in a stateful rule.
    TargetField(&'static TargetInfo, bool),
    /// A comparison.
    Cond(&'static FieldInfo),
    /// The kind behind `tcp-opt`.
    OptionKind,
    /// A value of a field.
    Value(&'static FieldInfo),
    /// The name of a header field.
    HeaderName,
    /// What a target writes into a stream; `true`: `\m` may be in it.
    Written(bool),
    /// The number behind `weight`.
    Weight,
    /// `,` or `}`
    InSet,
    /// A target.
    Target(bool),
    /// `all` in place of a TCP option.
    SelectAll,
    /// A percentage behind `drop`.
    Percentage,
    /// A rate behind `limit`.
    Rate,
    /// An argument of this form.
    Argument(&'static str),
    /// A field that limits may have a key of.
    LimitKey,
    /// A text in quotes.
    Text,
    /// A server of a rule.
    Server,
    /// One of these words, each with its help.
    Choice(&'static [(&'static str, &'static str)]),
    /// One of these words, each with its help, or a number.
    Code(&'static [(&'static str, &'static str)]),
    /// The end of the command.
    End,
}

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
            vec![Expect::Word(parser::TERSE, "rules only, without counters"), Expect::End]
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
        Argument::Counters => {
            only(Expect::Word(parser::COUNTERS, "of rules, drops, ports, stages and connections"))
        }
        Argument::Port => only(Expect::Port),
        Argument::File => only(Expect::File),
        Argument::Entries if rest.is_empty() => {
            vec![Expect::Number("so many entries, the last ones"), Expect::End]
        }
        Argument::Versions if rest.len() < 2 => {
            vec![Expect::Number("a version of the policy, as `history` shows it"), Expect::End]
        }
        Argument::Entries | Argument::Versions => vec![Expect::End],
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
            if !has(parser::KILL) {
                expects.push(Expect::Word(parser::KILL, "ends the server's connections too"));
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
            Expect::Word(parser::NAME, "every rule of that name"),
            Expect::Word(SET, "deletes a named set"),
        ],
        [first] if first.word() == SET => vec![Expect::Set],
        [first, ..] if first.word() == SET => vec![Expect::End],
        [name] if name.word() == parser::NAME => vec![Expect::AttributeValue(parser::NAME)],
        [name, _] if name.word() != parser::NAME => vec![Expect::End],
        [_] | [_, _] => vec![
            Expect::Word(parser::KILL, "ends the rule's connections too"),
            Expect::Word(parser::KEEP, "has the rule's connections keep it until they end"),
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
        Expect::Word(parser::KILL, "ends the connections of rules that go"),
        Expect::Word(parser::KEEP, "has the connections of rules that go keep them until they end"),
        Expect::End,
    ];
    let number = tokens.is_empty().then_some(number);
    number.into_iter().chain(options).collect()
}

fn replacement_expectations(tokens: &[Token<'_>]) -> Vec<Expect> {
    if tokens.last().is_some_and(|last| last.word() == parser::KILL) {
        return vec![Expect::End];
    }
    let mut walk = PositionWalk { given: vec!["id", DRAINING], ..PositionWalk::new(true) };
    tokens.iter().for_each(|token| walk.step(&token.kind));
    let mut expects = walk.expects();
    if expects.iter().any(|expect| matches!(expect, Expect::End)) {
        expects.push(Expect::Word(parser::KILL, "ends the rule's connections"));
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
                return vec![Expect::Word(parser::TERSE, "without packets and bytes"), Expect::End];
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
                walk.state = PositionState::Between;
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

/// The state of the automaton in a rule.
#[derive(Clone, Copy, Debug)]
enum PositionState {
    /// Between constraints and targets.
    Between,
    /// Behind `id`, `prio`, `name`.
    Attribute(&'static str),
    /// Behind `!`.
    Bang,
    /// Behind a field.
    Field(&'static FieldInfo),
    /// Behind `http-header`, which a name follows; of a target: behind its so many arguments.
    HeaderName(&'static FieldInfo, Option<(&'static TargetInfo, usize)>),
    /// Behind the name of a header field in a constraint.
    Header(&'static FieldInfo),
    /// Behind a comparison.
    Cond(&'static FieldInfo),
    /// In a set; `true`: behind a member; of a target: behind so many of its arguments.
    Set(&'static FieldInfo, bool, Option<(&'static TargetInfo, usize)>),
    /// Behind a target's word and so many of its arguments, of which this is the field.
    Target(&'static TargetInfo, usize, Option<&'static FieldInfo>),
    /// Behind the word of an argument of a target, which had so many other arguments before.
    Behind(&'static TargetInfo, usize, &'static str),
    /// Behind `weight` in a set of a target.
    Weight(&'static FieldInfo, &'static TargetInfo, usize),
    /// Behind the `!` of a selection, the first argument of a target.
    Selection(&'static TargetInfo),
}

struct PositionWalk {
    state: PositionState,
    stateful: bool,
    given: Vec<&'static str>,
    constrained: bool,
    all: bool,
    targeted: bool,
}

const ATTRIBUTES: [&str; 3] = ["id", "prio", "name"];
const WEIGHT_HELP: &str = "the value's share of connections; without it 1, and with 0 none";
/// The attribute that has no value.
const DRAINING: &str = "draining";

impl PositionWalk {
    fn new(stateful: bool) -> PositionWalk {
        PositionWalk {
            state: PositionState::Between,
            stateful,
            given: Vec::new(),
            constrained: false,
            all: false,
            targeted: false,
        }
    }

    fn step(&mut self, token: &TokenKind<'_>) {
        self.state = match (self.state, token) {
            (PositionState::Attribute(_), _) => PositionState::Between,
            (PositionState::HeaderName(info, None), TokenKind::Word(_) | TokenKind::Text(_)) => {
                PositionState::Header(info)
            }
            (
                PositionState::HeaderName(info, Some((target, at))),
                TokenKind::Word(_) | TokenKind::Text(_),
            ) => PositionState::Target(target, at, Some(info)),
            (PositionState::Target(target, 0, _), TokenKind::Bang)
                if matches!(target.slots.first(), Some(Slot::Selection)) =>
            {
                PositionState::Selection(target)
            }
            (_, TokenKind::Bang) => PositionState::Bang,
            (
                PositionState::Field(info) | PositionState::Header(info),
                TokenKind::Cond(_) | TokenKind::Assign,
            ) => PositionState::Cond(info),
            (
                PositionState::Field(info) | PositionState::Header(info) | PositionState::Cond(info),
                TokenKind::Open,
            ) => PositionState::Set(info, false, None),
            (PositionState::Target(target, at, Some(info)), TokenKind::Open) => {
                PositionState::Set(info, false, Some((target, at)))
            }
            (PositionState::Set(info, _, target), TokenKind::Comma) => {
                PositionState::Set(info, false, target)
            }
            (PositionState::Set(info, _, Some((target, at))), TokenKind::Close)
                if at + 1 < target.slots.len() =>
            {
                PositionState::Target(target, at + 1, Some(info))
            }
            (PositionState::Set(..), TokenKind::Close) => PositionState::Between,
            (PositionState::Set(info, true, Some((target, at))), TokenKind::Word(word))
                if *word == WEIGHT =>
            {
                PositionState::Weight(info, target, at)
            }
            (PositionState::Weight(info, target, at), _) => {
                PositionState::Set(info, true, Some((target, at)))
            }
            (PositionState::Set(info, _, target), _) => PositionState::Set(info, true, target),
            (state, TokenKind::Word(word)) => self.word(state, word),
            _ => PositionState::Between,
        };
    }

    fn word(&mut self, state: PositionState, word: &str) -> PositionState {
        match state {
            PositionState::Field(info) if info.id == FieldId::TcpOpt && value::number(word).is_ok() => {
                return PositionState::Field(FieldId::TcpOptKind.info());
            }
            PositionState::Target(target, at, Some(info))
                if is_behind_any_option(target, at, info) && value::number(word).is_ok() =>
            {
                return PositionState::Target(target, at, Some(FieldId::TcpOptKind.info()));
            }
            PositionState::Field(info) | PositionState::Cond(info) if info.values == ValueKind::Port => {
                return PositionState::Between;
            }
            PositionState::Field(info) | PositionState::Cond(info) if info.names.value(word).is_some() => {
                return PositionState::Between;
            }
            PositionState::Target(_, at, Some(info)) if at > 0 && info.names.value(word).is_some() => {
                return PositionState::Between;
            }
            PositionState::Behind(target, at, _) => return PositionState::Target(target, at, None),
            PositionState::Target(target, at, None) if matches!(target.slots.get(at), Some(Slot::Rate)) => {
                return PositionState::Target(target, at + 1, None);
            }
            PositionState::Target(target, at, None)
                if let Some((word, _)) = behind(target, at).find(|(known, _)| *known == word) =>
            {
                return PositionState::Behind(target, at, word);
            }
            PositionState::Target(target, at, None) if let Some(code) = code_behind(target, at, word) => {
                return PositionState::Target(target, code, None);
            }
            PositionState::Target(target, at, field @ Some(_)) if at + 1 < target.slots.len() => {
                return PositionState::Target(target, at + 1, field);
            }
            _ => {}
        }
        if let Some(id) = FieldId::named(word) {
            let info = id.info();
            let is_header = info.values == ValueKind::Header;
            let target = match state {
                PositionState::Target(target, 0, _) if target.slots.first().is_some_and(Slot::is_field) => {
                    Some(target)
                }
                PositionState::Selection(target) => Some(target),
                _ => None,
            };
            self.constrained |= target.is_none();
            return match target {
                _ if is_header => PositionState::HeaderName(info, target.map(|target| (target, 1))),
                Some(target) => PositionState::Target(target, 1, Some(info)),
                None => PositionState::Field(info),
            };
        }
        if let Some(attribute) = ATTRIBUTES.into_iter().find(|attribute| *attribute == word) {
            self.given.push(attribute);
            return PositionState::Attribute(attribute);
        }
        if word == DRAINING {
            self.given.push(DRAINING);
            return PositionState::Between;
        }
        match target::named(word) {
            Some(target) => {
                self.targeted = true;
                PositionState::Target(target, 0, None)
            }
            None => {
                self.all |= word == "all" && !self.targeted;
                PositionState::Between
            }
        }
    }

    /// Whether the constraints may end here.
    fn may_end(&self) -> bool {
        match self.state {
            PositionState::Between => true,
            PositionState::Field(info) => info.values != ValueKind::Port,
            PositionState::Attribute(_)
            | PositionState::Bang
            | PositionState::HeaderName(..)
            | PositionState::Header(_)
            | PositionState::Cond(_)
            | PositionState::Set(..)
            | PositionState::Target(..)
            | PositionState::Weight(..)
            | PositionState::Behind(..)
            | PositionState::Selection(_) => false,
        }
    }

    fn expects(&self) -> Vec<Expect> {
        let mut expects = Vec::new();
        match self.state {
            PositionState::Attribute(attribute) => return vec![Expect::AttributeValue(attribute)],
            PositionState::Bang => return vec![Expect::Field(self.stateful)],
            PositionState::HeaderName(..) => return vec![Expect::HeaderName],
            PositionState::Header(info) => expects.push(Expect::Value(info)),
            PositionState::Cond(info) => {
                return std::iter::once(Expect::Value(info)).chain(named_set(info)).collect();
            }
            PositionState::Set(info, false, _) => return vec![Expect::Value(info)],
            PositionState::Set(_, true, Some((target, at)))
                if matches!(target.slots.get(at), Some(Slot::WeightedValue)) =>
            {
                return vec![Expect::Word(WEIGHT, WEIGHT_HELP), Expect::InSet];
            }
            PositionState::Set(_, true, _) => return vec![Expect::InSet],
            PositionState::Weight(..) => return vec![Expect::Weight],
            PositionState::Behind(_, _, limit::PER_WORD) => return vec![Expect::LimitKey],
            PositionState::Behind(..) => return vec![Expect::Argument(limit::BURST)],
            PositionState::Selection(target) => return vec![Expect::TargetField(target, self.stateful)],
            PositionState::Target(target, at, Some(info)) if is_behind_any_option(target, at, info) => {
                return vec![Expect::OptionKind];
            }
            PositionState::Target(target, at, field) => match (target.slots.get(at), field) {
                (Some(Slot::Field(_)), _) => return vec![Expect::TargetField(target, self.stateful)],
                (Some(Slot::Selection), _) => {
                    return vec![
                        Expect::TargetField(target, self.stateful),
                        Expect::Bang(
                            "keeps the option or header field and removes those that are not named so",
                        ),
                        Expect::SelectAll,
                    ];
                }
                (Some(Slot::Value | Slot::WeightedValue), Some(info)) => return vec![written(target, info)],
                (Some(Slot::OptionalValue), Some(info)) => {
                    expects.push(written(target, info));
                    if matches!(info.place, FieldPlace::Stream(_)) && target.name == "add" {
                        return expects;
                    }
                }
                (Some(Slot::Percentage), _) => expects.push(Expect::Percentage),
                (Some(Slot::Rate), _) => return vec![Expect::Rate],
                (Some(Slot::Behind { .. }), _) => {
                    expects.extend(behind(target, at).map(|(word, help)| Expect::Word(word, help)));
                }
                (Some(Slot::OptionalText), _) => expects.push(Expect::Text),
                (Some(Slot::Choice(_, words)), _) => expects.push(Expect::Choice(words)),
                (Some(Slot::Name(_, words)), _) => return vec![Expect::Choice(words)],
                (Some(Slot::Code { words, .. }), _) => expects.push(Expect::Code(words)),
                (Some(Slot::Value | Slot::WeightedValue | Slot::OptionalValue), None) | (None, _) => {}
            },
            PositionState::Field(info) => match info.values {
                ValueKind::Port | ValueKind::State => return vec![Expect::Value(info), Expect::Cond(info)],
                ValueKind::Pattern | ValueKind::ServerName | ValueKind::Method | ValueKind::Header => {
                    return vec![Expect::Value(info)];
                }
                ValueKind::Nothing if info.id == FieldId::TcpOpt => expects.push(Expect::OptionKind),
                ValueKind::Nothing => {}
                ValueKind::Number
                | ValueKind::Ip4
                | ValueKind::Ip6
                | ValueKind::OptionData(_)
                | ValueKind::Bytes => {
                    let value = named_set(info).chain([Expect::Value(info), Expect::Cond(info)]);
                    expects.extend(value);
                }
            },
            PositionState::Between => {}
        }
        self.between(&mut expects);
        expects
    }

    /// Adds the words that may begin a constraint or a target.
    fn between(&self, expects: &mut Vec<Expect>) {
        if !self.constrained && !self.all && !self.targeted {
            let left = ATTRIBUTES.into_iter().filter(|attribute| !self.given.contains(attribute));
            expects.extend(left.map(Expect::Attribute));
            if self.stateful && !self.given.contains(&DRAINING) {
                expects.push(Expect::Attribute(DRAINING));
            }
            expects.push(Expect::All);
        }
        if !self.targeted && !self.all {
            let field = Expect::Field(self.stateful);
            expects.extend([Expect::Bang("negates the constraint behind it"), field]);
        }
        if self.constrained || self.all || self.targeted {
            expects.push(Expect::Target(self.stateful));
        }
        if self.targeted {
            expects.push(Expect::End);
        }
    }
}

/// A set as the value of a field, if it can be compared with one.
fn named_set(info: &FieldInfo) -> impl Iterator<Item = Expect> + use<> {
    ElementKind::of_field(Field::new(info.id)).map(|_| Expect::SetValue).into_iter()
}

/// What a target writes into a field.
fn written(target: &TargetInfo, info: &'static FieldInfo) -> Expect {
    match info.place {
        FieldPlace::Stream(_) => Expect::Written(target.name == "mod"),
        FieldPlace::Key { .. } | FieldPlace::AnyOption | FieldPlace::Option(_) => Expect::Value(info),
        FieldPlace::NamedOption | FieldPlace::Payload(_) | FieldPlace::Connection => Expect::Value(info),
    }
}

/// The words of the arguments that a target may still take, with their help.
fn behind(target: &TargetInfo, at: usize) -> impl Iterator<Item = (&'static str, &'static str)> {
    target.slots.iter().skip(at).filter_map(|slot| match slot {
        Slot::Behind { word, help, .. } => Some((*word, *help)),
        _ => None,
    })
}

/// The slot of codes behind a word that is the choice of a target.
fn code_behind(target: &TargetInfo, at: usize, word: &str) -> Option<usize> {
    let is_code = |slot: &Slot| matches!(slot, Slot::Code { behind, .. } if *behind == word);
    let choice = target.slots.get(at).filter(|slot| matches!(slot, Slot::Choice(..)));
    choice.and_then(|_| target.slots.iter().position(is_code))
}

/// Returns whether `tcp-opt` is the last argument of a target, which its kind may follow.
fn is_behind_any_option(target: &TargetInfo, at: usize, info: &FieldInfo) -> bool {
    info.id == FieldId::TcpOpt && at.checked_sub(1).is_some_and(|last| target.slots[last].is_field())
}
