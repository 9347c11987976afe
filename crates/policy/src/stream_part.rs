//! The parts of what a connection carries, in which fields of streams and of HTTP are.

/// The bytes of a connection in which a field is searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPart {
    /// Those of both directions, each by itself.
    Both,
    /// Those of the initiator: the end that sent the first packet.
    Forward,
    /// Those of the other end.
    Reply,
    /// The server name in the initiator's TLS ClientHello (RFC 6066, section 3).
    ServerName,
    /// Any message of HTTP/1.x. The `Http…` constraints of a rule are about one request and its response.
    Http,
    /// The method of a request: its whole text.
    HttpMethod,
    /// The host that a request is for, without port and without a dot at its end: as [`StreamPart::ServerName`].
    HttpHost,
    /// The target of a request, without scheme and authority: a text is its beginning.
    HttpUri,
    /// The status code of a response.
    HttpStatus,
    /// The value of a header field of a request or a response, without blanks around it.
    HttpHeader,
    /// The body of a request or a response, without what frames it.
    HttpBody,
}

impl StreamPart {
    /// Whether it is a part of HTTP messages.
    pub const fn is_http(self) -> bool {
        match self {
            StreamPart::Both | StreamPart::Forward | StreamPart::Reply | StreamPart::ServerName => false,
            StreamPart::Http | StreamPart::HttpMethod | StreamPart::HttpHost | StreamPart::HttpUri => true,
            StreamPart::HttpStatus | StreamPart::HttpHeader | StreamPart::HttpBody => true,
        }
    }

    /// Whether it is the plain bytes of one direction or of both.
    pub const fn is_bytes(self) -> bool {
        match self {
            StreamPart::Both | StreamPart::Forward | StreamPart::Reply => true,
            StreamPart::ServerName | StreamPart::Http | StreamPart::HttpMethod | StreamPart::HttpHost => {
                false
            }
            StreamPart::HttpUri | StreamPart::HttpStatus | StreamPart::HttpHeader | StreamPart::HttpBody => {
                false
            }
        }
    }
}
