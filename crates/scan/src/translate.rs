//! Texts and regexes to expressions of the matcher, or reasons why not.
//!
//! A regex is parsed by `regex-syntax`, so that its meaning is that of the `regex` crate, and written anew with only what the
//! matcher reads the same way: bytes, classes of bytes, groups, alternations, repetitions and anchors.

use crate::error::PatternRefusal;
use crate::{MAX_EDIT_MATCH_BYTES, MAX_POSITIONS, MAX_REGEX_BYTES, MAX_REPEATS, MAX_TEXT_BYTES};
use regex_syntax::ast::ErrorKind;
use regex_syntax::hir::{Class, ClassBytes, Hir, HirKind, Look, Repetition};
use regex_syntax::{Error, ParserBuilder, hir};
use std::fmt::Write;

/// The most bytes of an expression; the library takes 16,000.
const MAX_EXPRESSION_BYTES: usize = 16_000;
/// The deepest nesting of groups and repetitions.
const DEEPEST: u32 = 64;
/// The part of a repeated class that counts as its size.
const COUNTER_SHARE: u64 = 16;

/// A pattern in the matcher's syntax.
#[derive(Debug)]
pub(crate) struct Translation {
    /// ASCII without zero bytes.
    pub source: String,
    pub ignores_case: bool,
    /// Its size as [`MAX_POSITIONS`] has it; 0 if it is a text.
    pub positions: u64,
    /// Its bytes, if it is a text.
    pub text: Option<Vec<u8>>,
}

/// A text.
pub(crate) fn escape(bytes: &[u8], ignores_case: bool) -> Result<Translation, PatternRefusal> {
    match bytes.len() {
        0 => return Err(PatternRefusal::EmptyText),
        1..=MAX_TEXT_BYTES => {}
        long => return Err(PatternRefusal::LongText(long)),
    }
    let mut source = String::with_capacity(bytes.len() * 4);
    bytes.iter().for_each(|byte| push_byte(&mut source, *byte));
    Ok(Translation { source, ignores_case, positions: 0, text: Some(bytes.to_vec()) })
}

/// A regex.
pub(crate) fn translate(regex: &str, ignores_case: bool) -> Result<Translation, PatternRefusal> {
    let hir = parse(regex, ignores_case)?;
    let positions = positions(&hir)?;
    match hir.properties().minimum_len() {
        None => return Err(PatternRefusal::MatchesNothing),
        Some(0) => return Err(PatternRefusal::MatchesEmpty),
        Some(_) => {}
    }
    if positions > MAX_POSITIONS {
        return Err(PatternRefusal::TooLarge(positions));
    }
    if let Some((text, ignores_case)) = text(&hir)
        && text.len() <= MAX_TEXT_BYTES
    {
        return escape(&text, ignores_case);
    }
    let mut source = String::new();
    write(&hir, &mut source)?;
    if source.len() > MAX_EXPRESSION_BYTES {
        return Err(PatternRefusal::TooLarge(positions));
    }
    Ok(Translation { source, ignores_case: false, positions: positions.max(1), text: None })
}

/// A regex whose matches are edited.
#[derive(Debug)]
pub(crate) enum EditRegex {
    /// It is this text.
    Text { bytes: Vec<u8>, ignores_case: bool },
    /// It is not one. Its size is that of [`Translation::positions`].
    Regex { hir: Hir, positions: u64 },
}

/// A regex whose matches are edited: what [`translate`] takes, if its matches do not depend on the end of the stream and have a bound.
pub(crate) fn edit_regex(regex: &str, ignores_case: bool) -> Result<EditRegex, PatternRefusal> {
    let Translation { positions, .. } = translate(regex, ignores_case)?;
    let hir = parse(regex, ignores_case)?;
    if let Some((bytes, ignores_case)) = text(&hir)
        && bytes.len() <= MAX_TEXT_BYTES
    {
        return Ok(EditRegex::Text { bytes, ignores_case });
    }
    if hir.properties().look_set().contains(Look::End) {
        return Err(PatternRefusal::EditAtEnd);
    }
    match hir.properties().maximum_len() {
        None => Err(PatternRefusal::UnboundedMatch),
        Some(longest) if longest > MAX_EDIT_MATCH_BYTES => Err(PatternRefusal::LongMatch(longest)),
        Some(_) => Ok(EditRegex::Regex { hir, positions }),
    }
}

fn parse(regex: &str, ignores_case: bool) -> Result<Hir, PatternRefusal> {
    if regex.len() > MAX_REGEX_BYTES {
        return Err(PatternRefusal::LongRegex(regex.len()));
    }
    let mut parser = ParserBuilder::new();
    parser.unicode(false).utf8(false).case_insensitive(ignores_case).nest_limit(DEEPEST);
    parser.build().parse(regex).map_err(refusal)
}

/// Why the parser refuses a regex.
fn refusal(error: Error) -> PatternRefusal {
    match &error {
        Error::Parse(error) => match error.kind() {
            ErrorKind::UnsupportedLookAround => PatternRefusal::LookAround,
            ErrorKind::UnsupportedBackreference => PatternRefusal::BackReference,
            kind => PatternRefusal::Syntax(format!("{kind} at byte {}", error.span().start.offset)),
        },
        Error::Translate(error) => match error.kind() {
            hir::ErrorKind::UnicodeNotAllowed
            | hir::ErrorKind::UnicodePropertyNotFound
            | hir::ErrorKind::UnicodePropertyValueNotFound
            | hir::ErrorKind::UnicodePerlClassNotFound
            | hir::ErrorKind::UnicodeCaseUnavailable => PatternRefusal::Unicode,
            kind => PatternRefusal::Syntax(format!("{kind} at byte {}", error.span().start.offset)),
        },
        other => PatternRefusal::Syntax(other.to_string()),
    }
}

/// The text that a regex is, and whether its letters match in either case; `None` for other regexes.
fn text(hir: &Hir) -> Option<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    push_text(hir, &mut bytes)?;
    let mut letters = bytes.iter().filter(|(byte, _)| byte.is_ascii_alphabetic()).map(|(_, either)| *either);
    let ignores_case = letters.next().unwrap_or(false);
    letters
        .all(|either| either == ignores_case)
        .then(|| (bytes.iter().map(|(byte, _)| *byte).collect(), ignores_case))
}

/// Appends the bytes of a text, each with whether it is a letter in either case.
fn push_text(hir: &Hir, bytes: &mut Vec<(u8, bool)>) -> Option<()> {
    match hir.kind() {
        HirKind::Literal(literal) => bytes.extend(literal.0.iter().map(|byte| (*byte, false))),
        HirKind::Class(Class::Bytes(class)) => match class.ranges() {
            [upper, lower]
                if upper.len() == 1
                    && lower.len() == 1
                    && upper.start().is_ascii_uppercase()
                    && lower.start() == upper.start().to_ascii_lowercase() =>
            {
                bytes.push((lower.start(), true));
            }
            _ => return None,
        },
        HirKind::Capture(capture) => push_text(&capture.sub, bytes)?,
        HirKind::Concat(parts) => parts.iter().try_for_each(|part| push_text(part, bytes))?,
        _ => return None,
    }
    Some(())
}

/// The size of a regex. Checks the counts of repetitions.
fn positions(hir: &Hir) -> Result<u64, PatternRefusal> {
    Ok(match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(_) => 1,
        HirKind::Capture(capture) => positions(&capture.sub)?,
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().try_fold(0, |sum: u64, part| Ok(sum.saturating_add(positions(part)?)))?
        }
        HirKind::Repetition(repetition) => {
            let max = repetition.max.unwrap_or(repetition.min).max(1);
            if max > MAX_REPEATS {
                return Err(PatternRefusal::Repeats(max));
            }
            let once = positions(&repetition.sub)?;
            match once {
                1 => u64::from(max).div_ceil(COUNTER_SHARE),
                _ => once.saturating_mul(u64::from(max)),
            }
        }
    })
}

/// Appends a regex in the matcher's syntax.
fn write(hir: &Hir, out: &mut String) -> Result<(), PatternRefusal> {
    match hir.kind() {
        // A group, so that what repeats it has something to repeat.
        HirKind::Empty => out.push_str("(?:)"),
        HirKind::Literal(literal) => literal.0.iter().for_each(|byte| push_byte(out, *byte)),
        HirKind::Class(class) => write_class(class, out)?,
        HirKind::Look(Look::Start) => out.push_str("\\A"),
        HirKind::Look(Look::End) => out.push_str("\\z"),
        HirKind::Look(Look::StartLF) => out.push_str("(?m:^)"),
        HirKind::Look(Look::EndLF | Look::StartCRLF | Look::EndCRLF) => return Err(PatternRefusal::LineEnd),
        HirKind::Look(_) => return Err(PatternRefusal::WordBoundary),
        HirKind::Capture(capture) => write(&capture.sub, out)?,
        HirKind::Repetition(repetition) => write_repetition(repetition, out)?,
        HirKind::Concat(parts) => {
            for part in parts {
                write_group(part, out)?;
            }
        }
        HirKind::Alternation(parts) => {
            for (number, part) in parts.iter().enumerate() {
                if number > 0 {
                    out.push('|');
                }
                write(part, out)?;
            }
        }
    }
    Ok(())
}

/// Appends a part of a sequence: alternations in a group.
fn write_group(hir: &Hir, out: &mut String) -> Result<(), PatternRefusal> {
    match hir.kind() {
        HirKind::Capture(_) | HirKind::Alternation(_) => {
            out.push_str("(?:");
            write(hir, out)?;
            out.push(')');
            Ok(())
        }
        _ => write(hir, out),
    }
}

/// Appends a repetition. All ends of matches are told, so that greedy or lazy is the same.
fn write_repetition(repetition: &Repetition, out: &mut String) -> Result<(), PatternRefusal> {
    let is_class = matches!(repetition.sub.kind(), HirKind::Class(_));
    if !is_class {
        out.push_str("(?:");
    }
    write(&repetition.sub, out)?;
    if !is_class {
        out.push(')');
    }
    let (min, max) = (repetition.min, repetition.max);
    let _ = match max {
        None if min == 0 => out.write_char('*'),
        None if min == 1 => out.write_char('+'),
        None => write!(out, "{{{min},}}"),
        Some(1) if min == 0 => out.write_char('?'),
        Some(max) if min == max => write!(out, "{{{min}}}"),
        Some(max) => write!(out, "{{{min},{max}}}"),
    };
    Ok(())
}

fn write_class(class: &Class, out: &mut String) -> Result<(), PatternRefusal> {
    let class: ClassBytes = match class {
        Class::Bytes(class) => class.clone(),
        Class::Unicode(class) => class.to_byte_class().ok_or(PatternRefusal::Unicode)?,
    };
    if class.ranges().is_empty() {
        return Err(PatternRefusal::MatchesNothing);
    }
    out.push('[');
    for range in class.ranges() {
        push_byte(out, range.start());
        if range.end() > range.start() {
            out.push('-');
            push_byte(out, range.end());
        }
    }
    out.push(']');
    Ok(())
}

/// Appends a byte that stands for itself, in and outside of classes.
fn push_byte(out: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() {
        out.push(char::from(byte));
    } else {
        let _ = write!(out, "\\x{byte:02x}");
    }
}
