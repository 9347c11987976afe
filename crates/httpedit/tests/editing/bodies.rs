//! Edits of bodies, and what of their heads changes with them.

use crate::harness::*;
use crate::messages::{Parsed, parse};
use mmb_httpedit::{HttpNote, HttpProgress};
use mmb_policy::Rule;
use mmb_policy::field::FieldId::HttpStatus;
use mmb_policy::rule::{Cond, Match, NumberItem, NumberSet, Target, Test};
use mmb_policy::settings::{HttpNoTransform, HttpSettings};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const GET10: &str = "GET / HTTP/1.0\r\n\r\n";

fn replaces(text: &str) -> Vec<Rule> {
    vec![rule(vec![body(regex("bad"))], vec![mod_body(text)])]
}

/// The response to a request through rules.
fn response(rules: &[Rule], request: &str, text: &str) -> String {
    exchange(rules, request, text).1
}

fn status(code: u16) -> Match {
    is(HttpStatus, Test::Number(Cond::Eq, NumberSet(vec![NumberItem::One(u128::from(code))])))
}

/// Notes about a response that must pass as it is.
fn unedited(rules: &[Rule], settings: &HttpSettings, request: &str, text: &str) -> Vec<HttpNote> {
    let mut middle = Middle::with_settings(rules, settings);
    middle.feed(CLIENT, request.as_bytes()).feed(SERVER, text.as_bytes()).end(SERVER);
    assert_eq!((middle.text(SERVER), middle.progress[1]), (text.to_owned(), HttpProgress::All));
    middle.notes()
}

#[test]
fn a_mask_keeps_the_framing() {
    let masks = [rule(vec![body(text("bad"))], vec![mask_body()])];
    let by_length = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nxxbadxx";
    assert_eq!(response(&masks, GET, by_length), by_length.replace("bad", "***"));
    let in_chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxba\r\n1;e\r\nd\r\n2\r\nxx\r\n0\r\nT: u\r\n\r\n";
    let masked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nx**\r\n1;e\r\n*\r\n2\r\nxx\r\n0\r\nT: u\r\n\r\n";
    assert_eq!(response(&masks, GET, in_chunks), masked);
    let http10 = "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nbad";
    assert_eq!(response(&masks, GET10, http10), http10.replace("bad", "***"));
    let text = rule(vec![body(text("bad"))], vec![edit_mask("XY")]);
    assert_eq!(response(&[text], GET, by_length), by_length.replace("bad", "XYX"));
}

fn edit_mask(text: &str) -> Target {
    edit(mmb_policy::rule::StreamEdit::Mask(field(mmb_policy::field::FieldId::HttpBody), text.into()))
}

#[test]
fn a_length_becomes_chunks() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nA: b\r\n\r\nxxbadxx";
    let expected = "HTTP/1.1 200 OK\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nxx<bad>xx\r\n0\r\n\r\n";
    assert_eq!(response(&replaces("<~>"), GET, text), expected);
    let strips = [rule(vec![body(text_of("bad"))], vec![strip_body()])];
    let all = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad";
    assert_eq!(response(&strips, GET, all), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
}

fn text_of(pattern: &str) -> mmb_policy::pattern::PatternItem {
    text(pattern)
}

#[test]
fn chunks_become_others() {
    let text =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nxxba\r\n3\r\ndxx\r\n0\r\nT: u\r\n\r\n";
    let expected = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nxxNxx\r\n0\r\nT: u\r\n\r\n";
    assert_eq!(response(&replaces("N"), GET, text), expected);
}

#[test]
fn requests_have_bodies_too() {
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nxbady";
    let (edited, _) = exchange(&replaces("N"), post, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(
        edited,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxNy\r\n0\r\n\r\n"
    );
    let post = "POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nxbady";
    let (edited, _) = exchange(&replaces("N"), post, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(edited, "POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nxNy");
}

/// Clients of HTTP/1.0 know no chunks.
#[test]
fn http10_gets_a_right_length() {
    let text = "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 7\r\n\r\nxxbadxx";
    let expected = "HTTP/1.1 200 OK\r\nETag: W/\"a\"\r\nContent-Length: 9\r\n\r\nxx<bad>xx";
    assert_eq!(response(&replaces("<~>"), GET10, text), expected);
    let stays = |text: &str| text.replace("HTTP/1.1 200 OK", "HTTP/1.0 200 OK\r\nConnection: keep-alive");
    assert_eq!(response(&replaces("<~>"), GET, &stays(text)), stays(expected));
    // What is not changed passes as it is.
    let good = text.replace("bad", "fine").replace("7", "8");
    assert_eq!(unedited(&replaces("N"), &HttpSettings::default(), GET10, &good), []);
    let tail = [rule(vec![http()], vec![add_body("TAIL")])];
    assert!(response(&tail, GET10, text).ends_with("Content-Length: 11\r\n\r\nxxbadxxTAIL"));
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\nbad{}", "x".repeat(69_997));
    assert_eq!(unedited(&replaces("N"), &HttpSettings::default(), GET10, &long), [HttpNote::LongBody]);
}

/// RFC 9112, section 6.3: the end of a response without a length is that of the connection.
#[test]
fn http10_gets_bodies_as_they_flow_if_the_server_closes() {
    let text = "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 7\r\nConnection: close\r\n\r\nxxbadxx";
    let expected = "HTTP/1.1 200 OK\r\nETag: W/\"a\"\r\nConnection: close\r\n\r\nxx<bad>xx";
    assert_eq!(response(&replaces("<~>"), GET10, text), expected);
    // A server of HTTP/1.0 closes unless it says that it does not; no client minds.
    let http10 = |text: &str| text.replace("HTTP/1.1", "HTTP/1.0").replace("Connection: close\r\n", "");
    assert_eq!(response(&replaces("<~>"), GET10, &http10(text)), http10(expected));
    assert_eq!(response(&replaces("<~>"), GET, &http10(text)), http10(expected));
    let stays = http10(text).replace("ETag", "Connection: keep-alive\r\nETag");
    assert!(response(&replaces("<~>"), GET10, &stays).contains("Content-Length: 9"));
    // Without chunks only where there must be none.
    assert!(response(&replaces("<~>"), GET, text).ends_with("9\r\nxx<bad>xx\r\n0\r\n\r\n"));
    let tail = [rule(vec![http()], vec![add_body("TAIL")])];
    assert!(response(&tail, GET10, text).ends_with("close\r\n\r\nxxbadxxTAIL"));
    // What keeps its length, or has no body, is as before.
    let masks = [rule(vec![body(text_of("bad"))], vec![mask_body()])];
    assert!(response(&masks, GET10, text).contains("Content-Length: 7"));
    for status in ["204 x", "304 x"] {
        let empty = format!("HTTP/1.1 {status}\r\nConnection: close\r\n\r\n");
        assert_eq!(response(&tail, GET10, &empty), empty);
    }
    let empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert!(response(&tail, GET10, empty).contains("Content-Length: 4"));
    // Of any length, byte by byte.
    let mut middle = Middle::new(&replaces("good"));
    middle.feed(CLIENT, GET10.as_bytes());
    middle.feed(SERVER, b"HTTP/1.0 200 OK\r\nContent-Length: 90000\r\n\r\n");
    for _ in 0..30_000 {
        middle.feed(SERVER, b"bad");
        assert_eq!(middle.progress[1], HttpProgress::All);
    }
    middle.end(SERVER);
    assert_eq!((middle.progress[1], middle.hits().len()), (HttpProgress::All, 30_000));
    assert_eq!(middle.text(SERVER), format!("HTTP/1.0 200 OK\r\n\r\n{}", "good".repeat(30_000)));
}

/// RFC 9112, section 9.3: a server keeps connections of HTTP/1.0 only if it is asked to.
#[test]
fn servers_are_asked_to_close_behind_bodies_whose_length_may_change() {
    let request = |rules: &[Rule], line: &str| {
        let text = format!(
            "{line}\r\nHost: a\r\nConnection: Keep-Alive, X-A\r\nKeep-Alive: timeout=5\r\nX-A: b\r\n\r\n"
        );
        let mut middle = Middle::new(rules);
        middle.feed(CLIENT, text.as_bytes());
        match middle.text(CLIENT) {
            got if got == text => false,
            got => {
                assert_eq!(got, format!("{line}\r\nHost: a\r\nConnection: X-A\r\nX-A: b\r\n\r\n"));
                true
            }
        }
    };
    assert!(request(&replaces("N"), "GET / HTTP/1.0"));
    assert!(request(&replaces("N"), "POST / HTTP/1.0"));
    assert!(request(&[rule(vec![status(200)], vec![add_body("T")])], "GET / HTTP/1.0"));
    assert!(!request(&replaces("N"), "GET / HTTP/1.1"));
    assert!(!request(&replaces("N"), "HEAD / HTTP/1.0"));
    assert!(!request(&[rule(vec![body(text("bad"))], vec![mask_body()])], "GET / HTTP/1.0"));
    let other = patterns(mmb_policy::field::FieldId::HttpUri, vec![text("/b")]);
    assert!(!request(&[rule(vec![other], vec![add_body("T")])], "GET / HTTP/1.0"));
}

#[test]
fn a_body_without_length_stays_so() {
    let text = "HTTP/1.1 200 OK\r\n\r\nxxbadxx";
    assert_eq!(response(&replaces("<~>"), GET, text), "HTTP/1.1 200 OK\r\n\r\nxx<bad>xx");
    assert_eq!(response(&replaces("<~>"), GET10, text), "HTTP/1.1 200 OK\r\n\r\nxx<bad>xx");
    let tail = [rule(vec![http()], vec![add_body("TAIL")])];
    assert_eq!(response(&tail, GET, text), "HTTP/1.1 200 OK\r\n\r\nxxbadxxTAIL");
}

#[test]
fn something_is_added_at_the_end() {
    let tail =
        || vec![rule(vec![status(200)], vec![add_body("TAIL")]), rule(vec![http()], vec![add_body("+")])];
    let by_length = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
    let expected = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nabTAIL+\r\n0\r\n\r\n";
    assert_eq!(response(&tail(), GET, by_length), expected);
    let in_chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
    assert_eq!(response(&tail(), GET, in_chunks), expected);
    let no_chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(response(&tail(), GET, no_chunks), expected.replace("7\r\nab", "5\r\n"));
    let empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(response(&tail(), GET, empty), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nTAIL+");
    assert_eq!(response(&tail(), GET10, empty), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nTAIL+");
    // No body, nothing added.
    for text in ["HTTP/1.1 204 x\r\n\r\n", "HTTP/1.1 304 x\r\nA: b\r\n\r\n"] {
        assert_eq!(response(&tail(), GET, text), text);
    }
}

/// What is added where a body has something.
#[test]
fn something_is_added_where_something_is_found() {
    let found = [rule(vec![body(text("ab"))], vec![add_body("T")])];
    let with = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxab";
    assert!(response(&found, GET, with).ends_with("4\r\nxabT\r\n0\r\n\r\n"));
    let without = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxac";
    assert!(response(&found, GET, without).ends_with("3\r\nxac\r\n0\r\n\r\n"));
    let both = [rule(vec![body(text("ab"))], vec![mod_body("N"), add_body("T")])];
    assert!(response(&both, GET, with).ends_with("3\r\nxNT\r\n0\r\n\r\n"));
}

#[test]
fn what_is_known_of_bodies_changes_with_them() {
    let head = "ETag: \"a\"\r\nDigest: x\r\nContent-MD5: y\r\nLast-Modified: z\r\nContent-Digest: x\r\nRepr-Digest: x\r\n";
    let text = format!("HTTP/1.1 200 OK\r\n{head}Content-Length: 1\r\n\r\na");
    let masks = [rule(vec![body(text_of("bad"))], vec![mask_body()])];
    let expected = "HTTP/1.1 200 OK\r\nETag: W/\"a\"\r\nLast-Modified: z\r\nContent-Length: 1\r\n\r\na";
    assert_eq!(response(&masks, GET, &text), expected);
    let weak = "HTTP/1.1 200 OK\r\nETag: W/\"a\"\r\nContent-Length: 1\r\n\r\na";
    assert_eq!(response(&masks, GET, weak), weak);
    // In trailers too.
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nA: b\r\nContent-Digest: x\r\nC: d\r\n\r\n";
    assert_eq!(response(&masks, GET, chunked), chunked.replace("Content-Digest: x\r\n", ""));
    // Only where a rule may change the body.
    let other = [rule(vec![status(404), body(text_of("bad"))], vec![mask_body()])];
    assert_eq!(response(&other, GET, &text), text);
    let alert = [rule(vec![body(text_of("a"))], vec![Target::Alert(None)])];
    assert_eq!(response(&alert, GET, &text), text);
}

/// RFC 9110, section 9.3.2: the headers that GET would bring.
#[test]
fn head_and_not_modified() {
    let head = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    let text = "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 7\r\n\r\n";
    let expected = "HTTP/1.1 200 OK\r\nETag: W/\"a\"\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(response(&replaces("N"), head, text), expected);
    let masks = [rule(vec![body(text_of("bad"))], vec![mask_body()])];
    assert_eq!(response(&masks, head, text), text.replace("\"a\"", "W/\"a\""));
    let http10 = "HEAD / HTTP/1.0\r\n\r\n";
    assert_eq!(response(&replaces("N"), http10, text), "HTTP/1.1 200 OK\r\nETag: W/\"a\"\r\n\r\n");
    let not_modified = "HTTP/1.1 304 x\r\nETag: \"a\"\r\nContent-Length: 7\r\n\r\n";
    assert_eq!(response(&replaces("N"), GET, not_modified), "HTTP/1.1 304 x\r\nETag: W/\"a\"\r\n\r\n");
}

#[test]
fn some_bodies_are_not_edited() {
    let default = HttpSettings::default();
    let with = |head: &str| format!("HTTP/1.1 200 OK\r\n{head}Content-Length: 3\r\n\r\nbad");
    assert_eq!(
        unedited(&replaces("N"), &default, GET, &with("Content-Encoding: gzip\r\n")),
        [HttpNote::EncodedBody]
    );
    let part = "HTTP/1.1 206 x\r\nContent-Range: bytes 0-2/9\r\nContent-Length: 3\r\n\r\nbad";
    assert_eq!(unedited(&replaces("N"), &default, GET, part), [HttpNote::PartialBody]);
    let forbidden = with("Cache-Control: public, No-Transform\r\n");
    assert_eq!(unedited(&replaces("N"), &default, GET, &forbidden), [HttpNote::NoTransform]);
    let asking = "GET / HTTP/1.1\r\nHost: a\r\nCache-Control: no-transform\r\nAccept-Encoding: x\r\n\r\n";
    assert_eq!(unedited(&replaces("N"), &default, asking, &with("")), [HttpNote::NoTransform]);
    let ignores = HttpSettings { no_transform: HttpNoTransform::Ignore, ..default };
    let mut middle = Middle::with_settings(&replaces("N"), &ignores);
    middle.feed(CLIENT, asking.as_bytes()).feed(SERVER, forbidden.as_bytes());
    assert!(middle.text(SERVER).ends_with("1\r\nN\r\n0\r\n\r\n"));
    let plain = with("Content-Encoding: identity\r\n");
    assert!(response(&replaces("N"), GET, &plain).ends_with("1\r\nN\r\n0\r\n\r\n"));
}

/// Of overlapping matches the leftmost, of these the longest, of these that of the first rule.
#[test]
fn rules_share_a_body() {
    let rules = [
        rule(vec![body(text("bcd"))], vec![mod_body("1")]),
        rule(vec![body(text("ab"))], vec![mod_body("2")]),
        rule(vec![body(text("abc")), status(404)], vec![mod_body("3")]),
        rule(vec![body(regex("b{1,9}"))], vec![mod_body("4")]),
        rule(vec![body(text("bcd"))], vec![mod_body("5")]),
    ];
    let text =
        |content: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{content}", content.len());
    let edited = |content: &str| {
        let text = response(&rules, GET, &text(content));
        let messages: Vec<Parsed> = parse(text.as_bytes(), |_| true);
        String::from_utf8(messages[0].body.clone().expect("a body")).expect("ASCII")
    };
    assert_eq!(edited("abcd"), "2cd");
    assert_eq!(edited("xbcdb"), "x14");
    assert_eq!(edited("bb"), "4");
    let mut middle = Middle::new(&rules);
    middle.feed(CLIENT, GET.as_bytes()).feed(SERVER, text("abxbcd").as_bytes());
    assert_eq!(middle.hits(), [11, 10]);
}

/// A long body with many matches is edited in parts.
#[test]
fn long_bodies() {
    let content = "bad".repeat(50_000);
    let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{content}", content.len());
    let edited = response(&replaces("good"), GET, &text);
    let messages = parse(edited.as_bytes(), |_| true);
    assert_eq!(messages[0].body.as_deref(), Some("good".repeat(50_000).as_bytes()));
    let chunks: String =
        content.as_bytes().chunks(1).map(|chunk| format!("1\r\n{}\r\n", chunk.escape_ascii())).collect();
    let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
    let edited = response(&replaces("good"), GET, &text);
    let messages = parse(edited.as_bytes(), |_| true);
    assert_eq!(messages[0].body.as_deref(), Some("good".repeat(50_000).as_bytes()));
}
