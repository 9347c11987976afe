//! Rules on HTTP and rules that edit streams: what they mean.

use mmb_language::{Command, parse_command, parse_policy_with};
use mmb_policy::http::{HeaderName, Replacement, ReplacementPart};
use mmb_policy::rule::{Cond, NumberItem, NumberSet};
use mmb_policy::{Field, FieldId, Match, PatternItem, PatternList, Rule, StreamEdit, Target, Test};
use std::collections::HashSet;
use std::mem::discriminant;

/// A command that is taken, and as what.
#[track_caller]
fn taken(line: &str) -> Rule {
    match parse_command(line) {
        Ok((Command::Add(rule), _)) => *rule,
        Ok((other, _)) => panic!("{line}: {other:?}"),
        Err(errors) => {
            panic!("{}", errors.iter().map(|error| error.render("edits", line)).collect::<String>())
        }
    }
}

fn header(name: &str) -> HeaderName {
    HeaderName::new(name.as_bytes()).expect("a name")
}

fn text(text: &str) -> PatternItem {
    PatternItem::Text(text.as_bytes().to_vec())
}

fn of_text(text: &str) -> Replacement {
    Replacement::of_bytes(text.as_bytes().to_vec())
}

fn constraint(id: FieldId, test: Test) -> Match {
    Match { negated: false, field: Field::new(id), test }
}

#[track_caller]
fn means(line: &str, matches: &[Match], edits: &[StreamEdit]) {
    let rule = taken(&format!("add-stateful {line}"));
    let edits: Vec<Target> = edits.iter().cloned().map(Target::Edit).collect();
    assert_eq!((&rule.matches[..], &rule.targets[..]), (matches, &edits[..]), "{line}");
}

#[test]
fn edits_of_streams_mean_what_they_say() {
    let found = |id| [constraint(id, Test::Patterns(vec![text("ATTACK")]))];
    let stream = Field::new(FieldId::Stream);
    means("stream \"ATTACK\" mask stream", &found(FieldId::Stream), &[StreamEdit::Mask(stream, vec![])]);
    means(
        "stream \"ATTACK\" mask stream \"BLOCKED\"",
        &found(FieldId::Stream),
        &[StreamEdit::Mask(stream, b"BLOCKED".to_vec())],
    );
    means("stream \"ATTACK\" strip stream", &found(FieldId::Stream), &[StreamEdit::Strip(stream)]);
    let replacement = Replacement::new([
        ReplacementPart::Bytes(b"(gone)\\".to_vec()),
        ReplacementPart::Matched,
        ReplacementPart::Bytes(b"m".to_vec()),
    ]);
    means(
        "stream \"ATTACK\" mod stream \"(gone)\\\\\\mm\"",
        &found(FieldId::Stream),
        &[StreamEdit::Mod(stream, replacement)],
    );
    means(
        "stream-reply \"ATTACK\" mod stream-reply |00 ff|",
        &found(FieldId::StreamReply),
        &[StreamEdit::Mod(Field::new(FieldId::StreamReply), Replacement::of_bytes(vec![0, 255]))],
    );
}

#[test]
fn edits_of_http_mean_what_they_say() {
    let http = constraint(FieldId::Http, Test::Present);
    means(
        "http-header \"Server\" mod http-header Server \"mmb\"",
        &[constraint(FieldId::HttpHeader, Test::Header(header("Server"), vec![]))],
        &[StreamEdit::ModHeader(header("Server"), of_text("mmb"))],
    );
    means(
        "http-header Server {\"a\", @b} strip ! http-header \"Server\" strip ! http-header Date",
        &[constraint(
            FieldId::HttpHeader,
            Test::Header(header("Server"), vec![text("a"), PatternItem::List("b".to_owned())]),
        )],
        &[StreamEdit::KeepHeader(header("Server")), StreamEdit::KeepHeader(header("Date"))],
    );
    means(
        "http strip http-header \"Cookie\" add http-header \"X-By\" \"mmb\"",
        std::slice::from_ref(&http),
        &[StreamEdit::StripHeader(header("Cookie")), StreamEdit::AddHeader(header("X-By"), b"mmb".to_vec())],
    );
    let [insertion, tail] = ["<p>hi</p>", ""].map(|text| ReplacementPart::Bytes(text.as_bytes().to_vec()));
    means(
        "http-body \"</body>\" mod http-body \"<p>hi</p>\\m\"",
        &[constraint(FieldId::HttpBody, Test::Patterns(vec![text("</body>")]))],
        &[StreamEdit::Mod(
            Field::new(FieldId::HttpBody),
            Replacement::new([insertion, ReplacementPart::Matched, tail]),
        )],
    );
    means(
        "http-status 200 add http-body \"tail\"",
        &[constraint(FieldId::HttpStatus, Test::Number(Cond::Eq, NumberSet(vec![NumberItem::One(200)])))],
        &[StreamEdit::AddBody(b"tail".to_vec())],
    );
    means(
        "http mod http-host \"b.org\" mod http-uri \"/x\\m\"",
        &[http],
        &[
            StreamEdit::ModHttp(Field::new(FieldId::HttpHost), of_text("b.org")),
            StreamEdit::ModHttp(
                Field::new(FieldId::HttpUri),
                Replacement::new([ReplacementPart::Bytes(b"/x".to_vec()), ReplacementPart::Matched]),
            ),
        ],
    );
}

#[test]
fn what_is_taken_is_printed_in_one_form() {
    for (line, printed) in TAKEN {
        let rule = taken(line);
        let text = Command::Add(Box::new(rule.clone())).to_string();
        assert_eq!(text, *printed);
        assert_eq!(taken(&text), rule, "{line}");
    }
}

/// Where the policies on streams are.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/streams");

#[test]
fn the_example_policies_are_taken() {
    let list = |file: &str| {
        let content = std::fs::read(format!("{EXAMPLES}/{file}")).map_err(|error| error.to_string())?;
        PatternList::parse(file.to_owned(), &content).map_err(|error| error.to_string())
    };
    let mut edits = HashSet::new();
    for file in std::fs::read_dir(EXAMPLES).expect("examples").map(|file| file.expect("a file").path()) {
        if file.extension().is_none_or(|extension| extension != "mmb") {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("a policy");
        let (policy, notes) = parse_policy_with(&text, &list).unwrap_or_else(|errors| {
            panic!("{}", errors.iter().map(|e| e.render("", &text)).collect::<String>())
        });
        assert!(
            notes.is_empty() && policy.rules.iter().any(|rule| rule.is_stream_rule()),
            "{}",
            file.display()
        );
        edits.extend(policy.rules.iter().flat_map(|rule| rule.targets).filter_map(|target| match target {
            Target::Edit(edit) => Some(discriminant(&edit)),
            _ => None,
        }));
    }
    assert!(edits.len() >= 6, "the examples have {} kinds of edits", edits.len());
}

/// `http` is a field, and a port's name right behind a field of ports.
#[test]
fn http_is_a_port_behind_a_field_of_ports() {
    let rule = taken("add-stateful tcp-dport http http close");
    assert_eq!(rule.matches.len(), 2);
    assert_eq!(taken("add-stateful tcp-dport 80 http close"), rule);
    assert_eq!(taken("add-stateful tcp-dport == http http close"), rule);
    assert_eq!(taken("add tcp-dport http drop").matches, rule.matches[..1]);
    assert_eq!(taken("add tcp-dport {http, https} drop").matches.len(), 1);
    assert_eq!(taken("add all mod tcp-dport http").targets.len(), 1);
    assert_eq!(taken("add-stateful tcp-sport http tcp-dport 80 http close").matches.len(), 3);
}

#[test]
fn methods_in_lower_case_are_noted() {
    let notes = |line: &str| {
        let (_, notes) = parse_command(line).expect("taken");
        notes.into_iter().map(|note| note.message).collect::<Vec<_>>()
    };
    assert_eq!(notes("add-stateful http-method \"get\" close"), ["methods differ by case: was `GET` meant?"]);
    assert_eq!(notes("add-stateful http-method {\"GET\", \"M-SEARCH\"} close"), [""; 0]);
    assert_eq!(notes("add-stateful http drop"), [""; 0], "`http` needs no value");
}

#[test]
fn texts_that_no_request_target_begins_with_are_noted() {
    let notes = |line: &str| {
        let (_, notes) = parse_command(line).expect("taken");
        notes.into_iter().map(|note| note.message).collect::<Vec<_>>()
    };
    let meant = "a text is compared with the begin of the request target, which is `/`: was `\"/admin\"` meant, or a /regex/?";
    assert_eq!(notes("add-stateful http-uri \"admin\" close"), [meant]);
    assert_eq!(notes("add-stateful http-uri {\"/a\", \"admin\"} close"), [meant]);
    let scheme =
        "scheme and authority of a request target are not compared: `http://a.org/` would find nothing";
    assert_eq!(notes("add-stateful http-uri \"http://a.org/\" close"), [scheme]);
    for taken in ["\"/\"", "\"*\"", "\"a.org:443\"", "/admin/", "@LIST"] {
        assert_eq!(notes(&format!("add-stateful http-uri {taken} close")), [""; 0], "{taken}");
    }
}

/// Commands that are taken, and as they are printed.
const TAKEN: &[(&str, &str)] = &[
    (
        "add-stateful tcp-dport http stream \"ATTACK\" alert \"seen\" mask stream",
        "add-stateful tcp-dport 80 stream \"ATTACK\" alert \"seen\" mask stream",
    ),
    (
        "add-stateful tcp-dport http stream-reply @badwords mask stream-reply",
        "add-stateful tcp-dport 80 stream-reply @badwords mask stream-reply",
    ),
    (
        "add-stateful tcp-dport http stream /cmd\\.exe/i mod stream \"(gone)\"",
        "add-stateful tcp-dport 80 stream /cmd\\.exe/i mod stream \"(gone)\"",
    ),
    (
        "add-stateful udp-dport 5000 stream \"ATTACK\" strip stream",
        "add-stateful udp-dport 5000 stream \"ATTACK\" strip stream",
    ),
    (
        "add-stateful stream {\"a\", /b[^c]{0,200}c/, |00|} mod stream \"\\m\\x00\\\"\\\\m\\xff\"",
        "add-stateful stream {\"a\", /b[^c]{0,200}c/, |00|} mod stream \"\\m\\x00\\\"\\\\m\\xff\"",
    ),
    (
        "add-stateful tcp-dport http http-host \".example.com\" close",
        "add-stateful tcp-dport 80 http-host \".example.com\" close",
    ),
    (
        "add-stateful tcp-dport http ! http-host {\"a.org\", \"10.0.0.1\", \"[2001:db8::1]\"} close",
        "add-stateful tcp-dport 80 ! http-host {\"a.org\", \"10.0.0.1\", \"[2001:db8::1]\"} close",
    ),
    (
        "add-stateful http-method \"GET\" http-uri \"/a?b\" http-status 200-299 http-header accept-language /^en/ alert",
        "add-stateful http-method \"GET\" http-uri \"/a?b\" http-status 200-299 http-header \"accept-language\" /^en/ alert",
    ),
    (
        "add-stateful http-method /^P/ ! http-uri /\\.png$/ ! http-status {301, 302} ! http-header \"X\" alert",
        "add-stateful http-method /^P/ ! http-uri /\\.png$/ ! http-status {301, 302} ! http-header \"X\" alert",
    ),
    (
        "add-stateful http-status >= 500 http-status != 503 drop",
        "add-stateful http-status >= 500 http-status != 503 drop",
    ),
    ("add-stateful http-header \"Accept\" alert", "add-stateful http-header \"Accept\" alert"),
    ("add-stateful http-header Server == \"a b\" close", "add-stateful http-header \"Server\" \"a b\" close"),
    (
        "add-stateful http mod http-header X-Old \"\" add http-header x-old |e9|",
        "add-stateful http mod http-header \"X-Old\" \"\" add http-header \"x-old\" |e9|",
    ),
    (
        "add-stateful http strip ! http-header \"Content-Length\" strip ! http-header \"Accept\"",
        "add-stateful http strip ! http-header \"Content-Length\" strip ! http-header \"Accept\"",
    ),
    (
        "add-stateful http-body \"a\" add http-body \"b\" mask http-body digest",
        "add-stateful http-body \"a\" add http-body \"b\" mask http-body digest",
    ),
    ("add-stateful http-body /x{4096}/ strip http-body", "add-stateful http-body /x{4096}/ strip http-body"),
    (
        "add-stateful http-method \"POST\" http-uri \"/old\" mod http-uri \"/new\\m\" mod http-host \"b.org:8080\"",
        "add-stateful http-method \"POST\" http-uri \"/old\" mod http-uri \"/new\\m\" mod http-host \"b.org:8080\"",
    ),
    (
        "add-stateful ip-daddr 192.0.2.1 tcp-dport http http lb ip-daddr {10.0.0.1, 10.0.0.2} digest add http-header \"X-By\" \"mmb\"",
        "add-stateful ip-daddr 192.0.2.1 tcp-dport 80 http lb ip-daddr {10.0.0.1, 10.0.0.2} digest add http-header \"X-By\" \"mmb\"",
    ),
    (
        "add-stateful http add http-header \"Set-Cookie\" \"a\" add http-header \"Set-Cookie\" \"b\"",
        "add-stateful http add http-header \"Set-Cookie\" \"a\" add http-header \"Set-Cookie\" \"b\"",
    ),
];
