//! `map FIELD VALUE`: gives a connection a new value from a pool.

use super::info::{Slot, TargetArguments, TargetInfo};
use super::operand::bindable;
use crate::number::numbers;
use crate::print::value;
use crate::report::CheckReport;
use mmb_policy::field::Field;
use mmb_policy::rule::{NumberSet, Target};
use std::fmt::{Formatter, Result};

pub(super) const INFO: TargetInfo = TargetInfo {
    arguments: "FIELD VALUE",
    stateful: true,
    help: "gives a connection a value from a pool; on replies it is reversed",
    reference: "`map` gives each connection one of the values. `map`, `shuffle` and `lb` bind a connection to its value, and reverse it \
                on replies.",
    slots: &[Slot::Field("the field to map"), Slot::Value],
    takes: |info| info.bindings.map,
    ..TargetInfo::new("map", check)
};

fn check(arguments: &TargetArguments<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    let field = arguments.field.as_ref()?;
    bindable(field, INFO.name, INFO.takes, report)?;
    Some(Target::Map(field.field, numbers(field, arguments.value.as_ref()?, report)?))
}

pub(crate) fn print(f: &mut Formatter<'_>, field: Field, set: &NumberSet) -> Result {
    write!(f, "map {field} ")?;
    value::numbers(f, field, set)
}
