//! Checks filters of packets: their constraints, as those of a rule.

use super::rule;
use crate::command::{CaptureRequest, Command, TraceRequest};
use crate::diagnostic::Diagnostic;
use crate::report::CheckReport;
use crate::syntax::LookSyntax;
use mmb_policy::PacketFilter;
use mmb_policy::field::FieldPlace;

/// Checks `trace` and `capture`. `None` if there were errors.
pub(crate) fn check(syntax: &LookSyntax<'_>, report: &mut CheckReport<'_>) -> Option<Command> {
    let errors_before = report.errors.len();
    for constraint in &syntax.filter.matches {
        let field = constraint.field.field;
        let of = match field.info().place {
            FieldPlace::Connection => "the connection of a packet",
            FieldPlace::Stream(_) => "the bytes of a connection",
            FieldPlace::Key { .. }
            | FieldPlace::AnyOption
            | FieldPlace::Option(_)
            | FieldPlace::NamedOption
            | FieldPlace::Payload(_) => continue,
        };
        let message =
            format!("`{field}` is about {of}: here constraints are about packets as they are received");
        report.error(Diagnostic::new(constraint.field.span, message));
    }
    if report.errors.len() > errors_before {
        return None;
    }
    let filter =
        PacketFilter { matches: rule(&syntax.filter, report)?.matches, all: syntax.filter.all.is_some() };
    let options = syntax.options.clone();
    Some(match syntax.captures {
        true => Command::Capture(Box::new(CaptureRequest { filter, ..options })),
        false => Command::Trace(Box::new(TraceRequest { filter, count: options.count })),
    })
}
