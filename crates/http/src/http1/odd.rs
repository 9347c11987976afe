//! Header lines of responses that the grammar forbids, but that all clients that accept them read alike.
//!
//! These are values that are folded into further lines (RFC 9112, section 5.2), blanks between the name and the colon
//! (section 5.1), and control bytes in values. Clients differ in how they read such a line of a header that says where
//! the message ends: there it is refused.

use super::byte_class::is_token_byte;
use super::head::{HeaderLine, MAX_HEADERS, Span, trim_blanks};
use super::line::line_content;
use super::unfit::HttpUnfit;
use arrayvec::ArrayVec;

/// Headers that must follow the grammar. Otherwise some programs overlook them, and see another end of the message.
const STRICT: [&[u8]; 4] = [b"content-length", b"transfer-encoding", b"connection", b"upgrade"];

/// Reads the header lines from `start` to the empty line that ends `section`.
pub(crate) fn read_odd_headers(
    section: &[u8],
    start: usize,
    lines: &mut ArrayVec<HeaderLine, MAX_HEADERS>,
) -> Result<(), HttpUnfit> {
    lines.clear();
    let mut at = start;
    while let Some(len) = memchr::memchr(b'\n', &section[at..]) {
        let end = at + len + 1;
        let content = line_content(&section[at..end]);
        match content {
            [] => return Ok(()),
            [b' ' | b'\t', ..] => fold(section, at, (content, end), lines)?,
            _ => {
                let line = header_line(section, at, (content, end))?;
                lines.try_push(line).map_err(|_| HttpUnfit::TooManyHeaders)?;
            }
        }
        at = end;
    }
    Ok(())
}

/// Adds a continuation line, which begins at `at`, to the last header.
fn fold(
    section: &[u8],
    at: usize,
    (content, end): (&[u8], usize),
    lines: &mut ArrayVec<HeaderLine, MAX_HEADERS>,
) -> Result<(), HttpUnfit> {
    let line = lines.last_mut().ok_or(HttpUnfit::LeadingBlank)?;
    if is_strict(&section[line.name.range()]) {
        return Err(HttpUnfit::ObsFold);
    }
    check_value(content)?;
    line.line.end = end as u32;
    let more = value_span(content, at);
    if more.start < more.end {
        let start = if line.value.start < line.value.end { line.value.start } else { more.start };
        line.value = Span { start, end: more.end };
    }
    Ok(())
}

/// Reads a header from a line that begins at `at`.
fn header_line(section: &[u8], at: usize, (content, end): (&[u8], usize)) -> Result<HeaderLine, HttpUnfit> {
    let colon = content.iter().position(|byte| *byte == b':').ok_or(HttpUnfit::HeaderName)?;
    let (before, value) = (&content[..colon], &content[colon + 1..]);
    let blanks = before.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let name = Span::new(at, at + colon - blanks);
    let text = &section[name.range()];
    if text.is_empty() || !text.iter().copied().all(is_token_byte) {
        return Err(HttpUnfit::HeaderName);
    }
    if blanks > 0 && is_strict(text) {
        return Err(HttpUnfit::BlankBeforeColon);
    }
    check_value(value)?;
    Ok(HeaderLine { line: Span::new(at, end), name, value: value_span(value, at + colon + 1) })
}

fn is_strict(name: &[u8]) -> bool {
    STRICT.into_iter().any(|strict| strict.eq_ignore_ascii_case(name))
}

fn check_value(value: &[u8]) -> Result<(), HttpUnfit> {
    match memchr::memchr2(b'\r', 0, value) {
        None => Ok(()),
        Some(at) if value[at] == b'\r' => Err(HttpUnfit::BareCr),
        Some(_) => Err(HttpUnfit::HeaderValue),
    }
}

/// The span of a value without the blanks around it. `bytes` begin at `at`. An empty value lies at their end.
fn value_span(bytes: &[u8], at: usize) -> Span {
    let value = trim_blanks(bytes);
    let before = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    Span::new(at + before, at + before + value.len())
}
