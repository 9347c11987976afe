//! `alert ["TEXT"]`: tells of a match in a stream.

use super::info::{Slot, TargetArguments, TargetInfo};
use super::text;
use crate::report::CheckReport;
use mmb_policy::rule::Target;
use std::fmt::{Formatter, Result};

pub(super) const INFO: TargetInfo = TargetInfo {
    arguments: "[\"TEXT\"]",
    stateful: true,
    help: "tells of a match in a stream",
    reference: "Each match of the rule's stream constraints is counted (`list`) and told (`monitor`, `mmb run --log`), with the text if there is \
                one: printable ASCII of at most 256 bytes. `log` tells of packets.",
    synonyms: &["notify"],
    slots: &[Slot::OptionalText],
    clash: |_, others| {
        let again = others.iter().any(|other| matches!(other, Target::Alert(_)));
        again.then_some("`alert` is given twice")
    },
    ..TargetInfo::new("alert", check)
};

fn check(arguments: &TargetArguments<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    text::check("alert", arguments, report).map(Target::Alert)
}

pub(crate) fn print(f: &mut Formatter<'_>, text: Option<&str>) -> Result {
    text::print(f, "alert", text)
}
