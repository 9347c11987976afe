//! Checks the constraints of a rule as a conjunction: whether a packet can satisfy it, and whether its targets can ever apply.
//!
//! For each class of packets ([`PacketClass`]) the values that each field may have are intersected. The analysis is
//! sound but not complete: what it refuses cannot match, what it does not see through is taken. On a conflict
//! the constraints are thinned out to a smallest set that still conflicts, which is what the error talks about.

use super::packet_class::{PacketClass, PacketClasses, about, is_narrow};
use crate::diagnostic::{Diagnostic, TextSpan};
use crate::print::value::Print;
use crate::report::CheckReport;
use crate::syntax::RuleSyntax;
use mmb_policy::ct::{CtState, CtStates};
use mmb_policy::field::ones;
use mmb_policy::field::{BareMeaning, Field, FieldGroup, FieldId, FieldPlace, Implies, ValueKind};
use mmb_policy::intervals::Intervals;
use mmb_policy::rule::{Cond, Equality, Match, Reject, Target, Test};
use std::collections::HashMap;
use std::fmt::Write;

/// Rules with more constraints are checked by packet class only: the rest takes quadratic time.
const MANY: usize = 256;
/// Sets of texts with more pairs of members are not held against each other, for the same reason.
const MANY_PAIRS: usize = 1 << 12;
/// The most bytes of a constraint that errors repeat: a set may be as long as its command.
const MAX_TEXT_BYTES: usize = 200;

/// A constraint prepared for the analysis.
struct Fact<'m> {
    /// Classes of packets that can satisfy it.
    classes: PacketClasses,
    /// The rest of its content.
    predicate: Predicate<'m>,
    /// The constraint; `None` for what a target needs.
    source: Option<&'m Match>,
    field: Field,
}

/// The content of a constraint beside its packet classes.
enum Predicate<'m> {
    /// Nothing more.
    Nothing,
    /// The field's value, at a fixed place, is in the set.
    Value { bit: u16, width: u8, allowed: Intervals },
    /// The optional field is there, and its value, if it has one, in the set.
    There(Option<Intervals>),
    /// The optional field is not there.
    Absent,
    /// The optional field is not there, or its value in the set.
    AbsentOr(Option<Intervals>),
    /// A payload begins with one of these.
    Begins(&'m [Vec<u8>]),
    /// A payload begins with none of these; `true`: and is there.
    BeginsNot(&'m [Vec<u8>], bool),
    /// The port's name is, or is not, one of these.
    Port(&'m [String], bool),
}

impl<'m> Fact<'m> {
    fn new(m: &'m Match) -> Fact<'m> {
        let info = m.field.info();
        let predicate = match (&m.test, info.place) {
            // By itself: `states`.
            (_, FieldPlace::Connection) => Predicate::Nothing,
            // What packets carry later says nothing about the first one's header.
            (_, FieldPlace::Stream(_)) => Predicate::Nothing,
            (Test::Port(equality, names), _) => {
                Predicate::Port(names, (*equality == Equality::Eq) != m.negated)
            }
            (Test::Bytes(equality, strings), FieldPlace::Payload(_)) => match (equality, m.negated) {
                (Equality::Eq, false) => Predicate::Begins(strings),
                (Equality::Eq, true) => Predicate::BeginsNot(strings, false),
                (Equality::Ne, false) => Predicate::BeginsNot(strings, true),
                // Not (there and different): nothing that is worth a thought.
                (Equality::Ne, true) => Predicate::Nothing,
            },
            (Test::Present, _) if info.alone == BareMeaning::Optional => {
                if m.negated {
                    Predicate::Absent
                } else {
                    Predicate::There(None)
                }
            }
            (Test::Present, FieldPlace::Key { bit, width }) => match info.alone {
                BareMeaning::Equals(value) => {
                    let is = Intervals::one(value.into());
                    let allowed = if m.negated { is.complement(ones(width)) } else { is };
                    Predicate::Value { bit, width, allowed }
                }
                BareMeaning::Protocol | BareMeaning::Optional => Predicate::Nothing,
            },
            (Test::Number(cond, set), FieldPlace::Key { bit, width }) => {
                let max = ones(width);
                let is = Intervals::compared(*cond, set, width);
                match (info.alone, m.negated) {
                    (BareMeaning::Optional, false) => Predicate::There(Some(is)),
                    (BareMeaning::Optional, true) => Predicate::AbsentOr(Some(is.complement(max))),
                    (_, false) => Predicate::Value { bit, width, allowed: is },
                    (_, true) => Predicate::Value { bit, width, allowed: is.complement(max) },
                }
            }
            // What is in a set may change.
            (Test::NamedSet(..), _) if info.alone == BareMeaning::Optional && !m.negated => Predicate::There(None),
            (Test::NamedSet(..), _) => Predicate::Nothing,
            // Options: several of one kind may be there, so that values say nothing about each other.
            (
                Test::Present | Test::Number(..) | Test::Bytes(..) | Test::Patterns(_) | Test::Header(..),
                FieldPlace::AnyOption | FieldPlace::Option(_) | FieldPlace::NamedOption,
            )
            // The checker gives no such tests to the others.
            | (Test::Present | Test::Number(..) | Test::Patterns(_) | Test::Header(..), FieldPlace::Payload(_))
            | (Test::Bytes(..) | Test::Patterns(_) | Test::Header(..), FieldPlace::Key { .. }) => {
                if m.negated { Predicate::AbsentOr(None) } else { Predicate::There(None) }
            }
        };
        Fact { classes: PacketClasses::of(info.implies), predicate, source: Some(m), field: m.field }
    }

    /// The condition under which a target can write `field`.
    fn needed(field: Field) -> Fact<'static> {
        let info = field.info();
        // An option may have been added by another rule; a tag or a payload is there or never will be.
        let predicate = match (info.alone, field.option_kind()) {
            (BareMeaning::Optional, None) if field.id != FieldId::TcpOpt => Predicate::There(None),
            _ => Predicate::Nothing,
        };
        Fact { classes: PacketClasses::of(info.implies), predicate, source: None, field }
    }

    fn requires_presence(&self) -> bool {
        matches!(self.predicate, Predicate::There(_) | Predicate::Begins(_) | Predicate::BeginsNot(_, true))
    }
}

/// The constraints of a rule, to be compared with those of another one.
pub(crate) struct Conjunction {
    matches: Vec<Match>,
    /// The same constraints, each negated.
    negated: Vec<Match>,
    /// Packets of these classes may satisfy it.
    classes: PacketClasses,
}

impl Conjunction {
    /// The constraints of a checked rule. Those on `ct` are left out.
    pub(crate) fn of(matches: &[Match]) -> Conjunction {
        let matches: Vec<Match> = matches.iter().filter(|m| m.field.id != FieldId::Ct).cloned().collect();
        let negated = matches.iter().map(|m| Match { negated: !m.negated, ..m.clone() }).collect();
        let facts: Vec<Fact<'_>> = matches.iter().map(Fact::new).collect();
        let all: Vec<&Fact<'_>> = facts.iter().collect();
        let classes = possible_classes(&all);
        let classes = classes.filter(|class| matches.len() > MANY || values(class, &all));
        Conjunction { matches, negated, classes }
    }

    /// Returns whether [`Conjunction::implies`] is worth a try. Only fields with less than their full range in some packets can follow from
    /// constraints on other fields.
    pub(crate) fn may_be_implied_by(&self, other: &Conjunction) -> bool {
        let is_there = |m: &Match| is_narrow(m.field.id) || other.matches.iter().any(|o| o.field == m.field);
        other.classes.intersect(self.classes) == other.classes && self.matches.iter().all(is_there)
    }

    /// Returns whether every packet that satisfies these constraints satisfies the others: none satisfies these and the negation of one of the
    /// others. Within the classes of the others, the negation of a constraint holds for all packets that do not satisfy it.
    pub(crate) fn implies(&self, others: &Conjunction) -> bool {
        let facts: Vec<Fact<'_>> = self.matches.iter().map(Fact::new).collect();
        let satisfied = |no: &Match| {
            let no = Fact::new(no);
            let all: Vec<&Fact<'_>> = facts.iter().chain([&no]).collect();
            all.len() <= MANY && !possible(&all)
        };
        self.classes.intersect(others.classes) == self.classes && others.negated.iter().all(satisfied)
    }
}

/// Reports a rule that can match nothing, and targets that can never apply.
pub(super) fn check(
    syntax: &RuleSyntax<'_>,
    matches: &[Match],
    targets: &[Target],
    report: &mut CheckReport<'_>,
) {
    if let Some(error) = states(syntax, matches) {
        report.error(error);
        return;
    }
    if targets.iter().all(|target| written(target).is_none()) && plainly_possible(matches) {
        return;
    }
    let facts: Vec<Fact<'_>> = matches.iter().map(Fact::new).collect();
    let all: Vec<&Fact<'_>> = facts.iter().collect();
    if !possible(&all) {
        let core = thin_out(all);
        let at = core.last().and_then(|fact| span_of(fact, syntax, matches));
        let message = format!("{} can never match: {}", subject(syntax), reason(&core));
        report.error(Diagnostic::new(at.unwrap_or_default(), message));
        return;
    }
    let classes = all.iter().fold(PacketClasses::of(Implies::Frame), |w, fact| w.intersect(fact.classes));
    let never = |field: Field| {
        let needed = Fact::needed(field);
        let granted =
            classes.0 & needed.classes.0 == classes.0 && matches!(needed.predicate, Predicate::Nothing);
        let with: Vec<&Fact<'_>> = all.iter().copied().chain([&needed]).collect();
        (!granted && !possible(&with)).then(|| reason(&thin_out(with)))
    };
    // Targets may be very many, fields are few.
    let mut known: HashMap<Field, Option<String>> = HashMap::new();
    for (target, at) in targets.iter().zip(&syntax.targets) {
        let Some(field) = written(target) else { continue };
        if let Some(reason) = known.entry(field).or_insert_with(|| never(field)) {
            report.error(Diagnostic::new(at.span, format!("this target can never apply: {reason}")));
        }
    }
}

/// The error of a rule whose `ct` constraints no packet satisfies.
fn states(syntax: &RuleSyntax<'_>, matches: &[Match]) -> Option<Diagnostic> {
    let last = matches.iter().rposition(|m| m.field.id == FieldId::Ct)?;
    let asked = CtStates::asked_by(matches.iter());
    let reason = if asked.is_empty() {
        "no packet has all these states of `ct`"
    } else if syntax.stateful && !asked.has(CtState::New) {
        "a stateful rule is asked about the first packet of a connection, which is `ct new`"
    } else {
        return None;
    };
    let at = syntax.matches.get(last).map_or(TextSpan::default(), |m| m.span);
    Some(Diagnostic::new(at, format!("{} can never match: {reason}", subject(syntax))))
}

/// Returns whether a rule is so plain that it needs no analysis: each constraint gives values of a field that has its full range
/// in all packets, of bytes that no other constraint is about. Most of the rules of large policies are.
fn plainly_possible(matches: &[Match]) -> bool {
    let mut classes = PacketClasses::of(Implies::Ip);
    let mut seen = 0;
    matches.iter().all(|m| {
        let info = m.field.info();
        let (FieldPlace::Key { bit, width }, Test::Number(Cond::Eq, _), false) =
            (info.place, &m.test, m.negated)
        else {
            return false;
        };
        let (first, last) = (bit / 8, (bit + u16::from(width) - 1) / 8);
        let bytes = ones((last - first + 1) as u8) << first;
        let apart = seen & bytes == 0;
        seen |= bytes;
        classes = classes.intersect(PacketClasses::of(info.implies));
        apart && info.alone != BareMeaning::Optional && !is_narrow(m.field.id)
    }) && !classes.is_empty()
}

/// The field that a target writes, or that the packets have to which it applies.
fn written(target: &Target) -> Option<Field> {
    match target {
        Target::Mod(field, _) | Target::Map(field, _) | Target::Shuffle(field, _) | Target::Lb(field, ..) => {
            Some(*field)
        }
        Target::AddOption(kind, _) | Target::Strip(kind) => Some(Field::option(*kind)),
        Target::Keep(_) | Target::StripAll => Some(Field::new(FieldId::TcpOpt)),
        Target::Reject(Reject::TcpRst) | Target::Helper(_) => Some(Field::new(FieldId::TcpFlags)),
        Target::Drop(_)
        | Target::Reject(Reject::Usual | Reject::Icmp(_) | Reject::Icmp6(_))
        | Target::Accept
        | Target::Limit(_)
        | Target::Log(_)
        | Target::Alert(_)
        | Target::Close
        | Target::Digest
        | Target::Edit(_) => None,
    }
}

fn span_of(fact: &Fact<'_>, syntax: &RuleSyntax<'_>, matches: &[Match]) -> Option<TextSpan> {
    let source = fact.source?;
    let at = matches.iter().position(|m| std::ptr::eq(m, source))?;
    syntax.matches.get(at).map(|m| m.span)
}

/// A smallest set of the facts that is still impossible.
fn thin_out<'f, 'm>(mut facts: Vec<&'f Fact<'m>>) -> Vec<&'f Fact<'m>> {
    if facts.len() > MANY {
        return facts;
    }
    let mut at = 0;
    while at < facts.len() {
        let fact = facts.remove(at);
        if possible(&facts) {
            facts.insert(at, fact);
            at += 1;
        }
    }
    facts
}

/// Returns whether some packet may satisfy all the facts.
fn possible(facts: &[&Fact<'_>]) -> bool {
    let classes = possible_classes(facts);
    if facts.len() > MANY {
        return !classes.is_empty();
    }
    optional_fields(facts)
        && ports(facts)
        && opposites(facts)
        && classes.iter().any(|class| values(class, facts))
}

/// The classes of packets that each of the facts allows.
fn possible_classes(facts: &[&Fact<'_>]) -> PacketClasses {
    let classes = facts.iter().fold(PacketClasses::of(Implies::Frame), |w, fact| w.intersect(fact.classes));
    if facts.iter().any(|fact| fact.field.id == FieldId::EthType) {
        return classes;
    }
    classes.intersect(PacketClasses::of(Implies::Ip))
}

/// Returns whether packets of a class may have values that satisfy the facts.
fn values(class: PacketClass, facts: &[&Fact<'_>]) -> bool {
    let mut places: Vec<(u16, u8, Intervals)> = Vec::new();
    let restrict = |places: &mut Vec<(u16, u8, Intervals)>, bit, width, allowed: &Intervals| match places
        .iter_mut()
        .find(|place| (place.0, place.1) == (bit, width))
    {
        Some(place) => place.2 = place.2.intersect(allowed),
        None => places.push((bit, width, allowed.clone())),
    };
    for fact in facts {
        if let Predicate::Value { bit, width, allowed } = &fact.predicate {
            restrict(&mut places, *bit, *width, allowed);
            if let Some(possible) = class.values(fact.field.id) {
                restrict(&mut places, *bit, *width, &possible);
            }
        }
        // An option needs room behind the fixed header.
        if fact.requires_presence()
            && fact.field.info().group == FieldGroup::TcpOption
            && let FieldPlace::Key { bit, width } = FieldId::TcpOffset.info().place
        {
            restrict(&mut places, bit, width, &Intervals::range(6, 15));
        }
    }
    places.iter().all(|(.., allowed)| !allowed.is_empty()) && overlaps(&places) && extension_headers(&places)
}

/// Returns whether fields of a byte and the bits inside them can agree: `tcp-flags` and `tcp-syn`.
fn overlaps(places: &[(u16, u8, Intervals)]) -> bool {
    places.iter().filter(|(_, width, _)| *width <= 8).all(|(bit, width, allowed)| {
        let inside: Vec<_> = places
            .iter()
            .filter(|(b, w, _)| w < width && b >= bit && b + u16::from(*w) <= bit + u16::from(*width))
            .collect();
        inside.is_empty()
            || (0..=ones(*width)).filter(|&n| allowed.contains(n)).any(|n| {
                inside.iter().all(|(b, w, allowed)| {
                    let below = bit + u16::from(*width) - b - u16::from(*w);
                    allowed.contains(n >> below & ones(*w))
                })
            })
    })
}

/// Returns whether "any extension header" agrees with the single ones.
fn extension_headers(places: &[(u16, u8, Intervals)]) -> bool {
    let bit_of = |id: FieldId| id.info().place.key_bits().map_or(0, |(bit, _)| bit);
    let is = |bit: u16, value: u128| {
        places.iter().any(|(b, w, allowed)| *b == bit && *w == 1 && !allowed.contains(1 - value))
    };
    let any = bit_of(FieldId::Ip6Eh);
    let mut single = mmb_policy::FIELDS
        .iter()
        .filter(|info| info.group == FieldGroup::Ip6Extension && info.id != FieldId::Ip6Eh);
    if is(any, 0) {
        !single.any(|info| is(bit_of(info.id), 1))
    } else {
        !is(any, 1) || !single.all(|info| is(bit_of(info.id), 0))
    }
}

/// Returns whether optional fields can be present and absent as all the facts require.
fn optional_fields(facts: &[&Fact<'_>]) -> bool {
    let place = |fact: &Fact<'_>| (fact.field.info().place, fact.field.kind);
    facts.iter().filter(|fact| matches!(fact.predicate, Predicate::Absent)).all(|absent| {
        !facts.iter().any(|fact| {
            let no_options =
                absent.field.id == FieldId::TcpOpt && !matches!(fact.field.option_kind(), None | Some(0 | 1));
            fact.requires_presence() && (place(fact) == place(absent) || no_options)
        })
    }) && tags(facts)
        && beginnings(facts)
}

/// Returns whether the VLAN id can have the required values.
fn tags(facts: &[&Fact<'_>]) -> bool {
    let mut there = false;
    let mut allowed = Intervals::of_width(12);
    for fact in facts.iter().filter(|fact| fact.field.id == FieldId::VlanId) {
        there |= fact.requires_presence();
        if let Predicate::There(Some(values)) | Predicate::AbsentOr(Some(values)) = &fact.predicate {
            allowed = allowed.intersect(values);
        }
    }
    !there || !allowed.is_empty()
}

/// Returns whether payloads can begin with the required bytes.
fn beginnings(facts: &[&Fact<'_>]) -> bool {
    let place = |fact: &Fact<'_>| fact.field.info().place;
    facts.iter().enumerate().all(|(at, fact)| {
        let Predicate::Begins(ours) = fact.predicate else { return true };
        facts.iter().enumerate().filter(|(_, other)| place(other) == place(fact)).all(|(other_at, other)| {
            match other.predicate {
                Predicate::Begins(theirs) | Predicate::BeginsNot(theirs, _) if too_many(ours, theirs) => true,
                Predicate::Begins(theirs) if at < other_at => {
                    ours.iter().any(|a| theirs.iter().any(|b| a.starts_with(b) || b.starts_with(a)))
                }
                Predicate::BeginsNot(not, _) => ours.iter().any(|a| !not.iter().any(|b| a.starts_with(b))),
                _ => true,
            }
        })
    })
}

fn too_many<T>(ours: &[T], theirs: &[T]) -> bool {
    ours.len().saturating_mul(theirs.len()) > MANY_PAIRS
}

/// Returns whether a port can have the required names.
fn ports(facts: &[&Fact<'_>]) -> bool {
    [FieldId::In, FieldId::Out].into_iter().all(|id| {
        let mut sets =
            facts.iter().filter(|fact| fact.field.id == id).filter_map(|fact| match fact.predicate {
                Predicate::Port(names, is) => Some((names, is)),
                _ => None,
            });
        let sets: Vec<_> = sets.by_ref().collect();
        let Some((names, _)) = sets.iter().find(|(_, is)| *is) else { return true };
        sets.iter().any(|(others, _)| too_many(names, others))
            || names.iter().any(|name| sets.iter().all(|(names, is)| names.contains(name) == *is))
    })
}

/// Returns whether no constraint is the negation of another one, word by word.
fn opposites(facts: &[&Fact<'_>]) -> bool {
    let negated: Vec<_> = facts.iter().filter_map(|fact| fact.source).filter(|m| m.negated).collect();
    negated.iter().all(|no| {
        !facts
            .iter()
            .filter_map(|fact| fact.source)
            .any(|m| !m.negated && m.field == no.field && m.test == no.test)
    })
}

/// What the constraints are of, for messages: a filter of packets has no targets.
fn subject(syntax: &RuleSyntax<'_>) -> &'static str {
    if syntax.targets.is_empty() { "this filter" } else { "this rule" }
}

/// The reason why a smallest set of facts is impossible, as a text for people.
fn reason(core: &[&Fact<'_>]) -> String {
    let text = |fact: &Fact<'_>| match fact.source {
        Some(m) => format!("`{}`", short(m)),
        None => format!("`{}`", fact.field),
    };
    match core {
        [fact] => alone(fact, &text(fact)),
        [a, b] => {
            let (a_text, b_text) = (text(a), text(b));
            pair(a, &a_text, b, &b_text)
        }
        _ => {
            let mut texts: Vec<_> = core.iter().take(8).map(|fact| text(fact)).collect();
            let last = texts.pop().unwrap_or_default();
            format!("{} and {last} cannot all hold", texts.join(", "))
        }
    }
}

/// A constraint as text; of a long one, the beginning.
fn short(constraint: &Match) -> String {
    struct TextPrefix(String);
    impl Write for TextPrefix {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            let room = MAX_TEXT_BYTES - self.0.len();
            self.0.push_str(&text[..text.floor_char_boundary(room)]);
            if text.len() <= room { Ok(()) } else { Err(std::fmt::Error) }
        }
    }
    let mut beginning = TextPrefix(String::new());
    // What is refused is the rest.
    let whole = write!(beginning, "{}", constraint.text()).is_ok();
    beginning.0 + if whole { "" } else { "…" }
}

/// The reason why a constraint is impossible by itself.
fn alone(fact: &Fact<'_>, text: &str) -> String {
    let field = fact.field;
    let range = field.info().max().and_then(|max| {
        fact.classes
            .iter()
            .map(|class| class.values(field.id).unwrap_or_else(|| Intervals::range(0, max)))
            .reduce(|a, b| a.union(&b))
            .and_then(|values| in_words(&values))
    });
    match range {
        Some(range) if field.info().values == ValueKind::Number => {
            format!("{text} never holds, `{field}` is {range}")
        }
        _ => format!("{text} never holds"),
    }
}

/// A set in words, if it has few parts.
fn in_words(set: &Intervals) -> Option<String> {
    let part = |&(first, last): &(u128, u128)| match (first, last) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first} to {last}"),
    };
    match set.as_slice() {
        [(first, last)] if first == last => Some(format!("always {first}")),
        [one] => Some(part(one)),
        [one, two] => Some(format!("{} or {}", part(one), part(two))),
        _ => None,
    }
}

/// The reason why two constraints exclude each other.
fn pair(a: &Fact<'_>, a_text: &str, b: &Fact<'_>, b_text: &str) -> String {
    let (a_info, b_info) = (a.field.info(), b.field.info());
    if a.classes.intersect(b.classes).is_empty() {
        return format!(
            "{a_text} is about {}, {b_text} about {}",
            about(a_info.implies),
            about(b_info.implies)
        );
    }
    if a.field == b.field {
        return match a_info.alone {
            BareMeaning::Optional => format!("{a_text} and {b_text} exclude each other"),
            BareMeaning::Protocol | BareMeaning::Equals(_) => {
                format!("no value of `{}` satisfies both {a_text} and {b_text}", a.field)
            }
        };
    }
    if let (Predicate::Value { bit, width, .. }, Predicate::Value { bit: b_bit, width: b_width, .. }) =
        (&a.predicate, &b.predicate)
        && *bit < b_bit + u16::from(*b_width)
        && *b_bit < bit + u16::from(*width)
    {
        return format!("{a_text} and {b_text} ask for different values of the same bits");
    }
    for (offset, offset_text, option, option_text) in [(a, a_text, b, b_text), (b, b_text, a, a_text)] {
        if offset.field.id == FieldId::TcpOffset && option.field.info().group == FieldGroup::TcpOption {
            return format!("{offset_text} leaves no room for the option that {option_text} asks for");
        }
    }
    let class_fields = [FieldId::IpProto, FieldId::NetProto, FieldId::EthType, FieldId::Ip6Next];
    let excludes =
        |by: &str, what: &str, implies| format!("{what} is about {}, which {by} excludes", about(implies));
    if class_fields.contains(&a.field.id) {
        return excludes(a_text, b_text, b_info.implies);
    }
    if class_fields.contains(&b.field.id) {
        return excludes(b_text, a_text, a_info.implies);
    }
    if a.field.id == FieldId::IpFragOffset {
        return format!("{a_text} is about later fragments, which have no transport header for {b_text}");
    }
    if b.field.id == FieldId::IpFragOffset {
        return format!("{b_text} is about later fragments, which have no transport header for {a_text}");
    }
    format!("{a_text} and {b_text} exclude each other")
}
