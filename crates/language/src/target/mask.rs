//! `mask FIELD ["TEXT"]`: covers what is found in a stream, byte for byte.

use super::edit;
use super::info::{Slot, TargetArguments, TargetInfo};
use crate::report::CheckReport;
use mmb_policy::rule::Target;

pub(super) const INFO: TargetInfo = TargetInfo {
    arguments: "FIELD [\"TEXT\"]",
    stateful: true,
    help: "covers what is found in a stream or in an HTTP body with `*`, or with a text",
    reference: "`mask` writes the text, or `*`, over what the rule finds in the field: repeated or cut to the length of what was found, so \
                that no length changes (\"Edits\").",
    synonyms: &["hide", "redact", "censor"],
    slots: &[Slot::Field("a field of streams or `http-body`"), Slot::OptionalValue],
    takes: edit::masks,
    ..TargetInfo::new("mask", check)
};

fn check(arguments: &TargetArguments<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    edit::mask(arguments.field.as_ref()?, arguments.value.as_ref(), report).map(Target::Edit)
}
