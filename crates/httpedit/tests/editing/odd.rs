//! Responses that the grammar forbids and that all clients read alike, and connections that mmb stops reading.

use crate::harness::*;
use mmb_http::HttpUnfit::{self, *};
use mmb_httpedit::{HttpNote, HttpProgress};
use mmb_policy::Rule;
use mmb_policy::field::FieldId;
use mmb_policy::rule::Target;
use mmb_policy::settings::{HttpSettings, HttpUnfit as Treatment};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
/// Chunk sizes with blanks, as an HTTP server for microcontrollers sends them.
const BLANKS: &str = "1b  \r\n<html><body>x</body></html>\r\n0  \r\n\r\n";

fn looks() -> Vec<Rule> {
    vec![
        rule(vec![body(text("VIRUS"))], vec![Target::Alert(None)]),
        rule(vec![patterns(FieldId::HttpUri, vec![text("/admin")])], vec![Target::Alert(None)]),
    ]
}

fn ends() -> Vec<Rule> {
    vec![rule(vec![body(text("VIRUS"))], vec![Target::Close])]
}

fn edits_heads() -> Vec<Rule> {
    vec![rule(vec![http()], vec![add_header("X-By", "mmb")])]
}

fn covers() -> Vec<Rule> {
    vec![rule(vec![body(text("x</body>"))], vec![mask_body()])]
}

fn replaces() -> Vec<Rule> {
    vec![rule(vec![body(text("x</body>"))], vec![mod_body("!~")])]
}

fn passing() -> HttpSettings {
    HttpSettings { unfit: Treatment::Pass, ..HttpSettings::default() }
}

/// The output for a response to a GET. The response comes whole, and again byte by byte, with the same output.
fn left(rules: &[Rule], response: &str) -> String {
    let (_, whole) = exchange(rules, GET, response);
    let mut middle = Middle::new(rules);
    middle.feed(CLIENT, GET.as_bytes());
    for byte in response.bytes() {
        middle.feed(SERVER, &[byte]);
    }
    middle.end(SERVER);
    assert_eq!(middle.progress, [HttpProgress::All; 2], "{response:?} byte for byte");
    if !whole.contains("chunked") {
        assert_eq!(middle.text(SERVER), whole);
    }
    whole
}

/// The response passes unchanged if no rule edits. If one does, it is mended, so that a strict client reads it (RFC 9112, section 7.1).
#[test]
fn blanks_behind_sizes_of_chunks() {
    let response = format!("{CHUNKED}{BLANKS}");
    for rules in [looks(), ends()] {
        assert_eq!(left(&rules, &response), response);
    }
    let mended = "1b\r\n<html><body>x</body></html>\r\n0\r\n\r\n";
    let head = CHUNKED.trim_end();
    assert_eq!(left(&edits_heads(), &response), format!("{head}\r\nX-By: mmb\r\n\r\n{mended}"));
    assert_eq!(
        left(&covers(), &response),
        format!("{CHUNKED}1b\r\n<html><body>********</html>\r\n0\r\n\r\n")
    );
    assert_eq!(
        left(&replaces(), &response),
        format!("{CHUNKED}1c\r\n<html><body>!x</body></html>\r\n0\r\n\r\n")
    );
    // Not in requests, where servers differ.
    let mut middle = Middle::new(&edits_heads());
    middle.feed(
        CLIENT,
        format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{BLANKS}").as_bytes(),
    );
    assert_eq!(middle.progress[0], HttpProgress::Unfit(ChunkExtension));
}

/// Matches across chunks whose framing is odd.
#[test]
fn odd_framing_within_an_edit() {
    let response = format!("{CHUNKED}6 ;a\nx</bod\n2  \r\ny>\n0 \n\n");
    assert_eq!(left(&covers(), &response), format!("{CHUNKED}6;a\r\n******\r\n2\r\n**\r\n0\r\n\r\n"));
    assert_eq!(left(&looks(), &response), response);
}

/// RFC 9112, sections 2.2, 5.1, 5.2, 6.1; RFC 9110, sections 6.5.1 and 8.6.
#[test]
fn heads_and_trailers_are_mended_where_a_rule_edits() {
    let odd = "HTTP/1.1 200 OK\nA : b;\r\n \tc\r\n  d\nB:\r\n e\r\nContent-Length: 9\r\nC: f\r\nTransfer-Encoding: chunked\r\n\n1 \nx\n0\nT :u\n v\r\nHost: a\r\nContent-Length: 9\n\n";
    let mended = "HTTP/1.1 200 OK\r\nA: b; c d\r\nB: e\r\nC: f\r\nTransfer-Encoding: chunked\r\nX-By: mmb\r\n\r\n1\r\nx\r\n0\r\nT: u v\r\n\r\n";
    assert_eq!(left(&edits_heads(), odd), mended);
    assert_eq!(left(&ends(), odd), odd);
    for (response, mended) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nX-By: mmb\r\n\r\nx",
        ),
        ("HTTP/1.1 204 No\r\nContent-Length: 1\r\n\r\n", "HTTP/1.1 204 No\r\nX-By: mmb\r\n\r\n"),
        ("HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 204 No\r\nX-By: mmb\r\n\r\n"),
        (
            "HTTP/1.1 103 Hints\nA : b\n\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-By: mmb\r\n\r\n",
        ),
        (
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx\r\n",
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\nX-By: mmb\r\n\r\nx",
        ),
    ] {
        assert_eq!(left(&edits_heads(), response), mended);
        assert_eq!(left(&looks(), response), response);
    }
}

const LAST: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
const SECOND: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nVIRUS";

/// No client reads them. A rule that acts removes them; a rule that looks does not see them.
#[test]
fn bytes_after_the_last_response_are_counted_once() {
    for (rules, rest) in [(looks(), SECOND), (ends(), ""), (edits_heads(), "")] {
        let mut middle = Middle::new(&rules);
        middle.feed(CLIENT, GET.as_bytes()).feed(SERVER, LAST.as_bytes());
        assert_eq!(middle.notes(), []);
        middle.feed(SERVER, &SECOND.as_bytes()[..9]).feed(SERVER, &SECOND.as_bytes()[9..]);
        assert_eq!(middle.progress[1], HttpProgress::All);
        assert!(middle.text(SERVER).ends_with(&format!("\r\n\r\nx{rest}")), "{}", middle.text(SERVER));
        assert_eq!(middle.notes(), [HttpNote::Surplus]);
    }
}

/// Chromium keeps the connection after the first of these, curl and Chromium after the last.
#[test]
fn bytes_after_a_response_that_some_take_for_the_last_are_unfit() {
    let unclear = [
        LAST.replace("close", "keep-alive, close"),
        LAST.replace("1.1", "1.0").replace("Connection: close", "Proxy-Connection: keep-alive"),
    ];
    for first in &unclear {
        let fed = |rules: &[Rule], settings: &HttpSettings| {
            let mut middle = Middle::with_settings(rules, settings);
            middle.feed(CLIENT, GET.repeat(2).as_bytes()).feed(SERVER, first.as_bytes());
            assert_eq!((middle.progress[1], middle.notes()), (HttpProgress::All, vec![]));
            middle.feed(SERVER, SECOND.as_bytes());
            let has_passed = middle.text(SERVER).ends_with(SECOND);
            (middle.progress[1], middle.notes(), has_passed)
        };
        let passed = (HttpProgress::Opaque, vec![HttpNote::UnfitPassed(HttpUnfit::UnclearPersistence)], true);
        assert_eq!(fed(&looks(), &HttpSettings::default()), passed);
        for rules in [ends(), edits_heads(), replaces()] {
            let closed = (HttpProgress::Unfit(HttpUnfit::UnclearPersistence), vec![], false);
            assert_eq!(fed(&rules, &HttpSettings::default()), closed);
            assert_eq!(fed(&rules, &passing()), passed);
        }
    }
}

/// A folded value is searched, compared and edited in its unfolded form.
#[test]
fn rules_on_folded_values() {
    let response = "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n";
    let edited = |item| {
        let rules = [rule(vec![header("A", vec![item])], vec![mod_header("A", "<~>")])];
        left(&rules, response).contains("A: <b c>\r\n")
    };
    assert!(edited(text("b c")));
    assert!(edited(regex("^b c$")));
    assert!(!edited(regex("\n")));
}

/// A rule that only reports never ends a connection, whatever `http unfit` says.
#[test]
fn rules_that_only_look_stop_looking() {
    let cut: [(&str, &str, HttpUnfit); 4] = [
        ("SSH-2.0-x\r\n", "SSH-2.0-y\r\n", Method),
        (GET, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5x\r\nVIRUS\r\n", ChunkExtension),
        (GET, "ICY 200 OK\r\n\r\nVIRUS", StatusLine),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n( ", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nVIRUS", Method),
    ];
    for (request, response, reason) in cut {
        let mut middle = Middle::new(&looks());
        middle.feed(CLIENT, request.as_bytes()).feed(SERVER, response.as_bytes()).feed(CLIENT, b"more");
        assert_eq!(middle.progress, [HttpProgress::Opaque; 2], "{request:?} {response:?}");
        assert_eq!(middle.text(SERVER), response);
        assert_eq!(middle.notes(), [HttpNote::UnfitPassed(reason)]);
        // One that closes is a filter.
        let mut middle = Middle::new(&[looks(), ends()].concat());
        middle.feed(CLIENT, request.as_bytes()).feed(SERVER, response.as_bytes());
        assert!(middle.progress.contains(&HttpProgress::Unfit(reason)), "{:?}", middle.progress);
    }
    // A head that is too slow.
    let mut middle = Middle::new(&looks());
    middle.feed(CLIENT, b"GET /").release(CLIENT);
    assert_eq!((middle.progress[0], middle.out(CLIENT)), (HttpProgress::Opaque, &b"GET /"[..]));
}

/// RFC 9112, section 7.1: with `http unfit pass` the bytes pass from the refused ones on. The chunks before them are whole ones.
#[test]
fn bodies_in_other_framing_pass() {
    let response = format!("{CHUNKED}3\r\nx</\r\n5\r\nbody>\r\n5x\r\nx</body>\r\n0\r\n\r\n");
    let mut middle = Middle::with_settings(&replaces(), &passing());
    middle.feed(CLIENT, GET.as_bytes()).feed(SERVER, response.as_bytes()).feed(SERVER, b"more");
    assert_eq!(middle.text(SERVER), format!("{CHUNKED}9\r\n!x</body>\r\n5x\r\nx</body>\r\n0\r\n\r\nmore"));
    assert_eq!(middle.notes(), [HttpNote::UnfitPassed(ChunkExtension)]);
    // A body that came with a length goes on in chunks, while the other direction is not read.
    let mut middle = Middle::with_settings(&replaces(), &passing());
    middle.feed(CLIENT, GET.as_bytes());
    middle.feed(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\nax</body>").feed(CLIENT, b"(\r\n");
    assert_eq!(middle.progress[0], HttpProgress::Opaque);
    middle.feed(SERVER, b"x</b").feed(SERVER, b"odmore");
    assert_eq!(
        middle.text(SERVER).split_once("\r\n\r\n").map(|(_, body)| body),
        Some("a\r\na!x</body>\r\n4\r\nx</b\r\n2\r\nod\r\n0\r\n\r\nmore")
    );
    assert_eq!((middle.progress[1], middle.notes().len()), (HttpProgress::Opaque, 1));
}
