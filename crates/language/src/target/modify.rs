//! `mod FIELD VALUE`: writes a value into a field, or in the place of what is found in a stream.

use super::info::{Slot, TargetArguments, TargetInfo};
use super::edit;
use super::operand::{one, one_number, option_data, padding};
use crate::diagnostic::Diagnostic;
use crate::print::value::{bytes, number};
use crate::report::CheckReport;
use crate::syntax::value::{FieldSyntax, ItemKind, ValueSyntax};
use crate::value::{self, MAX_PAYLOAD};
use mmb_policy::field::{Field, Writable};
use mmb_policy::rule::{Target, Write};
use std::fmt::{Formatter, Result};

pub(super) const INFO: TargetInfo = TargetInfo {
    arguments: "FIELD VALUE",
    help: "writes a value into a field; checksums and lengths follow",
    reference: "`mod` writes one value. Checksums follow by themselves. `mod OPTION number` writes into the data that is there, \
                `mod OPTION |bytes|` gives it other data; an option that is not there is left alone, of several all are changed. \
                `mod` of a payload overwrites its first bytes. `mod vlan-id` writes the outermost tag. `mod` of a stream, of a body, of a header field, of \
                `http-host` and `http-uri` replaces bytes by others of any number (\"Edits\"); `\\m` in its text is what it replaces.",
    synonyms: &["set", "modify", "rewrite"],
    slots: &[Slot::Field("the field to write"), Slot::Value],
    takes: |info| !matches!(info.writable, Writable::No(_)),
    ..TargetInfo::new("mod", check)
};

fn check(arguments: &TargetArguments<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    modify(arguments.field.as_ref()?, arguments.value.as_ref()?, report)
}

fn modify(field: &FieldSyntax<'_>, value: &ValueSyntax<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    let name = field.field;
    let info = name.info();
    match info.writable {
        Writable::No(reason) => {
            report.error(Diagnostic::new(field.span, format!("`{name}` cannot be written: {reason}")));
            None
        }
        Writable::InPlace | Writable::Raw => {
            let item = one(field, value, report)?;
            Some(Target::Mod(name, Write::Number(one_number(field, item, report)?)))
        }
        Writable::Option => {
            let item = one(field, value, report)?;
            if padding(field, report) {
                return None;
            }
            let write = match item.kind {
                ItemKind::Bytes(bytes) => Write::Bytes(option_data(bytes, item.span, report)?),
                ItemKind::Replacement(_) => {
                    report.error(value::nothing_matched(item.span));
                    return None;
                }
                ItemKind::Word(_) | ItemKind::Regex(_) => Write::Number(one_number(field, item, report)?),
            };
            Some(Target::Mod(name, write))
        }
        Writable::Stream | Writable::Header | Writable::Whole => {
            edit::modify(field, value, report).map(Target::Edit)
        }
        Writable::Payload => {
            let item = one(field, value, report)?;
            let error = match item.kind {
                ItemKind::Bytes([]) => {
                    Diagnostic::new(item.span, "nothing to write").expected("at least one byte")
                }
                ItemKind::Bytes(bytes) if bytes.len() > MAX_PAYLOAD => {
                    let message = format!("{} bytes: no packet has more than {MAX_PAYLOAD}", bytes.len());
                    Diagnostic::new(item.span, message)
                }
                ItemKind::Bytes(bytes) => return Some(Target::Mod(name, Write::Bytes(bytes.to_vec()))),
                ItemKind::Replacement(_) => value::nothing_matched(item.span),
                ItemKind::Regex(_) => Diagnostic::new(item.span, "a regex is searched for in streams only")
                    .expected(value::expectation(info)),
                ItemKind::Word(word) => {
                    Diagnostic::new(item.span, format!("`{word}` is neither a text nor bytes"))
                        .expected(value::expectation(info))
                }
            };
            report.error(error);
            None
        }
    }
}

pub(crate) fn print(f: &mut Formatter<'_>, field: Field, write: &Write) -> Result {
    write!(f, "mod {field} ")?;
    match write {
        Write::Number(n) => std::fmt::Display::fmt(&number(field.info(), *n), f),
        Write::Bytes(data) => bytes(f, data),
    }
}
