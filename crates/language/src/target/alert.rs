//! `alert ["TEXT"]`: tells of a match in a stream.

use super::info::{Slot, TargetArguments, TargetInfo};
use crate::diagnostic::Diagnostic;
use crate::print::value::bytes;
use crate::report::CheckReport;
use mmb_policy::rule::Target;
use std::fmt::{Formatter, Result};

/// The longest text in bytes.
const MAX_TEXT: usize = 256;

pub(super) const INFO: TargetInfo = TargetInfo {
    arguments: "[\"TEXT\"]",
    stateful: true,
    help: "tells of a match in a stream",
    reference: "Each match of the rule's stream constraints is counted (`list`) and told (`monitor`), with the text if there is one: \
                printable ASCII of at most 256 bytes.",
    synonyms: &["log", "notify"],
    slots: &[Slot::OptionalText],
    clash: |_, others| {
        let again = others.iter().any(|other| matches!(other, Target::Alert(_)));
        again.then_some("`alert` is given twice")
    },
    ..TargetInfo::new("alert", check)
};

fn check(arguments: &TargetArguments<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    let Some((text, span)) = arguments.text else { return Some(Target::Alert(None)) };
    let problem = if text.is_empty() {
        "an empty text says nothing"
    } else if text.len() > MAX_TEXT {
        "the text is longer than 256 bytes"
    } else if !text.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        "the text is not printable ASCII"
    } else {
        return Some(Target::Alert(Some(String::from_utf8_lossy(text).into_owned())));
    };
    let error = Diagnostic::new(span, problem);
    report.error(error.expected("a short text in quotes, or `alert` alone"));
    None
}

pub(crate) fn print(f: &mut Formatter<'_>, text: Option<&str>) -> Result {
    f.write_str("alert")?;
    let Some(text) = text else { return Ok(()) };
    f.write_str(" ")?;
    bytes(f, text.as_bytes())
}
