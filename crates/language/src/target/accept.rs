//! `accept`: overrides drops.

use super::info::{TargetArguments, TargetInfo};
use crate::report::CheckReport;
use mmb_policy::rule::Target;

pub(super) const INFO: TargetInfo = TargetInfo {
    help: "overrides drops of the same priority and of worse ones",
    reference: "A rule drops or accepts, not both.",
    synonyms: &["allow", "pass", "permit"],
    clash,
    ..TargetInfo::new("accept", check)
};

fn check(_: &TargetArguments<'_>, _: &mut CheckReport<'_>) -> Option<Target> {
    Some(Target::Accept)
}

fn clash(_: &Target, others: &[&Target]) -> Option<&'static str> {
    if others.iter().any(|other| matches!(other, Target::Accept)) {
        return Some("`accept` is given twice");
    }
    if others.iter().any(|other| matches!(other, Target::Reject(_))) {
        return Some("a rule rejects or accepts, not both");
    }
    let drops = others.iter().any(|other| matches!(other, Target::Drop(_)));
    drops.then_some("a rule drops or accepts, not both")
}
