//! Responses that the grammar forbids and that clients and proxies read alike: `tests/live/test_http_odd.py` has nginx, HAProxy, curl and Chromium
//! read the same ones.

use crate::script::{Reading, Told, asked, get};
use mmb_http::HttpUnfit::{self, *};
use mmb_http::{BodyFraming, HeadBuffer, HttpConnection, HttpDirection, HttpPiece, unfold};

const LENGTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// The content of the response to a GET, which is complete.
fn content(response: &str) -> Vec<u8> {
    let reading = Reading::of(&asked(response));
    assert_eq!(reading.unfit(), None, "{response:?}");
    assert!(reading.responses().contains(&Told::End), "{response:?}: {:?}", reading.responses());
    assert_eq!(reading.left(HttpDirection::Responses), b"", "{response:?}");
    let bodies = reading.responses().iter();
    bodies
        .filter_map(|told| if let Told::Body(body) = told { Some(&body[..]) } else { None })
        .collect::<Vec<_>>()
        .concat()
}

fn unfit(response: &str) -> Option<HttpUnfit> {
    Reading::of(&asked(response)).unfit()
}

/// RFC 9112, section 7.1.1 has blanks in front of extensions only.
#[test]
fn blanks_behind_the_size_of_a_chunk() {
    for body in [
        "5 \r\nhello\r\n0 \r\n\r\n",
        "00000005  \r\nhello\r\n0000  \r\n\r\n",
        &format!("5{}\r\nhello\r\n0\r\n\r\n", " ".repeat(300)),
        "5 ;a=b\r\nhello\r\n0\r\n\r\n",
        "5;a\0\x01\x7fb\r\nhello\r\n0\r\n\r\n",
        &format!("5;a={}\r\nhello\r\n0\r\n\r\n", "b".repeat(4000)),
    ] {
        assert_eq!(content(&format!("{CHUNKED}{body}")), b"hello", "{body:?}");
    }
    for (body, reason) in [
        ("5\t\r\nhello", ChunkExtension),
        (" 5\r\nhello", ChunkSize),
        ("5x\r\nhello", ChunkExtension),
        ("5 a\r\nhello", ChunkExtension),
        ("5;a\rb\r\n", ChunkExtension),
        ("5 \r\r\n", ChunkExtension),
        ("00000000000000005\r\n", ChunkSize),
        ("5\r\nhellox", ChunkEnd),
        ("5\r\nhello \r\n", ChunkEnd),
    ] {
        assert_eq!(unfit(&format!("{CHUNKED}{body}")), Some(reason), "{body:?}");
    }
}

/// RFC 9112, section 2.2: a recipient may take LF as the end of a line. Of requests, not every server does.
#[test]
fn lines_that_end_with_lf() {
    for response in [
        "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\nhello",
        "HTTP/1.1 200 OK\nContent-Length: 5\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\nA: b\n\n",
    ] {
        assert_eq!(content(response), b"hello", "{response:?}");
    }
}

/// RFC 9112, sections 5.1 and 5.2. What says where the message ends must be as the grammar has it.
#[test]
fn odd_header_lines() {
    for lines in [
        "A: b\r\n c\r\n",
        "A: b\r\n\tc\r\n \r\n",
        "A:\r\n b\r\n",
        "A : b\r\n",
        "A\t: b\r\n",
        "A: \x01\x1b\x7f\r\n",
    ] {
        assert_eq!(content(&format!("{LENGTH}{lines}\r\nhello")), b"hello", "{lines:?}");
        assert_eq!(content(&format!("{CHUNKED}5\r\nhello\r\n0\r\n{lines}\r\n")), b"hello", "{lines:?}");
    }
    for (lines, reason) in [
        ("Content-Length:\r\n 5\r\n", ObsFold),
        ("Content-Length: 5\r\n 0\r\n", ObsFold),
        ("Transfer-Encoding:\r\n chunked\r\n", ObsFold),
        ("Content-Length : 5\r\n", BlankBeforeColon),
        ("transfer-encoding\t: chunked\r\n", BlankBeforeColon),
        ("Connection : close\r\n", BlankBeforeColon),
        (" A: b\r\n", LeadingBlank),
        ("A b: c\r\n", HeaderName),
        ("A(: c\r\n", HeaderName),
        ("A\u{e4}: c\r\n", HeaderName),
        (": c\r\n", HeaderName),
        ("A\r\n", HeaderName),
        ("A: \0\r\n", HeaderValue),
    ] {
        assert_eq!(unfit(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n")), Some(reason), "{lines:?}");
    }
}

#[test]
fn a_folded_value_has_blanks_for_folds() {
    let (mut connection, mut buffer) = (HttpConnection::new(1 << 14), HeadBuffer::default());
    let request = get("").bytes;
    let _ = connection.next(HttpDirection::Requests, &request, false, &mut buffer);
    let bytes = b"HTTP/1.1 200 OK\r\nA \t:\r\n\t b;\r\n \r\n  c\n\td \r\nB: e\r\n\r\n";
    let HttpPiece::Response(head) = connection.next(HttpDirection::Responses, bytes, false, &mut buffer)
    else {
        panic!("no response");
    };
    let lines: Vec<_> = head
        .headers
        .lines
        .iter()
        .map(|line| (head.headers.text(line.name), head.headers.text(line.line)))
        .collect();
    assert_eq!(lines, [(&b"A"[..], &bytes[17..41]), (b"B", b"B: e\r\n")]);
    let mut text = Vec::new();
    unfold(head.headers.first(b"a").expect("a value"), &mut text);
    assert_eq!(text, b"b; c d");
}

/// RFC 9110, section 8.6, and RFC 9112, section 6.3: equal lengths are one, and an encoding overrides a length.
#[test]
fn lengths_of_responses() {
    for lines in [
        "Content-Length: 5\r\ncontent-length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\nContent-Length: 5\r\n",
    ] {
        assert_eq!(content(&format!("HTTP/1.1 200 OK\r\n{lines}\r\nhello")), b"hello", "{lines:?}");
    }
    for lines in [
        "Content-Length: 9\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
    ] {
        let response = format!("HTTP/1.1 200 OK\r\n{lines}\r\n5\r\nhello\r\n0\r\n\r\n");
        assert_eq!(content(&response), b"hello", "{lines:?}");
    }
    for lines in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5\r\nContent-Length: 05\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 5x\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n",
    ] {
        assert_eq!(unfit(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n")), Some(ContentLength), "{lines:?}");
    }
}

/// RFC 9112, section 6.3: a 204 has no body, whatever it says.
#[test]
fn a_204_has_no_body() {
    for lines in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
        let reading = Reading::of(&asked(&format!("HTTP/1.1 204 No Content\r\n{lines}\r\n")));
        assert!(
            matches!(reading.responses(), [Told::Response { body: BodyFraming::None, .. }, Told::End]),
            "{lines:?}: {:?}",
            reading.responses()
        );
    }
}

/// Headers that say something of requests only, options that only some take for `close`, and trailers, which no client merges into the head.
#[test]
fn what_says_nothing_of_where_a_response_ends() {
    for lines in [
        "Host: a\r\nHost: b\r\n",
        "Connection: close;x\r\n",
        "Connection: \"close\"\r\n",
        "Connection: host\r\n",
    ] {
        assert_eq!(content(&format!("{LENGTH}{lines}\r\nhello")), b"hello", "{lines:?}");
    }
    let trailers = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\nHost: a\r\nConnection: close\r\n";
    assert_eq!(content(&format!("{CHUNKED}5\r\nhello\r\n0\r\n{trailers}\r\n")), b"hello");
    for option in ["content-length", "Transfer-Encoding"] {
        assert_eq!(unfit(&format!("{LENGTH}Connection: {option}\r\n\r\n")), Some(ConnectionOption));
    }
}
