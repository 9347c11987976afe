//! Look-ups in heads.

use mmb_http::{HeadBuffer, HttpConnection, HttpDirection, HttpPiece, RequestHead, list_items};

fn with_head(bytes: &[u8], look: impl FnOnce(&RequestHead<'_>)) {
    let (mut connection, mut buffer) = (HttpConnection::new(1000), HeadBuffer::default());
    match connection.next(HttpDirection::Requests, bytes, false, &mut buffer) {
        HttpPiece::Request(head) => look(&head),
        piece => panic!("{piece:?}"),
    }
}

#[test]
fn parts_of_a_head_are_places_in_the_bytes() {
    let bytes = b"POST /a?b HTTP/1.1\r\nHost: x.org:80\r\nA:  b \t\r\nEmpty:\r\nBlank: \t\r\n\r\nrest";
    with_head(bytes, |head| {
        let text = |span| head.headers.text(span);
        assert_eq!(
            (text(head.method), text(head.target), text(head.path)),
            (&b"POST"[..], &b"/a?b"[..], &b"/a?b"[..])
        );
        assert_eq!(text(head.host), b"x.org");
        assert_eq!(head.headers.len(), bytes.len() - 4);
        let lines: Vec<_> = head
            .headers
            .lines
            .iter()
            .map(|line| (text(line.line), text(line.name), text(line.value)))
            .collect();
        let expected: [(&[u8], &[u8], &[u8]); 4] = [
            (b"Host: x.org:80\r\n", b"Host", b"x.org:80"),
            (b"A:  b \t\r\n", b"A", b"b"),
            (b"Empty:\r\n", b"Empty", b""),
            (b"Blank: \t\r\n", b"Blank", b""),
        ];
        assert_eq!(lines, expected);
        for line in head.headers.lines {
            assert!(line.name.end < line.value.start && line.value.end <= line.line.end - 2, "{line:?}");
        }
    });
}

#[test]
fn targets_have_a_host_and_a_path() {
    let cases: [(&str, &[u8], &[u8]); 7] = [
        ("GET http://u:p@x.org:8080/a?b HTTP/1.0", b"x.org", b"/a?b"),
        ("GET http://x.org?b HTTP/1.0", b"x.org", b"?b"),
        ("GET http://x.org HTTP/1.0", b"x.org", b""),
        ("GET http://[::1]:1/ HTTP/1.0", b"[::1]", b"/"),
        ("CONNECT x.org:443 HTTP/1.0", b"x.org", b""),
        ("OPTIONS * HTTP/1.0", b"", b"*"),
        ("GET /a HTTP/1.0", b"", b"/a"),
    ];
    for (line, host, path) in cases {
        with_head(format!("{line}\r\n\r\n").as_bytes(), |head| {
            assert_eq!((head.headers.text(head.host), head.headers.text(head.path)), (host, path), "{line}");
        });
    }
}

#[test]
fn names_and_tokens_have_no_case() {
    with_head(
        b"GET / HTTP/1.0\r\nConnection: a ,\tClose\r\nCONNECTION: ,,b\r\nConnectio: c\r\n\r\n",
        |head| {
            let headers = head.headers;
            assert_eq!(headers.all(b"connection").count(), 2);
            assert_eq!(headers.first(b"ConnectioN"), Some(&b"a ,\tClose"[..]));
            assert_eq!(headers.first(b"x"), None);
            for token in [&b"a"[..], b"close", b"B"] {
                assert!(headers.has_token(b"connection", token));
            }
            for token in [&b"c"[..], b"", b"clos"] {
                assert!(!headers.has_token(b"connection", token));
            }
        },
    );
    assert_eq!(list_items(b" , a b ,").collect::<Vec<_>>(), [b"a b"]);
}

/// RFC 7540, section 3.2.
#[test]
fn offers_of_http2_are_found() {
    let bytes =
        b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nUpgrade: x, H2C\r\nhttp2-settings: AAMA\r\n\r\n";
    with_head(bytes, |head| {
        let lines: Vec<_> = head.http2_lines().map(|line| head.headers.text(line.line)).collect();
        assert_eq!(lines, [&b"http2-settings: AAMA\r\n"[..], b"Upgrade: x, H2C\r\n"]);
    });
}
