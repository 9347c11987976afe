//! Targets that edit streams and HTTP: what each writes, checked by itself.

use super::operand::one;
use crate::check::stream::header_name;
use crate::diagnostic::{Diagnostic, TextSpan};
use crate::report::CheckReport;
use crate::syntax::value::{FieldSyntax, ItemKind, ItemSyntax, ValueSyntax};
use crate::value;
use mmb_policy::field::{FIELDS, Field, FieldId, FieldInfo, Writable};
use mmb_policy::http::{HeaderName, Replacement, ReplacementPart, fixed_header};
use mmb_policy::rule::StreamEdit;

/// Whether `mask` takes a field.
pub(super) fn masks(info: &FieldInfo) -> bool {
    info.writable == Writable::Stream
}

/// Whether `strip` takes a field.
pub(super) fn strips(info: &FieldInfo) -> bool {
    matches!(info.writable, Writable::Option | Writable::Header | Writable::Stream)
}

/// Whether `add` takes a field.
pub(super) fn adds(info: &FieldInfo) -> bool {
    matches!(info.writable, Writable::Option | Writable::Header) || info.id == FieldId::HttpBody
}

/// `mask FIELD ["TEXT"]`
pub(super) fn mask(
    field: &FieldSyntax<'_>,
    value: Option<&ValueSyntax<'_>>,
    report: &mut CheckReport<'_>,
) -> Option<StreamEdit> {
    takes(field, "mask", masks, report)?;
    let Some(value) = value else { return Some(StreamEdit::Mask(field.field, Vec::new())) };
    let item = one(field, value, report)?;
    let text = plain(replacement(item, report)?, item.span, report)?;
    if text.is_empty() {
        let error = Diagnostic::new(item.span, "an empty text covers nothing");
        report.error(error.expected("at least one byte, or `mask` without a text for `*`"));
        return None;
    }
    Some(StreamEdit::Mask(field.field, text))
}

/// `mod FIELD "TEXT"`, of a field that is [writable](Writable) as a stream, a header field or a whole.
pub(super) fn modify(
    field: &FieldSyntax<'_>,
    value: &ValueSyntax<'_>,
    report: &mut CheckReport<'_>,
) -> Option<StreamEdit> {
    let item = one(field, value, report)?;
    if field.field.info().writable == Writable::Header {
        let name = written_name(field, "mod", report);
        let replacement = header_value(replacement(item, report)?, item.span, report)?;
        return Some(StreamEdit::ModHeader(name?, replacement));
    }
    let replacement = replacement(item, report)?;
    let is_whole = field.field.info().writable == Writable::Whole;
    let error = if replacement.parts().is_empty() && is_whole {
        Diagnostic::new(item.span, format!("a request needs its `{}`", field.field))
            .expected("at least one byte")
    } else if replacement.parts().is_empty() {
        Diagnostic::new(item.span, "an empty text removes what was found")
            .expected(format!("`strip {}`, or at least one byte", field.field))
    } else if let Some((message, expected)) = whole_fault(field.field, &replacement).filter(|_| is_whole) {
        Diagnostic::new(item.span, message).expected(expected)
    } else if is_whole {
        return Some(StreamEdit::ModHttp(field.field, replacement));
    } else {
        return Some(StreamEdit::Mod(field.field, replacement));
    };
    report.error(error);
    None
}

/// What is wrong with a text in the place of the host or of the target of a request, and the remedy.
fn whole_fault(field: Field, replacement: &Replacement) -> Option<(String, &'static str)> {
    let has = |is_bad: fn(u8) -> bool| replacement.bytes().any(is_bad);
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    let begins_target = match replacement.parts() {
        // The old target begins so.
        [ReplacementPart::Matched, ..] | [] => true,
        [ReplacementPart::Bytes(bytes), ..] => bytes.starts_with(b"/") || bytes == b"*",
    };
    match field.id {
        FieldId::HttpUri if has(|byte| !byte.is_ascii_graphic()) => {
            let message = "`http-uri` holds neither blanks nor control characters, and only ASCII";
            Some((message.to_owned(), "an encoded text, such as `%20` for a blank"))
        }
        FieldId::HttpUri if !begins_target => {
            Some(("the target of a request begins with `/`".to_owned(), "a text such as `/new\\m`"))
        }
        FieldId::HttpHost if !replacement.bytes().all(is_of_host) => {
            Some(("`http-host` is a name or an address".to_owned(), "a host, with or without a port"))
        }
        _ => None,
    }
}

/// `strip [!] FIELD`, of a field of streams.
pub(super) fn strip(
    field: &FieldSyntax<'_>,
    negated: bool,
    report: &mut CheckReport<'_>,
) -> Option<StreamEdit> {
    takes(field, "strip", strips, report)?;
    let is_header = field.field.info().writable == Writable::Header;
    match (is_header, negated) {
        // What stays may be any.
        (true, true) => header_name(field, report).map(StreamEdit::KeepHeader),
        (true, false) => written_name(field, "strip", report).map(StreamEdit::StripHeader),
        (false, false) => Some(StreamEdit::Strip(field.field)),
        (false, true) => {
            let message = format!("`strip ! {}` would remove all but what is found", field.field);
            let error = Diagnostic::new(field.span, message);
            report.error(error.expected(format!("`strip {}`", field.field)));
            None
        }
    }
}

/// `add http-header NAME "TEXT"`, `add http-body "TEXT"`
pub(super) fn add(
    field: &FieldSyntax<'_>,
    value: Option<&ValueSyntax<'_>>,
    report: &mut CheckReport<'_>,
) -> Option<StreamEdit> {
    takes(field, "add", adds, report)?;
    let Some(value) = value else {
        let error = Diagnostic::new(field.span, format!("what is added to `{}` is missing", field.field));
        report.error(error.expected(value::written_form(field.field.info())));
        return None;
    };
    let item = one(field, value, report)?;
    if field.field.info().writable == Writable::Header {
        let name = written_name(field, "add", report);
        let value = header_value(replacement(item, report)?, item.span, report)?;
        return Some(StreamEdit::AddHeader(name?, plain(value, item.span, report)?));
    }
    let tail = plain(replacement(item, report)?, item.span, report)?;
    if tail.is_empty() {
        report.error(Diagnostic::new(item.span, "nothing to add").expected("at least one byte"));
        return None;
    }
    Some(StreamEdit::AddBody(tail))
}

/// Reports a field that a target does not take.
fn takes(
    field: &FieldSyntax<'_>,
    target: &str,
    takes: fn(&FieldInfo) -> bool,
    report: &mut CheckReport<'_>,
) -> Option<()> {
    let info = field.field.info();
    if takes(info) {
        return Some(());
    }
    let (message, expected) = match info.writable {
        Writable::No(reason) => (format!("`{}` cannot be written: {reason}", field.field), None),
        Writable::Stream if target == "add" => (
            format!("`{}` has no end that `add` could append to", field.field),
            Some("`mod`, or `add http-body`"),
        ),
        Writable::Whole => {
            let message = format!("`{target}` does not take `{}`, which is replaced as a whole", field.field);
            (message, Some("`mod`"))
        }
        _ => (format!("`{target}` does not take `{}`", field.field), None),
    };
    let fields = || {
        let fields: Vec<_> =
            FIELDS.iter().filter(|info| takes(info)).map(|info| format!("`{}`", info.name)).collect();
        format!("one of {}", fields.join(", "))
    };
    let error = Diagnostic::new(field.span, message);
    report.error(match (expected, info.writable) {
        (Some(expected), _) => error.expected(expected),
        (None, Writable::No(_)) => error,
        (None, _) => error.expected(fields()),
    });
    None
}

/// The name of a header field that a target writes.
fn written_name(field: &FieldSyntax<'_>, target: &str, report: &mut CheckReport<'_>) -> Option<HeaderName> {
    let name = header_name(field, report)?;
    let Some(reason) = fixed_header(name.as_str().as_bytes()) else { return Some(name) };
    let at = field.header.map_or(field.span, |header| header.span);
    report.error(Diagnostic::new(at, format!("`{target}` does not take `{name}`: {reason}")));
    None
}

/// What an item puts in the place of what was found.
fn replacement(item: &ItemSyntax<'_>, report: &mut CheckReport<'_>) -> Option<Replacement> {
    let error = match item.kind {
        ItemKind::Bytes(bytes) => return bounded(Replacement::of_bytes(bytes.to_vec()), item.span, report),
        ItemKind::Replacement(replacement) => return bounded(replacement.clone(), item.span, report),
        ItemKind::Regex(_) => Diagnostic::new(item.span, "a regex is searched for, not written")
            .expected("a \"text\" or |bytes|"),
        ItemKind::Word(word) => Diagnostic::new(item.span, format!("`{word}` is neither a text nor bytes"))
            .expected("a \"text\" or |bytes|")
            .suggest((!word.starts_with('@')).then(|| value::quoted(word))),
    };
    report.error(error);
    None
}

fn bounded(replacement: Replacement, at: TextSpan, report: &mut CheckReport<'_>) -> Option<Replacement> {
    let (bytes, matched) = (replacement.bytes().count(), replacement.matched());
    let error = if bytes > Replacement::MAX_BYTES {
        Diagnostic::new(at, format!("this text has {bytes} bytes"))
            .expected(format!("at most {}", Replacement::MAX_BYTES))
    } else if matched > Replacement::MAX_MATCHED {
        Diagnostic::new(at, format!("this text has `\\m` {matched} times"))
            .expected(format!("at most {} of them", Replacement::MAX_MATCHED))
    } else {
        return Some(replacement);
    };
    report.error(error);
    None
}

/// A text in which nothing stands for what was found.
fn plain(replacement: Replacement, at: TextSpan, report: &mut CheckReport<'_>) -> Option<Vec<u8>> {
    if replacement.parts().contains(&ReplacementPart::Matched) {
        report.error(value::nothing_matched(at));
        return None;
    }
    Some(replacement.bytes().collect())
}

/// A value that a header field may have (RFC 9110, section 5.5).
fn header_value(replacement: Replacement, at: TextSpan, report: &mut CheckReport<'_>) -> Option<Replacement> {
    let is_bad = |byte: u8| byte != b'\t' && byte.is_ascii_control();
    if !replacement.bytes().any(is_bad) {
        return Some(replacement);
    }
    let message = "the value of a header field holds no line ends and no other control characters";
    report.error(
        Diagnostic::new(at, message)
            .expected("a text without them; several header fields are several targets"),
    );
    None
}
