//! Rewrites responses that mmb reads although the grammar forbids them, so that they follow the grammar (RFC 9112,
//! sections 2.2, 5.1, 5.2 and 7.1). The RFC demands this of a proxy, and all clients then read the same message.

use crate::output::Emitter;
use crate::plan::BodyPlan;
use mmb_http::{HeaderLine, Headers, is_folded};

/// Headers with a digest of the body, which is wrong after the body was changed (RFC 9530; RFC 1864; RFC 3230).
pub(crate) const DIGESTS: [&[u8]; 4] = [b"content-md5", b"digest", b"content-digest", b"repr-digest"];

/// Headers about framing and routing, which must not be trailers (RFC 9110, section 6.5.1).
const FRAMING: [&[u8]; 4] = [b"content-length", b"transfer-encoding", b"host", b"connection"];

/// Whether a header line ends with LF alone, has blanks before its colon, or is folded.
pub(crate) fn is_odd(headers: &Headers<'_>, line: &HeaderLine) -> bool {
    let text = headers.text(line.line);
    let is_colon_next = headers.bytes.get(line.name.range().end) == Some(&b':');
    !is_colon_next || !text.ends_with(b"\r\n") || is_folded(&text[..text.len() - 2])
}

/// Emits the next `count` bytes: whole lines of chunk framing, or an empty line. Drops blanks after chunk sizes, and ends
/// each line with CRLF.
pub(crate) fn mend_framing(emitter: &mut Emitter<'_>, count: usize) {
    let bytes = &emitter.rest()[..count];
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let size = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let blanks = line[size..].iter().take_while(|byte| **byte == b' ').count();
        emitter.keep(size);
        emitter.drop(blanks);
        let rest = &line[size + blanks..];
        match rest.strip_suffix(b"\n") {
            Some(content) if !content.ends_with(b"\r") => {
                emitter.keep(content.len());
                emitter.insert(b"\r");
                emitter.keep(1);
            }
            _ => emitter.keep(rest.len()),
        }
    }
}

/// If the first line of `bytes` ends with LF alone, emits the line with CRLF and returns its length. Otherwise emits
/// nothing and returns 0.
pub(crate) fn mend_line_end(emitter: &mut Emitter<'_>, bytes: &[u8]) -> usize {
    let len = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
    if bytes[..len].ends_with(b"\r\n") {
        return 0;
    }
    emitter.keep(len - 1);
    emitter.insert(b"\r");
    emitter.keep(1);
    len
}

/// Emits a header line as the grammar has it: the name, a colon, a blank, the text that `value` inserts, CRLF.
pub(crate) fn mend_line(emitter: &mut Emitter<'_>, line: &HeaderLine, value: impl FnOnce(&mut Emitter<'_>)) {
    emitter.keep(line.name.range().len());
    emitter.drop(line.line.range().end - line.name.range().end);
    emitter.insert(b": ");
    value(emitter);
    emitter.insert(b"\r\n");
}

/// The length of the empty line that ends a head or a trailer section.
pub(crate) fn empty_line_len(headers: &Headers<'_>) -> usize {
    if headers.bytes.ends_with(b"\r\n") { 2 } else { 1 }
}

/// Emits a trailer section with its lines mended. Drops headers about framing and routing and, if the body is changed,
/// digests.
pub(crate) fn emit_trailers(headers: &Headers<'_>, plan: BodyPlan, emitter: &mut Emitter<'_>) {
    let is_one_of = |names: &[&[u8]], name: &[u8]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    let mut at = 0;
    for line in headers.lines {
        let (name, whole) = (headers.text(line.name), line.line.range());
        let is_gone = is_one_of(&FRAMING, name) || plan != BodyPlan::Pass && is_one_of(&DIGESTS, name);
        if !is_gone && !is_odd(headers, line) {
            continue;
        }
        emitter.keep(whole.start - at);
        if is_gone {
            emitter.drop(whole.len());
        } else {
            mend_line(emitter, line, |emitter| {
                let folds = headers.text(line.value).split(|byte| matches!(byte, b'\r' | b'\n'));
                let parts = folds.map(mmb_http::trim_blanks).filter(|part| !part.is_empty());
                for (number, part) in parts.enumerate() {
                    emitter.insert(if number > 0 { b" " } else { b"" });
                    emitter.insert(part);
                }
            });
        }
        at = whole.end;
    }
    let empty_line = empty_line_len(headers);
    emitter.keep(headers.len() - empty_line - at);
    mend_framing(emitter, empty_line);
}
