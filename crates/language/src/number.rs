//! Numbers of values, read against the row of their field.

use crate::diagnostic::{Diagnostic, Note, TextSpan};
use crate::report::CheckReport;
use crate::syntax::value::{FieldSyntax, ItemKind, ItemSyntax, ValueSyntax};
use crate::value;
use crate::value::ValueError;
use mmb_policy::field::{Field, FieldInfo, ones};
use mmb_policy::rule::{NumberItem, NumberSet};
use std::fmt::Display;

/// The numbers of a value, each within the field's width.
pub(crate) fn numbers(
    field: &FieldSyntax<'_>,
    value: &ValueSyntax<'_>,
    report: &mut CheckReport<'_>,
) -> Option<NumberSet> {
    let mut items = Vec::with_capacity(value.items().len());
    items
        .extend(value.items().iter().filter_map(|item| number_item(field.field, &field.field, item, report)));
    (items.len() == value.items().len()).then_some(NumberSet(items))
}

/// Checks a value of a field that the text calls `name`, which is the name that errors use.
pub(crate) fn number_item(
    field: Field,
    name: &dyn Display,
    item: &ItemSyntax<'_>,
    report: &mut CheckReport<'_>,
) -> Option<NumberItem> {
    let info = field.info();
    let ItemKind::Word(word) = item.kind else {
        let error = Diagnostic::new(item.span, format!("`{name}` takes no bytes"));
        report.error(error.expected(value::expectation(info)));
        return None;
    };
    match value::item(info, word) {
        Ok(read) => {
            if read.masked {
                let network = crate::print::value::number_item(info, read.item);
                let message = format!("`{word}` has host bits set; taken as `{network}`");
                report.notes.push(Note::new(item.span, message));
            }
            Some(read.item)
        }
        Err(refusal) => {
            report.error(refused(info, name, (word, item.span), refusal));
            None
        }
    }
}

/// The range that was meant by a word in the form of another tool: `80:443`, `80..443`.
fn range(info: &FieldInfo, word: &str) -> Option<String> {
    let (first, last) = word.split_once("..").or_else(|| word.split_once(':'))?;
    let range = format!("{first}-{last}");
    value::item(info, &range).is_ok().then_some(range)
}

/// Makes an error of the reason why a word is no value of a field that the text calls `name`.
fn refused(
    info: &FieldInfo,
    name: &dyn Display,
    (word, span): (&str, TextSpan),
    refusal: ValueError,
) -> Diagnostic {
    let error = |message: String| Diagnostic::new(span, message);
    let expected = value::expectation(info);
    let counterpart = |from: &str, to: &str| info.name.replacen(from, to, 1);
    match refusal {
        ValueError::Unknown if info.max().is_none() => {
            error(format!("`{name}` takes no number")).expected(expected)
        }
        ValueError::Unknown => error(format!("`{word}` is no value of `{name}`")).expected(expected).suggest(
            range(info, word).or_else(|| {
                crate::nearest::nearest(word, info.names.list.iter().map(|(name, _)| *name))
                    .map(str::to_owned)
            }),
        ),
        ValueError::TooLarge => match info.width() {
            Some(width) if info.max() != Some(ones(width)) => {
                error(format!("`{word}` is too large for `{name}`")).expected(expected)
            }
            Some(width) if width % 8 == 0 && info.max() != Some(1) => {
                let bytes = width / 8;
                let plural = if bytes == 1 { "" } else { "s" };
                error(format!("`{word}` is too large: `{name}` has {bytes} byte{plural}")).expected(expected)
            }
            Some(1) => error(format!("`{word}` is too large: `{name}` has 1 bit")).expected(expected),
            Some(width) => {
                error(format!("`{word}` is too large: `{name}` has {width} bits")).expected(expected)
            }
            None => error(format!("`{word}` is too large: numbers of options have at most 8 bytes"))
                .expected("at most 18446744073709551615, or |bytes|"),
        },
        ValueError::Backwards => {
            error(format!("the range `{word}` ends before it begins")).expected("the smaller value first")
        }
        ValueError::PrefixTooLong => {
            error(format!("the prefix of `{word}` is too long")).expected(match info.max() {
                Some(u128::MAX) => "a length 0 to 128",
                _ => "a length 0 to 32",
            })
        }
        ValueError::Ip6ForIp4 => error(format!("`{word}` is an IPv6 address, `{name}` is about IPv4"))
            .expected(expected)
            .suggest(Some(counterpart("ip-", "ip6-"))),
        ValueError::Ip4ForIp6 => error(format!("`{word}` is an IPv4 address, `{name}` is about IPv6"))
            .expected(expected)
            .suggest(Some(counterpart("ip6-", "ip-"))),
    }
}
