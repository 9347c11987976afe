//! When a rule is met.

use crate::harness::*;
use mmb_httpedit::{HttpEnd, HttpProgress, HttpRuleError, HttpRules};
use mmb_policy::Rule;
use mmb_policy::field::FieldId::{HttpHost, HttpMethod, HttpStatus, HttpUri};
use mmb_policy::pattern::PatternItem;
use mmb_policy::rule::{Cond, Match, NumberItem, NumberSet, Target, Test};
use mmb_policy::settings::HttpSettings;
use mmb_scan::{InProcess, PatternError, SetCache, SetSource};

const GET: &str = "GET /dir/a.php?q HTTP/1.1\r\nHost: WWW.Example.com:80\r\nCookie: a=b\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: x 1.0\r\n\r\nhello";

/// When the rules that alert are met: after the request, and after the response.
fn met(constraints: Vec<Match>, request: &str, response: &str) -> [bool; 2] {
    let mut middle = Middle::new(&[rule(constraints, vec![Target::Alert(None)])]);
    middle.feed(CLIENT, request.as_bytes());
    let early = !middle.hits().is_empty();
    middle.feed(SERVER, response.as_bytes()).end(SERVER);
    assert!(middle.hits().len() < 2, "told twice");
    assert_eq!((middle.text(CLIENT), middle.text(SERVER)), (request.to_owned(), response.to_owned()));
    [early, !middle.hits().is_empty()]
}

fn status(cond: Cond, items: Vec<NumberItem>) -> Match {
    is(HttpStatus, Test::Number(cond, NumberSet(items)))
}

#[test]
fn parts_of_requests() {
    let yes: Vec<Match> = vec![
        http(),
        patterns(HttpMethod, vec![text("POST"), text("GET")]),
        patterns(HttpMethod, vec![regex("^G.T$")]),
        patterns(HttpHost, vec![text("www.example.com")]),
        patterns(HttpHost, vec![text(".example.com")]),
        patterns(HttpHost, vec![regex(r"^www\.[a-z]+\.com$")]),
        patterns(HttpUri, vec![text("/dir/")]),
        patterns(HttpUri, vec![regex(r"\.php")]),
        header("cookie", vec![]),
        header("Cookie", vec![text("a=b")]),
        header("COOKIE", vec![text("x"), regex("=b$")]),
        not(patterns(HttpMethod, vec![text("POST")])),
        not(patterns(HttpHost, vec![text("example.com")])),
    ];
    for constraint in yes {
        assert_eq!(met(vec![constraint.clone()], GET, OK), [true, true], "{constraint:?}");
    }
    let no: Vec<Match> = vec![
        patterns(HttpMethod, vec![text("get")]),
        patterns(HttpMethod, vec![text("GE")]),
        patterns(HttpHost, vec![text("example.com")]),
        patterns(HttpUri, vec![text("dir")]),
        patterns(HttpUri, vec![regex(r"\.php$")]),
        header("Cookie", vec![text("a=")]),
        header("X-Cookie", vec![]),
        not(http()),
        not(header("cookie", vec![])),
        not(patterns(HttpUri, vec![text("/")])),
    ];
    for constraint in no {
        assert_eq!(met(vec![constraint.clone()], GET, OK), [false, false], "{constraint:?}");
    }
}

#[test]
fn lists_are_texts() {
    let list = || vec![PatternItem::List("list".to_owned())];
    let request = |uri: &str, host: &str| format!("GET {uri} HTTP/1.1\r\nHost: {host}\r\nA: one\r\n\r\n");
    assert_eq!(met(vec![patterns(HttpUri, list())], &request("/two/x", "a"), OK), [true, true]);
    assert_eq!(met(vec![patterns(HttpUri, list())], &request("/tw", "a"), OK), [false, false]);
    assert_eq!(met(vec![patterns(HttpHost, list())], &request("/", "ONE"), OK), [true, true]);
    assert_eq!(met(vec![header("a", list())], &request("/", "a"), OK), [true, true]);
    assert_eq!(
        met(vec![body(PatternItem::List("list".to_owned()))], GET, &OK.replace("hello", "xxone")),
        [false, true]
    );
}

/// RFC 9112, section 3.2.2: what the server looks at, however the target is written.
#[test]
fn absolute_targets() {
    let request = "GET http://a.org/admin/x HTTP/1.1\r\nHost: a.org\r\n\r\n";
    assert_eq!(met(vec![patterns(HttpUri, vec![text("/admin")])], request, OK), [true, true]);
    assert_eq!(met(vec![patterns(HttpHost, vec![text("a.org")])], request, OK), [true, true]);
    let bare = "GET http://a.org HTTP/1.1\r\nHost: a.org\r\n\r\n";
    assert_eq!(met(vec![patterns(HttpUri, vec![regex("^/$")])], bare, OK), [true, true]);
}

#[test]
fn parts_of_responses() {
    let yes: Vec<Match> = vec![
        status(Cond::Eq, vec![NumberItem::One(404), NumberItem::Range(200, 299)]),
        status(Cond::Ne, vec![NumberItem::One(404)]),
        status(Cond::Lt, vec![NumberItem::One(201)]),
        status(Cond::Ge, vec![NumberItem::One(200)]),
        not(status(Cond::Eq, vec![NumberItem::One(404)])),
        header("server", vec![]),
        header("server", vec![regex("^x [0-9.]+$")]),
        not(header("x-none", vec![])),
        body(text("ell")),
        body(regex("h.*o")),
    ];
    for constraint in yes {
        assert_eq!(met(vec![constraint.clone()], GET, OK), [false, true], "{constraint:?}");
    }
    let no: Vec<Match> = vec![
        status(Cond::Gt, vec![NumberItem::One(200)]),
        status(Cond::Le, vec![NumberItem::One(199)]),
        header("server", vec![text("x")]),
        not(header("server", vec![])),
        body(text("Hell")),
        not(body(text("x"))),
    ];
    for constraint in no {
        assert_eq!(met(vec![constraint.clone()], GET, OK), [false, false], "{constraint:?}");
    }
}

/// All constraints of a rule are about one exchange.
#[test]
fn one_exchange() {
    let both = vec![patterns(HttpMethod, vec![text("GET")]), body(text("bad"))];
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nbad";
    assert_eq!(met(both.clone(), post, OK), [false, false]);
    assert_eq!(met(both.clone(), &format!("{post}{GET}"), &format!("{OK}{OK}")), [false, false]);
    let get_with_body = "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nbad";
    assert_eq!(met(both.clone(), get_with_body, OK), [true, true]);
    assert_eq!(met(both, GET, &OK.replace("hello", "xbadx")), [false, true]);
    let of_response = vec![patterns(HttpUri, vec![text("/b")]), status(Cond::Eq, vec![NumberItem::One(404)])];
    let two = "GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n";
    let missing = "HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(met(of_response.clone(), two, &format!("{missing}{OK}")), [false, false]);
    assert_eq!(met(of_response, two, &format!("{OK}{missing}")), [false, true]);
}

/// What answers nothing is nothing that rules are about.
#[test]
fn interim_responses() {
    let interim = "HTTP/1.1 103 x\r\nLink: y\r\n\r\n";
    let all = format!("{interim}{OK}");
    assert_eq!(met(vec![status(Cond::Ne, vec![NumberItem::One(200)])], GET, &all), [false, false]);
    assert_eq!(met(vec![header("link", vec![])], GET, &all), [false, false]);
    assert_eq!(met(vec![status(Cond::Eq, vec![NumberItem::One(200)])], GET, &all), [false, true]);
}

/// A rule that ends the connection is met before anything of what meets it has passed.
#[test]
fn ends_of_connections() {
    let close = |constraint: Match| rule(vec![constraint], vec![Target::Close]);
    let mut middle = Middle::new(&[
        rule(vec![http()], vec![Target::Alert(None)]),
        close(patterns(HttpUri, vec![text("/b")])),
    ]);
    middle.feed(CLIENT, b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(middle.progress[0], HttpProgress::All);
    middle.feed(CLIENT, b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        (middle.progress[0], middle.hits()),
        (HttpProgress::Ended(HttpEnd { rule: 11, closes: true }), vec![10, 10, 11])
    );
    assert!(middle.text(CLIENT).ends_with("GET /a HTTP/1.1\r\nHost: a\r\n\r\n"));
    let mut middle = Middle::new(&[close(body(text("bad")))]);
    middle.feed(CLIENT, GET.as_bytes());
    middle.feed(SERVER, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nxxba\r\n");
    assert_eq!(middle.progress[1], HttpProgress::All);
    middle.feed(SERVER, b"1\r\nd\r\n");
    assert_eq!(middle.progress[1], HttpProgress::Ended(HttpEnd { rule: 10, closes: true }));
    assert!(middle.text(SERVER).ends_with("xxba\r\n"));
}

/// What was begun before a change of the policy is not judged by rules that are others.
#[test]
fn other_rules() {
    let rules: Vec<Rule> = vec![rule(vec![body(text("hello"))], vec![Target::Alert(None)])];
    let mut middle = Middle::new(&rules);
    middle.feed(CLIENT, GET.as_bytes());
    middle.change_rules();
    middle.feed(SERVER, OK.as_bytes());
    assert_eq!(middle.hits(), []);
    middle.feed(CLIENT, GET.as_bytes()).feed(SERVER, &OK.as_bytes()[..50]);
    middle.change_rules();
    middle.feed(SERVER, &OK.as_bytes()[50..]);
    middle.feed(CLIENT, GET.as_bytes()).feed(SERVER, OK.as_bytes());
    assert_eq!(middle.hits(), [10]);
}

#[test]
fn rules_that_cannot_be_compiled_are_refused() {
    let cache = SetCache::default();
    let sets = SetSource::compiling(&cache, &InProcess);
    let compile = |rule: &Rule| HttpRules::compile([(7, rule)], &|_| None, &HttpSettings::default(), sets);
    let refused = |rule: Rule| compile(&rule).map_or_else(|error| error.to_string(), |_| String::new());
    assert!(refused(rule(vec![http(); 15], vec![])).starts_with("more than 14 constraints"));
    let list = rule(vec![patterns(HttpUri, vec![PatternItem::List("none".to_owned())])], vec![]);
    assert!(refused(list).contains("none"));
    let look_around = compile(&rule(vec![body(regex("a(?=b)"))], vec![Target::Close]));
    assert!(matches!(look_around, Err(HttpRuleError::Pattern(Some(7), _))), "{look_around:?}");
    let long = rule(vec![body(regex("a{1,4000}"))], vec![mod_body(&"~".repeat(17))]);
    assert!(
        refused(long).contains("68000 bytes"),
        "{:?}",
        compile(&rule(vec![body(regex("a{1,4000}"))], vec![mod_body("~")]))
    );
    assert!(refused(rule(vec![http()], vec![add_body(&"x".repeat(5000))])).contains("5000 bytes"));
    let other = rule(vec![is(mmb_policy::field::FieldId::Stream, Test::Patterns(vec![text("x")]))], vec![]);
    assert!(compile(&other).is_ok_and(|rules| rules.is_empty() && rules.index_of(7).is_none()));
}

/// Patterns are not compiled again.
#[test]
fn compiled_patterns_are_kept() {
    let rule = rule(vec![body(text("a")), patterns(HttpUri, vec![regex("b")])], vec![mod_body("c")]);
    let cache = SetCache::default();
    let compile = |sets| HttpRules::compile([(1, &rule)], &|_| None, &HttpSettings::default(), sets);
    assert!(matches!(
        compile(SetSource::known(&cache)),
        Err(HttpRuleError::Pattern(_, PatternError::NotCompiled))
    ));
    let first = compile(SetSource::compiling(&cache, &InProcess)).expect("a good rule");
    let again = compile(SetSource::known(&cache)).expect("they are known");
    assert_eq!(first.sets().count() + first.edit_patterns().count(), 2);
    assert!(first.sets().zip(again.sets()).all(|(a, b)| a.digest() == b.digest()));
    assert!(first.edit_patterns().zip(again.edit_patterns()).all(|(a, b)| a.digest() == b.digest()));
}
