//! Compiled rules on HTTP, made off the packet path and shared by all workers.

use crate::texts::{HostSet, TextSet};
use mmb_policy::field::StreamPart;
use mmb_policy::http::HeaderName;
use mmb_policy::pattern::{PatternItem, PatternList, Regex};
use mmb_policy::rule::{Cond, Match, NumberSet, StreamEdit, Target, Test};
use mmb_policy::settings::HttpSettings;
use mmb_policy::{Replacement, Rule};
use mmb_scan::{EditPatterns, Pattern, PatternError, PatternKind, PatternSet, SetSource};
use std::collections::HashMap;

/// The most constraints on HTTP of one rule.
pub const MAX_CONSTRAINTS: usize = 14;
/// The most bytes that stand in the place of a match in a body.
pub const MAX_REPLACEMENT_BYTES: usize = 64 << 10;

/// The most bytes that a rule adds at a body's end.
pub const MAX_TAIL_BYTES: usize = 4096;

/// Why a rule, by the caller's number, is not compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpRuleError {
    /// A rule has too many constraints.
    #[error("more than {MAX_CONSTRAINTS} constraints on HTTP; write two rules")]
    TooManyConstraints(u32),
    /// A rule names a list that is not there.
    #[error("there is no list {1}")]
    NoList(u32, String),
    /// A pattern of this rule is refused, or without a rule, the patterns of all rules together.
    #[error("{1}")]
    Pattern(Option<u32>, PatternError),
    /// A match may become too long.
    #[error(
        "a match may become {1} bytes, more than {MAX_REPLACEMENT_BYTES}; shorten the text or name `\\m` less often"
    )]
    LongReplacement(u32, usize),
    /// A rule adds too much to bodies.
    #[error("the rule adds {1} bytes to bodies, more than {MAX_TAIL_BYTES}; shorten the text")]
    LongTail(u32, usize),
}

impl HttpRuleError {
    /// The rule; `None` if the error is about all rules together.
    #[must_use]
    pub fn rule(&self) -> Option<u32> {
        match self {
            HttpRuleError::TooManyConstraints(rule) | HttpRuleError::NoList(rule, _) => Some(*rule),
            HttpRuleError::Pattern(rule, _) => *rule,
            HttpRuleError::LongReplacement(rule, _) | HttpRuleError::LongTail(rule, _) => Some(*rule),
        }
    }
}

/// The rules on HTTP of one policy.
#[derive(Clone, Debug)]
pub struct HttpRules {
    pub(crate) rules: Vec<HttpRule>,
    pub(crate) settings: HttpSettings,
    /// Regexes for parts of heads, and what each is for, by its id.
    pub(crate) heads: Option<PatternSet>,
    pub(crate) head_uses: Vec<PatternUse>,
    /// Which parts of heads they are for.
    pub(crate) regex_parts: RegexParts,
    /// Patterns that are searched in bodies without being edited, and what each is for.
    pub(crate) bodies: Option<PatternSet>,
    pub(crate) body_uses: Vec<PatternUse>,
}

/// Parts of heads that regexes are for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RegexParts {
    pub(crate) method: bool,
    pub(crate) host: bool,
    pub(crate) uri: bool,
    pub(crate) header: bool,
}

/// The constraint that a pattern is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PatternUse {
    pub(crate) rule: u32,
    pub(crate) constraint: u8,
}

/// How a rule ends a connection: the one with which the messages began, though the policy may have another one in its place by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpEnd {
    /// The caller's number of the rule.
    pub rule: u32,
    /// Both ends are told.
    pub closes: bool,
}

/// The strongest effect of rules on their connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RuleEffect {
    /// The rules only report. Bytes that cannot be read must not end the connection.
    Report,
    /// They end connections.
    End,
    /// They edit messages.
    Edit,
}

/// One rule.
#[derive(Clone, Debug)]
pub(crate) struct HttpRule {
    /// The caller's number.
    pub(crate) number: u32,
    pub(crate) constraints: Vec<Constraint>,
    /// How it ends the connection, if it does.
    pub(crate) end: Option<HttpEnd>,
    /// Edits of heads, in their order.
    pub(crate) head_edits: Vec<StreamEdit>,
    pub(crate) body_edit: Option<BodyEdit>,
    /// What is added at a body's end.
    pub(crate) tail: Vec<u8>,
    /// The constraints on bodies, as bits.
    pub(crate) body_bits: u16,
    /// Of these the one whose matches are edited.
    pub(crate) edit_bit: u16,
}

impl HttpRule {
    /// The state of an exchange in which all constraints are met.
    pub(crate) fn met(&self) -> u16 {
        (1 << self.constraints.len()) - 1
    }

    /// The strongest effect of the rule on connections that match it.
    pub(crate) fn effect(&self) -> RuleEffect {
        match self.head_edits.is_empty() && self.body_edit.is_none() && self.tail.is_empty() {
            false => RuleEffect::Edit,
            true if self.end.is_some() => RuleEffect::End,
            true => RuleEffect::Report,
        }
    }

    /// Whether its edits make bodies longer or shorter.
    pub(crate) fn changes_lengths(&self) -> bool {
        let replaces = |edit: &BodyEdit| matches!(edit.action, BodyAction::Replace(_));
        !self.tail.is_empty() || self.body_edit.as_ref().is_some_and(replaces)
    }

    /// Whether it is about bodies.
    pub(crate) fn is_about_bodies(&self) -> bool {
        self.body_bits != 0 || !self.tail.is_empty()
    }
}

/// The edit of what a constraint finds in bodies.
#[derive(Clone, Debug)]
pub(crate) struct BodyEdit {
    pub(crate) patterns: EditPatterns,
    pub(crate) action: BodyAction,
}

/// What stands in the place of a match.
#[derive(Clone, Debug)]
pub(crate) enum BodyAction {
    /// A text, repeated or cut to its length.
    Mask(Vec<u8>),
    Replace(Replacement),
}

impl BodyAction {
    /// The length of what stands in the place of so many bytes.
    pub(crate) fn len_for(&self, matched: usize) -> usize {
        match self {
            BodyAction::Mask(_) => matched,
            BodyAction::Replace(replacement) => replacement.len_for(matched),
        }
    }
}

/// A constraint on an exchange.
#[derive(Clone, Debug)]
pub(crate) struct Constraint {
    pub(crate) negated: bool,
    pub(crate) test: HttpTest,
}

/// What a constraint asks.
#[derive(Clone, Debug)]
pub(crate) enum HttpTest {
    /// Any exchange.
    Any,
    Method(TextSet),
    Host(HostSet),
    Uri(TextSet),
    Status(Cond, NumberSet),
    Header(HeaderName, HeaderValue),
    /// Found in a body by the set of patterns for bodies, or by the rule's edit.
    Body,
}

/// What a constraint asks of a header's value.
#[derive(Clone, Debug)]
pub(crate) enum HeaderValue {
    Any,
    /// One of these texts, or a regex of the set for heads.
    Is(TextSet),
}

impl HttpRules {
    /// Compiles the rules on HTTP of a policy, each with the caller's number. Rules without constraints on HTTP are left out, and so are
    /// constraints that are not on HTTP. `lists` has the content of lists; compiled patterns come from `sets`.
    ///
    /// # Errors
    /// A rule cannot be compiled.
    pub fn compile<'p>(
        rules: impl IntoIterator<Item = (u32, &'p Rule)>,
        lists: &dyn Fn(&str) -> Option<&'p PatternList>,
        settings: &HttpSettings,
        sets: SetSource<'_>,
    ) -> Result<HttpRules, HttpRuleError> {
        let mut compiler = Compiler { lists, sets, heads: Patterns::default(), bodies: Patterns::default() };
        let mut parts = RegexParts::default();
        let mut compiled = Vec::new();
        for (number, rule) in rules {
            if rule.stream_matches().any(|constraint| part_of(constraint).is_some()) {
                let index = compiled.len() as u32;
                compiled.push(compiler.rule((number, index), rule, &mut parts)?);
            }
        }
        let Compiler { heads, bodies, .. } = compiler;
        Ok(HttpRules {
            rules: compiled,
            settings: *settings,
            regex_parts: parts,
            heads: heads.compile(sets)?,
            head_uses: heads.uses,
            bodies: bodies.compile(sets)?,
            body_uses: bodies.uses,
        })
    }

    /// The place of a rule, by which an editor is told which rules a connection has; `None` if it is not on HTTP.
    #[must_use]
    pub fn index_of(&self, number: u32) -> Option<u32> {
        let index = self.rules.iter().position(|rule| rule.number == number)?;
        Some(index as u32)
    }

    /// The caller's number of the rule at a place.
    #[must_use]
    pub fn number(&self, index: u32) -> Option<u32> {
        self.rules.get(index as usize).map(|rule| rule.number)
    }

    /// Whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The sets of patterns that a worker's scanner must have prepared.
    pub fn sets(&self) -> impl Iterator<Item = &PatternSet> {
        self.heads.iter().chain(&self.bodies)
    }

    /// The patterns of edits, for which a worker's scratch must be prepared.
    pub fn edit_patterns(&self) -> impl Iterator<Item = &EditPatterns> {
        self.rules.iter().filter_map(|rule| rule.body_edit.as_ref()).map(|edit| &edit.patterns)
    }
}

/// The part of HTTP that a constraint is about; `None` if it is about something else.
fn part_of(constraint: &Match) -> Option<StreamPart> {
    constraint.field.stream_part().filter(|part| part.is_http())
}

/// Patterns of one set while they are gathered; the id of each is its place.
#[derive(Default)]
struct Patterns {
    patterns: Vec<Pattern>,
    uses: Vec<PatternUse>,
    /// The caller's number of the rule of each.
    numbers: Vec<u32>,
}

impl Patterns {
    fn add(&mut self, (kind, ignores_case): (PatternKind, bool), number: u32, pattern_use: PatternUse) {
        self.patterns.push(Pattern { kind, ignores_case, id: self.uses.len() as u32 });
        self.uses.push(pattern_use);
        self.numbers.push(number);
    }

    fn compile(&self, sets: SetSource<'_>) -> Result<Option<PatternSet>, HttpRuleError> {
        if self.patterns.is_empty() {
            return Ok(None);
        }
        let set = sets.set(&self.patterns).map_err(|error| {
            let number = error.index().and_then(|index| self.numbers.get(index));
            HttpRuleError::Pattern(number.copied(), error)
        })?;
        Ok(Some(set))
    }
}

struct Compiler<'c, 'p> {
    lists: &'c dyn Fn(&str) -> Option<&'p PatternList>,
    sets: SetSource<'c>,
    heads: Patterns,
    bodies: Patterns,
}

impl<'p> Compiler<'_, 'p> {
    fn rule(
        &mut self,
        at: (u32, u32),
        rule: &'p Rule,
        parts: &mut RegexParts,
    ) -> Result<HttpRule, HttpRuleError> {
        let (number, index) = at;
        let closes = rule.targets.contains(&Target::Close);
        let ends = closes || rule.targets.iter().any(|target| matches!(target, Target::Drop(_)));
        let mut compiled = HttpRule {
            number,
            constraints: Vec::new(),
            end: ends.then_some(HttpEnd { rule: number, closes }),
            head_edits: Vec::new(),
            body_edit: None,
            tail: Vec::new(),
            body_bits: 0,
            edit_bit: 0,
        };
        // An edit of what ends the connection has no effect.
        let action = self.targets(rule, &mut compiled).filter(|_| compiled.end.is_none());
        if compiled.tail.len() > MAX_TAIL_BYTES {
            return Err(HttpRuleError::LongTail(number, compiled.tail.len()));
        }
        for constraint in rule.stream_matches() {
            let Some(part) = part_of(constraint) else { continue };
            let place = compiled.constraints.len();
            if place == MAX_CONSTRAINTS {
                return Err(HttpRuleError::TooManyConstraints(number));
            }
            let pattern_use = PatternUse { rule: index, constraint: place as u8 };
            let test = self.test(number, pattern_use, (part, constraint), parts)?;
            if part == StreamPart::HttpBody {
                compiled.body_bits |= 1 << place;
                self.body(number, pattern_use, constraint, action.as_ref(), &mut compiled)?;
            }
            compiled.constraints.push(Constraint { negated: constraint.negated, test });
        }
        Ok(compiled)
    }

    /// Sorts the edits of a rule. Returns what becomes of matches in bodies.
    fn targets(&self, rule: &Rule, compiled: &mut HttpRule) -> Option<BodyAction> {
        let mut action = None;
        for target in &rule.targets {
            let Target::Edit(edit) = target else { continue };
            match edit {
                StreamEdit::Mask(_, text) if text.is_empty() => {
                    action = Some(BodyAction::Mask(b"*".to_vec()))
                }
                StreamEdit::Mask(_, text) => action = Some(BodyAction::Mask(text.clone())),
                StreamEdit::Mod(_, replacement) => action = Some(BodyAction::Replace(replacement.clone())),
                StreamEdit::Strip(_) => action = Some(BodyAction::Replace(Replacement::default())),
                StreamEdit::AddBody(tail) => compiled.tail.extend_from_slice(tail),
                StreamEdit::ModHeader(..)
                | StreamEdit::AddHeader(..)
                | StreamEdit::StripHeader(_)
                | StreamEdit::KeepHeader(_)
                | StreamEdit::ModHttp(..) => compiled.head_edits.push(edit.clone()),
            }
        }
        action
    }

    fn body(
        &mut self,
        number: u32,
        pattern_use: PatternUse,
        constraint: &Match,
        action: Option<&BodyAction>,
        compiled: &mut HttpRule,
    ) -> Result<(), HttpRuleError> {
        let kinds = self.kinds(number, constraint.test.patterns())?;
        let Some(action) = action.filter(|_| compiled.body_edit.is_none()) else {
            kinds.into_iter().for_each(|kind| self.bodies.add(kind, number, pattern_use));
            return Ok(());
        };
        let patterns: Vec<Pattern> =
            (0..).zip(kinds).map(|(id, (kind, ignores_case))| Pattern { kind, ignores_case, id }).collect();
        let patterns =
            self.sets.edits(&patterns).map_err(|error| HttpRuleError::Pattern(Some(number), error))?;
        let max = action.len_for(patterns.longest());
        if max > MAX_REPLACEMENT_BYTES {
            return Err(HttpRuleError::LongReplacement(number, max));
        }
        compiled.body_edit = Some(BodyEdit { patterns, action: action.clone() });
        compiled.edit_bit = 1 << pattern_use.constraint;
        Ok(())
    }

    fn test(
        &mut self,
        number: u32,
        pattern_use: PatternUse,
        (part, constraint): (StreamPart, &Match),
        parts: &mut RegexParts,
    ) -> Result<HttpTest, HttpRuleError> {
        let items = constraint.test.patterns();
        Ok(match (part, &constraint.test) {
            (StreamPart::HttpMethod, _) => {
                parts.method |= self.regexes(number, pattern_use, items);
                HttpTest::Method(self.texts(number, items)?)
            }
            (StreamPart::HttpHost, _) => {
                parts.host |= self.regexes(number, pattern_use, items);
                let mut hosts = HostSet::default();
                self.each_text(number, items, |text| hosts.add(text))?;
                HttpTest::Host(hosts)
            }
            (StreamPart::HttpUri, _) => {
                parts.uri |= self.regexes(number, pattern_use, items);
                HttpTest::Uri(self.texts(number, items)?)
            }
            (StreamPart::HttpStatus, Test::Number(cond, set)) => HttpTest::Status(*cond, set.clone()),
            (StreamPart::HttpHeader, Test::Header(name, values)) if values.is_empty() => {
                HttpTest::Header(name.clone(), HeaderValue::Any)
            }
            (StreamPart::HttpHeader, Test::Header(name, values)) => {
                parts.header |= self.regexes(number, pattern_use, values);
                HttpTest::Header(name.clone(), HeaderValue::Is(self.texts(number, values)?))
            }
            (StreamPart::HttpBody, _) => HttpTest::Body,
            // The bare `http`. The other parts of HTTP always have their tests.
            (StreamPart::Http | StreamPart::HttpStatus | StreamPart::HttpHeader, _) => HttpTest::Any,
            // `part_of` leaves these out.
            (StreamPart::Both | StreamPart::Forward | StreamPart::Reply, _) => HttpTest::Any,
            (StreamPart::ServerName, _) => HttpTest::Any,
        })
    }

    /// Adds the regexes among patterns to those for heads. Whether there are any.
    fn regexes(&mut self, number: u32, pattern_use: PatternUse, items: &[PatternItem]) -> bool {
        let before = self.heads.uses.len();
        for item in items {
            if let PatternItem::Regex(Regex { source, ignores_case }) = item {
                self.heads.add((PatternKind::Regex(source.clone()), *ignores_case), number, pattern_use);
            }
        }
        self.heads.uses.len() > before
    }

    fn texts(&self, number: u32, items: &[PatternItem]) -> Result<TextSet, HttpRuleError> {
        let mut texts = TextSet::default();
        self.each_text(number, items, |text| texts.add(text))?;
        Ok(texts)
    }

    /// Gives the texts among patterns, those of lists too.
    fn each_text(
        &self,
        number: u32,
        items: &[PatternItem],
        mut add: impl FnMut(&[u8]),
    ) -> Result<(), HttpRuleError> {
        for item in items {
            match item {
                PatternItem::Text(text) => add(text),
                PatternItem::List(name) => {
                    let list =
                        (self.lists)(name).ok_or_else(|| HttpRuleError::NoList(number, name.clone()))?;
                    list.patterns.iter().for_each(|text| add(text));
                }
                PatternItem::Regex(_) => {}
            }
        }
        Ok(())
    }

    /// All patterns in their order. Of patterns that are the same the first is taken.
    fn kinds(&self, number: u32, items: &[PatternItem]) -> Result<Vec<(PatternKind, bool)>, HttpRuleError> {
        let (mut kinds, mut known) = (Vec::new(), HashMap::new());
        let mut add = |kind: PatternKind, ignores_case: bool| {
            if known.insert((kind.clone(), ignores_case), ()).is_none() {
                kinds.push((kind, ignores_case));
            }
        };
        for item in items {
            match item {
                PatternItem::Regex(Regex { source, ignores_case }) => {
                    add(PatternKind::Regex(source.clone()), *ignores_case);
                }
                PatternItem::Text(_) | PatternItem::List(_) => {
                    self.each_text(number, std::slice::from_ref(item), |text| {
                        add(PatternKind::Text(text.to_vec()), false);
                    })?;
                }
            }
        }
        Ok(kinds)
    }
}
