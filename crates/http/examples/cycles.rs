//! What reading costs: `cargo run --release -p mmb-http --example cycles`.
//!
//! Prints cycles of the time-stamp counter a byte of head, for heads as browsers and servers send them, and cycles a piece of content. The best
//! of several passes is told.

use mmb_http::{DEFAULT_HEAD_LIMIT, HeadBuffer, HttpConnection, HttpDirection, HttpPiece};
use mmb_io::cycles;

/// Exchanges of a pass.
const EXCHANGES: usize = 2000;
/// Passes, of which the best is told.
const PASSES: usize = 15;

const SMALL: &[u8] = b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n";
const CURL: &[u8] =
    b"GET /index.html HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n";
const BROWSER: &[u8] = b"GET /wp-content/uploads/2010/03/hello-kitty-darth-vader-pink.jpg HTTP/1.1\r\n\
Host: www.kittyhell.com\r\n\
User-Agent: Mozilla/5.0 (Macintosh; U; Intel Mac OS X 10.6; ja-JP-mac; rv:1.9.2.3) Gecko/20100401 Firefox/3.6.3\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
Accept-Language: ja,en-us;q=0.7,en;q=0.3\r\n\
Accept-Encoding: gzip, deflate, br\r\n\
Connection: keep-alive\r\n\
Referer: http://www.example.com/some/page/that/links/here?with=a&query=string\r\n\
Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; consent=yes; visited=20240101; id=8f14e45fceea167a5a36dedd4bea2543\r\n\
Upgrade-Insecure-Requests: 1\r\n\
Cache-Control: max-age=0\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
Server: nginx/1.22.1\r\n\
Date: Tue, 14 May 2024 11:22:33 GMT\r\n\
Content-Type: text/html; charset=utf-8\r\n\
Content-Length: 0\r\n\
Last-Modified: Mon, 13 May 2024 10:20:30 GMT\r\n\
Connection: keep-alive\r\n\
ETag: \"6641e9fe-267\"\r\n\
Accept-Ranges: bytes\r\n\r\n";

/// Reads a head, and the end of its message.
fn head(connection: &mut HttpConnection, direction: HttpDirection, bytes: &[u8], buffer: &mut HeadBuffer) {
    let piece = connection.next(direction, bytes, false, buffer);
    assert!(matches!(piece, HttpPiece::Request(_) | HttpPiece::Response(_)), "{piece:?}");
    let end = connection.next(direction, b"", false, buffer);
    assert_eq!(end, HttpPiece::End);
}

/// Cycles of a request, and of its response, of the best pass.
fn exchange(request: &[u8], response: &[u8]) -> [f64; 2] {
    let mut connection = HttpConnection::new(DEFAULT_HEAD_LIMIT);
    let mut buffer = HeadBuffer::default();
    let mut best = [u64::MAX; 2];
    for _ in 0..PASSES {
        let mut pass = [0; 2];
        for _ in 0..EXCHANGES / 50 {
            let begin = cycles::now();
            for _ in 0..50 {
                head(&mut connection, HttpDirection::Requests, request, &mut buffer);
            }
            let middle = cycles::now();
            for _ in 0..50 {
                head(&mut connection, HttpDirection::Responses, response, &mut buffer);
            }
            pass[0] += middle - begin;
            pass[1] += cycles::now() - middle;
        }
        best = [best[0].min(pass[0]), best[1].min(pass[1])];
    }
    best.map(|cycles| cycles as f64 / EXCHANGES as f64)
}

/// Cycles a piece of content of 1,448 bytes, of the best pass.
fn content() -> f64 {
    let bytes = [0; 1448];
    let mut buffer = HeadBuffer::default();
    let mut best = u64::MAX;
    for _ in 0..PASSES {
        let mut connection = HttpConnection::new(DEFAULT_HEAD_LIMIT);
        let length = bytes.len() * EXCHANGES;
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        connection.next(HttpDirection::Requests, head.as_bytes(), false, &mut buffer);
        let begin = cycles::now();
        for _ in 0..EXCHANGES {
            let piece =
                connection.next(HttpDirection::Requests, std::hint::black_box(&bytes), false, &mut buffer);
            assert_eq!(piece.consumed(), bytes.len());
        }
        best = best.min(cycles::now() - begin);
    }
    best as f64 / EXCHANGES as f64
}

fn main() {
    for (name, request) in [("small", SMALL), ("curl", CURL), ("browser", BROWSER)] {
        let [of_request, of_response] = exchange(request, RESPONSE);
        let a_byte = of_request / request.len() as f64;
        println!("{name}: request of {} bytes {of_request:.0} cycles, {a_byte:.2} a byte", request.len());
        let a_byte = of_response / RESPONSE.len() as f64;
        println!("{name}: response of {} bytes {of_response:.0} cycles, {a_byte:.2} a byte", RESPONSE.len());
    }
    println!("content: {:.0} cycles a piece of 1448 bytes", content());
}
