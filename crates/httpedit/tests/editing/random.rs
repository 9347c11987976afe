//! Exchanges at random through rules at random, cut at random: both ends see what an oracle makes of whole messages.

use crate::harness::*;
use crate::messages::{Parsed, parse};
use mmb_httpedit::HttpProgress;
use mmb_policy::field::FieldId::{HttpHost, HttpMethod, HttpStatus, HttpUri};
use mmb_policy::rule::{Cond, Match, NumberItem, NumberSet, Rule, Test};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// A constraint, as the oracle understands it.
#[derive(Clone, Debug, PartialEq)]
enum Asks {
    Any,
    Method(&'static str),
    NotMethod(&'static str),
    Uri(&'static str),
    Host(&'static str),
    Status(u16),
    Header(&'static str),
    NoHeader(&'static str),
    Body(&'static str),
}

/// A target, as the oracle understands it.
#[derive(Clone, Debug)]
enum Does {
    ModHeader(&'static str, &'static str),
    AddHeader(&'static str, &'static str),
    StripHeader(&'static str),
    AddBody(&'static str),
    MaskBody,
    ModBody(&'static str),
}

#[derive(Clone, Debug)]
struct RandomRule {
    asks: Vec<Asks>,
    does: Vec<Does>,
}

/// How a message leaves its sender.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Framing {
    None,
    Length,
    /// In chunks of at most so many bytes.
    Chunks(usize),
    UntilClose,
}

#[derive(Clone, Debug)]
struct RandomMessage {
    headers: Vec<(&'static str, &'static str)>,
    body: Vec<u8>,
    framing: Framing,
}

#[derive(Clone, Debug)]
struct RandomExchange {
    method: &'static str,
    uri: &'static str,
    is_http10: bool,
    request: RandomMessage,
    status: u16,
    has_interim: bool,
    response: RandomMessage,
    /// The server says that it closes.
    is_last: bool,
}

const PATTERN: &[&str] = &["ab", "abc", "bca", "aa", "cab"];

fn asks() -> impl Strategy<Value = Asks> {
    prop_oneof![
        3 => Just(Asks::Any),
        1 => select(vec!["GET", "POST"]).prop_map(Asks::Method),
        1 => select(vec!["HEAD", "POST"]).prop_map(Asks::NotMethod),
        1 => select(vec!["/a", "/b", "/ab"]).prop_map(Asks::Uri),
        1 => select(vec!["a.org", ".org"]).prop_map(Asks::Host),
        2 => select(vec![200, 404]).prop_map(Asks::Status),
        1 => select(vec!["X-A", "X-B"]).prop_map(Asks::Header),
        1 => select(vec!["X-A", "X-B"]).prop_map(Asks::NoHeader),
        1 => select(PATTERN.to_vec()).prop_map(Asks::Body),
    ]
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        select(vec![("X-A", "<~>"), ("X-B", "n"), ("Server", "mmb")])
            .prop_map(|(name, text)| Does::ModHeader(name, text)),
        select(vec![("X-N", "v"), ("X-A", "2")]).prop_map(|(name, value)| Does::AddHeader(name, value)),
        select(vec!["X-A", "X-B", "Date"]).prop_map(Does::StripHeader),
        select(vec!["tail", "b"]).prop_map(Does::AddBody),
    ]
}

fn random_rule() -> impl Strategy<Value = RandomRule> {
    let edits_body = proptest::option::of((
        select(PATTERN.to_vec()),
        prop_oneof![Just(Does::MaskBody), select(vec!["", "X", "<~>", "~~"]).prop_map(Does::ModBody)],
    ));
    (vec(asks(), 1..3), vec(does(), 0..3), edits_body).prop_map(|(mut asks, mut does, edits_body)| {
        // One pattern for bodies a rule.
        let mut has_pattern = edits_body.is_some();
        asks.retain(|asks| !matches!(asks, Asks::Body(_)) || !std::mem::replace(&mut has_pattern, true));
        if let Some((pattern, edit)) = edits_body {
            asks.push(Asks::Body(pattern));
            does.push(edit);
        }
        if asks.is_empty() {
            asks.push(Asks::Any);
        }
        RandomRule { asks, does }
    })
}

fn message(is_response: bool) -> impl Strategy<Value = RandomMessage> {
    let header = select(vec![
        ("X-A", "1"),
        ("X-B", ""),
        ("Server", "s"),
        ("Date", "d"),
        ("ETag", "\"e\""),
        ("Digest", "g"),
    ]);
    let framing = prop_oneof![
        2 => Just(if is_response { Framing::Length } else { Framing::None }),
        2 => Just(Framing::Length),
        2 => (1..9usize).prop_map(Framing::Chunks),
    ];
    (vec(header, 0..4), vec(select(b"abc".to_vec()), 0..40), framing).prop_map(|(headers, body, framing)| {
        let body = if framing == Framing::None { Vec::new() } else { body };
        RandomMessage { headers, body, framing }
    })
}

fn random_exchange() -> impl Strategy<Value = RandomExchange> {
    let line = (
        select(vec!["GET", "HEAD", "POST"]),
        select(vec!["/a", "/b/c", "http://a.org/ab"]),
        prop::bool::weighted(0.2),
    );
    (line, message(false), select(vec![200, 404, 304, 204]), any::<bool>(), message(true)).prop_map(
        |((method, uri, is_http10), mut request, status, has_interim, mut response)| {
            if is_http10 {
                // No chunks, neither way.
                for message in [&mut request, &mut response] {
                    if let Framing::Chunks(_) = message.framing {
                        message.framing = Framing::Length;
                    }
                }
            }
            if status == 204 {
                (response.framing, response.body) = (Framing::None, Vec::new());
            }
            let has_interim = has_interim && !is_http10;
            RandomExchange { method, uri, is_http10, request, status, has_interim, response, is_last: false }
        },
    )
}

impl RandomMessage {
    fn bytes(&self, first_line: &str, has_body: bool) -> Vec<u8> {
        let mut text = format!("{first_line}\r\n");
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        match self.framing {
            Framing::None | Framing::UntilClose => {}
            Framing::Length => text += &format!("Content-Length: {}\r\n", self.body.len()),
            Framing::Chunks(_) => text += "Transfer-Encoding: chunked\r\n",
        }
        let mut bytes = (text + "\r\n").into_bytes();
        match self.framing {
            _ if !has_body => {}
            Framing::None | Framing::UntilClose | Framing::Length => bytes.extend(&self.body),
            Framing::Chunks(size) => {
                for chunk in self.body.chunks(size) {
                    bytes.extend(format!("{:x};e\r\n", chunk.len()).into_bytes());
                    bytes.extend(chunk);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(b"0\r\nDigest: t\r\nX-T: t\r\n\r\n");
            }
        }
        bytes
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
    }
}

impl RandomExchange {
    fn request_line(&self) -> String {
        let keep_alive = if self.is_http10 { "0\r\nConnection: keep-alive" } else { "1" };
        format!("{} {} HTTP/1.{keep_alive}\r\nHost: a.org", self.method, self.uri)
    }

    fn response_has_body(&self) -> bool {
        self.method != "HEAD" && ![204, 304].contains(&self.status) && self.response.framing != Framing::None
    }

    fn requests(&self) -> Vec<u8> {
        self.request.bytes(&self.request_line(), true)
    }

    fn responses(&self) -> Vec<u8> {
        let interim: &[u8] = if self.has_interim { b"HTTP/1.1 103 wait\r\nX-A: i\r\n\r\n" } else { b"" };
        let close = if self.is_last { "\r\nConnection: close" } else { "" };
        let line = format!("HTTP/1.1 {} why{close}", self.status);
        [interim, &self.response.bytes(&line, self.response_has_body())].concat()
    }
}

impl RandomRule {
    fn rule(&self) -> Rule {
        let matches: Vec<Match> = self
            .asks
            .iter()
            .map(|asks| match asks {
                Asks::Any => http(),
                Asks::Method(name) => patterns(HttpMethod, vec![text(name)]),
                Asks::NotMethod(name) => not(patterns(HttpMethod, vec![text(name)])),
                Asks::Uri(start) => patterns(HttpUri, vec![text(start)]),
                Asks::Host(name) => patterns(HttpHost, vec![text(name)]),
                Asks::Status(code) => is(
                    HttpStatus,
                    Test::Number(Cond::Eq, NumberSet(vec![NumberItem::One(u128::from(*code))])),
                ),
                Asks::Header(name) => header(name, vec![]),
                Asks::NoHeader(name) => not(header(name, vec![])),
                Asks::Body(pattern) => body(text(pattern)),
            })
            .collect();
        let targets = self
            .does
            .iter()
            .map(|does| match does {
                Does::ModHeader(name, text) => mod_header(name, text),
                Does::AddHeader(name, value) => add_header(name, value),
                Does::StripHeader(name) => strip_header(name),
                Does::AddBody(tail) => add_body(tail),
                Does::MaskBody => mask_body(),
                Does::ModBody("") => strip_body(),
                Does::ModBody(text) => mod_body(text),
            })
            .collect();
        rule(matches, targets)
    }

    fn body_pattern(&self) -> Option<&'static str> {
        self.asks.iter().find_map(|asks| if let Asks::Body(pattern) = asks { Some(*pattern) } else { None })
    }

    fn edits_matches(&self) -> bool {
        self.does.iter().any(|does| matches!(does, Does::MaskBody | Does::ModBody(_)))
    }

    fn tail(&self) -> Vec<u8> {
        let tails = self
            .does
            .iter()
            .filter_map(|does| if let Does::AddBody(tail) = does { Some(*tail) } else { None });
        tails.collect::<String>().into_bytes()
    }

    fn changes_bodies(&self) -> bool {
        self.edits_matches() || !self.tail().is_empty()
    }

    /// Whether all constraints hold but those on bodies: `None` if it depends on a response that has not come.
    fn holds(&self, exchange: &RandomExchange, knows_response: bool) -> Option<bool> {
        let mut holds = Some(true);
        for asks in &self.asks {
            let path = exchange.uri.strip_prefix("http://a.org").unwrap_or(exchange.uri);
            let has =
                |name: &str| exchange.request.has(name) || (knows_response && exchange.response.has(name));
            let this = match asks {
                Asks::Any | Asks::Host(_) | Asks::Body(_) => Some(true),
                Asks::Method(name) => Some(exchange.method == *name),
                Asks::NotMethod(name) => Some(exchange.method != *name),
                Asks::Uri(start) => Some(path.starts_with(start)),
                Asks::Status(code) => knows_response.then_some(exchange.status == *code),
                Asks::Header(name) => {
                    if has(name) {
                        Some(true)
                    } else {
                        knows_response.then_some(false)
                    }
                }
                Asks::NoHeader(name) => {
                    if has(name) {
                        Some(false)
                    } else {
                        knows_response.then_some(true)
                    }
                }
            };
            holds = match (holds, this) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), this) => this,
                (None, _) => None,
            };
        }
        holds
    }
}

/// What an end sees of a message, without how it is framed.
type Seen = (Vec<(String, String)>, Option<Vec<u8>>);

/// The oracle: one message through all rules, given which rules have found their patterns in bodies before.
fn edited(rules: &[RandomRule], exchange: &RandomExchange, is_response: bool, found: &mut [bool]) -> Seen {
    let message = if is_response { &exchange.response } else { &exchange.request };
    let holds: Vec<bool> = rules.iter().map(|rule| rule.holds(exchange, is_response) == Some(true)).collect();
    let mut headers: Vec<(String, String)> =
        message.headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    for ((rule, holds), found) in rules.iter().zip(&holds).zip(&*found) {
        if *holds && (rule.body_pattern().is_none() || *found) {
            for does in &rule.does {
                change_headers(does, &mut headers);
            }
        }
    }
    let has_body = if is_response { exchange.response_has_body() } else { message.framing != Framing::None };
    // Headers that stand for a body which does not come change as with it.
    let stands_for_body = is_response && !has_body && exchange.status != 204;
    let editors: Vec<bool> =
        rules.iter().zip(&holds).map(|(rule, holds)| *holds && rule.changes_bodies()).collect();
    let adds_to_empty = rules.iter().zip(&editors).zip(&*found).any(|((rule, edits), found)| {
        *edits && !rule.tail().is_empty() && (rule.body_pattern().is_none() || *found)
    });
    let is_empty = message.framing == Framing::Length && message.body.is_empty();
    let may_change = editors.contains(&true) && (has_body || stands_for_body) && (!is_empty || adds_to_empty);
    if !has_body {
        if may_change {
            change_known(&mut headers);
        }
        return (headers, None);
    }
    let body = change_body(rules, (&holds, &editors), &message.body, found);
    // A length that must be right is known only when the change is.
    let has_length = !is_response || !exchange.is_last;
    let is_whole = message.framing == Framing::Length && exchange.is_http10 && has_length;
    let only_masks = rules.iter().zip(&editors).all(|(rule, edits)| {
        !edits || (rule.tail().is_empty() && !rule.does.iter().any(|does| matches!(does, Does::ModBody(_))))
    });
    if may_change && (!is_whole || only_masks || is_empty || body.1) {
        change_known(&mut headers);
    }
    (headers, Some(body.0))
}

fn change_headers(does: &Does, headers: &mut Vec<(String, String)>) {
    match does {
        Does::ModHeader(name, text) => {
            for (known, value) in headers.iter_mut() {
                if known == name {
                    *value = text.replace('~', value);
                }
            }
        }
        Does::AddHeader(name, value) => headers.push(((*name).to_owned(), (*value).to_owned())),
        Does::StripHeader(name) => headers.retain(|(known, _)| known != name),
        Does::AddBody(_) | Does::MaskBody | Does::ModBody(_) => {}
    }
}

fn change_known(headers: &mut Vec<(String, String)>) {
    headers.retain(|(name, _)| name != "Digest");
    for (name, value) in headers {
        if name == "ETag" && !value.starts_with("W/") {
            *value = format!("W/{value}");
        }
    }
}

/// A body through the rules that may edit it, and whether it was edited. Notes the patterns that it has.
fn change_body(
    rules: &[RandomRule],
    (holds, editors): (&[bool], &[bool]),
    body: &[u8],
    found: &mut [bool],
) -> (Vec<u8>, bool) {
    for ((rule, found), _) in rules.iter().zip(&mut *found).zip(holds) {
        let pattern = rule.body_pattern().filter(|_| !rule.edits_matches());
        if let Some(pattern) = pattern {
            *found |= body.windows(pattern.len()).any(|window| window == pattern.as_bytes());
        }
    }
    let (mut out, mut at, mut is_changed) = (Vec::new(), 0, false);
    'places: while at < body.len() {
        let mut best: Option<(usize, usize)> = None;
        for (number, rule) in
            rules.iter().enumerate().filter(|(number, rule)| editors[*number] && rule.edits_matches())
        {
            let pattern = rule.body_pattern().unwrap_or_default();
            if body[at..].starts_with(pattern.as_bytes()) && best.is_none_or(|(_, len)| pattern.len() > len) {
                best = Some((number, pattern.len()));
            }
        }
        if let Some((number, len)) = best {
            let matched = String::from_utf8(body[at..at + len].to_vec()).expect("ASCII");
            for does in &rules[number].does {
                match does {
                    Does::MaskBody => out.extend("*".repeat(len).into_bytes()),
                    Does::ModBody(text) => out.extend(text.replace('~', &matched).into_bytes()),
                    _ => {}
                }
            }
            (found[number], is_changed) = (true, true);
            at += len;
            continue 'places;
        }
        out.push(body[at]);
        at += 1;
    }
    for ((rule, edits), found) in rules.iter().zip(editors).zip(&*found) {
        if *edits && (rule.body_pattern().is_none() || *found) && !rule.tail().is_empty() {
            out.extend(rule.tail());
            is_changed = true;
        }
    }
    (out, is_changed)
}

/// A parsed message as an end sees it.
fn seen(message: &Parsed) -> Seen {
    let framing = ["content-length", "transfer-encoding", "host", "connection"];
    let headers =
        message.headers.iter().filter(|(name, _)| !framing.contains(&name.to_ascii_lowercase().as_str()));
    (headers.cloned().collect(), message.body.clone())
}

/// Sends exchanges in groups of pipelined requests, cut at these lengths in turn.
fn run(middle: &mut Middle, exchanges: &[RandomExchange], group: usize, cuts: &[usize]) {
    let mut cuts = cuts.iter().cycle();
    let mut send = |middle: &mut Middle, direction, bytes: Vec<u8>| {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let len = cuts.next().map_or(1, |cut| (*cut).min(rest.len()));
            middle.feed(direction, &rest[..len]);
            rest = &rest[len..];
        }
    };
    for group in exchanges.chunks(group) {
        send(middle, CLIENT, group.iter().flat_map(RandomExchange::requests).collect());
        send(middle, SERVER, group.iter().flat_map(RandomExchange::responses).collect());
    }
    middle.end(CLIENT).end(SERVER);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn both_ends_see_what_the_oracle_says(
        rules in vec(random_rule(), 1..4),
        mut exchanges in vec(random_exchange(), 1..5),
        group in 1..4usize,
        cuts in vec(1..50usize, 1..8),
        (until_close, is_last) in any::<(bool, bool)>(),
    ) {
        // Behind a request of HTTP/1.0 whose response's body may change length the server closes.
        let before_last = exchanges.len() - 1;
        exchanges[..before_last].iter_mut().for_each(|exchange| exchange.is_http10 = false);
        exchanges[before_last].is_last = is_last;
        if let Some(last) = exchanges.last_mut().filter(|last| until_close && last.status != 204) {
            // What is added at the end needs a byte to be added to.
            last.response.body.push(b'a');
            last.response.framing = Framing::UntilClose;
        }
        let policy: Vec<Rule> = rules.iter().map(RandomRule::rule).collect();
        let mut expected = [Vec::new(), Vec::new()];
        for exchange in &exchanges {
            let mut found = vec![false; rules.len()];
            for (direction, expected) in expected.iter_mut().enumerate() {
                expected.push(edited(&rules, exchange, direction == 1, &mut found));
            }
        }
        for cuts in [&cuts[..], &[1], &[100_000]] {
            let mut middle = Middle::new(&policy);
            run(&mut middle, &exchanges, group, cuts);
            prop_assert_eq!(middle.progress, [HttpProgress::All; 2]);
            assert_fit(middle.out(CLIENT), middle.out(SERVER));
            let requests = parse(middle.out(CLIENT), |_| true);
            let responses = parse(middle.out(SERVER), |number| exchanges[number].method != "HEAD");
            let responses: Vec<&Parsed> = responses.iter().filter(|message| !message.first_line.contains("103")).collect();
            let got = [requests.iter().map(seen).collect::<Vec<_>>(), responses.into_iter().map(seen).collect()];
            // A request without a length and one with an empty body are parsed alike.
            prop_assert_eq!(&got, &expected, "cut at {:?}", cuts);
        }
    }
}
