//! Heads of application protocols, read from the bytes of a connection as they come.
//!
//! [`ClientHello`] finds the server name that a TLS client asks for; [`HttpConnection`] reads the messages of HTTP/1.x in both directions of a
//! connection; [`host_matches`] compares host names with the patterns of rules; [`FtpStep`] finds where a client of FTP listens. Parsers own their state, which has a fixed size: they do no
//! I/O, know no clock and allocate nothing.

#![forbid(unsafe_code)]

mod ftp;
mod host;
mod http1;
mod tls_sni;

pub use ftp::{FtpEnd, FtpForm, FtpStep, MAX_FIRST_LINE_BYTES, MAX_FTP_END_BYTES, begins_ftp};
pub use host::{host_matches, name_key};
pub use http1::{
    BodyFraming, BodyPlace, DEFAULT_HEAD_LIMIT, FramingKind, HeadBuffer, HeaderLine, Headers, HttpConnection,
    HttpDirection, HttpPiece, HttpUnfit, HttpVersion, MAX_HEADERS, MAX_OUTSTANDING, RequestHead,
    ResponseHead, Span, is_folded, is_host_and_port, list_items, trim_blanks, unfold,
};
pub use tls_sni::{ClientHello, HelloProgress};
