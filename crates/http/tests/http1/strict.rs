//! What is refused, and for which reason.

use crate::script::{Reading, Step, Told, asked, client, get, server};
use mmb_http::HttpUnfit::{self, *};
use mmb_http::{HttpDirection, MAX_HEADERS};

/// Each text, sent by the client, is refused for the reason.
fn refused(cases: &[(&str, HttpUnfit)]) {
    for (text, reason) in cases {
        assert_eq!(Reading::of(&[client(text.as_bytes())]).unfit(), Some(*reason), "{text:?}");
    }
}

/// Each text, sent by the server behind a GET, is refused for the reason.
fn refused_response(cases: &[(&str, HttpUnfit)]) {
    for (text, reason) in cases {
        assert_eq!(Reading::of(&asked(text)).unfit(), Some(*reason), "{text:?}");
    }
}

fn accepted(texts: &[&str]) {
    for text in texts {
        let reading = Reading::of(&[client(text.as_bytes())]);
        assert_eq!(reading.unfit(), None, "{text:?}");
        assert!(!reading.requests().is_empty(), "{text:?}");
    }
}

/// A request with such header lines is refused for the reason.
fn refused_headers(cases: &[(&str, HttpUnfit)]) {
    for (lines, reason) in cases {
        assert_eq!(Reading::of(&[get(lines)]).unfit(), Some(*reason), "{lines:?}");
    }
}

/// RFC 9112, section 2.2: lines end with CRLF. A recipient may take LF alone, so that some do and some do not.
#[test]
fn line_ends() {
    refused(&[
        ("GET / HTTP/1.1\n", BareLf),
        ("GET / HTTP/1.1\r\nHost: a\n", BareLf),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n", BareLf),
        ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", BareLf),
        ("GET /\r HTTP/1.1\r\n", BareCr),
        ("GET / HTTP/1.1\r\r\n", BareCr),
        ("GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", BareCr),
        ("GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", BareCr),
        ("\rGET / HTTP/1.1\r\n", BareCr),
    ]);
    refused_response(&[
        ("HTTP/1.1 200 O\rK\r\n", BareCr),
        ("HTTP/1.1 200 OK\r\r\n", BareCr),
        ("HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", BareCr),
        ("HTTP/1.1 200 OK\r\nA: b\r\r\n\r\n", BareCr),
    ]);
}

/// RFC 9112, section 2.2: one empty line in front of a request is ignored.
#[test]
fn blank_lines() {
    accepted(&[
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx\r\nGET / HTTP/1.0\r\n\r\n",
    ]);
    refused(&[("\r\n\r\n", BlankLines)]);
    refused_response(&[("\r\n", BlankLines), ("\n", BlankLines)]);
}

/// RFC 9112, section 3: method, target and version with one blank between them.
#[test]
fn request_lines() {
    accepted(&[
        "PATCH /?a#b HTTP/1.0\r\n\r\n",
        "x!#$%&'*+-.^_`|~9 / HTTP/1.0\r\n\r\n",
        "OPTIONS * HTTP/1.0\r\n\r\n",
        "GET http://a/b HTTP/1.0\r\n\r\n",
        "GET urn+x-1.2://a HTTP/1.0\r\n\r\n",
        "CONNECT a:1 HTTP/1.0\r\n\r\n",
    ]);
    refused(&[
        (" GET / HTTP/1.1\r\n", Method),
        ("G\tET / HTTP/1.1\r\n", Method),
        ("G(T / HTTP/1.1\r\n", Method),
        ("\x16\x04\x01", Method),
        ("\0", Method),
        ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", Method),
        ("head / HTTP/1.1\r\n", Method),
        ("Connect a:1 HTTP/1.1\r\n", Method),
        ("GET  / HTTP/1.1\r\n", Target),
        ("GET / b HTTP/1.1\r\n", Target),
        ("GET /\tb HTTP/1.1\r\n", Target),
        ("GET /\u{a0} HTTP/1.1\r\n", Target),
        ("GET /\x7f HTTP/1.1\r\n", Target),
        ("GET a HTTP/1.1\r\n", Target),
        ("GET * HTTP/1.1\r\n", Target),
        ("GET ://a/ HTTP/1.1\r\n", Target),
        ("GET http:///b HTTP/1.1\r\n", Target),
        ("GET http://u@/b HTTP/1.1\r\n", Target),
        ("CONNECT a HTTP/1.1\r\n", Target),
        ("CONNECT a:b HTTP/1.1\r\n", Target),
        ("CONNECT :1 HTTP/1.1\r\n", Target),
        ("CONNECT /:1 HTTP/1.0\r\n\r\n", Target),
    ]);
}

/// RFC 9112, section 2.3: HTTP/1.0 and HTTP/1.1, in capital letters. HTTP/0.9 has no version.
#[test]
fn versions() {
    refused(&[
        ("GET /\r\n", Version),
        ("GET / \r\n", Version),
        ("GET / HTTP/1.2\r\n", Version),
        ("GET / HTTP/2.0\r\n", Version),
        ("GET / HTTP/1.10\r\n", Version),
        ("GET / http/1.1\r\n", Version),
        ("GET / HTTP/1.1 \r\n", Version),
        ("PRI * HTTP/2.0\r\n\r\nSN", Version),
    ]);
    refused_response(&[
        ("HTTP/2", Version),
        ("HTTP/1.2 200 OK\r\n", Version),
        ("HTTP/1.10 200 OK\r\n", StatusLine),
    ]);
}

/// RFC 9112, section 4.
#[test]
fn status_lines() {
    for line in ["HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.0 999 a b\tc\u{fc}"] {
        assert_eq!(Reading::of(&asked(&format!("{line}\r\n\r\n"))).unfit(), None, "{line:?}");
    }
    refused_response(&[
        ("ICY", StatusLine),
        ("http", StatusLine),
        ("HTTP/x", StatusLine),
        ("HTTP/1.1\r\n", StatusLine),
        ("HTTP/1.1 20\r\n", StatusLine),
        ("HTTP/1.1 2000\r\n", StatusLine),
        ("HTTP/1.1 099 a\r\n", StatusLine),
        ("HTTP/1.1 +20 a\r\n", StatusLine),
        ("HTTP/1.1  200 a\r\n", StatusLine),
        ("HTTP/1.1\t200 a\r\n", StatusLine),
        ("HTTP/1.1 200OK\r\n", StatusLine),
        ("HTTP/1.1 200 a\0\r\n", StatusLine),
    ]);
}

/// RFC 9112, sections 2.2, 5.1 and 5.2; RFC 9110, sections 5.1 and 5.5.
#[test]
fn header_lines() {
    refused(&[
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", LeadingBlank),
        ("GET / HTTP/1.1\r\n\tA: b\r\n\r\n", LeadingBlank),
    ]);
    refused_headers(&[
        ("A: b\r\n c\r\n", ObsFold),
        ("A: b\r\n\tc\r\n", ObsFold),
        ("A: b\r\n \r\n", ObsFold),
        ("A : b\r\n", BlankBeforeColon),
        ("A\t: b\r\n", BlankBeforeColon),
        ("A\r\n", HeaderName),
        (": b\r\n", HeaderName),
        ("A b: c\r\n", HeaderName),
        ("A\0: c\r\n", HeaderName),
        ("A\u{e4}: c\r\n", HeaderName),
        ("A: \0\r\n", HeaderValue),
        ("A: b\x01c\r\n", HeaderValue),
        ("A: b\x7f\r\n", HeaderValue),
        ("A: b\x0b\r\n", HeaderValue),
    ]);
    for lines in
        ["A:\r\n", "A: \t \r\n", "A:b\r\n", "A: b\tc \t\r\n", "A: \u{e4}\r\n", "x!#$%&'*+-.^_`|~9: c\r\n"]
    {
        assert_eq!(Reading::of(&[get(lines)]).unfit(), None, "{lines:?}");
    }
}

#[test]
fn numbers_of_headers() {
    let lines = |count: usize| "A: b\r\n".repeat(count - 1);
    assert_eq!(Reading::of(&[get(&lines(MAX_HEADERS))]).unfit(), None);
    assert_eq!(Reading::of(&[get(&lines(MAX_HEADERS + 1))]).unfit(), Some(TooManyHeaders));
}

#[test]
fn lengths_of_heads() {
    let head = |len: usize| {
        let empty = "GET / HTTP/1.1\r\nHost: a\r\nA: \r\n\r\n";
        format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "b".repeat(len - empty.len()))
    };
    for (len, shown, unfit) in
        [(100, 100, None), (101, 101, Some(HeadTooLong)), (101, 100, Some(HeadTooLong)), (101, 99, None)]
    {
        let mut reading = Reading::with_limit(100);
        reading.read(HttpDirection::Requests, &head(len).as_bytes()[..shown], false);
        assert_eq!(reading.unfit(), unfit, "{shown} of {len}");
    }
    // Nothing behind the limit is looked at.
    let mut reading = Reading::with_limit(10);
    reading.read(HttpDirection::Requests, b"GET /aaaaaaaaaaaa\n", false);
    assert_eq!(reading.unfit(), Some(HeadTooLong));
    let mut reading = Reading::with_limit(30);
    reading.read(HttpDirection::Requests, b"GET / HTTP/1.0\r\n\r\n", false);
    reading.read(HttpDirection::Responses, b"HTTP/1.1 200 OK\r\nServer: abcdefgh", false);
    assert_eq!(reading.unfit(), Some(HeadTooLong));
}

/// RFC 9112, section 6.3: a length is one number of digits.
#[test]
fn content_lengths() {
    for value in [
        "+5",
        "-5",
        "5 5",
        "5, 5",
        "5,5",
        "",
        "0x5",
        "5.0",
        "5;",
        "18446744073709551616",
        "99999999999999999999999",
    ] {
        let lines = format!("Content-Length: {value}\r\n");
        assert_eq!(Reading::of(&[get(&lines)]).unfit(), Some(ContentLength), "{value:?}");
    }
    refused_headers(&[
        ("Content-Length: 5\r\nContent-Length: 6\r\n", ContentLength),
        ("Content-Length: 5\r\ncontent-length: 5\r\n", ContentLength),
    ]);
    for value in ["0", "00005", "18446744073709551615", "5 \t"] {
        assert_eq!(Reading::of(&[get(&format!("Content-Length: {value}\r\n"))]).unfit(), None, "{value:?}");
    }
}

/// RFC 9112, sections 6.1 and 6.3.
#[test]
fn transfer_encodings() {
    for value in [
        "gzip",
        "gzip, chunked",
        "chunked, gzip",
        "chunked, chunked",
        "identity",
        "",
        "chunked;q=1",
        "\"chunked\"",
        "xchunked",
        ",chunked",
    ] {
        let lines = format!("Transfer-Encoding: {value}\r\n");
        assert_eq!(Reading::of(&[get(&lines)]).unfit(), Some(TransferEncoding), "{value:?}");
    }
    refused_headers(&[
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", TransferEncoding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", TransferEncoding),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", LengthAndEncoding),
        ("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", LengthAndEncoding),
    ]);
    refused(&[("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", EncodingInHttp10)]);
    refused_response(&[
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", EncodingInHttp10),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", TransferEncoding),
    ]);
    let script =
        [client(b"GET / HTTP/1.0\r\n\r\n"), server(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")];
    assert_eq!(Reading::of(&script).unfit(), Some(EncodingInHttp10));
    assert_eq!(Reading::of(&[get("Transfer-Encoding: Chunked\r\n")]).unfit(), None);
}

/// RFC 9112, section 3.2: HTTP/1.1 has one Host, which is a host and perhaps a port.
#[test]
fn hosts() {
    refused(&[
        ("GET / HTTP/1.1\r\n\r\n", Host),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", Host),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", Host),
    ]);
    for value in [
        "a b", "a, b", "a,b", "a/b", "u@a", "a:b", "a:1:2", "a:65536", "[::1", "[::1]a", "[a b]", "a?b",
        "a#b", "a\\b", "\u{e4}",
    ] {
        let text = format!("GET / HTTP/1.1\r\nHost: {value}\r\n\r\n");
        assert_eq!(Reading::of(&[client(text.as_bytes())]).unfit(), Some(Host), "{value:?}");
    }
    for value in ["", "a", "a.b:80", "a:", "[::1]", "[::1]:80", "a_b", "%41"] {
        let text = format!("GET / HTTP/1.1\r\nHost: {value}\r\n\r\n");
        assert_eq!(Reading::of(&[client(text.as_bytes())]).unfit(), None, "{value:?}");
    }
}

/// RFC 9112, section 3.2.2: a server ignores Host if the target names a host, and not every server does.
#[test]
fn hosts_beside_absolute_targets() {
    let request = |target: &str, host: &str| {
        let method = if target.contains('/') { "GET" } else { "CONNECT" };
        Reading::of(&[client(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())])
            .unfit()
    };
    for (target, host) in [
        ("http://a/", "a"),
        ("http://a:80/", "A"),
        ("HTTPS://a/", "a:443"),
        ("http://user@a/x", "a"),
        ("x://a:1/", "a:1"),
        ("http://[::1]/", "[::1]:80"),
        ("a:443", "a"),
        ("a:443", "a:443"),
    ] {
        assert_eq!(request(target, host), None, "{target} {host}");
    }
    for (target, host) in [
        ("http://a/", "b"),
        ("http://a/", ""),
        ("http://a:81/", "a"),
        ("http://a/", "a:81"),
        ("x://a/", "a:1"),
        ("a:443", "b:443"),
        ("a:443", "a:444"),
    ] {
        assert_eq!(request(target, host), Some(HostDiffers), "{target} {host}");
    }
    for target in ["http://a:b/", "http://a:99999/", "http://[a/"] {
        assert_eq!(request(target, "a"), Some(Target), "{target}");
    }
    refused(&[("GET http://a:b/ HTTP/1.0\r\n\r\n", Target)]);
}

/// RFC 9110, section 7.6.1: what Connection names is removed by the next proxy.
#[test]
fn connection_options() {
    refused_headers(&[
        ("Connection: close, Content-Length\r\n", ConnectionOption),
        ("Connection: transfer-encoding\r\n", ConnectionOption),
        ("Connection: keep-alive\r\nConnection: host\r\n", ConnectionOption),
        // Apache takes the quotes away, and nginx searches for it in the whole value.
        ("Connection: \"close\"\r\n", ConnectionOption),
        ("Connection: keep-alive, xClose\r\n", ConnectionOption),
        ("Connection: close;x\r\n", ConnectionOption),
    ]);
    assert_eq!(Reading::of(&[get("Connection: Upgrade, HTTP2-Settings, TE, x,, y\r\n")]).unfit(), None);
}

/// RFC 9112, section 7.1.
#[test]
fn chunks() {
    let chunked = |body: &str| {
        Reading::of(&[client(
            format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}").as_bytes(),
        )])
        .unfit()
    };
    let extension = |len: usize| format!("5;{}\r\nhello\r\n", "a".repeat(len - 4));
    for (body, reason) in [
        ("\r\n", ChunkSize),
        (" 5\r\n", ChunkSize),
        ("+5\r\n", ChunkSize),
        ("-5\r\n", ChunkSize),
        ("x\r\n", ChunkSize),
        ("00000000000000005\r\n", ChunkSize),
        ("10000000000000000\r\n", ChunkSize),
        ("0x5\r\n", ChunkExtension),
        ("5 \r\n", ChunkExtension),
        ("5 ;a\r\n", ChunkExtension),
        ("5\t\r\n", ChunkExtension),
        ("5;a\0\r\n", ChunkExtension),
        ("5;a\rb\r\n", ChunkExtension),
        ("5\r\r\n", ChunkExtension),
        ("5\n", BareLf),
        ("5;a\n", BareLf),
        ("5\r\nhellox", ChunkEnd),
        ("5\r\nhello\n", ChunkEnd),
        ("5\r\nhello\r\r", ChunkEnd),
        (&extension(257), ChunkLineTooLong),
        ("0\r\n\n", BareLf),
        ("0\r\nA: b\n", BareLf),
        ("0\r\n A: b\r\n\r\n", LeadingBlank),
        ("0\r\nA b\r\n\r\n", HeaderName),
        ("0\r\nA: b\r\n c\r\n\r\n", ObsFold),
        ("0\r\nContent-Length: 5\r\n\r\n", TrailerName),
        ("0\r\ntransfer-encoding: chunked\r\n\r\n", TrailerName),
        ("0\r\nHost: a\r\n\r\n", TrailerName),
    ] {
        assert_eq!(chunked(body), Some(reason), "{body:?}");
    }
    for body in [
        "5\r\nhello\r\n0\r\n\r\n",
        "FFFFFFFFFFFFFFFF\r\n",
        "0000000000000005;a=b;c=\"d e\"\r\nhello\r\n",
        "0;a\r\nA: b\r\n\r\n",
        &extension(256),
    ] {
        assert_eq!(chunked(body), None, "{body:?}");
    }
    let trailers = |count: usize| format!("0\r\n{}\r\n", "A: b\r\n".repeat(count));
    assert_eq!(chunked(&trailers(MAX_HEADERS)), None);
    assert_eq!(chunked(&trailers(MAX_HEADERS + 1)), Some(TooManyHeaders));
}

#[test]
fn lengths_of_trailer_sections() {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    for (len, unfit) in [(100, None), (101, Some(TrailersTooLong))] {
        let mut reading = Reading::with_limit(100);
        reading.read(HttpDirection::Requests, head, false);
        let section = format!("A: {}\r\n\r\n", "b".repeat(len - 7));
        reading.read(HttpDirection::Requests, section.as_bytes(), false);
        assert_eq!(reading.unfit(), unfit, "{len}");
    }
}

/// RFC 9112, section 6.3, items 1 and 2.
#[test]
fn bodies_where_there_can_be_none() {
    refused_response(&[
        ("HTTP/1.1 100 a\r\nContent-Length: 1\r\n\r\n", UnexpectedBody),
        ("HTTP/1.1 103 a\r\nTransfer-Encoding: chunked\r\n\r\n", UnexpectedBody),
    ]);
    refused(&[
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", UnexpectedBody),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", UnexpectedBody),
    ]);
    assert_eq!(Reading::of(&asked("HTTP/1.1 204 a\r\nContent-Length: 0\r\n\r\n")).unfit(), None);
}

/// Once refused, always refused, in both directions. A body that the other direction has begun is read to its end.
#[test]
fn what_is_unfit_remains_so() {
    let good = get("");
    let steps: [Step; 4] = [client(b"(\r\n"), good.clone(), server(b"HTTP/1.1 200 OK\r\n\r\n"), good];
    let reading = Reading::of(&steps);
    assert_eq!((reading.requests().len(), reading.responses().len()), (1, 1));
    assert_eq!(reading.unfit(), Some(Method));
    let begun = server(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab");
    let reading = Reading::of(&[get(""), begun, client(b"(\r\n"), server(b"cdHTTP")]);
    assert_eq!(reading.responses()[1..], [Told::Body(b"abcd".to_vec()), Told::End, Told::Unfit(Method)]);
}

#[test]
fn reasons_have_names_of_their_own() {
    let mut names: Vec<_> = HttpUnfit::ALL.iter().map(|reason| reason.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), HttpUnfit::ALL.len());
    assert!(HttpUnfit::ALL.iter().all(|reason| reason.name().len() < 32 && !reason.meaning().is_empty()));
}
