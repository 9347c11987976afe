//! What scanning costs: `cargo run --release -p mmb-scan --example cycles`.
//!
//! Prints, for sets of random texts of 8 to 24 bytes of some alphabet, and such with regexes, the time to compile, the bytes of a stream's state,
//! and cycles of the time-stamp counter a byte on pieces of 1,448 bytes that match nothing: bytes of a page of text, and of the alphabet of the texts.
//! The best of several passes is told, over one stream and over 1,000 streams in turn.

use mmb_io::cycles;
use mmb_scan::{Pattern, PatternSet, Scanner};
use std::ops::ControlFlow;
use std::time::Instant;

/// Bytes of a piece: a segment's payload.
const PIECE: usize = 1448;
/// Pieces of a pass.
const PIECES: usize = 2000;
/// Passes, of which the best is told.
const PASSES: usize = 9;
/// Characters of a page of text, and how they come.
const TEXT: &[u8] = b" etaoinshrdlucmfwypvbgkjqxzETAOIN.,\r\n0123456789<>/=\"-:;";

/// A sequence that repeats from its seed (SplitMix64).
struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn of(&mut self, alphabet: &[u8], len: usize) -> Vec<u8> {
        (0..len).map(|_| alphabet[(self.next() >> 8) as usize % alphabet.len()]).collect()
    }
}

fn patterns(texts: u32, regexes: u32, alphabet: &[u8]) -> Vec<Pattern> {
    let mut sequence = Sequence(1);
    let mut patterns = Vec::new();
    for id in 0..texts {
        let len = 8 + sequence.next() % 17;
        let text = sequence.of(alphabet, len as usize);
        patterns.push(Pattern::text(id, text));
    }
    for id in 0..regexes {
        patterns.push(Pattern::regex(texts + id, format!("(?i)cmd{id}\\.exe[0-9]{{1,3}}[a-f]+x")));
    }
    patterns
}

/// Cycles a byte of the best pass over that many streams in turn.
fn cycles_a_byte(set: &PatternSet, streams: usize, data: &[u8]) -> f64 {
    let mut scanner = Scanner::new(set.pool_bytes(streams)).expect("memory");
    scanner.prepare(set).expect("memory");
    let mut states: Vec<_> = (0..streams).map(|_| scanner.open(set).expect("room")).collect();
    let mut best = u64::MAX;
    for _ in 0..PASSES {
        let begin = cycles::now();
        for (number, piece) in data.chunks(PIECE).enumerate() {
            let state = &mut states[number % streams];
            let _ = scanner.scan(state, piece, &mut |_, _| ControlFlow::Continue(()));
        }
        best = best.min(cycles::now() - begin);
    }
    best as f64 / data.len() as f64
}

/// Cycles to open and close a state.
fn cycles_a_state(set: &PatternSet) -> f64 {
    const STATES: usize = 1000;
    let mut scanner = Scanner::new(set.pool_bytes(STATES)).expect("memory");
    scanner.prepare(set).expect("memory");
    let mut states = Vec::with_capacity(STATES);
    let mut best = u64::MAX;
    for _ in 0..PASSES {
        let begin = cycles::now();
        states.extend((0..STATES).map(|_| scanner.open(set).expect("room")));
        states.drain(..).for_each(|state| scanner.close(state));
        best = best.min(cycles::now() - begin);
    }
    best as f64 / STATES as f64
}

fn main() {
    let all: Vec<u8> = (0..=255).collect();
    let alphabets = [
        ("bytes", &all[..]),
        ("letters", b"abcdefghijklmnopqrstuvwxyz"),
        ("hex digits", b"0123456789abcdef"),
    ];
    let page = Sequence(2).of(TEXT, PIECE * PIECES);
    println!(
        "| texts | of | regexes | compile ms | state B | page c/B | of the same c/B | 1,000 streams c/B | open + close |"
    );
    println!("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let numbers = [(1, 0), (10, 0), (100, 0), (1000, 0), (10_000, 0), (0, 10), (100, 10), (10_000, 10)];
    for (texts, regexes) in numbers {
        for (name, alphabet) in alphabets {
            let list = patterns(texts, regexes, alphabet);
            let alike = Sequence(3).of(alphabet, PIECE * PIECES);
            let begin = Instant::now();
            let set = PatternSet::compile(&list).expect("patterns");
            let milliseconds = begin.elapsed().as_secs_f64() * 1e3;
            println!(
                "| {texts} | {name} | {regexes} | {milliseconds:.1} | {} | {:.3} | {:.3} | {:.3} | {:.0} |",
                set.state_bytes(),
                cycles_a_byte(&set, 1, &page),
                cycles_a_byte(&set, 1, &alike),
                cycles_a_byte(&set, 1000, &alike),
                cycles_a_state(&set)
            );
        }
    }
}
