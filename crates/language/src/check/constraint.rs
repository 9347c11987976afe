//! Checks one constraint: reads its value and refuses a test that its field does not allow.

use super::stream;
use crate::diagnostic::Diagnostic;
use crate::number::numbers;
use crate::report::CheckReport;
use crate::syntax::MatchSyntax;
use crate::syntax::value::{ItemKind, ItemSyntax, ValueSyntax};
use crate::value::{self, MAX_OPTION_DATA_BYTES, MAX_PAYLOAD};
use mmb_policy::ElementKind;
use mmb_policy::field::{BareMeaning, Field, FieldPlace, ValueKind};
use mmb_policy::rule::{Cond, Equality, Match, NumberItem, Test};

/// Checks a constraint by itself.
pub(super) fn resolve(syntax: &MatchSyntax<'_>, report: &mut CheckReport<'_>) -> Option<Match> {
    let field = syntax.field.field;
    let test = match &syntax.value {
        Some(value) => test(syntax, value, report)?,
        None => alone(syntax, report)?,
    };
    Some(Match { negated: syntax.negated, field, test })
}

fn alone(syntax: &MatchSyntax<'_>, report: &mut CheckReport<'_>) -> Option<Test> {
    let field = syntax.field.field;
    let info = field.info();
    let needed = match info.values {
        ValueKind::Port => Some("the name of a port"),
        ValueKind::State => Some("a state"),
        ValueKind::Pattern => Some("a pattern"),
        ValueKind::ServerName => Some("a name"),
        ValueKind::Method => Some("a method"),
        ValueKind::Number if matches!(info.place, FieldPlace::Stream(_)) => Some("a number"),
        ValueKind::Header => {
            stream::negation(syntax, report)?;
            return Some(Test::Header(stream::header_name(&syntax.field, report)?, Vec::new()));
        }
        ValueKind::Nothing if matches!(info.place, FieldPlace::Stream(_)) => {
            stream::negation(syntax, report)?;
            None
        }
        ValueKind::Number | ValueKind::Ip4 | ValueKind::Ip6 => None,
        ValueKind::OptionData(_) | ValueKind::Bytes | ValueKind::Nothing => None,
    };
    if let Some(what) = needed {
        let error = Diagnostic::new(syntax.span, format!("`{field}` needs {what}"));
        report.error(error.expected(value::expectation(info)));
        return None;
    }
    if syntax.negated && info.alone == BareMeaning::Protocol {
        let message = format!("`! {field}` can never match: {}", super::packet_class::always_has(field));
        report.error(Diagnostic::new(syntax.span, message).expected(format!("a value behind `{field}`")));
        return None;
    }
    Some(Test::Present)
}

fn test(syntax: &MatchSyntax<'_>, value: &ValueSyntax<'_>, report: &mut CheckReport<'_>) -> Option<Test> {
    let field = syntax.field.field;
    let cond = syntax.cond.map_or(Cond::Eq, |(cond, _)| cond);
    match field.info().values {
        ValueKind::Nothing => {
            let message = format!("`{field}` takes no value: it is there or not");
            let error = Diagnostic::new(value.span(), message);
            let is_option = field == Field::new(mmb_policy::FieldId::TcpOpt);
            report.error(if is_option {
                error.expected("the option's kind right behind `tcp-opt`, as in `tcp-opt 22`")
            } else if field.stream_part().is_some() {
                error.expected(format!("`{field}` alone, or a field of its parts such as `http-host`"))
            } else {
                error.expected(format!("`{field}` or `! {field}`"))
            });
            None
        }
        ValueKind::Port => ports(syntax, value, report),
        ValueKind::State => {
            let cond = if equality(syntax, "states", report)? == Equality::Eq { Cond::Eq } else { Cond::Ne };
            Some(Test::Number(cond, numbers(&syntax.field, value, report)?))
        }
        ValueKind::Bytes => bytes(syntax, value, report),
        ValueKind::OptionData(_) => match value.items().first()?.kind {
            ItemKind::Bytes(_) => bytes(syntax, value, report),
            ItemKind::Replacement(_) => bytes(syntax, value, report),
            ItemKind::Word(_) | ItemKind::Regex(_) => number(syntax, cond, value, report),
        },
        ValueKind::Number | ValueKind::Ip4 | ValueKind::Ip6 => number(syntax, cond, value, report),
        ValueKind::Header => {
            let name = stream::header_name(&syntax.field, report);
            let patterns = stream::patterns(syntax, value, report);
            Some(Test::Header(name?, patterns?))
        }
        ValueKind::Pattern | ValueKind::ServerName | ValueKind::Method => {
            stream::patterns(syntax, value, report).map(Test::Patterns)
        }
    }
}

fn number(
    syntax: &MatchSyntax<'_>,
    cond: Cond,
    value: &ValueSyntax<'_>,
    report: &mut CheckReport<'_>,
) -> Option<Test> {
    if matches!(syntax.field.field.option_kind(), Some(0 | 1)) {
        report.error(padding_has_no_data(syntax, value));
        return None;
    }
    if let Some(item) = value.items().iter().find(|item| set_name(item).is_some()) {
        return named_set(syntax, item, value, report);
    }
    let set = numbers(&syntax.field, value, report)?;
    let single = matches!(set.0[..], [NumberItem::One(_)]);
    if !single && !matches!(cond, Cond::Eq | Cond::Ne) {
        let message = "sets, ranges and prefixes are compared only with `==` and `!=`";
        report.error(Diagnostic::new(syntax.cond.map_or(value.span(), |(_, span)| span), message));
        return None;
    }
    Some(Test::Number(cond, set))
}

/// The name behind the `@` of a named set.
fn set_name<'t>(item: &ItemSyntax<'t>) -> Option<&'t str> {
    let ItemKind::Word(word) = item.kind else { return None };
    word.strip_prefix('@')
}

/// Checks a constraint with a named set in its value. Whether there is such a set, and whether it fits, the policy tells.
fn named_set(
    syntax: &MatchSyntax<'_>,
    item: &ItemSyntax<'_>,
    value: &ValueSyntax<'_>,
    report: &mut CheckReport<'_>,
) -> Option<Test> {
    let field = syntax.field.field;
    let name = set_name(item)?;
    if ElementKind::of_field(field).is_none() {
        let message = format!("`{field}` cannot be compared with a named set");
        report.error(Diagnostic::new(item.span, message).expected(value::expectation(field.info())));
        return None;
    }
    if !stream::is_list_name(name) {
        let error = Diagnostic::new(item.span, format!("`@{name}` is no name of a set"));
        report.error(error.expected("letters, digits, `-`, `_` and `.` behind the `@`"));
        return None;
    }
    if value.items().len() > 1 {
        let error = Diagnostic::new(item.span, "a named set stands alone");
        report.error(error.expected(format!("`@{name}` without braces, and other values in the set itself")));
        return None;
    }
    Some(Test::NamedSet(equality(syntax, "named sets", report)?, name.to_owned()))
}

fn padding_has_no_data(syntax: &MatchSyntax<'_>, value: &ValueSyntax<'_>) -> Diagnostic {
    let field = syntax.field.field;
    Diagnostic::new(value.span(), format!("`{field}` is padding of one byte and has no data"))
        .expected(format!("`{field}` without a value"))
}

/// The equality that a condition is, or the error that it must be one.
fn equality(syntax: &MatchSyntax<'_>, what: &str, report: &mut CheckReport<'_>) -> Option<Equality> {
    match syntax.cond {
        None | Some((Cond::Eq, _)) => Some(Equality::Eq),
        Some((Cond::Ne, _)) => Some(Equality::Ne),
        Some((_, span)) => {
            let message = format!("{what} are compared only with `==` and `!=`");
            report.error(Diagnostic::new(span, message).expected("`==` or `!=`"));
            None
        }
    }
}

fn ports(syntax: &MatchSyntax<'_>, value: &ValueSyntax<'_>, report: &mut CheckReport<'_>) -> Option<Test> {
    let mut names = Vec::new();
    for item in value.items() {
        match item.kind {
            ItemKind::Word(name) => names.push(name.to_owned()),
            ItemKind::Bytes(_) | ItemKind::Replacement(_) | ItemKind::Regex(_) => {
                let error = Diagnostic::new(item.span, "a port's name is a word, without quotes");
                report.error(error.expected("the name of a port"));
            }
        }
    }
    let equality = equality(syntax, "names of ports", report)?;
    (names.len() == value.items().len()).then_some(Test::Port(equality, names))
}

fn bytes(syntax: &MatchSyntax<'_>, value: &ValueSyntax<'_>, report: &mut CheckReport<'_>) -> Option<Test> {
    let field = syntax.field.field;
    let is_option = field.option_kind().is_some();
    let mut strings = Vec::new();
    for item in value.items() {
        let error = match item.kind {
            ItemKind::Bytes(bytes) if matches!(field.option_kind(), Some(0 | 1)) && !bytes.is_empty() => {
                padding_has_no_data(syntax, value)
            }
            ItemKind::Bytes([]) if !is_option => {
                Diagnostic::new(item.span, "nothing to compare with: every payload begins with no bytes")
                    .expected(format!("at least one byte, or `{field}` alone for any payload"))
            }
            ItemKind::Bytes(bytes) if is_option && bytes.len() > MAX_OPTION_DATA_BYTES => {
                let message =
                    format!("{} bytes: no TCP option has more than {MAX_OPTION_DATA_BYTES}", bytes.len());
                Diagnostic::new(item.span, message)
            }
            ItemKind::Bytes(bytes) if !is_option && bytes.len() > MAX_PAYLOAD => {
                let message = format!("{} bytes: no packet has more than {MAX_PAYLOAD}", bytes.len());
                Diagnostic::new(item.span, message)
            }
            ItemKind::Bytes(bytes) => {
                strings.push(bytes.to_vec());
                continue;
            }
            ItemKind::Replacement(_) => value::nothing_matched(item.span),
            ItemKind::Regex(_) => Diagnostic::new(item.span, "a regex is searched for in streams only")
                .expected(value::expectation(field.info())),
            ItemKind::Word(word) if is_option => {
                Diagnostic::new(item.span, format!("`{word}` stands among bytes"))
                    .expected("a set of numbers or a set of bytes, not both")
            }
            ItemKind::Word(word) => {
                Diagnostic::new(item.span, format!("`{word}` is neither a text nor bytes"))
                    .expected(value::expectation(field.info()))
                    .suggest(Some(value::quoted(word)))
            }
        };
        report.error(error);
    }
    let equality = equality(syntax, "payloads and bytes of options", report)?;
    (strings.len() == value.items().len()).then_some(Test::Bytes(equality, strings))
}
