//! What an idle stream takes beside its connection: counted by the allocator, and the state of its search in the pool that is got once.

mod counting;
#[path = "it/host/mod.rs"]
mod host;

use counting::{LIVE, PEAK};
use host::{policy, ports};
use mmb_engine::{EDIT_RECORD_BYTES, EDITED_STREAM_BYTES, Engine, NoCycles, STREAM_BYTES, Verdict, Worker};
use mmb_packet::{LinkType, Packet, PortId};
use mmb_random::SeedTree;
use mmb_scan::{Pattern, PatternSet};
use mmb_testkit::{Ip4, Tcp, Upper};
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering::Relaxed;

/// From so many streams on, what the tables take in any case is little beside them.
const MEASURED_FROM: u32 = 20_000;
/// Tables that double do so in between.
const MANY: u32 = 40_000;
/// Streams between two looks at the memory.
const STEP: u32 = 100;
/// So many make the worker take what it takes for any.
const FIRST: u32 = 64;
const LITERALS: u32 = 100;
const ISN: [u32; 2] = [100, 200];

fn segment(number: u32, from: usize, flags: u8, at: [u32; 2], payload: &[u8]) -> Vec<u8> {
    let client = (Ipv4Addr::from(0x0a00_0000 + number), 5000);
    let server = (Ipv4Addr::new(192, 0, 2, 1), 80);
    let [source, destination] = if from == 0 { [client, server] } else { [server, client] };
    let seq = ISN[from] + at[from];
    let ack = if flags & 0x10 == 0 { 0 } else { ISN[1 - from] + at[1 - from] };
    let payload = payload.to_vec();
    let segment = Tcp { sport: source.1, dport: destination.1, flags, seq, ack, payload, ..Tcp::default() };
    Ip4 { source: source.0, destination: destination.0, ..Ip4::new(Upper::Tcp(segment)) }.frame().bytes()
}

fn passes(worker: &mut Worker, from: usize, mut frame: Vec<u8>) {
    let len = frame.len();
    let mut packets =
        [Packet::new(&mut frame, 0, len, PortId(from as u16), LinkType::Ethernet).expect("a frame")];
    let mut verdicts = [Verdict::Send(PortId(9))];
    worker.process(1_000_000_000, &NoCycles, &mut packets, &mut verdicts);
    assert_eq!(verdicts[0], Verdict::Send(PortId(1 - from as u16)));
}

/// A connection whose both ends have sent something that is acknowledged.
fn rests(worker: &mut Worker, number: u32) {
    passes(worker, 0, segment(number, 0, 0x02, [0, 0], b""));
    passes(worker, 1, segment(number, 1, 0x12, [1, 0], b""));
    passes(worker, 0, segment(number, 0, 0x10, [1, 1], b"a request"));
    passes(worker, 1, segment(number, 1, 0x10, [10, 1], b"an answer"));
    passes(worker, 0, segment(number, 0, 0x10, [10, 10], b""));
}

fn literals() -> Vec<String> {
    (0..LITERALS).map(|number| format!("{:x}literal", number.wrapping_mul(0x9e37_79b9))).collect()
}

/// The bytes that connections have taken at most so far, at every step from `MEASURED_FROM` on.
fn taken(rule: &str) -> Vec<usize> {
    let (mut engine, mut workers) = Engine::new(ports(), 1, &SeedTree::repeatable(1));
    let text = format!("set conn max 1000000\nset stream max 1000000\nset stream memory 16\n{rule}");
    engine.publish(&policy(&text)).expect("it can be put in force");
    (0..FIRST).for_each(|number| rests(&mut workers[0], number));
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let mut taken = Vec::with_capacity(((MANY - MEASURED_FROM) / STEP) as usize + 1);
    for number in 1..=MANY {
        rests(&mut workers[0], FIRST + number);
        if number >= MEASURED_FROM && number % STEP == 0 {
            taken.push(PEAK.load(Relaxed) - before);
        }
    }
    taken
}

#[test]
fn an_idle_stream_takes_no_more_than_documented() {
    let literals = literals();
    let patterns: Vec<Pattern> =
        literals.iter().zip(0..).map(|(text, id)| Pattern::text(id, text.as_bytes())).collect();
    let state = PatternSet::compile(&patterns).expect("plain texts").state_bytes();
    let texts = literals.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(", ");
    let promised = STREAM_BYTES as usize;
    let alone = taken("add-stateful tcp-dport 80 accept");
    let edited = EDITED_STREAM_BYTES as usize;
    for (name, target, searched, promised) in [
        ("stream-forward", "close", 1, promised),
        ("stream", "close", 2, promised + state),
        ("stream-forward", "strip stream-forward", 1, edited),
        // With an edit, all of it acknowledged.
        ("stream-forward", "mask stream-forward", 1, edited + EDIT_RECORD_BYTES as usize),
    ] {
        let found = if target.starts_with("mask") { ", \"request\"" } else { "" };
        let with = taken(&format!("add-stateful tcp-dport 80 {name} {{{texts}{found}}} {target}"));
        let streams = (MEASURED_FROM as usize..).step_by(STEP as usize);
        let each = with.iter().zip(&alone).zip(streams).map(|((with, alone), count)| (with - alone) / count);
        let max = each.max().expect("some steps") + searched * state;
        println!(
            "{name} {target}: {max} bytes at most, {} of them {searched} states of the search",
            searched * state
        );
        assert!(max <= promised, "{name} {target}: {max}");
    }
}
