//! Checks that a rule which edits streams or HTTP makes sense as a whole.

use super::regex;
use super::stream::part;
use crate::diagnostic::Diagnostic;
use crate::report::CheckReport;
use crate::syntax::value::ItemKind;
use crate::syntax::{MatchSyntax, RuleSyntax};
use crate::target::info::TargetSyntax;
use mmb_policy::field::{Field, FieldId, StreamPart};
use mmb_policy::rule::{StreamEdit, Target};
use std::collections::HashSet;

/// An edit and where it stands.
struct PlacedEdit<'r, 't> {
    edit: &'r StreamEdit,
    at: &'r TargetSyntax<'t>,
    part: StreamPart,
}

impl PlacedEdit<'_, '_> {
    /// The target and its field, as errors name them.
    fn name(&self) -> String {
        format!("{} {}", self.at.info.name, self.edit.field())
    }
}

/// Reports edits that do not go together, or not with the rule's constraints.
pub(super) fn go_together(syntax: &RuleSyntax<'_>, targets: &[Target], report: &mut CheckReport<'_>) {
    let edits: Vec<PlacedEdit<'_, '_>> = targets
        .iter()
        .zip(&syntax.targets)
        .filter_map(|(target, at)| {
            let Target::Edit(edit) = target else { return None };
            Some(PlacedEdit { edit, at, part: edit.field().stream_part()? })
        })
        .collect();
    let has_constraint = syntax.matches.iter().any(|constraint| part(constraint).is_some());
    if edits.is_empty() || !has_constraint || !syntax.stateful {
        return;
    }
    let errors_before = report.errors.len();
    of_one_kind(&edits, report);
    each_once(&edits, report);
    beside_an_end(syntax, targets, &edits, report);
    if report.errors.len() == errors_before {
        let is_http = edits[0].part.is_http();
        constraints(syntax, &edits[0], is_http, report);
        for edit in &edits {
            if edit.edit.is_of_matches() {
                what_is_found(syntax, edit, report);
            } else if matches!(edit.edit, StreamEdit::ModHttp(..)) {
                in_time(syntax, edit, report);
            }
        }
    }
}

/// Reports edits of plain bytes beside edits of messages.
fn of_one_kind(edits: &[PlacedEdit<'_, '_>], report: &mut CheckReport<'_>) {
    let first = &edits[0];
    if let Some(other) = edits.iter().find(|edit| edit.part.is_http() != first.part.is_http()) {
        let message = format!(
            "`{}` and `{}`: one connection is edited as bytes or as messages",
            first.name(),
            other.name()
        );
        report
            .error(Diagnostic::new(other.at.span, message).expected("two rules, for different connections"));
    }
}

/// Reports a place that is edited twice, and lists of header fields that go and of such that stay.
fn each_once(edits: &[PlacedEdit<'_, '_>], report: &mut CheckReport<'_>) {
    // There may be very many.
    let mut edited: HashSet<(FieldId, String)> = HashSet::new();
    let (mut strips, mut keeps) = (false, false);
    for edit in edits {
        let field = edit.edit.field();
        let (name, message) = match edit.edit {
            StreamEdit::Mask(..) | StreamEdit::Mod(..) | StreamEdit::Strip(_) => {
                (String::new(), format!("what `{field}` finds is edited already"))
            }
            StreamEdit::ModHttp(..) => (String::new(), format!("`{field}` is written already")),
            // At the body's end, and not where something is found.
            StreamEdit::AddBody(_) => {
                ("end".to_owned(), "`add http-body` is given twice: write one text".to_owned())
            }
            StreamEdit::ModHeader(name, _) | StreamEdit::StripHeader(name) => {
                (name.as_str().to_ascii_lowercase(), format!("the header field `{name}` is edited already"))
            }
            StreamEdit::AddHeader(..) => continue,
            StreamEdit::KeepHeader(_) => {
                keeps = true;
                mixed(strips, edit, report);
                continue;
            }
        };
        if matches!(edit.edit, StreamEdit::StripHeader(_)) {
            strips = true;
            mixed(keeps, edit, report);
        }
        if !edited.insert((field.id, name)) {
            report.error(Diagnostic::new(edit.at.span, message));
        }
    }
}

/// Reports a list of header fields that go beside one of such that stay.
fn mixed(is_mixed: bool, edit: &PlacedEdit<'_, '_>, report: &mut CheckReport<'_>) {
    if is_mixed {
        let message = "`strip` and `strip !` do not mix in one rule: list either what goes or what stays";
        report.error(Diagnostic::new(edit.at.span, message));
    }
}

/// Reports an edit beside a target that ends the connection where the edit would act.
fn beside_an_end(
    syntax: &RuleSyntax<'_>,
    targets: &[Target],
    edits: &[PlacedEdit<'_, '_>],
    report: &mut CheckReport<'_>,
) {
    let ends = |target: &Target| matches!(target, Target::Close | Target::Drop(_));
    let Some(number) = targets.iter().position(ends) else { return };
    let Some(end) = syntax.targets.get(number) else { return };
    let edit = &edits[0];
    let message = format!(
        "`{}` can never apply: at the same match `{}` ends the connection",
        edit.name(),
        end.info.name
    );
    report.error(Diagnostic::new(edit.at.span, message).expected("either of the two"));
}

/// Reports constraints that a rule which edits cannot have, beside `edit`.
fn constraints(
    syntax: &RuleSyntax<'_>,
    edit: &PlacedEdit<'_, '_>,
    is_http: bool,
    report: &mut CheckReport<'_>,
) {
    let other = |constraint: &&MatchSyntax<'_>| {
        part(constraint).is_some_and(|part| if is_http { !part.is_http() } else { part != edit.part })
    };
    let Some(other) = syntax.matches.iter().find(other) else { return };
    let field = other.field.field;
    let error = if is_http {
        let message = format!(
            "`{}` acts on messages of HTTP, and `{field}` is about the whole connection",
            edit.name()
        );
        Diagnostic::new(other.span, message).expected("constraints `http…` only")
    } else {
        let message = format!("a rule that edits `{}` searches nothing else", edit.edit.field());
        let is_alone = !syntax.matches.iter().any(|constraint| part(constraint) == Some(edit.part));
        let is_of_bytes =
            matches!(part(other), Some(StreamPart::Both | StreamPart::Forward | StreamPart::Reply));
        let own = edit.edit.field();
        Diagnostic::new(other.span, message).expected(match (is_alone, is_of_bytes) {
            (true, true) => format!("`{own}` in the place of `{field}`, or the other way round"),
            (true, false) => format!("`{own} \"TEXT\"` in the place of `{field}`{}", on_bodies(edit, field)),
            (false, _) => format!("the rule without `{field}`"),
        })
    };
    report.error(error);
}

/// What to write instead of an edit of a stream beside a constraint on HTTP.
fn on_bodies(edit: &PlacedEdit<'_, '_>, field: Field) -> &'static str {
    let is_http = field.stream_part().is_some_and(StreamPart::is_http);
    match edit.edit {
        StreamEdit::Mask(..) if is_http => ", or `http-body \"TEXT\" mask http-body`",
        StreamEdit::Mod(..) if is_http => ", or `http-body \"TEXT\" mod http-body \"NEW\"`",
        StreamEdit::Strip(_) if is_http => ", or `http-body \"TEXT\" strip http-body`",
        _ => "",
    }
}

/// Checks the constraint whose matches are edited: there is one, and its matches are bounded.
fn what_is_found(syntax: &RuleSyntax<'_>, edit: &PlacedEdit<'_, '_>, report: &mut CheckReport<'_>) {
    let field = edit.edit.field();
    let mut found = syntax.matches.iter().filter(|constraint| constraint.field.field == field);
    let Some(first) = found.next() else {
        // Of plain bytes this was told about the other constraint.
        if edit.part.is_http() {
            let message = format!(
                "`{}` acts on what `{field}` finds, and the rule has no such constraint",
                edit.name()
            );
            let error = Diagnostic::new(edit.at.span, message);
            report.error(error.expected(format!("`{field} \"TEXT\"` in the rule")));
        }
        return;
    };
    if let Some(second) = found.next() {
        let message = format!("a rule that edits `{field}` has one constraint on it, whose matches it edits");
        report.error(
            Diagnostic::new(second.span, message).expected(format!("a set: `{field} {{\"A\", \"B\"}}`")),
        );
    }
    for item in first.value.iter().flat_map(|value| value.items()) {
        if let ItemKind::Regex(source) = item.kind
            && let Err((message, remedy)) = regex::is_bounded(source)
        {
            report.error(Diagnostic::new(item.span, message).expected(remedy));
        }
    }
}

/// Reports a change of a request that waits for what comes behind the request's head.
fn in_time(syntax: &RuleSyntax<'_>, edit: &PlacedEdit<'_, '_>, report: &mut CheckReport<'_>) {
    // That no head has a header field is known with the response's.
    let is_late = |constraint: &&MatchSyntax<'_>| match part(constraint) {
        Some(StreamPart::HttpStatus | StreamPart::HttpBody) => true,
        Some(StreamPart::HttpHeader) => constraint.negated,
        _ => false,
    };
    let Some(late) = syntax.matches.iter().find(is_late) else { return };
    let what = if late.field.field.id == FieldId::HttpBody { "a body" } else { "the response" };
    let not = if late.negated { "! " } else { "" };
    let message = format!(
        "`{}` can never apply: the head of the request has passed when {what} is there for `{not}{}`",
        edit.name(),
        late.field.field
    );
    report.error(Diagnostic::new(edit.at.span, message).expected("constraints on the request's head only"));
}
