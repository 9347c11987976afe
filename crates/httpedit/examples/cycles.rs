//! What edits of HTTP cost: `cargo run --release -p mmb-httpedit --example cycles`.
//!
//! Prints cycles of the time-stamp counter for an exchange with its heads, and a byte of a body that arrives in pieces of 1,448 bytes, for rules
//! that edit heads, mask bodies and change their length, without a match. The best of several passes is told.

use mmb_http::HttpDirection;
use mmb_httpedit::{EditOutput, HttpEditor, HttpInput, HttpMemory, HttpNote, HttpRules, HttpTools};
use mmb_io::cycles;
use mmb_policy::field::{Field, FieldId};
use mmb_policy::http::{HeaderName, Replacement};
use mmb_policy::pattern::PatternItem;
use mmb_policy::rule::{Match, Rule, StreamEdit, Target, Test};
use mmb_policy::settings::HttpSettings;
use mmb_scan::{EditScratch, InProcess, Scanner, SetCache, SetSource};

/// Bytes of a piece: a segment's payload.
const PIECE: usize = 1448;
/// Pieces of a body.
const PIECES: usize = 400;
/// Passes, of which the best is told.
const PASSES: usize = 15;
/// Characters of a page of text, and how they come.
const TEXT: &[u8] = b" etaoinshrdlucmfwypvbgkjqxzETAOIN.,\r\n0123456789<>/=\"-:;";

const REQUEST: &[u8] =
    b"GET /index.html HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n";

/// Takes the output and counts it.
#[derive(Default)]
struct Sink {
    decided: usize,
    written: usize,
}

impl EditOutput for Sink {
    fn pass(&mut self, count: usize) {
        self.decided += count;
        self.written += count;
    }

    fn replace(&mut self, count: usize, by: &[u8]) {
        self.decided += count;
        self.written += by.len();
    }

    fn hit(&mut self, _: u32, _: usize) {}

    fn note(&mut self, _: HttpNote) {}
}

fn rule(matches: Vec<Match>, target: Target) -> Rule {
    Rule { id: None, prio: 100, name: None, stateful: true, draining: false, matches, targets: vec![target] }
}

/// Cycles of a request and the head of its response, and of a byte of the response's body.
fn measure(rule: &Rule, response: &[u8], head_len: usize) -> [f64; 2] {
    let rules = HttpRules::compile(
        [(0, rule)],
        &|_| None,
        &HttpSettings::default(),
        SetSource::compiling(&SetCache::default(), &InProcess),
    )
    .expect("a good rule");
    let mut scanner = Scanner::new(1 << 20).expect("memory");
    rules.sets().for_each(|set| scanner.prepare(set).expect("memory"));
    let mut scratch = EditScratch::new();
    rules.edit_patterns().for_each(|patterns| scratch.prepare(patterns));
    let mut memory = HttpMemory::default();
    let mut editor = HttpEditor::new(&rules, 1);
    let mut best = [u64::MAX; 2];
    for _ in 0..PASSES {
        let mut show = |direction, sink: &mut Sink, bytes: &[u8], end: usize| {
            let mut tools = HttpTools {
                rules: &rules,
                live: &[0],
                scanner: &mut scanner,
                scratch: &mut scratch,
                memory: &mut memory,
            };
            let input =
                HttpInput { direction, bytes: &bytes[sink.decided..end], is_end: false, release: false };
            editor.edit(&mut tools, input, sink);
        };
        let begin = cycles::now();
        show(HttpDirection::Requests, &mut Sink::default(), REQUEST, REQUEST.len());
        let mut sink = Sink::default();
        show(HttpDirection::Responses, &mut sink, response, head_len);
        let middle = cycles::now();
        for piece in 1..=PIECES {
            show(HttpDirection::Responses, &mut sink, response, head_len + piece * PIECE);
        }
        assert_eq!(sink.decided, response.len());
        best = [best[0].min(middle - begin), best[1].min(cycles::now() - middle)];
    }
    [best[0] as f64, best[1] as f64 / (PIECES * PIECE) as f64]
}

fn main() {
    let mut state = 1u64;
    let content: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        TEXT[(state >> 33) as usize % TEXT.len()]
    })
    .take(PIECES * PIECE)
    .collect();
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nContent-Type: text/html\r\nETag: \"6641e9fe-267\"\r\nContent-Length: {}\r\n\r\n",
        content.len()
    );
    let response = [head.as_bytes(), &content].concat();
    let http = || vec![Match { negated: false, field: Field::new(FieldId::Http), test: Test::Present }];
    let found = || {
        let test = Test::Patterns(vec![PatternItem::Text(b"ATTACK-7f3a".to_vec())]);
        vec![Match { negated: false, field: Field::new(FieldId::HttpBody), test }]
    };
    let body = Field::new(FieldId::HttpBody);
    let name = HeaderName::new(b"Server").expect("a name");
    let replaced = || Replacement::of_bytes(b"mmb".to_vec());
    for (what, rule) in [
        ("alert on any", rule(http(), Target::Alert(None))),
        ("a header", rule(http(), Target::Edit(StreamEdit::ModHeader(name, replaced())))),
        ("alert on a body", rule(found(), Target::Alert(None))),
        ("mask a body", rule(found(), Target::Edit(StreamEdit::Mask(body, Vec::new())))),
        ("change a body", rule(found(), Target::Edit(StreamEdit::Mod(body, replaced())))),
    ] {
        let [heads, byte] = measure(&rule, &response, head.len());
        let bytes = REQUEST.len() + head.len();
        println!("{what}: {heads:.0} cycles for {bytes} bytes of heads, {byte:.2} a byte of body");
    }
}
