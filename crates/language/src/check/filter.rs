//! Checks filters of connections: reads each value and refuses conditions that no connection can satisfy.

use crate::diagnostic::Diagnostic;
use crate::filter::{self, FilterError, FilterTerm, state_named};
use crate::nearest::nearest;
use crate::number::number_item;
use crate::parser::word_list::list;
use crate::report::CheckReport;
use crate::syntax::TermSyntax;
use crate::syntax::value::ItemKind;
use crate::value;
use mmb_policy::field::Field;
use mmb_policy::filter::{ConnectionFilter, STATES};
use mmb_policy::rule::RuleId;

/// Checks a filter. `None` if there were errors.
pub(crate) fn check(terms: &[TermSyntax<'_>], report: &mut CheckReport<'_>) -> Option<ConnectionFilter> {
    let mut filter = ConnectionFilter::ALL;
    let errors_before = report.errors.len();
    for term in terms {
        if let Some(Err(misfit)) = add(&mut filter, term, report) {
            let name = term.term.name;
            let message = match misfit {
                FilterError::Twice => format!("`{name}`: this was said before"),
                FilterError::Families => format!("`{name}`: no connection is of both IPv4 and IPv6"),
                FilterError::Protocols => format!("`{name}`: no connection is of two protocols"),
                FilterError::Several => format!("`{name}` takes one value here"),
            };
            let at = if misfit == FilterError::Several { term.value.span } else { term.span };
            report.error(Diagnostic::new(at, message));
        }
    }
    (report.errors.len() == errors_before).then_some(filter)
}

/// Adds a term; `None` if its value is wrong, which is told.
fn add(
    filter: &mut ConnectionFilter,
    syntax: &TermSyntax<'_>,
    report: &mut CheckReport<'_>,
) -> Option<Result<(), FilterError>> {
    let term = syntax.term;
    if let Some(id) = term.field {
        return Some(filter::add(
            filter,
            term,
            number_item(Field::new(id), &term.name, &syntax.value, report)?,
        ));
    }
    let word = match syntax.value.kind {
        ItemKind::Word(word) => word,
        ItemKind::Bytes(_) | ItemKind::Replacement(_) | ItemKind::Regex(_) => "",
    };
    if term.subject == FilterTerm::State {
        let Some(state) = state_named(word) else {
            let names = || STATES.iter().map(|(name, _)| *name);
            let error = Diagnostic::new(syntax.value.span, format!("`{word}` is no state"));
            report.error(error.expected(list(names())).suggest(nearest(word, names())));
            return None;
        };
        return Some(filter::set_state(filter, state));
    }
    let number = value::number(word).ok().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
    let Some(number) = number else {
        let error = Diagnostic::new(syntax.value.span, format!("`{word}` is no number of a rule"));
        report.error(error.expected("a number 1 to 4294967295"));
        return None;
    };
    Some(filter::set_rule(filter, RuleId(number)))
}
