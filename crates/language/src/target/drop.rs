//! `drop [PERCENT]`: drops the packet, or a share of packets.

use super::info::{Slot, TargetArguments, TargetInfo};
use crate::diagnostic::Diagnostic;
use crate::print::value::Print;
use crate::report::CheckReport;
use crate::syntax::value::{ItemKind, ItemSyntax};
use crate::value;
use mmb_policy::rule::{DropRate, Target};
use std::fmt::{Formatter, Result};

pub(super) const INFO: TargetInfo = TargetInfo {
    arguments: "[PERCENT]",
    help: "drops the packet, or that percentage of packets",
    reference: "`drop 12.5` drops that percentage of packets, at random, in steps of 0.001. A packet that is spared is treated as if \
                the target were not there. In a rule with a stream constraint, `drop` takes no percentage. At the first match the connection goes silent: \
                the packet that completes it and all behind it are dropped, in both directions.",
    synonyms: &["deny", "discard"],
    slots: &[Slot::Percentage],
    clash,
    ..TargetInfo::new("drop", check)
};

fn check(arguments: &TargetArguments<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    let Some(percent) = &arguments.percentage else { return Some(Target::Drop(DropRate::ALL)) };
    percentage(percent, report).map(Target::Drop)
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

fn clash(_: &Target, others: &[&Target]) -> Option<&'static str> {
    if others.iter().any(|other| matches!(other, Target::Drop(_))) {
        return Some("`drop` is given twice");
    }
    if others.iter().any(|other| matches!(other, Target::Close)) {
        return Some("a rule drops or closes, not both");
    }
    if others.iter().any(|other| matches!(other, Target::Reject(_))) {
        return Some("a rule drops or rejects, not both");
    }
    if others.iter().any(|other| matches!(other, Target::Limit(_))) {
        return Some("a rule limits packets or drops all of them, not both");
    }
    let accepts = others.iter().any(|other| matches!(other, Target::Accept));
    accepts.then_some("a rule drops or accepts, not both")
}

pub(crate) fn print(f: &mut Formatter<'_>, rate: DropRate) -> Result {
    if rate == DropRate::ALL { f.write_str("drop") } else { write!(f, "drop {}", rate.text()) }
}

impl Print for DropRate {
    /// The percentage without trailing zeros: `12.5`.
    fn print(&self, f: &mut Formatter<'_>) -> Result {
        let (whole, thousandths) = (self.0 / 1000, self.0 % 1000);
        if thousandths == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{thousandths:03}");
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}
