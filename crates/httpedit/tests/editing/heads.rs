//! Edits of heads.

use crate::harness::*;
use mmb_httpedit::{HttpNote, HttpProgress};
use mmb_policy::Rule;
use mmb_policy::field::FieldId::{HttpHost, HttpUri};
use mmb_policy::rule::{StreamEdit, Target};
use mmb_policy::settings::{HttpEncodings, HttpSettings, HttpUnfit};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A request with such lines, through a rule that is met by any.
fn request(targets: Vec<Target>, lines: &str) -> String {
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let (edited, _) = exchange(&[rule(vec![http()], targets)], &request, OK);
    let edited = edited.strip_prefix("GET / HTTP/1.1\r\nHost: a\r\n").expect("the same start");
    edited.strip_suffix("\r\n").expect("an empty line").to_owned()
}

#[test]
fn headers_are_changed() {
    let modify = || vec![mod_header("x-a", "<~>")];
    assert_eq!(request(modify(), "X-A:  1 \r\nB: 2\r\nx-a: 3\r\n"), "X-A:  <1> \r\nB: 2\r\nx-a: <3>\r\n");
    assert_eq!(request(modify(), "X-A:\r\n"), "X-A: <>\r\n");
    assert_eq!(request(modify(), "X-AB: 1\r\n"), "X-AB: 1\r\n");
    assert_eq!(request(vec![mod_header("x-a", "n")], "X-A:1\r\n"), "X-A:n\r\n");
}

#[test]
fn headers_are_added_and_removed() {
    assert_eq!(
        request(vec![add_header("N", "v"), add_header("M", "")], "A: 1\r\n"),
        "A: 1\r\nN: v\r\nM: \r\n"
    );
    assert_eq!(request(vec![strip_header("a")], "A: 1\r\nB: 2\r\nA: 3\r\n"), "B: 2\r\n");
    // What frames a message, and what is about one connection, stays.
    let lines = "A: 1\r\nB: 2\r\nConnection: close\r\nContent-Length: 0\r\nC: 3\r\n";
    let kept = "B: 2\r\nConnection: close\r\nContent-Length: 0\r\nC: 3\r\n";
    assert_eq!(request(vec![keep_header("b"), keep_header("C")], lines), kept);
}

/// Rules are applied one after the other, and so are the targets of a rule.
#[test]
fn edits_see_the_edits_before_them() {
    let targets =
        vec![add_header("N", "1"), mod_header("N", "~2"), strip_header("A"), add_header("A", "new")];
    assert_eq!(request(targets, "A: 1\r\n"), "N: 12\r\nA: new\r\n");
    let rules: Vec<Rule> = vec![
        rule(vec![http()], vec![mod_header("A", "x~")]),
        rule(vec![header("A", vec![text("1")])], vec![mod_header("A", "y~")]),
    ];
    // A constraint is about the message as it was sent.
    let (edited, _) = exchange(&rules, "GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\n\r\n", OK);
    assert_eq!(edited, "GET / HTTP/1.1\r\nHost: a\r\nA: yx1\r\n\r\n");
}

/// Every head that is complete when the rule is met.
#[test]
fn heads_of_both_directions() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let changed = |rule: Rule| {
        let (request, response) = exchange(&[rule], get, OK);
        [request.contains("N: v"), response.contains("N: v")]
    };
    assert_eq!(changed(rule(vec![http()], vec![add_header("N", "v")])), [true, true]);
    assert_eq!(
        changed(rule(vec![header("Content-Length", vec![])], vec![add_header("N", "v")])),
        [false, true]
    );
    assert_eq!(changed(rule(vec![header("X", vec![])], vec![add_header("N", "v")])), [false, false]);
    let found = rule(vec![body(text("bad"))], vec![add_header("N", "v")]);
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nbad";
    let (request, response) = exchange(&[found], post, OK);
    assert_eq!([request.contains("N: v"), response.contains("N: v")], [false, true]);
}

#[test]
fn targets_are_changed() {
    let uri = |text: &str| vec![edit(StreamEdit::ModHttp(field(HttpUri), replacement(text)))];
    let changed = |targets: Vec<Target>, line: &str, host: &str| {
        let (edited, _) =
            exchange(&[rule(vec![http()], targets)], &format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n"), OK);
        edited
    };
    assert_eq!(changed(uri("/x"), "GET /a?b", "a"), "GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(changed(uri("/x~"), "GET /a?b", "a"), "GET /x/a?b HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(changed(uri("/x~"), "GET http://a/b", "a"), "GET http://a/x/b HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(changed(uri("/x~"), "GET http://a", "a"), "GET http://a/x/ HTTP/1.1\r\nHost: a\r\n\r\n");
    let host = |text: &str| vec![edit(StreamEdit::ModHttp(field(HttpHost), replacement(text)))];
    assert_eq!(changed(host("b.org"), "GET /", "a"), "GET / HTTP/1.1\r\nHost: b.org\r\n\r\n");
    assert_eq!(changed(host("x.~"), "GET /", "a:81"), "GET / HTTP/1.1\r\nHost: x.a:81\r\n\r\n");
    assert_eq!(changed(host("b:82"), "GET /", "a:81"), "GET / HTTP/1.1\r\nHost: b:82\r\n\r\n");
    assert_eq!(
        changed(host("b"), "GET http://a:81/c", "a:81"),
        "GET http://b:81/c HTTP/1.1\r\nHost: b:81\r\n\r\n"
    );
    assert_eq!(changed(host("b"), "GET /", "[::1]:81"), "GET / HTTP/1.1\r\nHost: b:81\r\n\r\n");
    let both = [uri("/x~"), host("b")].concat();
    assert_eq!(changed(both, "GET http://u@a/c", "a"), "GET http://u@b/x/c HTTP/1.1\r\nHost: b\r\n\r\n");
}

#[test]
fn values_that_cannot_stand_are_left_out() {
    for (field_id, text) in
        [(HttpHost, "a/b"), (HttpHost, "a b"), (HttpUri, "x"), (HttpUri, "/a b"), (HttpUri, "*")]
    {
        let target = edit(StreamEdit::ModHttp(field(field_id), replacement(text)));
        let mut middle = Middle::new(&[rule(vec![http()], vec![target])]);
        let get = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
        middle.feed(CLIENT, get.as_bytes());
        assert_eq!(
            (middle.text(CLIENT), middle.notes()),
            (get.to_owned(), vec![HttpNote::BadValue]),
            "{text}"
        );
    }
}

#[test]
fn heads_grow_to_a_limit() {
    let grow = Replacement16::new();
    let mut middle = Middle::new(&[rule(vec![http()], vec![mod_header("A", &grow.0)])]);
    let get = format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "x".repeat(5000));
    middle.feed(CLIENT, get.as_bytes());
    assert_eq!((middle.text(CLIENT), middle.notes()), (get, vec![HttpNote::LongHead]));
    let mut middle = Middle::new(&[rule(vec![http()], vec![add_header("A", "b"); 130])]);
    middle.feed(CLIENT, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(middle.notes(), [HttpNote::LongHead]);
    assert_fit(middle.out(CLIENT), b"");
}

/// A text that is what was matched sixteen times.
struct Replacement16(String);

impl Replacement16 {
    fn new() -> Replacement16 {
        Replacement16("~".repeat(16))
    }
}

/// RFC 7540, section 3.2: HTTP/2 by upgrade is not offered to the server.
#[test]
fn offers_of_http2_are_stripped() {
    let lines = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\nA: b\r\n";
    assert_eq!(request(vec![], lines), "A: b\r\n");
    let lines = "Connection: keep-alive, upgrade, http2-settings\r\nUpgrade: websocket, H2C\r\nHTTP2-Settings: AAMA\r\n";
    assert_eq!(request(vec![], lines), "Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\n");
    let lines = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    assert_eq!(request(vec![], lines), lines);
}

#[test]
fn encodings_are_stripped_where_bodies_are_searched() {
    let lines = "Accept-Encoding: gzip\r\nRange: bytes=0-1\r\nIf-Range: x\r\n";
    let get = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let plain = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let stripped = |rule: Rule, settings: &HttpSettings| {
        let mut middle = Middle::with_settings(&[rule], settings);
        middle.feed(CLIENT, get.as_bytes());
        match middle.text(CLIENT) {
            text if text == get => false,
            text => {
                assert_eq!(text, plain);
                true
            }
        }
    };
    let alert = || vec![Target::Alert(None)];
    let default = HttpSettings::default();
    let passes = HttpSettings { encodings: HttpEncodings::Pass, ..default };
    assert!(stripped(rule(vec![body(text("x"))], alert()), &default));
    assert!(stripped(rule(vec![http()], vec![add_body("x")]), &default));
    assert!(!stripped(rule(vec![body(text("x"))], alert()), &passes));
    assert!(!stripped(rule(vec![http()], alert()), &default));
    // Not where the rule cannot be met.
    assert!(!stripped(rule(vec![patterns(HttpUri, vec![text("/b")]), body(text("x"))], alert()), &default));
}

#[test]
fn what_is_not_http_is_refused_or_passes() {
    let rules = [rule(vec![http()], vec![add_header("N", "v")])];
    let mut middle = Middle::new(&rules);
    middle.feed(CLIENT, b"SSH-2.0-x\r\n");
    assert_eq!(middle.progress[0], HttpProgress::Unfit(mmb_http::HttpUnfit::Method));
    let settings = HttpSettings { unfit: HttpUnfit::Pass, ..HttpSettings::default() };
    let mut middle = Middle::with_settings(&rules, &settings);
    middle.feed(CLIENT, b"SSH-2.0-x\r\n").feed(SERVER, b"SSH-2.0-y\r\n");
    assert_eq!(middle.progress, [HttpProgress::Opaque; 2]);
    assert_eq!(
        (middle.text(CLIENT), middle.text(SERVER)),
        ("SSH-2.0-x\r\n".to_owned(), "SSH-2.0-y\r\n".to_owned())
    );
    assert_eq!(middle.notes(), [HttpNote::UnfitPassed(mmb_http::HttpUnfit::Method)]);
}

#[test]
fn what_follows_an_upgrade_passes() {
    let rules = [rule(vec![http()], vec![add_header("N", "v")])];
    let mut middle = Middle::new(&rules);
    middle.feed(CLIENT, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    middle
        .feed(SERVER, b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\n\r\n\x81\x05hello")
        .feed(CLIENT, b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(middle.progress, [HttpProgress::Opaque; 2]);
    assert!(middle.text(CLIENT).ends_with("N: v\r\n\r\nGET / HTTP/1.1\r\n\r\n"));
    assert_eq!(middle.out(SERVER), b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nN: v\r\n\r\n\x81\x05hello");
    let mut middle = Middle::new(&rules);
    middle.feed(CLIENT, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nabc").feed(SERVER, b"def");
    assert_eq!((middle.progress, middle.text(SERVER)), ([HttpProgress::Opaque; 2], "def".to_owned()));
}
