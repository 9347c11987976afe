//! `digest`: tells bytes and checksums of a connection at its end.

use super::info::{TargetArguments, TargetInfo};
use crate::report::CheckReport;
use mmb_policy::rule::Target;

pub(super) const INFO: TargetInfo = TargetInfo {
    stateful: true,
    help: "tells the bytes and the CRC-32C of each direction when the connection ends",
    reference: "The bytes are those of the stream, each once, however often they were sent: useful bytes, and the CRC-32C over them (RFC 3720, \
                appendix B.4). The rule may have stream constraints or none; it tells of all its connections.",
    synonyms: &["checksum", "hash"],
    clash: |_, others| {
        let again = others.iter().any(|other| matches!(other, Target::Digest));
        again.then_some("`digest` is given twice")
    },
    ..TargetInfo::new("digest", check)
};

fn check(_: &TargetArguments<'_>, _: &mut CheckReport<'_>) -> Option<Target> {
    Some(Target::Digest)
}
