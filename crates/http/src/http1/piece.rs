//! What a reader says about the next bytes of a direction.

use super::head::{Headers, RequestHead, ResponseHead};
use super::unfit::HttpUnfit;

/// A direction of an HTTP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HttpDirection {
    /// From the client.
    Requests,
    /// From the server.
    Responses,
}

/// What the next bytes of a direction are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpPiece<'b> {
    /// More bytes must come before it can be told: a line, a head or a trailer section is not complete, or there are no bytes.
    More,
    /// It cannot be told before the other direction has gone on: bytes behind a CONNECT are requests or not by its response, and responses
    /// behind that one need these requests.
    Wait,
    /// The complete head of a request.
    Request(RequestHead<'b>),
    /// The complete head of a response.
    Response(ResponseHead<'b>),
    /// Content of a body, without the framing of chunks.
    Body {
        /// Its bytes, at least one.
        len: usize,
    },
    /// Bytes that are neither head nor content.
    Framing {
        /// Their number, at least one.
        len: usize,
        /// Which they are.
        kind: FramingKind,
    },
    /// The trailer section behind the last chunk, with the empty line that ends it.
    Trailers(Headers<'b>),
    /// The message ends in front of the next byte.
    End,
    /// The sender has closed within a body: the message remains incomplete.
    Truncated {
        /// The bytes that are left, which are part of a line of the framing.
        len: usize,
    },
    /// Nothing from here on is HTTP/1.x, in both directions, for good: a 101, a CONNECT that was accepted, or HTTP/2.
    Opaque,
    /// The bytes are not read, in both directions, for good. Only a body that the other direction has begun is read to its end.
    Unfit(HttpUnfit),
}

impl HttpPiece<'_> {
    /// The bytes of the piece, which the reader has consumed.
    #[must_use]
    pub fn consumed(&self) -> usize {
        match self {
            HttpPiece::Request(head) => head.headers.len(),
            HttpPiece::Response(head) => head.headers.len(),
            HttpPiece::Trailers(headers) => headers.len(),
            HttpPiece::Body { len } | HttpPiece::Framing { len, .. } | HttpPiece::Truncated { len } => *len,
            HttpPiece::More | HttpPiece::Wait | HttpPiece::End | HttpPiece::Opaque | HttpPiece::Unfit(_) => 0,
        }
    }
}

/// Bytes that are neither head nor content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FramingKind {
    /// An empty line in front of a request.
    BlankLine,
    /// The line with the size of a chunk that has data.
    ChunkSize,
    /// CRLF behind the data of a chunk.
    ChunkEnd,
    /// The line of the last chunk, whose size is zero.
    LastChunk,
    /// Bytes after a response that ends the connection to all clients: none reads them.
    BehindLast,
}
