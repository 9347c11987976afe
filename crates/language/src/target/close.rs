//! `close`: ends a connection at a match in its stream.

use super::info::{TargetArguments, TargetInfo};
use crate::report::CheckReport;
use mmb_policy::rule::Target;

pub(super) const INFO: TargetInfo = TargetInfo {
    stateful: true,
    help: "ends the connection at a match in a stream: both ends get a RST",
    reference: "At the first match of the rule's stream constraints, the packet that completes it is dropped, both ends of a TCP connection get a \
                RST that looks as if the other end had sent it, and later packets of the connection are dropped. UDP has no RST: the \
                connection goes silent. A rule closes or drops, not both.",
    synonyms: &["reset", "rst", "kill"],
    clash,
    ..TargetInfo::new("close", check)
};

fn check(_: &TargetArguments<'_>, _: &mut CheckReport<'_>) -> Option<Target> {
    Some(Target::Close)
}

fn clash(_: &Target, others: &[&Target]) -> Option<&'static str> {
    if others.iter().any(|other| matches!(other, Target::Close)) {
        return Some("`close` is given twice");
    }
    let drops = others.iter().any(|other| matches!(other, Target::Drop(_)));
    drops.then_some("a rule drops or closes, not both")
}
