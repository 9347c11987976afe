//! Targets that edit streams back to their text.

use super::Print;
use super::value::{bytes, text_byte};
use mmb_policy::http::{HeaderName, Replacement, ReplacementPart};
use mmb_policy::rule::StreamEdit;
use std::fmt::{Formatter, Result, Write as _};

impl Print for StreamEdit {
    fn print(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            StreamEdit::Mask(field, text) => {
                write!(f, "mask {field}")?;
                if text.is_empty() {
                    return Ok(());
                }
                f.write_char(' ')?;
                bytes(f, text)
            }
            StreamEdit::Mod(field, replacement) | StreamEdit::ModHttp(field, replacement) => {
                write!(f, "mod {field} ")?;
                replacement.print(f)
            }
            StreamEdit::Strip(field) => write!(f, "strip {field}"),
            StreamEdit::ModHeader(name, replacement) => {
                write!(f, "mod http-header {} ", name.text())?;
                replacement.print(f)
            }
            StreamEdit::AddHeader(name, value) => {
                write!(f, "add http-header {} ", name.text())?;
                text(f, value)
            }
            StreamEdit::StripHeader(name) => write!(f, "strip http-header {}", name.text()),
            StreamEdit::KeepHeader(name) => write!(f, "strip ! http-header {}", name.text()),
            StreamEdit::AddBody(tail) => {
                f.write_str("add http-body ")?;
                bytes(f, tail)
            }
        }
    }
}

impl Print for HeaderName {
    fn print(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "\"{self}\"")
    }
}

impl Print for Replacement {
    fn print(&self, f: &mut Formatter<'_>) -> Result {
        if let [ReplacementPart::Bytes(only)] = self.parts() {
            return bytes(f, only);
        }
        f.write_char('"')?;
        for part in self.parts() {
            match part {
                ReplacementPart::Bytes(bytes) => bytes.iter().try_for_each(|byte| text_byte(f, *byte))?,
                ReplacementPart::Matched => f.write_str("\\m")?,
            }
        }
        f.write_char('"')
    }
}

/// Bytes as [`bytes`] writes them; none: the empty text.
fn text(f: &mut Formatter<'_>, value: &[u8]) -> Result {
    if value.is_empty() { f.write_str("\"\"") } else { bytes(f, value) }
}
