//! It makes no difference how the bytes are cut; and where messages end is where a generator of messages says.

use crate::script::{Reading, Step, Told};
use mmb_http::{BodyFraming, FramingKind, HttpDirection};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// A message body as its generator made it.
#[derive(Clone, Debug)]
enum Body {
    None,
    Length(Vec<u8>),
    /// Chunks with data and extensions, and trailer lines.
    Chunks(Vec<(Vec<u8>, String)>, String),
    UntilClose(Vec<u8>),
}

/// A request and its responses as their generator made them.
#[derive(Clone, Debug)]
struct Exchange {
    method: &'static str,
    blank_before: bool,
    request_lines: String,
    request: Body,
    interim: Vec<u16>,
    status: u16,
    response_lines: String,
    response: Body,
}

impl Body {
    /// The header line, the bytes, and what is told of them.
    fn parts(&self) -> (String, Vec<u8>, Vec<Told>, BodyFraming) {
        match self {
            Body::None => (String::new(), Vec::new(), vec![Told::End], BodyFraming::None),
            Body::Length(data) => {
                let line = format!("Content-Length: {}\r\n", data.len());
                let mut told = vec![Told::Body(data.clone()), Told::End];
                told.retain(|told| *told != Told::Body(Vec::new()));
                (line, data.clone(), told, BodyFraming::Length(data.len() as u64))
            }
            Body::UntilClose(data) => {
                let mut told = vec![Told::Body(data.clone()), Told::End];
                told.retain(|told| *told != Told::Body(Vec::new()));
                (String::new(), data.clone(), told, BodyFraming::UntilClose)
            }
            Body::Chunks(chunks, trailers) => {
                let (mut bytes, mut told) = (Vec::new(), Vec::new());
                for (data, extension) in chunks {
                    let line = format!("{:X}{extension}\r\n", data.len());
                    bytes.extend([line.as_bytes(), data, b"\r\n"].concat());
                    told.push(Told::Framing(FramingKind::ChunkSize, line.into_bytes()));
                    told.push(Told::Body(data.clone()));
                    told.push(Told::Framing(FramingKind::ChunkEnd, b"\r\n".to_vec()));
                }
                let trailers = format!("{trailers}\r\n").into_bytes();
                bytes.extend([b"0\r\n", &trailers[..]].concat());
                told.extend([
                    Told::Framing(FramingKind::LastChunk, b"0\r\n".to_vec()),
                    Told::Trailers(trailers),
                    Told::End,
                ]);
                ("Transfer-Encoding: chunked\r\n".to_owned(), bytes, told, BodyFraming::Chunked)
            }
        }
    }
}

impl Exchange {
    /// The bytes of the request, and what is told of them.
    fn request(&self) -> (Vec<u8>, Vec<Told>) {
        let (line, body, body_told, framing) = self.request.parts();
        let head = format!("{} /a HTTP/1.1\r\nHost: x\r\n{}{line}\r\n", self.method, self.request_lines)
            .into_bytes();
        let blank: &[u8] = if self.blank_before { b"\r\n" } else { b"" };
        let told_head = Told::Request {
            head: head.clone(),
            method: self.method.into(),
            host: b"x".to_vec(),
            path: b"/a".to_vec(),
            body: framing,
        };
        let mut told = Vec::new();
        if self.blank_before {
            told.push(Told::Framing(FramingKind::BlankLine, blank.to_vec()));
        }
        told.push(told_head);
        told.extend(body_told);
        ([blank, &head, &body].concat(), told)
    }

    /// The bytes of the responses, and what is told of them.
    fn response(&self) -> (Vec<u8>, Vec<Told>) {
        let (mut bytes, mut told) = (Vec::new(), Vec::new());
        for status in &self.interim {
            let head = format!("HTTP/1.1 {status} wait\r\n\r\n").into_bytes();
            bytes.extend(&head);
            told.extend([Told::Response { head, status: *status, body: BodyFraming::None }, Told::End]);
        }
        let (line, mut body, mut body_told, mut framing) = self.response.parts();
        if self.method == "HEAD" || self.status == 304 {
            (body, body_told, framing) = (Vec::new(), vec![Told::End], BodyFraming::None);
        }
        let head = format!("HTTP/1.1 {} x y\r\n{}{line}\r\n", self.status, self.response_lines).into_bytes();
        bytes.extend([&head[..], &body].concat());
        told.push(Told::Response { head, status: self.status, body: framing });
        told.extend(body_told);
        (bytes, told)
    }
}

fn body() -> impl Strategy<Value = Body> {
    let data = || vec(select(b"ab\r\n0:".to_vec()), 0..40);
    let some_data = vec(select(b"ab\r\n0:".to_vec()), 1..40);
    let extension = select(vec!["", ";a", ";a=\"b c\";d"]).prop_map(str::to_owned);
    let trailers = select(vec!["", "X: y\r\n", "X: y\r\nZ:\r\n"]).prop_map(str::to_owned);
    let chunks = (vec((some_data, extension), 0..4), trailers)
        .prop_map(|(chunks, trailers)| Body::Chunks(chunks, trailers));
    prop_oneof![Just(Body::None), data().prop_map(Body::Length), chunks]
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let lines = || {
        select(vec!["", "A: b\r\n", "Accept: */*\r\nCookie: a=b; c=d\r\n", "X:\r\nX: \t\r\n"])
            .prop_map(str::to_owned)
    };
    let method = select(vec!["GET", "HEAD", "POST", "get"]);
    let interim = vec(select(vec![100, 102, 103]), 0..3);
    let status = select(vec![200, 206, 304, 404, 500]);
    (method, any::<bool>(), lines(), body(), interim, status, lines(), body()).prop_map(
        |(method, blank_before, request_lines, request, interim, status, response_lines, response)| {
            // A response without a length would go on until the close.
            let response = if matches!(response, Body::None) { Body::Length(Vec::new()) } else { response };
            Exchange {
                method,
                blank_before,
                request_lines,
                request,
                interim,
                status,
                response_lines,
                response,
            }
        },
    )
}

/// A script and what is told of it: groups of pipelined requests, the last response perhaps without a length.
#[derive(Clone, Debug)]
struct Script {
    steps: Vec<Step>,
    told: [Vec<Told>; 2],
}

fn script() -> impl Strategy<Value = Script> {
    (vec(vec(exchange(), 1..5), 1..4), proptest::option::of(vec(any::<u8>(), 0..20))).prop_map(
        |(mut groups, rest)| {
            if let (Some(rest), Some(last)) = (rest, groups.last_mut().and_then(|group| group.last_mut())) {
                last.response = Body::UntilClose(rest);
            }
            let (mut steps, mut told) = (Vec::new(), [Vec::new(), Vec::new()]);
            for group in &groups {
                let [requests, responses] = [Exchange::request, Exchange::response].map(|parts| {
                    group.iter().map(parts).fold((Vec::new(), Vec::new()), |(mut bytes, mut told), more| {
                        bytes.extend(more.0);
                        told.extend(more.1);
                        (bytes, told)
                    })
                });
                let parts = [(HttpDirection::Requests, requests), (HttpDirection::Responses, responses)];
                for (direction, (bytes, more)) in parts {
                    steps.push(Step { direction, bytes, is_end: false });
                    told[direction as usize].extend(more);
                }
            }
            let count = steps.len();
            for step in &mut steps[count - 2..] {
                step.is_end = true;
            }
            Script { steps, told }
        },
    )
}

/// Changes a few bytes of a step into ones that mean something.
fn spoil(script: &mut [Step], changes: &[(Index, Index, u8)]) {
    for (step, place, byte) in changes {
        let bytes = &mut script[step.index(script.len())].bytes;
        let place = place.index(bytes.len());
        bytes[place] = *byte;
    }
}

/// Reads a script cut at the places of a mask, which is used again and again.
fn cut(script: &[Step], cuts: &[usize]) -> Reading {
    let mut reading = Reading::default();
    let mut sizes = cuts.iter().cycle();
    for step in script {
        let mut rest = &step.bytes[..];
        while let Some(size) = sizes.next().map(|size| (*size).min(rest.len())) {
            let (piece, more) = rest.split_at(size);
            rest = more;
            reading.read(step.direction, piece, step.is_end && rest.is_empty());
            if rest.is_empty() {
                break;
            }
        }
    }
    reading
}

proptest! {
    /// The generator knows the framing.
    #[test]
    fn messages_end_where_the_generator_says(script in script()) {
        let reading = Reading::of(&script.steps);
        prop_assert_eq!(&reading.told, &script.told);
    }

    /// The same pieces and the same borders, and the same refusals.
    #[test]
    fn cuts_make_no_difference(
        mut script in script(),
        changes in vec((any::<Index>(), any::<Index>(), select(b"\r\n :;\0x0HGC,\t".to_vec())), 0..3),
        cuts in vec(1..60usize, 1..20),
    ) {
        spoil(&mut script.steps, &changes);
        let whole = Reading::of(&script.steps);
        prop_assert_eq!(&cut(&script.steps, &cuts).told, &whole.told);
        prop_assert_eq!(&cut(&script.steps, &[1]).told, &whole.told);
    }
}
