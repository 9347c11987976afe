//! What is held, for what, and what then.

use crate::harness::*;
use mmb_http::HttpUnfit;
use mmb_httpedit::{Held, HttpNote, HttpProgress};
use mmb_policy::Rule;
use mmb_policy::settings::HttpSettings;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn replaces() -> Vec<Rule> {
    vec![rule(vec![body(text("bad"))], vec![mod_body("N")])]
}

#[test]
fn heads_and_lines_are_held() {
    let mut middle = Middle::new(&replaces());
    middle.feed(CLIENT, &GET[..20]);
    assert_eq!((middle.held(CLIENT), middle.out(CLIENT).len()), (Some(Held::Head), 0));
    middle.release(CLIENT);
    assert_eq!(middle.progress[0], HttpProgress::Unfit(HttpUnfit::SlowHead));
    let mut middle = Middle::new(&replaces());
    middle.feed(CLIENT, GET).feed(SERVER, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5");
    assert_eq!(middle.held(SERVER), Some(Held::Head));
    middle.release(SERVER);
    assert_eq!(middle.progress[1], HttpProgress::Unfit(HttpUnfit::SlowHead));
}

#[test]
fn begun_matches_are_held_and_released() {
    let mut middle = Middle::new(&replaces());
    middle.feed(CLIENT, GET).feed(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nxba");
    assert_eq!(middle.held(SERVER), Some(Held::Match));
    assert!(middle.text(SERVER).ends_with("\r\n\r\n1\r\nx\r\n"));
    middle.release(SERVER);
    assert_eq!(middle.progress[1], HttpProgress::All);
    middle.feed(SERVER, b"d").feed(SERVER, b"ba").feed(SERVER, b"d").feed(SERVER, b"ba");
    assert!(
        middle.text(SERVER).ends_with("1\r\nx\r\n2\r\nba\r\n1\r\nd\r\n1\r\nN\r\n2\r\nba\r\n0\r\n\r\n"),
        "{}",
        middle.text(SERVER)
    );
}

/// Framing between the parts of a begun match is held with them.
#[test]
fn matches_over_chunks() {
    let mut middle = Middle::new(&replaces());
    middle.feed(CLIENT, GET).feed(SERVER, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for piece in ["2\r\nxb\r\n", "1", "\r\n", "a", "\r\n", "5\r\n", "dxbax", "\r\n0", "\r\n", "\r\n"] {
        middle.feed(SERVER, piece.as_bytes());
    }
    assert_eq!(middle.progress[1], HttpProgress::All);
    assert!(
        middle.text(SERVER).ends_with("\r\n\r\n1\r\nx\r\n5\r\nNxbax\r\n0\r\n\r\n"),
        "{}",
        middle.text(SERVER)
    );
}

#[test]
fn messages_are_held_whole_for_http10() {
    let get = b"GET / HTTP/1.0\r\n\r\n";
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nxbady";
    let mut middle = Middle::new(&replaces());
    middle.feed(CLIENT, get);
    for (number, byte) in response.iter().enumerate() {
        middle.feed(SERVER, &[*byte]);
        let expected = if number < 37 { Held::Head } else { Held::Whole };
        assert_eq!(middle.held(SERVER), (number < response.len() - 1).then_some(expected), "{number}");
    }
    assert_eq!(middle.text(SERVER), "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxNy");
    let mut middle = Middle::new(&replaces());
    middle.feed(CLIENT, get).feed(SERVER, &response[..response.len() - 1]).release(SERVER).feed(SERVER, b"y");
    assert_eq!((middle.out(SERVER), middle.notes()), (&response[..], vec![HttpNote::SlowBody]));
    let mut middle = Middle::new(&replaces());
    middle.feed(CLIENT, get).feed(SERVER, &response[..response.len() - 1]).end(SERVER);
    assert_eq!(
        (middle.out(SERVER), middle.progress[1]),
        (&response[..response.len() - 1], HttpProgress::All)
    );
}

/// What is added at the end of a body without a length needs its last byte.
#[test]
fn last_bytes_are_held_for_what_is_added() {
    let rules = [rule(vec![http()], vec![add_body("T")])];
    let head = "HTTP/1.1 200 OK\r\n\r\n";
    let mut middle = Middle::new(&rules);
    middle.feed(CLIENT, GET).feed(SERVER, head.as_bytes()).feed(SERVER, b"abc");
    assert_eq!((middle.held(SERVER), middle.text(SERVER)), (Some(Held::Last), format!("{head}ab")));
    middle.feed(SERVER, b"d").end(SERVER);
    assert_eq!((middle.text(SERVER), middle.notes()), (format!("{head}abcdT"), vec![]));
    let mut middle = Middle::new(&rules);
    middle.feed(CLIENT, GET).feed(SERVER, head.as_bytes()).feed(SERVER, b"abc").release(SERVER).end(SERVER);
    assert_eq!((middle.text(SERVER), middle.notes()), (format!("{head}abc"), vec![HttpNote::LostTail]));
}

/// Requests wait where there is no room for what is known of them.
#[test]
fn many_requests_wait_for_responses() {
    let rules: Vec<Rule> = (0..42).map(|_| rule(vec![http()], vec![])).collect();
    let mut middle = Middle::new(&rules);
    middle.feed(CLIENT, &GET.repeat(5));
    assert_eq!((middle.held(CLIENT), middle.out(CLIENT).len()), (Some(Held::Other), 2 * GET.len()));
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for left in (0..5).rev() {
        middle.feed(SERVER, ok);
        assert_eq!(middle.out(CLIENT).len(), (5 - left + 2).min(5) * GET.len());
    }
    assert_eq!(middle.progress, [HttpProgress::All; 2]);
}

/// Of a long response, not each packet is a reason to look at the requests that wait.
#[test]
fn only_borders_of_messages_let_others_go_on() {
    let rules: Vec<Rule> = (0..42).map(|_| rule(vec![http()], vec![])).collect();
    let mut middle = Middle::new(&rules);
    middle.feed(CLIENT, &GET.repeat(3));
    let before = middle.borders[CLIENT as usize];
    middle.feed(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    assert!(middle.borders[CLIENT as usize] > before, "a head is a border");
    for byte in [b"h", b"e", b"l", b"l"] {
        middle.feed(SERVER, byte);
        assert!(!middle.editor.may_resume(middle.borders[CLIENT as usize]));
        assert_eq!(middle.out(CLIENT).len(), 2 * GET.len());
    }
    middle.feed(SERVER, b"o");
    assert_eq!(middle.out(CLIENT).len(), 3 * GET.len());
}

#[test]
fn what_follows_connect_waits() {
    let mut middle = Middle::new(&replaces());
    middle.feed(CLIENT, b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\nabc");
    assert_eq!(middle.held(CLIENT), Some(Held::Other));
    middle.feed(SERVER, b"HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!((middle.progress[0], middle.text(CLIENT).ends_with("abc")), (HttpProgress::Opaque, true));
}

/// RFC 9110, section 10.1.1.
#[test]
fn a_client_may_wait_for_100() {
    let mut middle = Middle::new(&replaces());
    middle.feed(CLIENT, b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert!(middle.text(CLIENT).ends_with("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"));
    middle.feed(SERVER, b"HTTP/1.1 100 Continue\r\n\r\n").feed(CLIENT, b"bad");
    assert!(middle.text(CLIENT).ends_with("\r\n\r\n1\r\nN\r\n0\r\n\r\n"));
    middle.feed(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(middle.text(SERVER).starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"));
}

/// A response may come before the request's body is complete.
#[test]
fn early_responses() {
    let mut middle = Middle::new(&replaces());
    middle.feed(CLIENT, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nxb");
    middle.feed(SERVER, b"HTTP/1.1 413 x\r\nContent-Length: 3\r\n\r\nbad");
    middle
        .feed(CLIENT, b"ady")
        .feed(CLIENT, GET)
        .feed(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad");
    assert!(middle.text(CLIENT).contains("1\r\nx\r\n2\r\nNy\r\n0\r\n\r\nGET /"), "{}", middle.text(CLIENT));
    assert_eq!(middle.text(SERVER).matches("1\r\nN\r\n0\r\n\r\n").count(), 2);
}

/// A body that the sender leaves incomplete remains so.
#[test]
fn truncated_bodies() {
    let mut middle = Middle::new(&replaces());
    middle.feed(CLIENT, GET).feed(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nxba").end(SERVER);
    assert_eq!(middle.progress[1], HttpProgress::All);
    assert!(middle.text(SERVER).ends_with("1\r\nx\r\n2\r\nba\r\n"));
    let mut middle = Middle::new(&replaces());
    middle.feed(CLIENT, GET);
    middle.feed(SERVER, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbad\r\n5").end(SERVER);
    assert_eq!(middle.progress[1], HttpProgress::All);
    assert!(middle.text(SERVER).ends_with("\r\n\r\n1\r\nN\r\n"), "{}", middle.text(SERVER));
}

/// A server that was asked to close reads no further request.
#[test]
fn requests_behind_one_that_was_made_the_last_wait() {
    let get = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let asked = || {
        let mut middle = Middle::new(&replaces());
        middle.feed(CLIENT, get).feed(CLIENT, b"\r\n").feed(CLIENT, get);
        assert_eq!(
            (middle.held(CLIENT), middle.text(CLIENT)),
            (Some(Held::Other), "GET / HTTP/1.0\r\n\r\n\r\n".into())
        );
        middle
    };
    let mut middle = asked();
    middle.feed(SERVER, b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbad").end(SERVER);
    assert_eq!((middle.held(CLIENT), middle.progress[1]), (Some(Held::Other), HttpProgress::All));
    assert!(middle.text(SERVER).ends_with("\r\n\r\nN"));
    // One that stays all the same.
    let mut middle = asked();
    for _ in 0..2 {
        let answer = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nbad";
        middle.feed(SERVER, answer);
        assert!(middle.text(SERVER).ends_with("Content-Length: 1\r\n\r\nN"));
    }
    assert_eq!((middle.progress, middle.text(CLIENT).matches("GET").count()), ([HttpProgress::All; 2], 2));
}

/// The end of the connection would make a whole of it, and so would bytes behind it.
#[test]
fn bodies_without_their_length_are_not_cut() {
    let settings = HttpSettings { unfit: mmb_policy::settings::HttpUnfit::Pass, ..HttpSettings::default() };
    let head = b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n";
    let begun = || {
        let mut middle = Middle::with_settings(&replaces(), &settings);
        middle.feed(CLIENT, b"GET / HTTP/1.0\r\n\r\n").feed(SERVER, head).feed(SERVER, b"badba");
        assert!(middle.text(SERVER).ends_with("\r\n\r\nN"));
        middle
    };
    let mut middle = begun();
    middle.end(SERVER);
    assert_eq!(middle.progress[1], HttpProgress::Unfit(HttpUnfit::UnfinishedBody));
    let mut middle = begun();
    middle.change_rules();
    middle.end(SERVER);
    assert_eq!(middle.progress[1], HttpProgress::Unfit(HttpUnfit::UnfinishedBody));
    let mut middle = begun();
    middle.feed(SERVER, b"dxxx").end(SERVER);
    assert_eq!((middle.progress[1], middle.text(SERVER).ends_with("NNxxx")), (HttpProgress::All, true));
    let mut middle = begun();
    middle.feed(SERVER, b"dxxx").feed(SERVER, b"more");
    assert_eq!(middle.progress[1], HttpProgress::All);
    assert!(middle.text(SERVER).ends_with("NNxxx"), "what is behind the last response is dropped");
    // Nor do they go on behind a message that is not read.
    let mut middle = begun();
    middle.feed(CLIENT, b"x");
    assert_eq!(middle.progress[0], HttpProgress::Unfit(HttpUnfit::RequestBehindLast));
}

/// A policy that changes within a body that leaves in other framing.
#[test]
fn framing_goes_on_when_rules_change() {
    let mut middle = Middle::new(&replaces());
    middle.feed(CLIENT, GET).feed(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbadba");
    middle.change_rules();
    middle.feed(SERVER, b"dbad");
    assert!(
        middle.text(SERVER).ends_with("\r\n\r\n1\r\nN\r\n6\r\nbadbad\r\n0\r\n\r\n"),
        "{}",
        middle.text(SERVER)
    );
    middle.feed(CLIENT, GET).feed(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad");
    assert!(middle.text(SERVER).ends_with("\r\n\r\n1\r\nN\r\n0\r\n\r\n"));
    assert_fit(&GET.repeat(2), middle.out(SERVER));
}

/// What passes unchanged is passed, not replaced.
#[test]
fn what_is_not_changed_is_passed() {
    let mut middle = Middle::new(&[rule(vec![body(text("bad"))], vec![mask_body()])]);
    middle.feed(CLIENT, GET).feed(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabcdefghi");
    assert_eq!((middle.replacements(CLIENT), middle.replacements(SERVER)), (0, 0));
}
