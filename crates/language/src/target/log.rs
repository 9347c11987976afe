//! `log ["TEXT"]`: tells of packets.

use super::info::{Slot, TargetArguments, TargetInfo};
use super::text;
use crate::report::CheckReport;
use mmb_policy::rule::Target;
use std::fmt::{Formatter, Result};

pub(super) const INFO: TargetInfo = TargetInfo {
    arguments: "[\"TEXT\"]",
    help: "tells of the packet",
    reference: "Each packet that the rule matches, of a stateful rule the first one of each connection, is told (`monitor`, `mmb run --log`) with \
                its addresses, ports and flags as received, its length, its verdict, and the text if there is one: printable ASCII of at most 256 \
                bytes. Nothing else happens to it. The setting `log rate` limits how many packets of a rule are told; the number of the others is told \
                once a second. While nobody listens, nothing is told. Matches in streams are told by `alert`.",
    synonyms: &["nflog", "ulog", "record"],
    slots: &[Slot::OptionalText],
    clash: |_, others| {
        let again = others.iter().any(|other| matches!(other, Target::Log(_)));
        again.then_some("`log` is given twice")
    },
    ..TargetInfo::new("log", check)
};

fn check(arguments: &TargetArguments<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    text::check("log", arguments, report).map(Target::Log)
}

pub(crate) fn print(f: &mut Formatter<'_>, text: Option<&str>) -> Result {
    text::print(f, "log", text)
}
