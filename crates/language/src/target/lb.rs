//! `lb FIELD {VALUE, …} [METHOD]`: spreads connections over values.

use super::info::{Slot, TargetArguments, TargetInfo};
use super::operand::bindable;
use crate::number::numbers;
use crate::print::value;
use crate::report::CheckReport;
use mmb_policy::field::Field;
use mmb_policy::rule::{LbMethod, NumberSet, Target};
use std::fmt::{Display, Formatter, Result};

/// The words of methods, with their help.
const METHODS: &[(&str, &str)] = &[
    (name(LbMethod::RoundRobin), "in turn"),
    (name(LbMethod::Hash), "by a consistent hash of the five-tuple"),
    (name(LbMethod::Least), "the one with the fewest connections"),
];

pub(super) const INFO: TargetInfo = TargetInfo {
    arguments: "FIELD {VALUE, …} [rr|hash|least]",
    stateful: true,
    help: "distributes connections over values; on replies it is reversed",
    reference: "`lb` gives each connection one of the values by the named method: in turn (`rr`), by a hash of the connection \
                (`hash`), or the one with the fewest connections (`least`).",
    slots: &[Slot::Field("the field to spread"), Slot::Value, Slot::Choice("method", METHODS)],
    takes: |info| info.bindings.lb,
    ..TargetInfo::new("lb", check)
};

const fn name(method: LbMethod) -> &'static str {
    match method {
        LbMethod::RoundRobin => "rr",
        LbMethod::Hash => "hash",
        LbMethod::Least => "least",
    }
}

fn check(arguments: &TargetArguments<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    let field = arguments.field.as_ref()?;
    bindable(field, INFO.name, INFO.takes, report)?;
    let set = numbers(field, arguments.value.as_ref()?, report)?;
    let chosen = |method: &LbMethod| Some(name(*method)) == arguments.choice;
    let method = LbMethod::ALL.into_iter().find(chosen).unwrap_or_default();
    Some(Target::Lb(field.field, set, method))
}

pub(crate) fn print(f: &mut Formatter<'_>, field: Field, set: &NumberSet, method: LbMethod) -> Result {
    write!(f, "lb {field} ")?;
    value::in_braces(f, &set.0, |item, f| value::number_item(field.info(), *item).fmt(f))?;
    if method == LbMethod::default() { Ok(()) } else { write!(f, " {}", name(method)) }
}
