//! HTTP/1.0 and HTTP/1.1 (RFC 9110, RFC 9112), read strictly in both directions of a connection.
//!
//! Purpose: tell where in the bytes of a connection heads, bodies and framing lie, and refuse ([`HttpUnfit`]) what programs read
//! differently. Who holds back what is not yet told is then sure that both ends see the messages where mmb sees them.
//!
//! Responses are read less strictly than requests. If nginx, HAProxy, curl and Chromium read a response alike, it is
//! read so too, even if the grammar forbids it: LF for CRLF, blanks after the size of a chunk, folded values and the
//! other header lines of `odd`. The tests compare with these programs.
//!
//! Life-cycle: an [`HttpConnection`] for each connection, from its first byte in both directions. The caller has the *undecided* bytes of each
//! direction, asks [`HttpConnection::next`] what they are, takes the piece away from their front and asks again, until the answer is
//! [`HttpPiece::More`] or [`HttpPiece::Wait`]; then it comes again with more bytes *behind the same ones*. Pieces depend only on the bytes and on
//! what the other direction has told before, not on how the bytes are cut, but for the borders of content. Line ends are searched once, however
//! often incomplete lines are shown; content costs nothing.
//!
//! Ownership: the connection's owner has the reader, a worker one [`HeadBuffer`] for all its connections. Nothing is allocated, nothing
//! is copied: heads are places in the caller's bytes.
//!
//! The header lines are parsed by httparse; `start_line`, `section` and `framing` are stricter than it.

mod byte_class;
mod chunk;
mod framing;
mod head;
mod line;
mod odd;
mod outstanding;
mod piece;
mod section;
mod side;
mod start_line;
mod unfit;

use framing::FramingHeaders;
pub use framing::is_host_and_port;
pub use head::{
    BodyFraming, HeadBuffer, HeaderLine, Headers, HttpVersion, MAX_HEADERS, RequestHead, ResponseHead, Span,
    is_folded, list_items, trim_blanks, unfold,
};
use line::line_content;
pub use outstanding::MAX_OUTSTANDING;
use outstanding::{Outstanding, RequestInfo};
pub use piece::{FramingKind, HttpDirection, HttpPiece};
use section::read_headers;
use side::{HeadProgress, Place, Side};
use start_line::{request_line, status_line};
pub use unfit::HttpUnfit;

/// What a client sends first if it knows that the server speaks HTTP/2 (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How TLS begins: a record of the handshake, of version 3.x (RFC 8446, section 5.1). No request does.
const TLS: &[u8] = &[22, 3];

/// The usual limit of a head.
pub const DEFAULT_HEAD_LIMIT: u32 = 16 * 1024;

/// The reader of a connection.
///
/// ```
/// use mmb_http::{HeadBuffer, HttpConnection, HttpDirection, HttpPiece};
///
/// let (mut connection, mut buffer) = (HttpConnection::new(16 * 1024), HeadBuffer::default());
/// let bytes = b"GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n";
/// let HttpPiece::Request(head) = connection.next(HttpDirection::Requests, bytes, false, &mut buffer) else { panic!() };
/// assert_eq!((head.method(), head.headers.first(b"host")), (&b"GET"[..], Some(&b"example.com"[..])));
/// assert_eq!(head.headers.len(), bytes.len());
/// assert_eq!(connection.next(HttpDirection::Requests, b"", false, &mut buffer), HttpPiece::End);
/// ```
#[derive(Clone, Debug)]
pub struct HttpConnection {
    head_limit: u32,
    requests: Side,
    responses: Side,
    outstanding: Outstanding,
    over: Option<Over>,
}

/// A place within a body.
#[derive(Clone, Copy, Debug)]
pub struct BodyPlace(Side);

/// Why a connection is no longer read.
#[derive(Clone, Copy, Debug)]
enum Over {
    Opaque,
    /// The bytes of a direction are not read.
    Unfit(HttpUnfit, HttpDirection),
}

impl HttpConnection {
    /// The reader of a connection without bytes so far. A head or trailer section longer than `head_limit` bytes is refused.
    #[must_use]
    pub fn new(head_limit: u32) -> HttpConnection {
        HttpConnection {
            head_limit,
            requests: Side::default(),
            responses: Side::default(),
            outstanding: Outstanding::default(),
            over: None,
        }
    }

    /// Reads the piece that the undecided `bytes` of a direction begin with. The bytes follow those of the last piece; all but its
    /// [`HttpPiece::consumed`] bytes are passed again. With `is_end`, no bytes follow. After one direction was refused, a body that
    /// the other one has begun is still read to its end.
    pub fn next<'b>(
        &mut self,
        direction: HttpDirection,
        bytes: &'b [u8],
        is_end: bool,
        buffer: &'b mut HeadBuffer,
    ) -> HttpPiece<'b> {
        let limit = self.head_limit as usize;
        let over = self.over;
        let side = self.side(direction);
        match over {
            None => {}
            Some(Over::Opaque) => return HttpPiece::Opaque,
            Some(Over::Unfit(_, refused)) if refused != direction && side.is_within_body() => {}
            Some(Over::Unfit(reason, _)) => return HttpPiece::Unfit(reason),
        }
        let piece = match (side.place, direction) {
            (Place::Head, HttpDirection::Requests) => self.request(bytes, is_end, buffer),
            (Place::Head, HttpDirection::Responses) => self.response(bytes, is_end, buffer),
            (Place::Answer, _) => Ok(side.wait(bytes)),
            _ => side.body(direction, bytes, is_end, limit, buffer),
        };
        piece.unwrap_or_else(|reason| {
            self.over = Some(Over::Unfit(reason, direction));
            HttpPiece::Unfit(reason)
        })
    }

    /// Requests that wait for the end of their heads' responses.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.count()
    }

    /// Whether a direction is at the border of messages: the next byte begins one.
    #[must_use]
    pub fn is_at_border(&self, direction: HttpDirection) -> bool {
        match direction {
            HttpDirection::Requests => self.requests.place == Place::Head,
            HttpDirection::Responses => self.responses.place == Place::Head,
        }
    }

    /// Where a direction is, within a body. Whoever looks at a body's pieces and decides about fewer of them goes back to it by [`HttpConnection::set_place`].
    #[must_use]
    pub fn place(&self, direction: HttpDirection) -> BodyPlace {
        match direction {
            HttpDirection::Requests => BodyPlace(self.requests),
            HttpDirection::Responses => BodyPlace(self.responses),
        }
    }

    /// Goes back to a place of the same body, whose bytes are then shown again. Nothing of the other direction may have been read since.
    pub fn set_place(&mut self, direction: HttpDirection, place: BodyPlace) {
        *self.side(direction) = place.0;
    }

    fn side(&mut self, direction: HttpDirection) -> &mut Side {
        match direction {
            HttpDirection::Requests => &mut self.requests,
            HttpDirection::Responses => &mut self.responses,
        }
    }

    fn request<'b>(
        &mut self,
        bytes: &'b [u8],
        is_end: bool,
        buffer: &'b mut HeadBuffer,
    ) -> Result<HttpPiece<'b>, HttpUnfit> {
        let side = &mut self.requests;
        side.has_waiting = false;
        let others = [HTTP2_PREFACE, TLS];
        if side.is_at_start() && others.iter().any(|other| bytes.starts_with(other)) {
            self.over = Some(Over::Opaque);
            return Ok(HttpPiece::Opaque);
        }
        let may_be_other =
            side.is_at_start() && !bytes.is_empty() && others.iter().any(|other| other.starts_with(bytes));
        let progress = if may_be_other {
            HeadProgress::More
        } else {
            side.head(HttpDirection::Requests, bytes, self.head_limit as usize)?
        };
        let len = match progress {
            HeadProgress::Complete(len) => len,
            HeadProgress::Blank => return Ok(HttpPiece::Framing { len: 2, kind: FramingKind::BlankLine }),
            HeadProgress::More => return incomplete_head(bytes, is_end),
        };
        let bytes = &bytes[..len];
        let line_end = first_line_end(bytes);
        let line = request_line(line_content(&bytes[..line_end]))?;
        read_headers(HttpDirection::Requests, bytes, line_end, &mut buffer.lines)?;
        let headers = Headers { bytes, lines: &buffer.lines };
        let framing = FramingHeaders::read(HttpDirection::Requests, &headers, line.version)?;
        let host = framing.host(&headers, &line)?;
        let has_upgrade = framing.has_upgrade && line.version == HttpVersion::Http11;
        let info = RequestInfo::new(headers.text(line.method), line.version, has_upgrade);
        let body = framing.request_body(info)?;
        self.outstanding.push(info)?;
        side.saw_last_message = framing.may_close(line.version);
        side.begin_body(body);
        if info.is_connect() {
            side.await_answer();
        }
        let (method, target, path, version) = (line.method, line.target, line.path, line.version);
        Ok(HttpPiece::Request(RequestHead { headers, method, target, path, host, version, body }))
    }

    fn response<'b>(
        &mut self,
        bytes: &'b [u8],
        is_end: bool,
        buffer: &'b mut HeadBuffer,
    ) -> Result<HttpPiece<'b>, HttpUnfit> {
        if !bytes.is_empty() && self.responses.saw_last_message {
            if self.responses.may_persist {
                return Err(HttpUnfit::UnclearPersistence);
            }
            return Ok(HttpPiece::Framing { len: bytes.len(), kind: FramingKind::BehindLast });
        }
        if !bytes.is_empty() && self.outstanding.oldest().is_none() {
            let is_known = !self.requests.has_waiting;
            return if is_known { Err(HttpUnfit::ResponseWithoutRequest) } else { Ok(HttpPiece::Wait) };
        }
        let progress = self.responses.head(HttpDirection::Responses, bytes, self.head_limit as usize)?;
        let HeadProgress::Complete(len) = progress else { return incomplete_head(bytes, is_end) };
        let request = self.outstanding.oldest().ok_or(HttpUnfit::ResponseWithoutRequest)?;
        let bytes = &bytes[..len];
        let line_end = first_line_end(bytes);
        let line = status_line(line_content(&bytes[..line_end]))?;
        read_headers(HttpDirection::Responses, bytes, line_end, &mut buffer.lines)?;
        let headers = Headers { bytes, lines: &buffer.lines };
        let framing = FramingHeaders::read(HttpDirection::Responses, &headers, line.version)?;
        let mut body = framing.response_body(line.status, request)?;
        let ends = framing.closes(line.version) || body == BodyFraming::UntilClose;
        let closes_connection =
            ends && (!framing.may_persist(line.version) || body == BodyFraming::UntilClose);
        match line.status {
            100..200 if line.version.min(request.version()) == HttpVersion::Http10 => {
                return Err(HttpUnfit::InterimInHttp10);
            }
            101 if !request.has_upgrade() => return Err(HttpUnfit::UnaskedUpgrade),
            101 => self.over = Some(Over::Opaque),
            100..200 => {}
            200..300 if request.is_connect() => {
                self.over = Some(Over::Opaque);
                body = BodyFraming::None;
            }
            _ => {
                self.responses.saw_last_message = ends;
                self.responses.may_persist = !closes_connection;
                self.outstanding.answer_oldest();
                if request.is_connect() {
                    self.requests.answered();
                }
            }
        }
        self.responses.begin_body(body);
        let (status, reason, version) = (line.status, line.reason, line.version);
        let (request_version, to_head) = (request.version(), request.is_head());
        Ok(HttpPiece::Response(ResponseHead {
            headers,
            status,
            reason,
            version,
            request_version,
            to_head,
            closes_connection,
            body,
        }))
    }
}

/// The place behind the first line of a complete head.
fn first_line_end(head: &[u8]) -> usize {
    memchr::memchr(b'\n', head).map_or(head.len(), |at| at + 1)
}

fn incomplete_head<'b>(bytes: &[u8], is_end: bool) -> Result<HttpPiece<'b>, HttpUnfit> {
    if is_end && !bytes.is_empty() { Err(HttpUnfit::UnfinishedHead) } else { Ok(HttpPiece::More) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows `bytes` with one more byte each time; the pieces that were told.
    fn dribble(connection: &mut HttpConnection, bytes: &[u8]) -> usize {
        let (mut buffer, mut start, mut pieces) = (HeadBuffer::default(), 0, 0);
        for end in 0..=bytes.len() {
            loop {
                let piece = connection.next(HttpDirection::Requests, &bytes[start..end], false, &mut buffer);
                assert!(!matches!(piece, HttpPiece::Unfit(_)), "{piece:?}");
                if piece == HttpPiece::More {
                    break;
                }
                start += piece.consumed();
                pieces += 1;
            }
        }
        pieces
    }

    #[test]
    fn a_dribbled_head_is_searched_once() {
        let mut head = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
        while head.len() < 16_000 {
            head.extend(format!("X: {}\r\n", "y".repeat(160)).as_bytes());
        }
        head.extend(b"\r\n");
        let mut connection = HttpConnection::new(DEFAULT_HEAD_LIMIT);
        // The head and the end of its message.
        assert_eq!(dribble(&mut connection, &head), 2);
        assert_eq!(connection.requests.search.steps, head.len() as u64);
    }

    #[test]
    fn dribbled_lines_of_chunks_are_searched_once() {
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let line = format!("5;{}\r\n", "a".repeat(200)).into_bytes();
        let trailers = format!("{}\r\n", "X: y\r\n".repeat(100)).into_bytes();
        let mut connection = HttpConnection::new(DEFAULT_HEAD_LIMIT);
        dribble(&mut connection, &[&head[..], &line, b"hello\r\n0\r\n", &trailers].concat());
        let searched = head.len() + line.len() + b"0\r\n".len() + trailers.len();
        assert_eq!(connection.requests.search.steps, searched as u64);
    }

    #[test]
    fn a_connection_is_small() {
        assert!(size_of::<HttpConnection>() <= 256, "{}", size_of::<HttpConnection>());
    }
}
