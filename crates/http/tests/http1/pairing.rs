//! Requests, their responses, and what ends HTTP.

use crate::script::{Reading, Step, Told, client, get, server};
use mmb_http::{FramingKind, HttpDirection, HttpUnfit, MAX_OUTSTANDING};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn unfit(script: &[Step]) -> Option<HttpUnfit> {
    Reading::of(script).unfit()
}

fn statuses(reading: &Reading) -> Vec<u16> {
    let status = |told: &Told| if let Told::Response { status, .. } = told { Some(*status) } else { None };
    reading.responses().iter().filter_map(status).collect()
}

/// RFC 9112, section 9.2.
#[test]
fn a_response_needs_a_request() {
    assert_eq!(unfit(&[server(b"H")]), Some(HttpUnfit::ResponseWithoutRequest));
    assert_eq!(unfit(&[get(""), server(OK), server(OK)]), Some(HttpUnfit::ResponseWithoutRequest));
    assert_eq!(unfit(&[server(b"")]), None);
    // A head that is not complete is no request.
    assert_eq!(
        unfit(&[client(b"GET / HTTP/1.1\r\nHost: a\r\n"), server(OK)]),
        Some(HttpUnfit::ResponseWithoutRequest)
    );
}

/// RFC 9112, section 9.3.2: responses come in the order of the requests.
#[test]
fn pipelining() {
    let head = client(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let five = server(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    let reading = Reading::of(&[get(""), head, get(""), server(OK), five, server(OK)]);
    assert_eq!((reading.unfit(), statuses(&reading)), (None, vec![200, 200, 200]));
    assert_eq!(reading.connection.outstanding(), 0);
}

#[test]
fn pipelining_is_bounded() {
    let full = vec![get(""); MAX_OUTSTANDING];
    let reading = Reading::of(&full);
    assert_eq!((reading.unfit(), reading.connection.outstanding()), (None, MAX_OUTSTANDING));
    assert_eq!(unfit(&[&full[..], &[get("")]].concat()), Some(HttpUnfit::TooManyRequests));
    assert_eq!(unfit(&[&full[..], &[server(OK), get("")]].concat()), None);
    assert_eq!(unfit(&[&full[..], &vec![server(OK); MAX_OUTSTANDING], &full[..]].concat()), None);
}

/// RFC 9110, section 15.2: 1xx does not answer.
#[test]
fn interim_responses() {
    let interim = server(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
    let reading = Reading::of(&[get(""), interim.clone(), server(OK)]);
    assert_eq!((reading.unfit(), statuses(&reading)), (None, vec![100, 103, 200]));
    assert_eq!(unfit(&[get(""), server(OK), interim.clone()]), Some(HttpUnfit::ResponseWithoutRequest));
    let http10 = client(b"GET / HTTP/1.0\r\n\r\n");
    assert_eq!(unfit(&[http10, interim]), Some(HttpUnfit::InterimInHttp10));
    assert_eq!(unfit(&[get(""), server(b"HTTP/1.0 100 Continue\r\n\r\n")]), Some(HttpUnfit::InterimInHttp10));
}

/// RFC 9112, section 9.5: a server may answer before the request's body is complete.
#[test]
fn responses_before_the_end_of_the_request() {
    let head = client(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    let reading = Reading::of(&[head, server(OK), client(b"cd"), get(""), server(OK)]);
    assert_eq!((reading.unfit(), statuses(&reading)), (None, vec![200, 200]));
    assert_eq!(reading.requests()[1..3], [Told::Body(b"abcd".to_vec()), Told::End]);
}

/// RFC 9112, section 9.3 and 9.6: nothing follows a request with `close`, nor one of HTTP/1.0 without `keep-alive`.
#[test]
fn nothing_follows_the_last_request() {
    let keep_alive = client(b"GET / HTTP/1.0\r\nConnection: x, Keep-Alive\r\n\r\n");
    assert_eq!(unfit(&[keep_alive, get("")]), None);
    assert_eq!(unfit(&[get("Proxy-Connection: keep-alive\r\nExpect: 100-continue\r\n"), get("")]), None);
    for last in [
        get("Connection: CLOSE\r\n"),
        get("Connection: keep-alive\r\nConnection: close\r\n"),
        client(b"GET / HTTP/1.0\r\n\r\n"),
        // Some servers close: squid by Proxy-Connection, Apache by an expectation that it does not answer (RFC 9110, section 10.1.1).
        get("Proxy-Connection: Close\r\n"),
        client(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\r\n"),
    ] {
        assert_eq!(unfit(&[last.clone(), client(b"G")]), Some(HttpUnfit::RequestBehindLast));
        // Old clients send an empty line behind a body.
        assert_eq!(unfit(&[last.clone(), client(b"\r\n").closes()]), None);
        assert_eq!(unfit(&[last, client(b"\r\n\r\n")]), Some(HttpUnfit::BlankLines));
    }
}

#[test]
fn nothing_follows_the_last_response() {
    let lasts: [&[u8]; 3] = [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 304 OK\r\nConnection: close\r\n\r\n",
    ];
    for last in lasts {
        // Requests that were on their way when the server closed are no error.
        assert_eq!(unfit(&[get(""), get(""), server(last), get("")]), None);
        // Clients do not read what comes behind it.
        let reading = Reading::of(&[get(""), get(""), server(last), server(OK)]);
        assert_eq!((reading.unfit(), statuses(&reading).len()), (None, 1));
        let behind = Told::Framing(FramingKind::BehindLast, OK.to_vec());
        assert_eq!(reading.responses().last(), Some(&behind));
    }
    let keep_alive = server(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(unfit(&[get(""), get(""), keep_alive, server(OK)]), None);
}

/// Clients differ in whether the connection goes on: bytes that follow are refused, and the response itself is read.
#[test]
fn responses_after_which_only_some_clients_close() {
    for (version, fields) in [
        (1, "Connection: keep-alive, close"),
        (1, "Connection: Close, Keep-Alive"),
        (1, "Connection: keep-alive\r\nConnection: close"),
        (0, "Connection: keep-alive, close"),
        (0, "Connection: keep-alive;x"),
        (0, "Connection: \"keep-alive\""),
        (0, "Proxy-Connection: keep-alive"),
        (0, "Keep-Alive: timeout=5"),
    ] {
        let last = format!("HTTP/1.{version} 200 OK\r\n{fields}\r\nContent-Length: 1\r\n\r\nx");
        let reading = Reading::of(&[get(""), get(""), server(last.as_bytes())]);
        assert_eq!((reading.unfit(), statuses(&reading)), (None, vec![200]), "{fields}");
        assert_eq!(
            unfit(&[get(""), get(""), server(last.as_bytes()), server(b"H")]),
            Some(HttpUnfit::UnclearPersistence),
            "{fields}"
        );
    }
    let clear = b"HTTP/1.1 200 OK\r\nConnection: close\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(unfit(&[get(""), get(""), server(clear), server(OK)]), None);
}

/// RFC 9110, section 7.8.
#[test]
fn switched_protocols_are_opaque() {
    let switch = server(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x81\x05hello");
    let ask = get("Connection: Upgrade\r\nUpgrade: websocket\r\n");
    let reading = Reading::of(&[ask.clone(), switch.clone(), client(b"\x81\0")]);
    assert_eq!((statuses(&reading), reading.unfit()), (vec![101], None));
    assert_eq!(
        (reading.requests().last(), reading.responses().last()),
        (Some(&Told::Opaque), Some(&Told::Opaque))
    );
    assert_eq!(reading.left(HttpDirection::Responses), b"\x81\x05hello");
    assert_eq!(reading.left(HttpDirection::Requests), b"\x81\0");
    assert_eq!(unfit(&[get(""), switch.clone()]), Some(HttpUnfit::UnaskedUpgrade));
    let http10 = client(b"GET / HTTP/1.0\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(unfit(&[http10, switch]), Some(HttpUnfit::InterimInHttp10));
    // The server may refuse.
    let reading = Reading::of(&[ask, server(OK), get("")]);
    assert_eq!((statuses(&reading), reading.unfit()), (vec![200], None));
}

/// RFC 9110, section 9.3.6.
#[test]
fn tunnels_are_opaque() {
    let connect = client(b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n");
    let accepted = server(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n\x16\x03");
    let reading = Reading::of(&[connect.clone(), accepted, client(b"\x16\x03\x01")]);
    assert_eq!(
        (reading.requests().last(), reading.responses().last()),
        (Some(&Told::Opaque), Some(&Told::Opaque))
    );
    assert_eq!(reading.left(HttpDirection::Responses), b"\x16\x03");
    // What comes before the answer waits for it.
    let mut reading = Reading::of(&[connect.clone(), client(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")]);
    assert_eq!(reading.requests().last(), Some(&Told::End));
    reading.read(HttpDirection::Responses, b"HTTP/1.1 407 a\r\nContent-Length: 0\r\n\r\n", false);
    assert!(
        matches!(reading.requests(), [_, Told::End, Told::Request { .. }, Told::End]),
        "{:?}",
        reading.requests()
    );
    let both = server(&[b"HTTP/1.1 407 a\r\nContent-Length: 0\r\n\r\n", OK].concat());
    let reading = Reading::of(&[connect.clone(), get(""), both]);
    assert_eq!((statuses(&reading), reading.unfit()), (vec![407, 200], None));
    let refused = server(b"HTTP/1.1 403 a\r\nContent-Length: 0\r\n\r\n");
    let reading = Reading::of(&[connect, refused, get(""), server(OK)]);
    assert_eq!((statuses(&reading), reading.unfit()), (vec![403, 200], None));
}

/// RFC 8446, section 5.1.
#[test]
fn tls_is_opaque() {
    let hello = b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03";
    let reading = Reading::of(&[client(hello), server(hello)]);
    assert_eq!((reading.requests(), reading.responses()), (&[Told::Opaque][..], &[Told::Opaque][..]));
    let reading = Reading::of(&[client(&hello[..1]), client(&hello[1..])]);
    assert_eq!(reading.requests(), [Told::Opaque]);
    assert!(unfit(&[client(b"\x16\x04")]).is_some() && unfit(&[get(""), client(hello)]).is_some());
}

/// RFC 9113, section 3.4.
#[test]
fn http2_is_opaque() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let reading = Reading::of(&[client(preface), server(b"\0\0\x12\x04")]);
    assert_eq!((reading.requests(), reading.responses()), (&[Told::Opaque][..], &[Told::Opaque][..]));
    for len in 0..preface.len() {
        let reading = Reading::of(&[client(&preface[..len])]);
        assert!(reading.requests().is_empty(), "{len}");
    }
    // Only as the first bytes.
    assert_eq!(unfit(&[get(""), client(preface)]), Some(HttpUnfit::Version));
    assert_eq!(unfit(&[client(b"\r\n"), client(preface)]), Some(HttpUnfit::Version));
}
