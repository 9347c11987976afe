//! `add OPTION [VALUE]`: appends a TCP option, a header field, or bytes to a body.

use super::edit;
use super::info::{Slot, TargetArguments, TargetInfo};
use super::operand::{one, one_number, option_data, option_kind, padding};
use crate::diagnostic::Diagnostic;
use crate::print::value::bytes;
use crate::report::CheckReport;
use crate::syntax::value::{FieldSyntax, ItemKind, ValueSyntax};
use crate::value;
use mmb_policy::field::{Field, FieldPlace, ValueKind};
use mmb_policy::rule::Target;
use std::fmt::{Formatter, Result, Write as _};

pub(super) const INFO: TargetInfo = TargetInfo {
    arguments: "FIELD [VALUE]",
    help: "appends a TCP option, a header field of HTTP, or bytes to a body",
    reference: "`add OPTION` appends an option, even if there is one of the kind. Without a value it has no data. The 40 bytes of \
                the options area are the bound: what does not fit is left out and counted. \
                `add http-header \"NAME\" \"VALUE\"` appends a header field to heads, `add http-body \"TEXT\"` bytes to bodies (\"Edits\").",
    slots: &[Slot::Field("a TCP option, `http-header` or `http-body`"), Slot::OptionalValue],
    takes: edit::adds,
    ..TargetInfo::new("add", check)
};

fn check(arguments: &TargetArguments<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    let (field, value) = (arguments.field.as_ref()?, arguments.value.as_ref());
    match field.field.info().place {
        FieldPlace::Stream(_) => edit::add(field, value, report).map(Target::Edit),
        FieldPlace::Key { .. } | FieldPlace::AnyOption | FieldPlace::Option(_) => add(field, value, report),
        FieldPlace::NamedOption | FieldPlace::Payload(_) | FieldPlace::Connection => add(field, value, report),
    }
}

fn add(field: &FieldSyntax<'_>, value: Option<&ValueSyntax<'_>>, report: &mut CheckReport<'_>) -> Option<Target> {
    let kind = option_kind(field, INFO.name, "", report)?;
    if padding(field, report) {
        return None;
    }
    let ValueKind::OptionData(width) = field.field.info().values else { return None };
    let Some(given) = value else {
        return match width {
            Some(n @ 1..) => {
                let plural = if n == 1 { "" } else { "s" };
                let message = format!("`{}` has {n} byte{plural} of data", field.field);
                report.error(Diagnostic::new(field.span, message).expected("a value behind it"));
                None
            }
            _ => Some(Target::AddOption(kind, Vec::new())),
        };
    };
    let item = one(field, given, report)?;
    let data = match item.kind {
        ItemKind::Bytes(bytes) => option_data(bytes, item.span, report)?,
        ItemKind::Replacement(_) => {
            report.error(value::nothing_matched(item.span));
            return None;
        }
        ItemKind::Word(_) | ItemKind::Regex(_) => {
            let bytes = one_number(field, item, report)?.to_be_bytes();
            let len = width.map_or_else(|| shortest(&bytes), usize::from);
            bytes[bytes.len() - len..].to_vec()
        }
    };
    Some(Target::AddOption(kind, data))
}

/// The length of a big-endian number without leading zero bytes, at least 1.
fn shortest(bytes: &[u8]) -> usize {
    bytes.iter().position(|&b| b != 0).map_or(1, |zeros| bytes.len() - zeros)
}

/// `add OPTION [VALUE]`: data of the option's own width as a number, no data as nothing, other data as bytes.
pub(crate) fn print(f: &mut Formatter<'_>, option: Field, data: &[u8]) -> Result {
    write!(f, "add {option}")?;
    let mut width = None;
    if let ValueKind::OptionData(Some(bytes)) = option.info().values {
        width = Some(usize::from(bytes));
    }
    match data {
        [] if matches!(width, None | Some(0)) => Ok(()),
        [_, ..] if width == Some(data.len()) => {
            let n = data.iter().fold(0, |n, &byte| n << 8 | u128::from(byte));
            write!(f, " {n}")
        }
        data => {
            f.write_char(' ')?;
            bytes(f, data)
        }
    }
}
