//! The text of a target that tells of something.

use super::info::TargetArguments;
use crate::diagnostic::Diagnostic;
use crate::print::value::bytes;
use crate::report::CheckReport;
use std::fmt::{Formatter, Result};

/// The longest text in bytes.
const MAX_TEXT_BYTES: usize = 256;

/// The text of a target of this name, which may have none. `None` if there were errors.
pub(super) fn check(
    name: &str,
    arguments: &TargetArguments<'_>,
    report: &mut CheckReport<'_>,
) -> Option<Option<String>> {
    let Some((text, span)) = arguments.text else { return Some(None) };
    let problem = if text.is_empty() {
        "an empty text says nothing"
    } else if text.len() > MAX_TEXT_BYTES {
        "the text is longer than 256 bytes"
    } else if !text.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        "the text is not printable ASCII"
    } else {
        return Some(Some(String::from_utf8_lossy(text).into_owned()));
    };
    let error = Diagnostic::new(span, problem);
    report.error(error.expected(format!("a short text in quotes, or `{name}` alone")));
    None
}

/// Writes a target of this name, with its text.
pub(super) fn print(f: &mut Formatter<'_>, name: &str, text: Option<&str>) -> Result {
    f.write_str(name)?;
    let Some(text) = text else { return Ok(()) };
    f.write_str(" ")?;
    bytes(f, text.as_bytes())
}
