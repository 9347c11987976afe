//! The words that may stand at a place of a rule: an automaton that runs over the rule's tokens before the place.

use super::expect::Expect;
use crate::lexer::TokenKind;
use crate::parser::rule::WEIGHT;
use crate::target;
use crate::target::info::{Slot, TargetInfo};
use crate::target::limit;
use crate::value;
use mmb_policy::ElementKind;
use mmb_policy::field::{Field, FieldId, FieldInfo, FieldPlace, ValueKind};

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

/// The automaton.
pub(super) struct PositionWalk {
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
    pub(super) fn new(stateful: bool) -> PositionWalk {
        PositionWalk {
            state: PositionState::Between,
            stateful,
            given: Vec::new(),
            constrained: false,
            all: false,
            targeted: false,
        }
    }

    /// Of a rule that takes the place of another one: it has its number, and does not drain.
    pub(super) fn of_successor() -> PositionWalk {
        PositionWalk { given: vec!["id", DRAINING], ..PositionWalk::new(true) }
    }

    /// Goes on behind what is no part of a rule.
    pub(super) fn begin_anew(&mut self) {
        self.state = PositionState::Between;
    }

    pub(super) fn step(&mut self, token: &TokenKind<'_>) {
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
    pub(super) fn may_end(&self) -> bool {
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

    pub(super) fn expects(&self) -> Vec<Expect> {
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
