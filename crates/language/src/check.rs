//! The checker: syntax trees to rules that can match and targets that can apply.
//!
//! Values are read against the table of fields, each constraint and target is checked by itself, then the
//! constraints as a conjunction ([`conflict`]). Whatever may match some packet is taken; a refusal gives its reason.

mod conflict;
mod constraint;
pub(crate) mod filter;
mod number;
mod packet_class;
pub(crate) mod report;
mod target;

use crate::diagnostic::Diagnostic;
use crate::syntax::RuleSyntax;
use mmb_policy::rule::{DEFAULT_PRIO, Match, Rule, Target};
use report::CheckReport;

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
    targets.extend(syntax.targets.iter().filter_map(|t| target::resolve(t, report)));
    if report.errors.len() == errors_before && !syntax.broken {
        target::check(syntax, &targets, report);
        conflict::check(syntax, &matches, &targets, report);
    }
    (report.errors.len() == errors_before && !syntax.broken).then(|| Rule {
        id: syntax.id,
        prio: syntax.prio.unwrap_or(DEFAULT_PRIO),
        name: syntax.name.clone(),
        stateful: syntax.stateful,
        matches,
        targets,
    })
}
