//! The first line of a message (RFC 9112, sections 3 and 4).

use super::byte_class::is_token_byte;
use super::head::{HttpVersion, Span};
use super::unfit::HttpUnfit;

/// The most bytes of a method.
const MAX_METHOD_BYTES: usize = 32;
/// What every response begins with.
const RESPONSE_START: &[u8] = b"HTTP/1.";

/// A request line. Its spans count from the start of the head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLine {
    pub(crate) method: Span,
    pub(crate) target: Span,
    pub(crate) path: Span,
    /// The authority of an absolute target or CONNECT's.
    pub(crate) authority: Option<Authority>,
    pub(crate) version: HttpVersion,
}

/// The authority of a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Authority {
    /// Without user information.
    pub(crate) span: Span,
    /// The port that the scheme implies; CONNECT has none.
    pub(crate) default_port: Option<u16>,
}

/// A status line. Its spans count from the start of the head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusLine {
    pub(crate) status: u16,
    pub(crate) reason: Span,
    pub(crate) version: HttpVersion,
}

/// Refuses bytes that cannot begin a request: what is known of the method. Whether the method is complete.
pub(crate) fn check_request_start(bytes: &[u8]) -> Result<bool, HttpUnfit> {
    for (at, byte) in bytes.iter().take(MAX_METHOD_BYTES + 1).enumerate() {
        match byte {
            b' ' if at > 0 => return method_case(&bytes[..at]).map(|()| true),
            b'\n' if at == 0 => return Err(HttpUnfit::BareLf),
            _ if !is_token_byte(*byte) || at == MAX_METHOD_BYTES => return Err(HttpUnfit::Method),
            _ => {}
        }
    }
    Ok(false)
}

/// Some servers take methods in any case. To them, a `head` has a response without a body.
fn method_case(method: &[u8]) -> Result<(), HttpUnfit> {
    let names: [&[u8]; 2] = [b"HEAD", b"CONNECT"];
    let is_other_case = |name: &[u8]| method != name && method.eq_ignore_ascii_case(name);
    if names.into_iter().any(is_other_case) { Err(HttpUnfit::Method) } else { Ok(()) }
}

/// Refuses bytes that cannot begin a response. Whether they are enough to know.
pub(crate) fn check_response_start(bytes: &[u8]) -> Result<bool, HttpUnfit> {
    let known = bytes.len().min(RESPONSE_START.len());
    for (at, byte) in bytes[..known].iter().enumerate() {
        if *byte != RESPONSE_START[at] {
            return Err(match (at, byte) {
                (0, b'\r' | b'\n') => HttpUnfit::BlankLines,
                // `HTTP/`, and no 1 behind it.
                (5, b'0'..=b'9') => HttpUnfit::Version,
                _ => HttpUnfit::StatusLine,
            });
        }
    }
    Ok(known == RESPONSE_START.len())
}

/// Reads a request line, without its CRLF, whose start was checked.
pub(crate) fn request_line(line: &[u8]) -> Result<RequestLine, HttpUnfit> {
    let method_end = line.iter().position(|byte| *byte == b' ').ok_or(HttpUnfit::Method)?;
    let target_start = method_end + 1;
    let version_start = line.iter().rposition(|byte| *byte == b' ').map_or(0, |at| at + 1);
    if version_start <= target_start {
        // `GET /`, of HTTP/0.9.
        return Err(HttpUnfit::Version);
    }
    let target = Span::new(target_start, version_start - 1);
    let target_text = &line[target.range()];
    if line.contains(&b'\r') {
        return Err(HttpUnfit::BareCr);
    }
    let version = version(&line[version_start..]).ok_or(HttpUnfit::Version)?;
    if !target_text.iter().all(u8::is_ascii_graphic) {
        return Err(HttpUnfit::Target);
    }
    let method = Span::new(0, method_end);
    let (path, authority) = target_form(&line[..method_end], target_text).ok_or(HttpUnfit::Target)?;
    let shift = |span: Span| Span { start: span.start + target.start, end: span.end + target.start };
    let authority = authority.map(|authority| Authority { span: shift(authority.span), ..authority });
    Ok(RequestLine { method, target, path: shift(path), authority, version })
}

/// The path and the authority of a target, counted from its start; `None` if it has no form of RFC 9112, section 3.2.
fn target_form(method: &[u8], target: &[u8]) -> Option<(Span, Option<Authority>)> {
    let whole = Span::new(0, target.len());
    if method == b"CONNECT" {
        let colon = target.iter().rposition(|byte| *byte == b':')?;
        let port = &target[colon + 1..];
        let is_port = !port.is_empty() && port.iter().all(u8::is_ascii_digit);
        let authority = Authority { span: whole, default_port: None };
        return (colon > 0 && is_port).then_some((Span::new(target.len(), target.len()), Some(authority)));
    }
    if target.starts_with(b"/") || (target == b"*" && method == b"OPTIONS") {
        return Some((whole, None));
    }
    let scheme_end = target.windows(3).position(|window| window == b"://")?;
    let scheme = &target[..scheme_end];
    let is_scheme_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    if !scheme.first()?.is_ascii_alphabetic() || !scheme.iter().all(is_scheme_byte) {
        return None;
    }
    let start = scheme_end + 3;
    let len = target[start..].iter().position(|byte| b"/?#".contains(byte)).unwrap_or(target.len() - start);
    let user_end = target[start..start + len].iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
    let span = Span::new(start + user_end, start + len);
    if span.start == span.end {
        return None;
    }
    let ports: [(&[u8], u16); 2] = [(b"http", 80), (b"https", 443)];
    let default_port =
        ports.into_iter().find(|(name, _)| scheme.eq_ignore_ascii_case(name)).map(|(_, port)| port);
    Some((Span::new(start + len, target.len()), Some(Authority { span, default_port })))
}

fn version(text: &[u8]) -> Option<HttpVersion> {
    match text {
        b"HTTP/1.0" => Some(HttpVersion::Http10),
        b"HTTP/1.1" => Some(HttpVersion::Http11),
        _ => None,
    }
}

/// Reads a status line, without its CRLF, whose start was checked. The blank behind the status may be missing with an empty reason, as some
/// servers have it.
pub(crate) fn status_line(line: &[u8]) -> Result<StatusLine, HttpUnfit> {
    if line.contains(&b'\r') {
        return Err(HttpUnfit::BareCr);
    }
    let (start, rest) = line.split_at_checked(RESPONSE_START.len() + 1).ok_or(HttpUnfit::StatusLine)?;
    let version = version(start).ok_or(HttpUnfit::Version)?;
    let [b' ', a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', reason @ ..] = rest else {
        return Err(HttpUnfit::StatusLine);
    };
    let status = [a, b, c].into_iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    let reason = match reason {
        [] => reason,
        [b' ', reason @ ..] => reason,
        _ => return Err(HttpUnfit::StatusLine),
    };
    if reason.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err(HttpUnfit::StatusLine);
    }
    let reason = Span::new(line.len() - reason.len(), line.len());
    Ok(StatusLine { status, reason, version })
}
