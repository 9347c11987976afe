//! Sections of lines that an empty line ends: heads and trailer sections. Their end, and their headers.

use super::byte_class::is_token_byte;
use super::head::{HeaderLine, MAX_HEADERS, Span};
use super::line::line_content;
use super::odd::read_odd_headers;
use super::piece::HttpDirection;
use super::unfit::HttpUnfit;
use arrayvec::ArrayVec;

/// The headers that most heads have at most.
const USUAL_HEADERS: usize = 24;

/// The search for line ends in bytes that are shown again with more of them: it goes on where it has stopped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LineSearch {
    /// Bytes that were searched.
    searched: u32,
    /// All bytes that were ever searched: the measure of the cost.
    #[cfg(test)]
    pub(crate) steps: u64,
}

impl LineSearch {
    /// The place behind the next line end; `None` if there is none within `bytes`. Lines of requests end with CRLF.
    pub(crate) fn next_line(
        &mut self,
        direction: HttpDirection,
        bytes: &[u8],
    ) -> Result<Option<usize>, HttpUnfit> {
        let from = (self.searched as usize).min(bytes.len());
        let found = memchr::memchr(b'\n', &bytes[from..]);
        let end = found.map_or(bytes.len(), |at| from + at + 1);
        self.advance(from, end);
        match found {
            None => Ok(None),
            Some(_) if !ends_line(direction, &bytes[..end]) => Err(HttpUnfit::BareLf),
            Some(_) => Ok(Some(end)),
        }
    }

    /// The place behind the first empty line that was not yet searched; `None` if there is none within `bytes`, which begin with a line.
    pub(crate) fn section_end(
        &mut self,
        direction: HttpDirection,
        bytes: &[u8],
    ) -> Result<Option<usize>, HttpUnfit> {
        let from = (self.searched as usize).min(bytes.len());
        for found in memchr::memchr_iter(b'\n', &bytes[from..]) {
            let line = &bytes[..from + found + 1];
            if !ends_line(direction, line) {
                self.advance(from, line.len());
                return Err(HttpUnfit::BareLf);
            }
            if matches!(line_content(line), [] | [.., b'\n']) {
                self.advance(from, line.len());
                return Ok(Some(line.len()));
            }
        }
        self.advance(from, bytes.len());
        Ok(None)
    }

    /// Begins anew, with bytes behind those that were searched.
    pub(crate) fn restart(&mut self) {
        self.searched = 0;
    }

    fn advance(&mut self, from: usize, to: usize) {
        self.searched = to as u32;
        #[cfg(test)]
        {
            self.steps += (to - from) as u64;
        }
        #[cfg(not(test))]
        let _ = from;
    }
}

/// Whether bytes whose last one is LF end with a line end of their direction (RFC 9112, section 2.2): servers differ in whether LF alone ends
/// a line, and clients do not.
fn ends_line(direction: HttpDirection, bytes: &[u8]) -> bool {
    direction == HttpDirection::Responses || bytes.ends_with(b"\r\n")
}

/// Reads the header lines from `start` to the empty line that ends `section`.
pub(crate) fn read_headers(
    direction: HttpDirection,
    section: &[u8],
    start: usize,
    lines: &mut ArrayVec<HeaderLine, MAX_HEADERS>,
) -> Result<(), HttpUnfit> {
    let read = match read_up_to::<USUAL_HEADERS>(section, start, lines) {
        Err(Unread::TooMany) => read_up_to::<MAX_HEADERS>(section, start, lines),
        read => read,
    };
    match read {
        Ok(()) => Ok(()),
        Err(Unread::TooMany) => Err(HttpUnfit::TooManyHeaders),
        Err(Unread::Refused) if direction == HttpDirection::Responses => {
            read_odd_headers(section, start, lines)
        }
        Err(Unread::Refused) => Err(defect(&section[start..])),
    }
}

/// Why header lines are not read.
enum Unread {
    TooMany,
    /// httparse has refused them.
    Refused,
}

/// The same for at most so many headers. A place for each is written before they are parsed, so that few are cheaper than many.
fn read_up_to<const MAX: usize>(
    section: &[u8],
    start: usize,
    lines: &mut ArrayVec<HeaderLine, MAX_HEADERS>,
) -> Result<(), Unread> {
    lines.clear();
    let text = &section[start..];
    let mut parsed = [httparse::EMPTY_HEADER; MAX];
    let headers = match httparse::parse_headers(text, &mut parsed) {
        Ok(httparse::Status::Complete((len, headers))) if len == text.len() => headers,
        Err(httparse::Error::TooManyHeaders) => return Err(Unread::TooMany),
        Ok(_) | Err(_) => return Err(Unread::Refused),
    };
    let empty_line = if section.ends_with(b"\r\n") { 2 } else { 1 };
    let base = section.as_ptr() as usize;
    let span = |part: &[u8]| {
        let start = (part.as_ptr() as usize).wrapping_sub(base);
        Span::new(start, start + part.len())
    };
    for header in headers {
        let name = span(header.name.as_bytes());
        if let Some(before) = lines.last_mut() {
            before.line.end = name.start;
        }
        let line = Span { start: name.start, end: section.len() as u32 - empty_line };
        // There is room: `parsed` has as many places.
        let _ = lines.try_push(HeaderLine { line, name, value: span(header.value) });
    }
    Ok(())
}

/// What is wrong with header lines that httparse has refused.
fn defect(text: &[u8]) -> HttpUnfit {
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    for (number, line) in lines.take_while(|line| !line.is_empty()).enumerate() {
        if let [b' ' | b'\t', ..] = line {
            return if number == 0 { HttpUnfit::LeadingBlank } else { HttpUnfit::ObsFold };
        }
        if line.contains(&b'\r') {
            return HttpUnfit::BareCr;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return HttpUnfit::HeaderName };
        let (name, value) = line.split_at(colon);
        if let [.., b' ' | b'\t'] = name {
            return HttpUnfit::BlankBeforeColon;
        }
        if name.is_empty() || !name.iter().copied().all(is_token_byte) {
            return HttpUnfit::HeaderName;
        }
        if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return HttpUnfit::HeaderValue;
        }
    }
    debug_assert!(false, "httparse has refused good headers: {}", text.escape_ascii());
    HttpUnfit::HeaderName
}
