//! Checks constraints on the bytes of connections, and that a rule with them makes sense as a whole.

use super::{host, regex};
use crate::diagnostic::{Diagnostic, Note, TextSpan};
use crate::report::CheckReport;
use crate::syntax::value::{FieldSyntax, ItemKind, ItemSyntax, ValueSyntax};
use crate::syntax::{MatchSyntax, RuleSyntax};
use crate::value;
use mmb_policy::field::{Field, StreamPart, ones};
use mmb_policy::http::{HeaderName, is_token};
use mmb_policy::rule::{Cond, DropRate, Match, Target, Test};
use mmb_policy::{Intervals, PatternItem, PatternList};

/// The longest name of a list in bytes.
const MAX_LIST_NAME_BYTES: usize = 64;

/// Reports a `!` before a field whose absence is known too late.
pub(super) fn negation(syntax: &MatchSyntax<'_>, report: &mut CheckReport<'_>) -> Option<()> {
    let field = syntax.field.field;
    let Some(reason) = part(syntax).filter(|_| syntax.negated).and_then(known_late) else { return Some(()) };
    let error = Diagnostic::new(syntax.span, format!("`! {field}` {reason}"));
    report.error(error.expected(format!("`{field}` without `!`")));
    None
}

/// The reason why a constraint on a part is not negated.
fn known_late(part: StreamPart) -> Option<&'static str> {
    match part {
        StreamPart::Both | StreamPart::Forward | StreamPart::Reply => {
            Some("would be known only when the connection has ended")
        }
        StreamPart::HttpBody => Some("would be known only when the body has ended"),
        StreamPart::Http => Some("would be about connections without messages, on which nothing decides"),
        StreamPart::ServerName | StreamPart::HttpMethod | StreamPart::HttpHost | StreamPart::HttpUri => None,
        StreamPart::HttpStatus | StreamPart::HttpHeader => None,
    }
}

/// The patterns of a constraint.
pub(super) fn patterns(
    syntax: &MatchSyntax<'_>,
    value: &ValueSyntax<'_>,
    report: &mut CheckReport<'_>,
) -> Option<Vec<PatternItem>> {
    let field = syntax.field.field;
    let part = part(syntax)?;
    if let Some((cond, span)) = syntax.cond.filter(|(cond, _)| *cond != Cond::Eq) {
        let error = Diagnostic::new(span, format!("`{field}` is searched, not compared"));
        let remedy = match (cond, known_late(part)) {
            (Cond::Ne, None) => format!("`! {field}` before the value"),
            _ => format!("the value right behind `{field}`"),
        };
        report.error(error.expected(remedy));
        return None;
    }
    negation(syntax, report)?;
    let read: Vec<_> = value.items().iter().filter_map(|item| pattern(part, item, report)).collect();
    (read.len() == value.items().len()).then_some(read)
}

/// The name of a constraint's or a target's header field.
pub(crate) fn header_name(field: &FieldSyntax<'_>, report: &mut CheckReport<'_>) -> Option<HeaderName> {
    let item = field.header.as_ref()?;
    let name = match item.kind {
        ItemKind::Bytes(name) => name,
        ItemKind::Word(word) => word.as_bytes(),
        ItemKind::Replacement(_) | ItemKind::Regex(_) => &[],
    };
    let read = HeaderName::new(name);
    if read.is_none() {
        let message =
            format!("`{}` is no name of a header field", String::from_utf8_lossy(name).escape_debug());
        let expected = format!(
            "at most {} letters, digits and !#$%&'*+-.^_`|~ (RFC 9110, section 5.1)",
            HeaderName::MAX_LEN
        );
        report.error(Diagnostic::new(item.span, message).expected(expected));
    }
    read
}

fn pattern(part: StreamPart, item: &ItemSyntax<'_>, report: &mut CheckReport<'_>) -> Option<PatternItem> {
    let error = match item.kind {
        ItemKind::Bytes(text) => match text_of(part, text) {
            Ok(()) => {
                note_method(part, text, item.span, report);
                note_target(part, text, item.span, report);
                return Some(PatternItem::Text(text.to_vec()));
            }
            Err((message, expected)) => Diagnostic::new(item.span, message).expected(expected),
        },
        ItemKind::Replacement(_) => value::nothing_matched(item.span),
        ItemKind::Regex(source) => match regex::check(source, late_end(part)) {
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

/// A part that is searched before its end is known, and when that is; `None` for one that is known as a whole.
fn late_end(part: StreamPart) -> Option<&'static str> {
    match part {
        StreamPart::Both | StreamPart::Forward | StreamPart::Reply => {
            Some("the stream, which is known only when the connection is over")
        }
        StreamPart::HttpBody => Some("the body, which is known only when the body has passed"),
        StreamPart::ServerName | StreamPart::Http | StreamPart::HttpMethod | StreamPart::HttpHost => None,
        StreamPart::HttpUri | StreamPart::HttpStatus | StreamPart::HttpHeader => None,
    }
}

/// Checks a text that a part is compared with or searched for; an error is the message and the remedy.
fn text_of(part: StreamPart, text: &[u8]) -> Result<(), (String, String)> {
    let whole = "compare as a whole, and an empty text is no";
    if text.is_empty() {
        return Err(match part {
            StreamPart::HttpMethod => (format!("methods {whole} method"), "a method such as `GET`".into()),
            StreamPart::HttpHeader => {
                let message = "an empty text says nothing about a header field".to_owned();
                (message, "at least one byte, or the name alone for any value".into())
            }
            _ => ("an empty text is found everywhere".into(), "at least one byte".into()),
        });
    }
    if text.len() > PatternList::MAX_PATTERN_BYTES {
        let message = format!("this pattern has {} bytes", text.len());
        return Err((message, format!("at most {}", PatternList::MAX_PATTERN_BYTES)));
    }
    let shown = || String::from_utf8_lossy(text).escape_debug().to_string();
    match part {
        StreamPart::ServerName => host::server_name(text),
        StreamPart::HttpHost => host::http_host(text),
        StreamPart::HttpMethod if !is_token(text) => Err((
            format!("`{}` is no method", shown()),
            "a method such as `GET`; patterns are a /regex/".into(),
        )),
        StreamPart::HttpUri if text.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) => {
            let message =
                format!("`{}`: request targets hold neither blanks nor control characters", shown());
            Err((message, "`%20` for a blank".into()))
        }
        StreamPart::HttpHeader if text.iter().any(|byte| *byte != b'\t' && byte.is_ascii_control()) => {
            let message = format!("`{}`: values of header fields hold no control characters", shown());
            Err((message, "a text without them".into()))
        }
        StreamPart::HttpHeader if text != text.trim_ascii() => {
            let message = format!("`{}`: blanks around a header field's value are no part of it", shown());
            Err((message, "the text without them".into()))
        }
        StreamPart::Both | StreamPart::Forward | StreamPart::Reply | StreamPart::Http => Ok(()),
        StreamPart::HttpMethod | StreamPart::HttpUri | StreamPart::HttpStatus => Ok(()),
        StreamPart::HttpHeader | StreamPart::HttpBody => Ok(()),
    }
}

/// Notes a method in lower case, which no client sends.
fn note_method(part: StreamPart, text: &[u8], at: TextSpan, report: &mut CheckReport<'_>) {
    if part == StreamPart::HttpMethod && text.iter().any(u8::is_ascii_lowercase) {
        let meant = String::from_utf8_lossy(text).to_ascii_uppercase();
        report.notes.push(Note::new(at, format!("methods differ by case: was `{meant}` meant?")));
    }
}

/// Notes a text with which no request target begins: a path begins with `/`, only that of OPTIONS may be `*`, and that of CONNECT is host and port.
fn note_target(part: StreamPart, text: &[u8], at: TextSpan, report: &mut CheckReport<'_>) {
    if part != StreamPart::HttpUri || text.starts_with(b"/") || text == b"*" {
        return;
    }
    let shown = String::from_utf8_lossy(text).escape_debug().to_string();
    let message = if text.windows(3).any(|three| three == b"://") {
        format!("scheme and authority of a request target are not compared: `{shown}` would find nothing")
    } else if text.contains(&b':') {
        // Host and port.
        return;
    } else {
        format!(
            "a text is compared with the begin of the request target, which is `/`: was `\"/{shown}\"` meant, or a /regex/?"
        )
    };
    report.notes.push(Note::new(at, message));
}

/// Whether a list of patterns may be called so.
pub(crate) fn is_list_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_LIST_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_good)
}

/// The error that a list of patterns cannot be called so.
pub(crate) fn no_list_name(span: TextSpan, word: &str) -> Diagnostic {
    Diagnostic::new(span, format!("`{word}` is no name of a list"))
        .expected(format!("at most {MAX_LIST_NAME_BYTES} letters, digits, `-`, `_` and `.`"))
}

/// The part of a connection's bytes that a constraint is about; `None` for one on packets.
pub(super) fn part(constraint: &MatchSyntax<'_>) -> Option<StreamPart> {
    constraint.field.field.stream_part()
}

/// Whether a target acts on what the rule's constraints on streams find.
fn acts(target: &Target) -> bool {
    match target {
        Target::Alert(_) | Target::Close | Target::Edit(_) => true,
        Target::Drop(_) | Target::Reject(_) | Target::Accept => true,
        Target::Mod(..) | Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) => false,
        Target::StripAll | Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) => false,
        Target::Digest | Target::Helper(_) | Target::Log(_) | Target::Limit(_) => false,
    }
}

/// Reports what does not go together with constraints on streams, or without them.
pub(super) fn go_together(syntax: &RuleSyntax<'_>, targets: &[Target], report: &mut CheckReport<'_>) {
    let Some(constraint) = syntax.matches.iter().rfind(|constraint| part(constraint).is_some()) else {
        let port =
            syntax.matches.iter().find(|constraint| is_port_http(constraint)).map(|port| port.field.field);
        without_constraints(syntax, (targets, port), report);
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
        } else if matches!(target, Target::Reject(_)) {
            let message = format!("`reject` is decided by a packet's header, long before `{field}`");
            (message, "`close`, which resets the connection")
        } else if matches!(target, Target::Drop(rate) if *rate != DropRate::ALL) {
            let message = format!("`{field}` is found or not: its connection is dropped as a whole");
            (message, "`drop` without a percentage")
        } else if matches!(target, Target::Limit(_)) {
            let message =
                format!("`limit` counts packets, and `{field}` is found in the bytes of a connection");
            (message, "a rule of its own for `limit`")
        } else if matches!(target, Target::Log(_)) {
            let message =
                format!("`log` tells of packets, and `{field}` is found in the bytes of a connection");
            (message, "`alert`, which tells of a match")
        } else if matches!(target, Target::Helper(_)) {
            let message = format!("`helper` is for whole connections, whatever `{field}` finds in them");
            (message, "a rule of its own for `helper`")
        } else {
            continue;
        };
        report.error(Diagnostic::new(at.span, message).expected(expected));
    }
    if !targets.iter().any(acts) {
        let message = format!("nothing acts on a match of `{field}`");
        let error = Diagnostic::new(constraint.span, message);
        report.error(error.expected("`alert`, `close`, `drop` or an edit of what is found in the rule"));
    }
    one_connection(syntax, report);
}

/// Whether a constraint compares a port with the word `http`.
fn is_port_http(constraint: &MatchSyntax<'_>) -> bool {
    let mut items = constraint.value.iter().flat_map(ValueSyntax::items);
    items.any(|item| matches!(item.kind, ItemKind::Word("http")))
}

/// Reports targets that act on matches in streams, of a rule without constraints on streams. `port` is a field of ports that is compared with the word
/// `http`, which may have been meant as the field.
fn without_constraints(
    syntax: &RuleSyntax<'_>,
    (targets, port): (&[Target], Option<Field>),
    report: &mut CheckReport<'_>,
) {
    let once_more = port.map(|port| format!("`http` once more: behind `{port}` it is the number of a port"));
    let or_once_more = once_more.as_ref().map_or(String::new(), |once_more| format!(", or {once_more}"));
    for (target, at) in targets.iter().zip(&syntax.targets) {
        let name = at.info.name;
        if let (Target::Edit(edit), false, false) = (target, syntax.stateful, at.info.stateful) {
            let rule = "a rule that follows connections: write `add-stateful` instead of `add`";
            report.error(Diagnostic::new(at.span, format!("`{name} {}` needs {rule}", edit.field())));
        }
        let (message, expected) = match target {
            Target::Edit(edit) if !edit.is_of_matches() => {
                let field = edit.field();
                let message =
                    format!("`{name} {field}` acts on messages of HTTP, and the rule asks for none");
                (message, once_more.clone().unwrap_or_else(|| "a constraint such as `http`".to_owned()))
            }
            Target::Edit(edit) => {
                let field = edit.field();
                let message = format!(
                    "`{name} {field}` acts on what `{field}` finds, and the rule searches for nothing"
                );
                (message, format!("a constraint such as `{field} \"TEXT\"`"))
            }
            Target::Alert(_) | Target::Close => {
                let message = format!("`{name}` acts on a match in a stream, and the rule searches for none");
                (message, format!("a constraint such as `stream \"TEXT\"`{or_once_more}"))
            }
            Target::Mod(..)
            | Target::AddOption(..)
            | Target::Strip(_)
            | Target::Keep(_)
            | Target::StripAll => continue,
            Target::Drop(_) | Target::Reject(_) | Target::Accept => continue,
            Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) => continue,
            Target::Digest | Target::Helper(_) | Target::Log(_) | Target::Limit(_) => continue,
        };
        report.error(Diagnostic::new(at.span, message).expected(expected));
    }
}

/// Reports constraints on streams that no connection satisfies together.
fn one_connection(syntax: &RuleSyntax<'_>, report: &mut CheckReport<'_>) {
    let last = |is: fn(StreamPart) -> bool| syntax.matches.iter().rfind(|m| part(m).is_some_and(is));
    let (http, tls) = (last(StreamPart::is_http), last(|part| part == StreamPart::ServerName));
    if let (Some(http), Some(tls)) = (http, tls) {
        let at = if http.span.start > tls.span.start { http } else { tls };
        let (http, tls) = (http.field.field, tls.field.field);
        let message = format!(
            "this rule can never match: a connection of TLS (`{tls}`) shows no messages of HTTP (`{http}`)"
        );
        report.error(Diagnostic::new(at.span, message));
    }
}

/// Reports constraints on the status of a response that none satisfies.
pub(super) fn statuses(syntax: &RuleSyntax<'_>, matches: &[Match], report: &mut CheckReport<'_>) {
    let is_status = |m: &Match| m.field.stream_part() == Some(StreamPart::HttpStatus);
    let Some(last) = matches.iter().rposition(is_status) else { return };
    let (width, mut left) = (10, Intervals::range(100, 999));
    for m in matches.iter().filter(|m| is_status(m)) {
        let Test::Number(cond, set) = &m.test else { continue };
        let is = Intervals::compared(*cond, set, width);
        left = left.intersect(&if m.negated { is.complement(ones(width)) } else { is });
    }
    if left.is_empty() {
        let at = syntax.matches.get(last).map_or(TextSpan::default(), |m| m.span);
        let message = "this rule can never match: no response has such a status";
        report.error(Diagnostic::new(at, message).expected("numbers of 100 to 999"));
    }
}
