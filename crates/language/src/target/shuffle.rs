//! `shuffle FIELD [RANGE]`: gives a connection a random value.

use super::info::{Slot, TargetArguments, TargetInfo};
use super::operand::bindable;
use crate::diagnostic::Diagnostic;
use crate::number::numbers;
use crate::print::value;
use crate::report::CheckReport;
use crate::syntax::value::{FieldSyntax, ValueSyntax};
use mmb_policy::field::Field;
use mmb_policy::rule::{NumberItem, NumberSet, Target};
use std::fmt::{Formatter, Result};

pub(super) const INFO: TargetInfo = TargetInfo {
    arguments: "FIELD [RANGE]",
    stateful: true,
    help: "gives a connection a random value; on replies it is reversed",
    reference: "`shuffle` gives each connection a random value, of the range if there is one.",
    slots: &[Slot::Field("the field to shuffle"), Slot::OptionalValue],
    takes: |info| info.bindings.shuffle,
    ..TargetInfo::new("shuffle", check)
};

fn check(arguments: &TargetArguments<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    let field = arguments.field.as_ref()?;
    bindable(field, INFO.name, INFO.takes, report)?;
    let range = match &arguments.value {
        Some(value) => Some(range(field, value, report)?),
        None => None,
    };
    Some(Target::Shuffle(field.field, range))
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

pub(crate) fn print(f: &mut Formatter<'_>, field: Field, range: Option<(u128, u128)>) -> Result {
    write!(f, "shuffle {field}")?;
    let Some((first, last)) = range else { return Ok(()) };
    write!(f, " {}", value::number_item(field.info(), NumberItem::Range(first, last)))
}
