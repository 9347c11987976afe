//! Patterns match in streams of pieces where the oracles find them in whole streams.

use crate::oracle::{Matches, matches};
use mmb_scan::{Pattern, PatternKind, PatternSet, ScanEnd, Scanner};
use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::ControlFlow;

/// Few bytes, so that much matches: letters of both cases, a digit, the end of a line, zero, and one that is not ASCII.
const BYTES: &[u8] = b"abcABC1.\n\r\0\xff";

fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![8 => proptest::sample::select(BYTES), 1 => any::<u8>()]
}

fn text() -> impl Strategy<Value = PatternKind> {
    prop_oneof![vec(byte(), 1..4), vec(byte(), 1..20)].prop_map(PatternKind::Text)
}

/// A small regex: bytes, classes, groups, alternations, bounded and unbounded repetitions, either case for a part.
fn regex_part() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        byte().prop_map(|byte| format!("\\x{byte:02x}")),
        proptest::sample::select(vec![
            "a",
            "b",
            "A",
            ".",
            "[ab]",
            "[^a]",
            "[b-cB]",
            "\\d",
            "\\w",
            "\\W",
            "\\s",
            "(?s:.)",
            "(?i:ab)",
            "(?i:[^b])",
            "[[:upper:]]",
            "\\x00",
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let repeated = (inner.clone(), 0..4_u32, 0..4_u32, 0..6, any::<bool>());
        prop_oneof![
            vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
            vec(inner, 1..4).prop_map(|parts| format!("(?:{})", parts.join("|"))),
            repeated.prop_map(|(part, min, more, kind, is_lazy)| {
                let count = match kind {
                    0 => "*".to_owned(),
                    1 => "+".to_owned(),
                    2 => "?".to_owned(),
                    3 => format!("{{{min},}}"),
                    4 => format!("{{{min}}}"),
                    _ => format!("{{{min},{}}}", min + more),
                };
                format!("({part}){count}{}", if is_lazy { "?" } else { "" })
            }),
        ]
    })
}

fn regex() -> impl Strategy<Value = PatternKind> {
    let start = proptest::sample::select(vec!["", "", "", "", "^", "\\A", "(?m)^", "(?:^|a)"]);
    let end = proptest::sample::select(vec!["", "", "", "", "", "$", "\\z"]);
    (start, regex_part(), end)
        .prop_map(|(start, part, end)| PatternKind::Regex(format!("{start}(?:{part}){end}")))
}

fn patterns() -> impl Strategy<Value = Vec<Pattern>> {
    let pattern = (prop_oneof![text(), regex()], any::<bool>());
    vec(pattern, 1..8).prop_map(|patterns| {
        let pattern = |((kind, ignores_case), id)| Pattern { kind, ignores_case, id };
        patterns.into_iter().zip(0..).map(pattern).collect()
    })
}

/// A stream of runs of one byte, which the matcher skips by vectors, and of others; and where it is cut.
fn stream() -> impl Strategy<Value = (Vec<u8>, Vec<usize>)> {
    let run = prop_oneof![4 => vec(byte(), 0..30), 1 => (byte(), 1..100_usize).prop_map(|(byte, len)| vec![byte; len])];
    let length = prop_oneof![4 => 1..20_usize, 1 => 20..200_usize];
    (vec(run, 0..6).prop_map(|runs| runs.concat()), vec(length, 1..8))
}

/// The matches in a stream that arrives in pieces of these lengths, in turn. Checks their order, and that none comes late or twice.
fn scan(set: &PatternSet, stream: &[u8], lengths: &[usize], is_finished: bool) -> Matches {
    let mut scanner = Scanner::new(1).expect("memory");
    scanner.prepare(set).expect("memory");
    let mut state = scanner.open(set).expect("room");
    let (mut found, mut last, mut begin) = (Matches::new(), 0, 0_usize);
    let mut add = |id, end, begin: usize, stop: usize| {
        assert!(end >= last && end > begin as u64 && end <= stop as u64, "{end} in {begin}..{stop}");
        assert!(found.insert((end, id)), "{id} at {end} is told twice");
        last = end;
        ControlFlow::Continue(())
    };
    for length in lengths.iter().cycle() {
        let stop = stream.len().min(begin + length);
        let end = scanner.scan(&mut state, &stream[begin..stop], &mut |id, end| add(id, end, begin, stop));
        assert_eq!(end, ScanEnd::AllScanned);
        begin = stop;
        if begin == stream.len() {
            break;
        }
    }
    if is_finished {
        let last = stream.len().saturating_sub(1);
        let end = scanner.finish(state, &mut |id, end| add(id, end, last, stream.len()));
        assert_eq!(end, ScanEnd::AllScanned);
    } else {
        scanner.close(state);
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn pieces_of_any_size_match_as_the_whole(patterns in patterns(), (bytes, lengths) in stream(), is_finished: bool) {
        let set = PatternSet::compile(&patterns);
        prop_assume!(set.is_ok());
        let set = set.expect("checked");
        let mut stream = bytes;
        // Texts occur now and then.
        for pattern in &patterns {
            if let PatternKind::Text(text) = &pattern.kind {
                let at = stream.len() / 2;
                stream.splice(at..at, text.iter().copied());
            }
        }
        let expected = matches(&patterns, &stream, is_finished);
        for lengths in [&lengths[..], &[1], &[usize::MAX / 2], &[2, 7]] {
            let found = scan(&set, &stream, lengths, is_finished);
            prop_assert_eq!(&found, &expected, "{:?} in pieces of {:?}", stream, lengths);
        }
    }

    #[test]
    fn every_cut_in_two_matches_as_the_whole(patterns in patterns(), (stream, _) in stream()) {
        let set = PatternSet::compile(&patterns);
        prop_assume!(set.is_ok());
        let set = set.expect("checked");
        let expected = matches(&patterns, &stream, false);
        for cut in 1..=stream.len().min(40) {
            prop_assert_eq!(&scan(&set, &stream, &[cut, stream.len()], false), &expected, "cut at {}", cut);
        }
    }
}

/// Enough texts that most of a set is found by samples, none of which occurs.
fn filling(len: usize) -> impl Iterator<Item = Pattern> {
    (0..1100_usize).map(move |number| {
        let unlikely =
            (0..len).map(|at| 0x80 | (number * 31).wrapping_shr(at as u32 * 3 % 11) as u8 | at as u8);
        Pattern::text(1000 + number as u32, unlikely.collect::<Vec<_>>())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn many_texts_beside_others_match_as_the_whole(
        some in patterns(),
        long in vec((vec(byte(), 8..130), any::<bool>()), 1..8),
        filling_len in proptest::sample::select(vec![5_usize, 8, 13]),
        (bytes, lengths) in stream(),
        is_finished: bool
    ) {
        let long = long.into_iter().zip(100..);
        let long = long.map(|((text, ignores_case), id)| Pattern { kind: PatternKind::Text(text), ignores_case, id });
        let real: Vec<Pattern> = some.into_iter().chain(long).collect();
        let all: Vec<Pattern> = real.iter().cloned().chain(filling(filling_len)).collect();
        let set = PatternSet::compile(&all);
        prop_assume!(set.is_ok());
        let set = set.expect("checked");
        let mut stream = bytes;
        for pattern in &real {
            if let PatternKind::Text(text) = &pattern.kind {
                let at = stream.len() / 2;
                stream.splice(at..at, text.iter().copied());
            }
        }
        let expected = matches(&all, &stream, is_finished);
        for lengths in [&lengths[..], &[1], &[usize::MAX / 2], &[2, 7, 300]] {
            prop_assert_eq!(&scan(&set, &stream, lengths, is_finished), &expected, "in pieces of {:?}", lengths);
        }
    }
}

/// Vectorscan's search with AVX2 and AVX-512 overlooks these.
#[test]
fn a_match_at_the_end_of_a_piece_is_not_overlooked() {
    let patterns = [Pattern::regex(0, "(?m)^(?:[ABab]|\\x01[0-9])")];
    let set = PatternSet::compile(&patterns).expect("a regex");
    for len in 2..200_usize {
        let stream = [&vec![b'a'; len][..], b"\na"].concat();
        assert_eq!(scan(&set, &stream, &[2, 300], false), [(1, 0), (len as u64 + 2, 0)].into(), "{len}");
    }
    let patterns = [b"\x001b".to_vec(), b"bAba".to_vec(), b"B\xffa".to_vec()];
    let patterns: Vec<_> = patterns.into_iter().zip(0..).map(|(text, id)| Pattern::text(id, text)).collect();
    for pattern in &patterns {
        let set = PatternSet::compile(std::slice::from_ref(pattern)).expect("a text");
        let PatternKind::Text(text) = &pattern.kind else { continue };
        for (fill, len) in text.iter().flat_map(|byte| (0..400_usize).map(move |len| (*byte, len))) {
            let stream = [&vec![fill; len][..], text, &vec![fill; len % 64]].concat();
            let expected = matches(std::slice::from_ref(pattern), &stream, false);
            for cut in [1, 64, 72, 184] {
                assert_eq!(
                    scan(&set, &stream, &[cut, 1000], false),
                    expected,
                    "{text:?} behind {len} of {fill}"
                );
            }
        }
    }
}

#[test]
fn most_patterns_of_the_property_tests_are_not_refused() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let strategy = regex();
    let is_taken = |kind| {
        let pattern = Pattern { kind, ignores_case: false, id: 0 };
        PatternSet::compile(std::slice::from_ref(&pattern)).is_ok()
    };
    let taken =
        (0..500).filter(|_| is_taken(strategy.new_tree(&mut runner).expect("a regex").current())).count();
    assert!(taken > 250, "{taken} of 500");
}

#[test]
fn texts_of_every_length_are_found_across_pieces() {
    for length in [1, 2, 3, 7, 8, 9, 31, 64, 500, mmb_scan::MAX_TEXT_BYTES] {
        let text: Vec<u8> = (0..length).map(|at| (at * 7 % 256) as u8).collect();
        let patterns = [Pattern::text(7, text.clone()), Pattern::text(8, [0])];
        let set = PatternSet::compile(&patterns).expect("a text");
        let stream = [&b"x"[..], &text, &text, b"y"].concat();
        let expected = matches(&patterns, &stream, false);
        for lengths in [&[1][..], &[5, 11], &[1448]] {
            assert_eq!(scan(&set, &stream, lengths, false), expected, "{length} bytes");
        }
    }
}

#[test]
fn ten_thousand_texts_match_as_the_oracle_has_it() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as u8
    };
    let text = |next: &mut dyn FnMut() -> u8| -> Vec<u8> { (0..8 + next() % 17).map(|_| next()).collect() };
    let patterns: Vec<_> = (0..10_000).map(|id| Pattern::text(id, text(&mut next))).collect();
    let set = PatternSet::compile(&patterns).expect("texts");
    let mut stream: Vec<u8> = (0..20_000).map(|_| next()).collect();
    for pattern in patterns.iter().step_by(37) {
        if let PatternKind::Text(text) = &pattern.kind {
            stream.extend(text);
        }
    }
    let expected = matches(&patterns, &stream, false);
    assert!(expected.len() >= 270);
    for lengths in [&[1448][..], &[1, 2, 3, 50]] {
        assert_eq!(scan(&set, &stream, lengths, false), expected);
    }
}
