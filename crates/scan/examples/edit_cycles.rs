//! What looking for edits costs: `cargo run --release -p mmb-scan --example edit_cycles`.
//!
//! Prints, for sets of texts and regexes, the time to compile and cycles of the time-stamp counter for a piece of 1,448 bytes: what `begun` takes on
//! pieces of random bytes, of a page of text, and of such that end within a text; what `next` takes on the first two, where it finds the matches that
//! there are. Then what `next` takes on streams that are made to be slow, with the bytes that are held before each piece. The best of several
//! passes is told.

use mmb_io::cycles;
use mmb_scan::{EditPatterns, EditScratch, EditStep, Pattern, PatternKind};
use std::time::Instant;

/// Bytes of a piece: a segment's payload.
const PIECE: usize = 1448;
/// Pieces of a pass.
const PIECES: usize = 500;
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

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Letters as in a page of text, the frequent ones first.
    fn letters(&mut self, len: usize) -> Vec<u8> {
        let letter = |number: u64| TEXT[(number % 53).min(number / 53 % 53) as usize];
        (0..len).map(|_| letter(self.next())).collect()
    }
}

/// Texts of that many bytes or up to twice as many.
fn texts(count: u32, shortest: usize, are_letters: bool) -> Vec<Pattern> {
    let mut sequence = Sequence(1);
    let text = |id| {
        let len = shortest + sequence.next() as usize % (shortest + 1);
        Pattern::text(id, if are_letters { sequence.letters(len) } else { sequence.bytes(len) })
    };
    (0..count).map(text).collect()
}

fn regexes(sources: &[&str]) -> Vec<Pattern> {
    sources.iter().zip(0..).map(|(source, id)| Pattern::regex(id, *source)).collect()
}

/// Cycles for a piece of the best pass.
fn cycles_a_piece(pieces: usize, mut pass: impl FnMut()) -> f64 {
    let mut best = u64::MAX;
    for _ in 0..PASSES {
        let begin = cycles::now();
        pass();
        best = best.min(cycles::now() - begin);
    }
    best as f64 / pieces as f64
}

/// What `begun` takes for each piece.
fn begun(patterns: &EditPatterns, scratch: &mut EditScratch, data: &[u8]) -> f64 {
    cycles_a_piece(PIECES, || {
        for piece in data.chunks(PIECE) {
            std::hint::black_box(patterns.begun(scratch, piece, 0, Some(b'x')));
        }
    })
}

/// Pieces of which each ends with a part of a text.
fn cut(page: &[u8], list: &[Pattern]) -> Option<Vec<u8>> {
    let text_of = |pattern: &'_ Pattern| match &pattern.kind {
        PatternKind::Text(text) => Some(text.clone()),
        PatternKind::Regex(_) => None,
    };
    let texts: Vec<_> = list.iter().filter_map(text_of).collect();
    let (mut data, mut sequence) = (page.to_vec(), Sequence(3));
    for piece in data.chunks_mut(PIECE) {
        let text = texts.get(sequence.next() as usize % texts.len().max(1))?;
        let len = (1 + sequence.next() as usize % (text.len() - 1)).min(piece.len());
        let start = piece.len() - len;
        piece[start..].copy_from_slice(&text[..len]);
    }
    Some(data)
}

/// What `next` takes for each piece until all of it is decided or held, and the number of matches in a piece.
fn next(patterns: &EditPatterns, scratch: &mut EditScratch, data: &[u8]) -> (f64, f64) {
    let mut matches = 0;
    let cycles = cycles_a_piece(PIECES, || {
        matches = 0;
        for piece in data.chunks(PIECE) {
            let mut from = 0;
            while let EditStep::Match { end, .. } = patterns.next(scratch, piece, from, Some(b'x'), false) {
                matches += 1;
                from = end;
            }
        }
    });
    (cycles, f64::from(matches) / PIECES as f64)
}

/// What a stream takes for each piece with the bytes before it that are held, by `next` alone, and the most for one piece.
fn stream(patterns: &EditPatterns, scratch: &mut EditScratch, data: &[u8]) -> (f64, u64) {
    let mut max = 0;
    let cycles = cycles_a_piece(data.len().div_ceil(PIECE), || {
        let (mut begin, mut end) = (0, 0);
        max = 0;
        while end < data.len() {
            end = data.len().min(end + PIECE);
            let (bytes, now) = (&data[begin..end], cycles::now());
            let mut from = 0;
            begin += loop {
                match patterns.next(scratch, bytes, from, Some(b'x'), false) {
                    EditStep::Nothing => break bytes.len(),
                    EditStep::Begun { start } => break start,
                    EditStep::Match { end, .. } => from = end,
                }
            };
            max = max.max(cycles::now() - now);
        }
    });
    (cycles, max)
}

fn compile(list: &[Pattern]) -> (EditPatterns, EditScratch, f64) {
    let begin = Instant::now();
    let patterns = EditPatterns::compile(list).expect("patterns");
    let milliseconds = begin.elapsed().as_secs_f64() * 1e3;
    let mut scratch = EditScratch::new();
    scratch.prepare(&patterns);
    (patterns, scratch, milliseconds)
}

fn usual() {
    let mut sequence = Sequence(2);
    let random = sequence.bytes(PIECE * PIECES);
    let page = sequence.letters(PIECE * PIECES);
    println!("| patterns | compile ms | begun, random | page | cut | next, random | page | matches |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let ten = [
        "cmd\\.exe[0-9]{1,3}",
        "<[^>]{0,30}>",
        "(?i)select .{1,20} from",
        "[0-9]{16}",
        "token=[a-f0-9]{8,32}",
    ];
    let mut lists = vec![
        ("1 text of 8 to 16 bytes", texts(1, 8, true)),
        ("10 texts", texts(10, 8, true)),
        ("100 texts", texts(100, 8, true)),
        ("1,000 texts", texts(1000, 8, true)),
        ("10,000 texts", texts(10_000, 8, true)),
        ("10,000 texts of any bytes", texts(10_000, 8, false)),
        ("1,000 in either case", texts(1000, 8, true).into_iter().map(Pattern::ignoring_case).collect()),
        ("1 text of 1,024 to 2,048", texts(1, 1024, true)),
        ("500 texts of 1,024 to 2,048", texts(500, 1024, true)),
        ("`cmd\\.exe[0-9]{1,3}`", regexes(&ten[..1])),
        ("`<[^>]{0,200}>`", regexes(&["<[^>]{0,200}>"])),
        ("`<[^>]{0,4000}>`", regexes(&["<[^>]{0,4000}>"])),
        ("`[a-z]{1,20}@[a-z]{1,20}`", regexes(&["[a-z]{1,20}@[a-z]{1,20}"])),
        ("5 regexes", regexes(&ten)),
    ];
    lists.push(("10 texts, 5 regexes", [texts(10, 8, true), regexes(&ten)].concat()));
    for (name, list) in &lists {
        let (patterns, mut scratch, milliseconds) = compile(list);
        let (next_random, _) = next(&patterns, &mut scratch, &random);
        let (next_page, matches) = next(&patterns, &mut scratch, &page);
        let cut = cut(&page, list).map(|cut| format!("{:.0}", begun(&patterns, &mut scratch, &cut)));
        println!(
            "| {name} | {milliseconds:.1} | {:.0} | {:.0} | {} | {next_random:.0} | {next_page:.0} | {matches:.2} |",
            begun(&patterns, &mut scratch, &random),
            begun(&patterns, &mut scratch, &page),
            cut.unwrap_or_default(),
        );
    }
}

fn hostile() {
    println!("\n| patterns | stream | cycles a piece | most |");
    println!("| --- | --- | ---: | ---: |");
    let a = |count: usize| "a".repeat(count);
    let lists = [
        ("`<[^>]{0,200}>`", regexes(&["<[^>]{0,200}>"]), "<"),
        ("`<[^>]{0,4000}>`", regexes(&["<[^>]{0,4000}>"]), "<"),
        ("`a.{0,100}b.{0,100}c`", regexes(&["a.{0,100}b.{0,100}c"]), "ab"),
        ("`<a[^>]{0,50}>.{0,2000}</a>`", regexes(&["<a[^>]{0,50}>.{0,2000}</a>"]), "<a>"),
        ("`[a-z]{1,20}@[a-z]{1,20}`", regexes(&["[a-z]{1,20}@[a-z]{1,20}"]), "abc"),
        ("`(?:[a-z]{1,20}\\.){1,20}com`", regexes(&["(?:[a-z]{1,20}\\.){1,20}com"]), "abcdefg."),
        ("a × 2,047 and b", vec![Pattern::text(0, a(2047) + "b"), Pattern::text(1, a(999) + "c")], "a"),
        (
            "the same",
            vec![Pattern::text(0, a(2047) + "b"), Pattern::text(1, a(999) + "c")],
            "aaaaaaaaaaaaaaaaad",
        ),
        ("a × 64 and b", vec![Pattern::text(0, a(64) + "b")], "a"),
    ];
    for (name, list, part) in lists {
        let (patterns, mut scratch, _) = compile(&list);
        let data = part.repeat(PIECE * 40 / part.len());
        let (cycles, max) = stream(&patterns, &mut scratch, data.as_bytes());
        println!("| {name} | `{part}`… | {cycles:.0} | {max} |");
    }
}

fn main() {
    usual();
    hostile();
}
