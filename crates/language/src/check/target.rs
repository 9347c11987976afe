//! Targets: what each may write, and which do not go together in one rule.

use super::constraint::{MAX_OPTION_DATA, MAX_PAYLOAD};
use super::number::{number_item, numbers};
use super::report::CheckReport;
use crate::diagnostic::{Diagnostic, TextSpan};
use crate::syntax::{FieldSyntax, ItemKind, ItemSyntax, RuleSyntax, TargetKind, TargetSyntax, ValueSyntax};
use crate::value;
use mmb_policy::field::{FIELDS, Field, FieldInfo, ValueKind, Writable};
use mmb_policy::rule::{DropRate, NumberItem, NumberSet, Target, Write};

/// Checks a target by itself.
pub(super) fn resolve(syntax: &TargetSyntax<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    Some(match &syntax.kind {
        TargetKind::Mod(field, value) => modify(field, value, report)?,
        TargetKind::Add(field, value) => add(field, value.as_ref(), report)?,
        TargetKind::Strip(field) => Target::Strip(option_kind(field, "strip", report)?),
        TargetKind::Keep(field) => Target::Keep(option_kind(field, "strip !", report)?),
        TargetKind::StripAll => Target::StripAll,
        TargetKind::Drop(None) => Target::Drop(DropRate::ALL),
        TargetKind::Drop(Some(percent)) => Target::Drop(percentage(percent, report)?),
        TargetKind::Accept => Target::Accept,
        TargetKind::Map(field, value) => {
            bindable(field, "map", |info| info.bindings.map, report)?;
            Target::Map(field.field, numbers(field, value, report)?)
        }
        TargetKind::Shuffle(field, value) => {
            bindable(field, "shuffle", |info| info.bindings.shuffle, report)?;
            let range = match value {
                Some(value) => Some(range(field, value, report)?),
                None => None,
            };
            Target::Shuffle(field.field, range)
        }
        TargetKind::Lb(field, value, method) => {
            bindable(field, "lb", |info| info.bindings.lb, report)?;
            Target::Lb(field.field, numbers(field, value, report)?, method.unwrap_or_default())
        }
    })
}

fn percentage(percent: &ItemSyntax<'_>, report: &mut CheckReport<'_>) -> Option<DropRate> {
    let ItemKind::Word(word) = percent.kind else { return None };
    let rate = value::percentage(word);
    if rate.is_none() {
        let error = Diagnostic::new(percent.span, format!("`{word}` is no percentage"));
        report.error(error.expected("0 to 100 in steps of 0.001"));
    }
    rate
}

/// The value of a target that takes exactly one.
fn one<'v, 't>(
    field: &FieldSyntax,
    value: &'v ValueSyntax<'t>,
    report: &mut CheckReport<'_>,
) -> Option<&'v ItemSyntax<'t>> {
    match value.items() {
        [item] => Some(item),
        _ => {
            let error = Diagnostic::new(value.span(), "a set cannot be written");
            report.error(error.expected(format!("one value of `{}`", field.field)));
            None
        }
    }
}

/// The one number of a target that takes exactly one.
fn one_number(field: &FieldSyntax, item: &ItemSyntax<'_>, report: &mut CheckReport<'_>) -> Option<u128> {
    match number_item(field.field, &field.field, item, report)? {
        NumberItem::One(n) => Some(n),
        NumberItem::Range(..) | NumberItem::Prefix(..) => {
            let error = Diagnostic::new(item.span, "a range or prefix cannot be written");
            report.error(error.expected(format!("one value of `{}`", field.field)));
            None
        }
    }
}

fn modify(field: &FieldSyntax, value: &ValueSyntax<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    let name = field.field;
    let info = name.info();
    match info.writable {
        Writable::No(reason) => {
            report.error(Diagnostic::new(field.span, format!("`{name}` cannot be written: {reason}")));
            None
        }
        Writable::InPlace | Writable::Raw => {
            let item = one(field, value, report)?;
            Some(Target::Mod(name, Write::Number(one_number(field, item, report)?)))
        }
        Writable::Option => {
            let item = one(field, value, report)?;
            if padding(field, report) {
                return None;
            }
            let write = match item.kind {
                ItemKind::Bytes(bytes) => Write::Bytes(option_data(bytes, item.span, report)?),
                ItemKind::Word(_) => Write::Number(one_number(field, item, report)?),
            };
            Some(Target::Mod(name, write))
        }
        Writable::Payload => {
            let item = one(field, value, report)?;
            let error = match item.kind {
                ItemKind::Bytes([]) => {
                    Diagnostic::new(item.span, "nothing to write").expected("at least one byte")
                }
                ItemKind::Bytes(bytes) if bytes.len() > MAX_PAYLOAD => {
                    let message = format!("{} bytes: no packet has more than {MAX_PAYLOAD}", bytes.len());
                    Diagnostic::new(item.span, message)
                }
                ItemKind::Bytes(bytes) => return Some(Target::Mod(name, Write::Bytes(bytes.to_vec()))),
                ItemKind::Word(word) => {
                    Diagnostic::new(item.span, format!("`{word}` is neither a text nor bytes"))
                        .expected(value::expectation(info))
                }
            };
            report.error(error);
            None
        }
    }
}

/// Reports that padding is neither added nor written.
fn padding(field: &FieldSyntax, report: &mut CheckReport<'_>) -> bool {
    let is_padding = matches!(field.field.option_kind(), Some(0 | 1));
    if is_padding {
        let message = format!("`{}` is padding: mmb pads by itself", field.field);
        report.error(Diagnostic::new(field.span, message));
    }
    is_padding
}

fn option_data(bytes: &[u8], span: TextSpan, report: &mut CheckReport<'_>) -> Option<Vec<u8>> {
    if bytes.len() > MAX_OPTION_DATA {
        let message = format!("{} bytes: no TCP option has more than {MAX_OPTION_DATA}", bytes.len());
        report.error(Diagnostic::new(span, message));
        return None;
    }
    Some(bytes.to_vec())
}

/// The kind of the option that a target is about.
fn option_kind(field: &FieldSyntax, target: &str, report: &mut CheckReport<'_>) -> Option<u8> {
    let kind = field.field.option_kind();
    if kind.is_none() {
        let is_any = field.field == Field::new(mmb_policy::FieldId::TcpOpt);
        let error = if is_any && target == "add" {
            Diagnostic::new(field.span, format!("`{target}` needs to know which option"))
                .expected("an option such as `tcp-opt-mss` or `tcp-opt 22`")
        } else if is_any {
            Diagnostic::new(field.span, format!("`{target}` needs to know which option"))
                .expected("an option such as `tcp-opt-mss` or `tcp-opt 22`, or `strip all`")
        } else {
            Diagnostic::new(field.span, format!("`{target}` takes TCP options, `{}` is none", field.field))
                .expected("an option such as `tcp-opt-mss` or `tcp-opt 22`")
        };
        report.error(error);
    }
    kind
}

fn add(field: &FieldSyntax, value: Option<&ValueSyntax<'_>>, report: &mut CheckReport<'_>) -> Option<Target> {
    let kind = option_kind(field, "add", report)?;
    if padding(field, report) {
        return None;
    }
    let ValueKind::OptionData(width) = field.field.info().values else { return None };
    let Some(value) = value else {
        return match width {
            Some(n @ 1..) => {
                let plural = if n == 1 { "" } else { "s" };
                let message = format!("`{}` has {n} byte{plural} of data", field.field);
                report.error(Diagnostic::new(field.span, message).expected("a value behind it"));
                None
            }
            _ => Some(Target::AddOption(kind, Vec::new())),
        };
    };
    let item = one(field, value, report)?;
    let data = match item.kind {
        ItemKind::Bytes(bytes) => option_data(bytes, item.span, report)?,
        ItemKind::Word(_) => {
            let bytes = one_number(field, item, report)?.to_be_bytes();
            let len = width.map_or_else(|| shortest(&bytes), usize::from);
            bytes[bytes.len() - len..].to_vec()
        }
    };
    Some(Target::AddOption(kind, data))
}

/// The length of a big-endian number without leading zero bytes, at least 1.
fn shortest(bytes: &[u8]) -> usize {
    bytes.iter().position(|&b| b != 0).map_or(1, |zeros| bytes.len() - zeros)
}

fn range(field: &FieldSyntax, value: &ValueSyntax<'_>, report: &mut CheckReport<'_>) -> Option<(u128, u128)> {
    let set = numbers(field, value, report)?;
    if let NumberSet(items) = &set
        && let [item] = items[..]
    {
        return Some(item.bounds(field.field.info().width().unwrap_or(128)));
    }
    let error = Diagnostic::new(value.span(), "`shuffle` draws from one range");
    report.error(error.expected("a range such as `1024-65535`"));
    None
}

/// Reports a field that a stateful target does not take.
fn bindable(
    field: &FieldSyntax,
    target: &str,
    takes: fn(&FieldInfo) -> bool,
    report: &mut CheckReport<'_>,
) -> Option<()> {
    if takes(field.field.info()) {
        return Some(());
    }
    let fields: Vec<_> =
        FIELDS.iter().filter(|info| takes(info)).map(|info| format!("`{}`", info.name)).collect();
    let error = Diagnostic::new(field.span, format!("`{target}` does not take `{}`", field.field));
    report.error(error.expected(format!("one of {}", fields.join(", "))));
    None
}

/// Checks which targets go together, and with the rule.
pub(super) fn check(syntax: &RuleSyntax<'_>, targets: &[Target], report: &mut CheckReport<'_>) {
    let (mut accept, mut drop) = (false, false);
    let (mut black, mut white, mut all) = (false, false, false);
    for (target, at) in targets.iter().zip(&syntax.targets) {
        let problem = match target {
            Target::Map(..) => stateful_only(syntax, "map"),
            Target::Shuffle(..) => stateful_only(syntax, "shuffle"),
            Target::Lb(..) => stateful_only(syntax, "lb"),
            Target::Accept if accept => Some("`accept` is given twice".to_owned()),
            Target::Drop(_) if drop => Some("`drop` is given twice".to_owned()),
            Target::Accept if drop => Some("a rule drops or accepts, not both".to_owned()),
            Target::Drop(_) if accept => Some("a rule drops or accepts, not both".to_owned()),
            Target::Strip(_) if white => Some(mixed().to_owned()),
            Target::Keep(_) if black => Some(mixed().to_owned()),
            Target::Keep(_) if all => Some("`strip all` leaves nothing to keep".to_owned()),
            Target::StripAll if white => Some("`strip all` leaves nothing to keep".to_owned()),
            Target::Mod(..) | Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) => None,
            Target::StripAll | Target::Drop(_) | Target::Accept => None,
        };
        match target {
            Target::Accept => accept = true,
            Target::Drop(_) => drop = true,
            Target::Strip(_) => black = true,
            Target::Keep(_) => white = true,
            Target::StripAll => all = true,
            Target::Mod(..) | Target::AddOption(..) => {}
            Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) => {}
        }
        if let Some(message) = problem {
            report.error(Diagnostic::new(at.span, message));
        }
    }
}

fn mixed() -> &'static str {
    "`strip` and `strip !` do not mix in one rule: list either what goes or what stays"
}

fn stateful_only(syntax: &RuleSyntax<'_>, word: &str) -> Option<String> {
    (!syntax.stateful).then(|| {
        format!("`{word}` needs a rule that follows connections: write `add-stateful` instead of `add`")
    })
}
