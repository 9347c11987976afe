//! Heads as places in the bytes of a direction, and look-ups in their headers.

use arrayvec::ArrayVec;
use std::ops::Range;

/// The most headers of a head or a trailer section.
pub const MAX_HEADERS: usize = 128;

/// A range of bytes of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
    pub start: u32,
    /// The byte behind it.
    pub end: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }

    /// As a range of a slice.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Its bytes, of the slice that begins with the head.
    fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.range()).unwrap_or_default()
    }
}

/// Where a header lies in its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderLine {
    /// The whole line, with its line end; with the lines that it is folded into.
    pub line: Span,
    /// The name.
    pub name: Span,
    /// The value, without the blanks around it. An empty one lies in front of the line end or of the blanks there. That of a response may be
    /// [folded](is_folded).
    pub value: Span,
}

/// Memory for the places of the headers of one head, which a worker uses again for the next one.
#[derive(Debug, Default)]
pub struct HeadBuffer {
    pub(crate) lines: ArrayVec<HeaderLine, MAX_HEADERS>,
}

/// The version of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HttpVersion {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// How the end of a body is found (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BodyFraming {
    /// There is none.
    None,
    /// Content-Length. There is no body if it is 0.
    Length(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
    /// The body of a response ends where the server closes.
    UntilClose,
}

/// The bytes of a head or of a trailer section, and where its headers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'b> {
    /// From the first line to the empty line.
    pub bytes: &'b [u8],
    /// The headers in their order.
    pub lines: &'b [HeaderLine],
}

impl<'b> Headers<'b> {
    /// The bytes of the head, with the empty line that ends it.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "an empty line is its least")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of a part of the head.
    #[must_use]
    pub fn text(&self, span: Span) -> &'b [u8] {
        span.of(self.bytes)
    }

    /// The headers of a name, in any case, in their order.
    pub fn all<'n>(&self, name: &'n [u8]) -> impl Iterator<Item = HeaderLine> + use<'b, 'n> {
        let bytes = self.bytes;
        self.lines.iter().copied().filter(move |line| line.name.of(bytes).eq_ignore_ascii_case(name))
    }

    /// The value of the first header of a name.
    #[must_use]
    pub fn first(&self, name: &[u8]) -> Option<&'b [u8]> {
        self.all(name).next().map(|line| self.text(line.value))
    }

    /// Whether a header whose value is a list of tokens has one, in any case; several headers of the name are one list (RFC 9110, section
    /// 5.6.1).
    #[must_use]
    pub fn has_token(&self, name: &[u8], token: &[u8]) -> bool {
        self.all(name)
            .any(|line| list_items(self.text(line.value)).any(|item| item.eq_ignore_ascii_case(token)))
    }
}

/// The items of a comma-separated list, without the blanks around them and without empty ones (RFC 9110, section 5.6.1). Commas within quotes
/// are not told apart: lists of tokens have no quotes.
pub fn list_items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(trim_space).filter(|item| !item.is_empty())
}

/// Without the blanks and line ends at both ends: a value may be folded at a comma.
fn trim_space(mut item: &[u8]) -> &[u8] {
    loop {
        item = match item {
            [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] | [rest @ .., b' ' | b'\t' | b'\r' | b'\n'] => rest,
            item => return item,
        };
    }
}

/// Whether the value of a header goes on in further lines (RFC 9112, section 5.2).
#[must_use]
pub fn is_folded(value: &[u8]) -> bool {
    memchr::memchr(b'\n', value).is_some()
}

/// Appends a folded value as it is to be read: one blank replaces each fold and the blanks around it.
pub fn unfold(value: &[u8], out: &mut Vec<u8>) {
    let lines = value.split(|byte| *byte == b'\n');
    for (number, line) in lines.map(trim_space).filter(|line| !line.is_empty()).enumerate() {
        if number > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(line);
    }
}

/// Without the blanks (SP and HTAB) at both ends.
#[must_use]
pub fn trim_blanks(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead<'b> {
    /// The whole head.
    pub headers: Headers<'b>,
    /// The method.
    pub method: Span,
    /// The target as it is sent.
    pub target: Span,
    /// The part of the target that names the resource on its host: the target without scheme and authority. Empty if an absolute target
    /// has no path, and for CONNECT.
    pub path: Span,
    /// The host that the request is for, without port: of the target if that is absolute or CONNECT's, otherwise of Host. Empty if neither
    /// names one.
    pub host: Span,
    /// The version.
    pub version: HttpVersion,
    /// How the body ends.
    pub body: BodyFraming,
}

impl<'b> RequestHead<'b> {
    /// The method.
    #[must_use]
    pub fn method(&self) -> &'b [u8] {
        self.headers.text(self.method)
    }

    /// Whether the request asks to go on with HTTP/2 (RFC 7540, section 3.2, which RFC 9113 withdraws): its `HTTP2-Settings` headers, and its
    /// `Upgrade` headers that name `h2c`.
    pub fn http2_lines(&self) -> impl Iterator<Item = HeaderLine> + use<'b> {
        let headers = self.headers;
        let upgrades = headers.all(b"upgrade").filter(move |line| {
            list_items(headers.text(line.value)).any(|item| item.eq_ignore_ascii_case(b"h2c"))
        });
        headers.all(b"http2-settings").chain(upgrades)
    }
}

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead<'b> {
    /// The whole head.
    pub headers: Headers<'b>,
    /// The status code, from 100 to 999.
    pub status: u16,
    /// The reason phrase; it may be empty.
    pub reason: Span,
    /// The version.
    pub version: HttpVersion,
    /// The version of the request that it answers.
    pub request_version: HttpVersion,
    /// Whether the request was HEAD: the headers are those of a response with a body.
    pub to_head: bool,
    /// Whether the response ends the connection to all clients (RFC 9112, section 9.3).
    pub closes_connection: bool,
    /// How the body ends.
    pub body: BodyFraming,
}

impl ResponseHead<'_> {
    /// Whether the exchange ends with the response: all but 1xx, and 101 too (RFC 9110, section 15.2).
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.status >= 200 || self.status == 101
    }
}
