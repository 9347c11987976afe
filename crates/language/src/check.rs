//! The checker turns syntax trees into rules that can match, with targets that can apply.
//!
//! Values are read against the table of fields, each constraint and target is checked by itself, then the
//! constraints as a conjunction ([`conflict`]). Whatever may match some packet is taken; a refusal gives its reason.

pub(crate) mod conflict;
mod constraint;
mod edit;
pub(crate) mod filter;
mod host;
pub(crate) mod look;
mod packet_class;
mod regex;
pub(crate) mod stream;

use crate::diagnostic::{Diagnostic, Note};
use crate::report::CheckReport;
use crate::syntax::RuleSyntax;
use mmb_policy::field::BareMeaning;
use mmb_policy::limit::LimitUnit;
use mmb_policy::rule::{DEFAULT_PRIO, Match, Rule, Target};
use std::mem::discriminant;

/// Checks a rule; of one whose text had errors only what is there, by itself. `None` if there were errors.
pub(crate) fn rule(syntax: &RuleSyntax<'_>, report: &mut CheckReport<'_>) -> Option<Rule> {
    let errors_before = report.errors.len();
    if let (Some(all), false, false) = (syntax.all, syntax.matches.is_empty(), syntax.broken) {
        let error = Diagnostic::new(all, "`all` stands alone: it is every IP packet");
        report.error(error.expected("either `all` or other constraints"));
    }
    // Exact room: policies of a million rules are held in memory.
    let mut matches: Vec<Match> = Vec::with_capacity(syntax.matches.len());
    matches.extend(syntax.matches.iter().filter_map(|m| constraint::resolve(m, report)));
    let mut targets: Vec<Target> = Vec::with_capacity(syntax.targets.len());
    targets.extend(syntax.targets.iter().filter_map(|t| (t.info.check)(&t.arguments, report)));
    if report.errors.len() == errors_before && !syntax.broken {
        go_together(syntax, &targets, report);
        stream::go_together(syntax, &targets, report);
        stream::statuses(syntax, &matches, report);
        edit::go_together(syntax, &targets, report);
        conflict::check(syntax, &matches, &targets, report);
        if report.is_typed {
            note_bare_field(syntax, &targets, report);
        }
    }
    (report.errors.len() == errors_before && !syntax.broken).then(|| Rule {
        id: syntax.id,
        prio: syntax.prio.unwrap_or(DEFAULT_PRIO),
        name: syntax.name.clone(),
        stateful: syntax.stateful,
        draining: syntax.draining.is_some(),
        matches,
        targets,
    })
}

/// Notes a last field without a value in a rule that drops: a shell takes `> 1023` from `tcp-dport > 1023 drop`.
fn note_bare_field(syntax: &RuleSyntax<'_>, targets: &[Target], report: &mut CheckReport<'_>) {
    let Some(last) = syntax.matches.last() else { return };
    let field = last.field.field;
    let is_bare = last.value.is_none() && field.info().alone == BareMeaning::Protocol;
    let is_bare = is_bare && field.stream_part().is_none();
    if is_bare && targets.iter().any(|target| matches!(target, Target::Drop(_) | Target::Reject(_))) {
        let packets = packet_class::packets(field);
        let message = format!(
            "`{field}` alone matches every {packets}: was a value meant? (quote `>` and `<` in a shell)"
        );
        report.notes.push(Note::new(last.span, message));
    }
}

/// Reports targets that do not go together, or not with the rule.
fn go_together(syntax: &RuleSyntax<'_>, targets: &[Target], report: &mut CheckReport<'_>) {
    // One of each kind: there may be very many targets.
    let mut others: Vec<&Target> = Vec::new();
    if let Some(span) = syntax.draining.filter(|_| !syntax.stateful) {
        let message =
            "`draining` is about a rule that follows connections: write `add-stateful` instead of `add`";
        report.error(Diagnostic::new(span, message));
    }
    for (target, at) in targets.iter().zip(&syntax.targets) {
        let name = at.info.name;
        if at.info.stateful && !syntax.stateful {
            let rule = "a rule that follows connections: write `add-stateful` instead of `add`";
            report.error(Diagnostic::new(at.span, format!("`{name}` needs {rule}")));
        }
        if matches!(target, Target::Limit(limit) if limit.unit == LimitUnit::Connections) && !syntax.stateful
        {
            let error = Diagnostic::new(at.span, "a stateless rule makes no connections");
            report.error(error.expected("`add-stateful`, or a rate of packets or bytes"));
        }
        if let Some(problem) = (at.info.clash)(target, &others) {
            report.error(Diagnostic::new(at.span, problem));
        }
        if !others.iter().any(|other| discriminant(*other) == discriminant(target)) {
            others.push(target);
        }
    }
}
