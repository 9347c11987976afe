//! Checks constraints on the bytes of connections, and that a rule with them makes sense as a whole.

use super::regex;
use crate::diagnostic::{Diagnostic, TextSpan};
use crate::report::CheckReport;
use crate::syntax::value::{ItemKind, ItemSyntax, ValueSyntax};
use crate::syntax::{MatchSyntax, RuleSyntax};
use crate::value;
use mmb_policy::field::{FieldPlace, ValueKind};
use mmb_policy::rule::{Cond, DropRate, Target, Test};
use mmb_policy::{PatternItem, PatternList};

/// The longest name of a list in bytes.
const MAX_LIST_NAME: usize = 64;
/// The longest host name in bytes (RFC 1035, section 2.3.4), with a leading dot.
const MAX_HOST_NAME: usize = 254;

/// The patterns of a constraint.
pub(super) fn patterns(
    syntax: &MatchSyntax<'_>,
    value: &ValueSyntax<'_>,
    report: &mut CheckReport<'_>,
) -> Option<Test> {
    let field = syntax.field.field;
    let is_name = field.info().values == ValueKind::ServerName;
    if let Some((cond, span)) = syntax.cond.filter(|(cond, _)| *cond != Cond::Eq) {
        let error = Diagnostic::new(span, format!("`{field}` is searched, not compared"));
        let remedy = match (cond, is_name) {
            (Cond::Ne, true) => format!("`! {field}` before the value"),
            _ => format!("the value right behind `{field}`"),
        };
        report.error(error.expected(remedy));
        return None;
    }
    if syntax.negated && !is_name {
        let message = format!("`! {field}` would be known only when the connection has ended");
        report.error(Diagnostic::new(syntax.span, message).expected(format!("`{field}` without `!`")));
        return None;
    }
    let read: Vec<_> = value.items().iter().filter_map(|item| pattern(is_name, item, report)).collect();
    (read.len() == value.items().len()).then_some(Test::Patterns(read))
}

fn pattern(is_name: bool, item: &ItemSyntax<'_>, report: &mut CheckReport<'_>) -> Option<PatternItem> {
    let error = match item.kind {
        ItemKind::Bytes([]) => {
            Diagnostic::new(item.span, "an empty text is found everywhere").expected("at least one byte")
        }
        ItemKind::Bytes(text) if is_name => match host_name(text) {
            Ok(()) => return Some(PatternItem::Text(text.to_vec())),
            Err((message, expected)) => Diagnostic::new(item.span, message).expected(expected),
        },
        ItemKind::Bytes(text) if text.len() > PatternList::MAX_PATTERN => {
            let message = format!("this pattern has {} bytes", text.len());
            Diagnostic::new(item.span, message).expected(format!("at most {}", PatternList::MAX_PATTERN))
        }
        ItemKind::Bytes(text) => return Some(PatternItem::Text(text.to_vec())),
        ItemKind::Regex(source) => match regex::check(source, is_name) {
            Ok(()) => return Some(PatternItem::Regex(source.clone())),
            Err((message, expected)) => Diagnostic::new(item.span, message).expected(expected),
        },
        ItemKind::Word(word) => match word.strip_prefix('@') {
            Some(name) if is_list_name(name) => return Some(PatternItem::List(name.to_owned())),
            Some(_) => no_list_name(item.span, word),
            None => Diagnostic::new(item.span, format!("`{word}` is no pattern"))
                .expected("a \"text\", a /regex/ or a @LIST")
                .suggest(Some(value::quoted(word))),
        },
    };
    report.error(error);
    None
}

/// Whether a list of patterns may be called so.
pub(crate) fn is_list_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_LIST_NAME).contains(&name.len()) && name.bytes().all(is_good)
}

/// The error that a list of patterns cannot be called so.
pub(crate) fn no_list_name(span: TextSpan, word: &str) -> Diagnostic {
    Diagnostic::new(span, format!("`{word}` is no name of a list"))
        .expected(format!("at most {MAX_LIST_NAME} letters, digits, `-`, `_` and `.`"))
}

/// Checks a text that a server name is compared with; an error is the message and the remedy.
fn host_name(text: &[u8]) -> Result<(), (String, &'static str)> {
    let domain = text.strip_prefix(b".").unwrap_or(text);
    let shown = String::from_utf8_lossy(text);
    if text.starts_with(b"*.") {
        let message = format!("`{shown}`: a leading dot stands for the domain and all below it");
        return Err((message, "`.example.com` for `*.example.com`"));
    }
    if domain.ends_with(b".") {
        return Err((
            format!("`{shown}`: server names have no dot at the end (RFC 6066)"),
            "the name without it",
        ));
    }
    if !text.is_ascii() {
        let message = format!("`{shown}`: server names are sent in ASCII (RFC 6066)");
        return Err((message, "its form with `xn--`"));
    }
    let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let has_labels =
        domain.split(|byte| *byte == b'.').all(|label| !label.is_empty() && label.iter().all(is_good));
    if !has_labels || text.len() > MAX_HOST_NAME {
        return Err((
            format!("`{shown}` is no host name"),
            "a name such as `www.example.com`, or `.example.com`",
        ));
    }
    Ok(())
}

/// Returns whether a constraint is one on the bytes of a connection.
fn is_of_stream(constraint: &MatchSyntax<'_>) -> bool {
    matches!(constraint.field.field.info().place, FieldPlace::Stream(_))
}

/// Reports what does not go together with constraints on streams, or without them.
pub(super) fn go_together(syntax: &RuleSyntax<'_>, targets: &[Target], report: &mut CheckReport<'_>) {
    let Some(constraint) = syntax.matches.iter().rfind(|constraint| is_of_stream(constraint)) else {
        for at in syntax.targets.iter().filter(|at| at.info.needs_stream) {
            let message =
                format!("`{}` acts on a match in a stream, and the rule searches for none", at.info.name);
            report
                .error(Diagnostic::new(at.span, message).expected("a constraint such as `stream \"TEXT\"`"));
        }
        return;
    };
    let field = constraint.field.field;
    if !syntax.stateful {
        let message =
            format!("`{field}` is about the bytes of a connection: write `add-stateful` instead of `add`");
        report.error(Diagnostic::new(constraint.span, message));
        return;
    }
    for (target, at) in targets.iter().zip(&syntax.targets) {
        let (message, expected) = if *target == Target::Accept {
            let message = format!("`accept` is decided by a packet's header, long before `{field}`");
            (message, "a rule of its own for `accept`")
        } else if matches!(target, Target::Drop(rate) if *rate != DropRate::ALL) {
            let message = format!("`{field}` is found or not: its connection is dropped as a whole");
            (message, "`drop` without a percentage")
        } else {
            continue;
        };
        report.error(Diagnostic::new(at.span, message).expected(expected));
    }
    let acts = |target: &Target| {
        matches!(target, Target::Alert(_) | Target::Close | Target::Drop(_) | Target::Accept)
    };
    if !targets.iter().any(acts) {
        let message = format!("nothing acts on a match of `{field}`");
        report.error(
            Diagnostic::new(constraint.span, message).expected("`alert`, `close` or `drop` in the rule"),
        );
    }
}
