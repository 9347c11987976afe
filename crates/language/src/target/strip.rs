//! `strip OPTION`, `strip ! OPTION`, `strip all`: removes TCP options. `strip FIELD`: removes header fields, and what is found in streams.

use super::edit;
use super::info::{Slot, TargetArguments, TargetInfo};
use super::operand::option_kind;
use crate::report::CheckReport;
use mmb_policy::field::{Field, FieldPlace};
use mmb_policy::rule::Target;
use std::fmt::{Formatter, Result};

pub(super) const INFO: TargetInfo = TargetInfo {
    arguments: "[!] FIELD|all",
    help: "removes TCP options or header fields, with ! all but these; or what a rule finds",
    reference: "Several `strip OPTION` of one rule make a list of what goes; several `strip ! OPTION` a list of what stays. The two \
                do not mix. Header fields are selected like options: `strip http-header \"NAME\"`. `strip` of a stream or of a body removes what \
                the rule finds there (\"Edits\").",
    synonyms: &["remove"],
    slots: &[Slot::Selection],
    takes: edit::strips,
    clash,
    ..TargetInfo::new("strip", check)
};

fn check(arguments: &TargetArguments<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    if arguments.all {
        return Some(Target::StripAll);
    }
    let field = arguments.field.as_ref()?;
    if matches!(field.field.info().place, FieldPlace::Stream(_)) {
        return edit::strip(field, arguments.negated, report).map(Target::Edit);
    }
    let kind = |name, report| option_kind(field, name, ", or `strip all`", report);
    if arguments.negated { kind("strip !", report).map(Target::Keep) } else { kind("strip", report).map(Target::Strip) }
}

fn clash(target: &Target, others: &[&Target]) -> Option<&'static str> {
    let any = |is: fn(&Target) -> bool| others.iter().any(|other| is(other));
    let (strips, keeps) = (any(|t| matches!(t, Target::Strip(_))), any(|t| matches!(t, Target::Keep(_))));
    let clears = any(|t| matches!(t, Target::StripAll));
    if matches!(target, Target::Strip(_)) && keeps || matches!(target, Target::Keep(_)) && strips {
        return Some("`strip` and `strip !` do not mix in one rule: list either what goes or what stays");
    }
    let nothing_to_keep = matches!(target, Target::Keep(_)) && clears || matches!(target, Target::StripAll) && keeps;
    nothing_to_keep.then_some("`strip all` leaves nothing to keep")
}

/// `not`: `! ` before an option that stays.
pub(crate) fn print(f: &mut Formatter<'_>, not: &str, option: Field) -> Result {
    write!(f, "strip {not}{option}")
}
