//! Why bytes are not read as HTTP/1.x.

/// Makes [`HttpUnfit`] of one row for each reason: the variant, its name in counters, its meaning.
macro_rules! http_unfit_reasons {
    ($($reason:ident $name:literal: $meaning:literal;)+) => {
        /// Why the bytes of a connection are not read as HTTP/1.x. Programs differ in what they make of such bytes, or no message can
        /// have them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum HttpUnfit {
            $(#[doc = $meaning] $reason,)+
        }

        impl HttpUnfit {
            /// Every reason.
            pub const ALL: [HttpUnfit; [$($name),+].len()] = [$(HttpUnfit::$reason),+];

            /// The reason's name in counters: stable.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(HttpUnfit::$reason => $name,)+
                }
            }

            /// The meaning of the reason, for documents.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(HttpUnfit::$reason => $meaning,)+
                }
            }
        }
    };
}

http_unfit_reasons! {
    BareLf "http-bare-lf":
        "a line of a request ends with LF without CR (RFC 9112, section 2.2)";
    BareCr "http-bare-cr":
        "CR without LF behind it (RFC 9112, section 2.2)";
    BlankLines "http-blank-lines":
        "more than one empty line in front of a request, or one in front of a response (RFC 9112, section 2.2)";
    HeadTooLong "http-head-too-long":
        "a head is longer than `http head`";
    UnfinishedHead "http-unfinished-head":
        "the sender has closed within a head";
    SlowHead "http-slow-head":
        "a head is not complete after 5 s";
    Method "http-bad-method":
        "the method is no token, is longer than 32 bytes, or is HEAD or CONNECT in small letters (RFC 9110, section 9.1)";
    Target "http-bad-target":
        "the target of a request has blanks or other bytes than visible ASCII, or a form that its method does not have (RFC 9112, section 3.2)";
    Version "http-bad-version":
        "another version than HTTP/1.0 and HTTP/1.1, or none (RFC 9112, section 2.3)";
    StatusLine "http-bad-status-line":
        "a response does not begin with a version, three digits from 100 on and a reason (RFC 9112, section 4)";
    LeadingBlank "http-leading-blank":
        "a blank between the first line of a head and the first header (RFC 9112, section 2.2)";
    ObsFold "http-obs-fold":
        "a header goes on in the next line, in a request, or one that says where a response ends (RFC 9112, section 5.2)";
    BlankBeforeColon "http-blank-before-colon":
        "a blank between the name of a header and the colon, in a request, or of one that says where a response ends (RFC 9112, section 5.1)";
    HeaderName "http-bad-header-name":
        "the name of a header is no token, or a line has no colon (RFC 9110, section 5.1)";
    HeaderValue "http-bad-header-value":
        "NUL in the value of a header, or another control byte in a request (RFC 9110, section 5.5)";
    TooManyHeaders "http-too-many-headers":
        "a head or a trailer section has more than 128 headers";
    ContentLength "http-bad-content-length":
        "Content-Length is no number of decimal digits below 2^64, or comes more than once in a request or with different values (RFC 9112, section 6.3)";
    TransferEncoding "http-bad-transfer-encoding":
        "Transfer-Encoding is anything but `chunked`, or comes more than once (RFC 9112, section 6.1)";
    LengthAndEncoding "http-length-and-encoding":
        "a request has Content-Length and Transfer-Encoding (RFC 9112, section 6.3)";
    EncodingInHttp10 "http-encoding-in-http-1.0":
        "Transfer-Encoding in a message of HTTP/1.0, or in a response to one (RFC 9112, section 6.1)";
    UnexpectedBody "http-unexpected-body":
        "a length or an encoding of a body where there can be none: CONNECT, 1xx (RFC 9112, section 6.3)";
    Host "http-bad-host":
        "a request of HTTP/1.1 without Host, with several, or with one that is no host and port (RFC 9112, section 3.2)";
    HostDiffers "http-host-differs":
        "Host names another host than the target of the request (RFC 9112, section 3.2.2)";
    ConnectionOption "http-bad-connection-option":
        "Connection names a header that says where the message ends or goes, or in a request an option that only some programs take for `close` (RFC 9110, section 7.6.1)";
    ChunkSize "http-bad-chunk-size":
        "the size of a chunk is not 1 to 16 hexadecimal digits (RFC 9112, section 7.1)";
    ChunkExtension "http-bad-chunk-extension":
        "something else than extensions behind the size of a chunk (in responses, blanks before them), or control bytes in them (in responses, CR) (RFC 9112, section 7.1.1)";
    ChunkLineTooLong "http-chunk-line-too-long":
        "the line with the size of a chunk is longer than 256 bytes in a request, 4,096 in a response";
    ChunkEnd "http-bad-chunk-end":
        "no line end behind the data of a chunk (RFC 9112, section 7.1)";
    TrailersTooLong "http-trailers-too-long":
        "the trailer section is longer than `http head`";
    TrailerName "http-bad-trailer":
        "a trailer of a request says where the message ends or goes (RFC 9110, section 6.5.1)";
    TooManyRequests "http-too-many-requests":
        "requests wait for responses (64, fewer with many rules, one behind CONNECT or a request after which the server was asked to close), and their sender has closed or sent more than 80 KiB behind them";
    RequestBehindLast "http-request-behind-last":
        "bytes behind a request after which the client must close, or some servers close (RFC 9112, section 9.6)";
    UnclearPersistence "http-unclear-persistence":
        "bytes after a response that says both `close` and `keep-alive`, or that names `keep-alive` in HTTP/1.0 so that only some clients keep the connection (RFC 9112, section 9.3)";
    ResponseWithoutRequest "http-response-without-request":
        "a response that no request waits for (RFC 9112, section 9.2)";
    InterimInHttp10 "http-interim-in-http-1.0":
        "a 1xx response of HTTP/1.0, or to a request of it (RFC 9110, section 15.2)";
    UnfinishedBody "http-unfinished-body":
        "the sender has closed within a body that its receiver has got without its length; told by who changes the framing (RFC 9112, section 8)";
    UnaskedUpgrade "http-unasked-upgrade":
        "101 to a request without Upgrade (RFC 9110, section 7.8)";
}
