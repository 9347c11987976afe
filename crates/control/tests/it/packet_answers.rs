//! Packets as clients see them: `trace` and `capture`; and clients that do not read, or that disconnect meanwhile.

use crate::common::{FOREVER, Running, raw, start};
use mmb_protocol::hex;
use mmb_protocol::request::{Request, encode};
use mmb_testkit::{Frame, Tcp, Udp};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn udp(dport: u16) -> Frame {
    Udp { dport, ..Udp::default() }.over_ip4()
}

fn wire(command: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    encode(&Request::Run(vec![command.to_owned()]), &mut wire).expect("a vector takes everything");
    wire
}

/// A client after its `trace` or `capture` has begun.
struct Looking {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Looking {
    fn begin(mmb: &Running, command: &str) -> Looking {
        let stream = mmb.stream();
        (&stream).write_all(&wire(command)).expect("writes");
        let lines = BufReader::new(stream.try_clone().expect("clones"));
        let mut looking = Looking { stream, lines };
        assert!(looking.next().get("begin").is_some());
        let tap = looking.next();
        assert_eq!(tap["tap"]["ports"], json!(["lan", "wan"]), "{tap}");
        looking
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).expect("JSON")
    }
}

#[test]
fn a_trace_tells_rules_verdict_and_edits() {
    let mmb = start(
        "add id 1 udp-dport 53 mod ip-ttl 9\nadd id 2 udp-dport 54 drop\nadd-stateful id 3 ip-proto tcp accept",
    );
    let _packets = mmb.packets();
    let mut trace = Looking::begin(&mmb, "trace in lan count 4");
    let syn = Tcp { flags: 2, ..Tcp::default() }.dport(80).over_ip4();
    mmb.feed(&[udp(53), udp(54), syn]);
    mmb.feed_bytes(&mut [udp(53).bytes()[..20].to_vec()]);
    let told: Vec<Value> = (0..4).map(|_| trace.next()["traced"].take()).collect();
    assert_eq!(trace.next(), json!({"end": {"v": 1, "ok": true}}), "it ends after as many packets");
    let rules = |told: &Value| {
        told["rules"].as_array().expect("rules").iter().map(|rule| rule["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(rules(&told[0]), [json!(1)]);
    assert_eq!((&told[0]["verdict"], &told[0]["out"]), (&json!("passes"), &json!("wan")));
    assert_eq!(told[0]["edits"], json!([{"field": "ip-ttl", "before": "64", "after": "9"}]));
    assert_eq!(told[0]["rules"][0]["rule"], "add udp-dport 53 mod ip-ttl 9");
    assert_eq!(
        (&told[1]["verdict"], &told[1]["reason"], &told[1]["decisive"]),
        (&json!("dropped"), &json!("rule"), &json!(2))
    );
    assert_eq!(
        (&told[2]["connection"]["new"], &told[2]["connection"]["state"]),
        (&json!(true), &json!("syn-sent"))
    );
    assert_eq!(told[3]["verdict"], "dropped");
    assert_eq!(told[3]["reason"], told[3]["packet"]["malformed"]);
    // The time of day.
    assert!(told[0]["time_ns"].as_u64().expect("a time") > 1_600_000_000_000_000_000);
}

#[test]
fn a_capture_has_the_bytes_at_its_points() {
    let mmb = start("add id 1 udp-dport 53 mod ip-ttl 9\nadd id 2 udp-dport 54 drop");
    let _packets = mmb.packets();
    let mut capture = Looking::begin(&mmb, "capture udp-dport 53-54 at rx at tx at drop snaplen 30");
    let mut frames = [udp(53).bytes(), udp(54).bytes(), udp(55).bytes()];
    let sent = frames.clone();
    mmb.feed_bytes(&mut frames);
    let mut next = || {
        let line = capture.next()["captured"].take();
        let bytes = hex::decode(line["bytes"].as_str().expect("text")).expect("hexadecimal");
        assert_eq!(line["len"], sent[0].len());
        (line["at"].clone(), line["port"].clone(), bytes)
    };
    assert_eq!(next(), (json!("rx"), json!("lan"), sent[0][..30].to_vec()));
    assert_eq!(next(), (json!("tx"), json!("wan"), frames[0][..30].to_vec()));
    assert_eq!(next(), (json!("rx"), json!("lan"), sent[1][..30].to_vec()));
    assert_eq!(next(), (json!("drop"), json!("lan"), sent[1][..30].to_vec()));
    // A request ends it.
    (&capture.stream).write_all(&wire("show version")).expect("writes");
    assert!(capture.next().get("end").is_some());
    assert!(capture.next().get("begin").is_some());
}

#[test]
fn what_cannot_be_looked_at_is_named() {
    let mmb = start("");
    let _packets = mmb.packets();
    let refused = |command| mmb.refused(&[command]).remove(0).message;
    assert_eq!(refused("trace in wam"), "no port is called 'wam'; the ports are lan, wan");
    assert_eq!(refused("capture reason no-wier"), "unknown drop reason 'no-wier'; did you mean 'no-wire'?");
    assert!(refused("trace ct new").contains("as they are received"));
}

#[test]
fn the_number_of_those_who_look_is_limited_and_recovers() {
    let mmb = start("");
    let _packets = mmb.packets();
    let looking: Vec<Looking> = (0..4).map(|_| Looking::begin(&mmb, "trace")).collect();
    assert!(mmb.refused(&["trace"])[0].message.contains("the limit of clients"));
    drop(looking);
    let since = Instant::now();
    loop {
        // Who has sent another request ahead looks for no time.
        let lines = raw(&mmb.stream(), &[wire("trace"), wire("list")].concat());
        if lines.iter().any(|line| line.get("tap").is_some()) {
            break;
        }
        assert!(since.elapsed() < FOREVER, "{lines:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A client that does not read loses packets, which are counted when it reads again; the worker goes on.
#[test]
fn a_client_that_does_not_read_gets_the_number_of_packets_that_were_left_out() {
    let mmb = start("");
    let _packets = mmb.packets();
    let mut capture = Looking::begin(&mmb, "capture at rx");
    let frames: Vec<Frame> = (0..200)
        .map(|number| Udp { sport: number, payload: vec![7; 1400], ..Udp::default() }.over_ip4())
        .collect();
    let rounds = 100;
    for _ in 0..rounds {
        mmb.feed(&frames);
    }
    let (mut captured, mut lost) = (0, 0);
    while captured + lost < rounds * frames.len() as u64 {
        let line = capture.next();
        match line.get("lost").and_then(Value::as_u64) {
            Some(count) => lost += count,
            None => captured += u64::from(line.get("captured").is_some()),
        }
    }
    assert_eq!(captured + lost, rounds * frames.len() as u64);
    assert!(lost > 0, "the queue and the socket have room for {captured}");
}
