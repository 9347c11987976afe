//! Where bodies end.

use crate::script::{Reading, Told, asked, client, get, server};
use mmb_http::{BodyFraming, FramingKind, HttpDirection, HttpUnfit};

/// What was told behind the first head of the responses to a GET.
fn response(text: &str, closes: bool) -> Vec<Told> {
    let [request, mut response] = asked(text);
    response.is_end = closes;
    let reading = Reading::of(&[request, response]);
    reading.responses()[1..].to_vec()
}

fn body(text: &str) -> Told {
    Told::Body(text.into())
}

fn framing(kind: FramingKind, text: &str) -> Told {
    Told::Framing(kind, text.into())
}

/// RFC 9112, section 6.3, item 6.
#[test]
fn content_length() {
    assert_eq!(
        response("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false),
        [body("hello"), Told::End]
    );
    assert_eq!(response("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", false), [body("hell")]);
    assert_eq!(response("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false), [Told::End]);
}

/// RFC 9112, section 7.1.
#[test]
fn chunked() {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\nA\r\n0123456789\r\n000\r\nX: y\r\n\r\n";
    let expected = [
        framing(FramingKind::ChunkSize, "5;a=b\r\n"),
        body("hello"),
        framing(FramingKind::ChunkEnd, "\r\n"),
        framing(FramingKind::ChunkSize, "A\r\n"),
        body("0123456789"),
        framing(FramingKind::ChunkEnd, "\r\n"),
        framing(FramingKind::LastChunk, "000\r\n"),
        Told::Trailers(b"X: y\r\n\r\n".to_vec()),
        Told::End,
    ];
    assert_eq!(response(text, false), expected);
    assert_eq!(
        response("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false),
        [framing(FramingKind::LastChunk, "0\r\n"), Told::Trailers(b"\r\n".to_vec()), Told::End,]
    );
}

/// RFC 9112, section 6.3, item 8: until the server closes.
#[test]
fn until_close() {
    assert_eq!(response("HTTP/1.1 200 OK\r\n\r\nhello", false), [body("hello")]);
    assert_eq!(response("HTTP/1.1 200 OK\r\n\r\nhello", true), [body("hello"), Told::End]);
    assert_eq!(response("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", true), [Told::End]);
    // A request without a length has no body.
    assert_eq!(Reading::of(&[get("")]).requests()[1..], [Told::End]);
}

/// RFC 9112, section 6.3, item 1: no body, whatever the headers say.
#[test]
fn responses_without_body() {
    let head = client(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
    ] {
        let reading =
            Reading::of(&[head.clone(), server(text.as_bytes()), head.clone(), server(text.as_bytes())]);
        let told = reading.responses();
        assert!(
            matches!(
                told,
                [Told::Response { body: BodyFraming::None, .. }, Told::End, Told::Response { .. }, Told::End]
            ),
            "{told:?}"
        );
    }
    assert_eq!(response("HTTP/1.1 304 a\r\nContent-Length: 5\r\n\r\n", false), [Told::End]);
    assert_eq!(response("HTTP/1.1 304 a\r\nTransfer-Encoding: chunked\r\n\r\n", false), [Told::End]);
    assert_eq!(response("HTTP/1.1 204 a\r\n\r\n", false), [Told::End]);
}

#[test]
fn truncated_bodies_are_told() {
    let cases = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", vec![body("hell"), Told::Truncated(vec![])]),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", vec![Told::Truncated(vec![])]),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", vec![Told::Truncated(vec![])]),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5", vec![Told::Truncated(b"5".to_vec())]),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r",
            vec![framing(FramingKind::ChunkSize, "1\r\n"), body("a"), Told::Truncated(b"\r".to_vec())],
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n",
            vec![framing(FramingKind::LastChunk, "0\r\n"), Told::Truncated(b"X: y\r\n".to_vec())],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(response(text, true), expected, "{text:?}");
    }
}

/// Some servers read a head that the client's close ends.
#[test]
fn unfinished_heads_are_refused() {
    for text in ["G", "GET / HTTP/1.1\r\nHost: a\r\n", "\r", "PRI * HTTP/2.0\r\n\r\n"] {
        assert_eq!(
            Reading::of(&[client(text.as_bytes()).closes()]).unfit(),
            Some(HttpUnfit::UnfinishedHead),
            "{text:?}"
        );
    }
    let [request, response] = asked("HTTP/1.1 200 OK\r\n");
    assert_eq!(Reading::of(&[request, response.closes()]).unfit(), Some(HttpUnfit::UnfinishedHead));
    let reading = Reading::of(&[get("").closes(), server(b"").closes()]);
    assert_eq!((reading.unfit(), reading.connection.outstanding()), (None, 1));
    // An empty line is complete.
    assert_eq!(Reading::of(&[client(b"\r\n").closes()]).unfit(), None);
}

#[test]
fn borders_are_told() {
    let mut reading = Reading::default();
    let mut at_border = |text: &str| {
        reading.read(HttpDirection::Requests, text.as_bytes(), false);
        reading.connection.is_at_border(HttpDirection::Requests)
    };
    assert!(at_border("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2"));
    assert!(!at_border("\r\n\r\n"));
    assert!(!at_border("a"));
    assert!(at_border("b"));
}
