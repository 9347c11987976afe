//! Edits of streams that arrive in pieces are those of whole streams, and each step is what its definition says.

use crate::edit_oracle::{Edit, StepOracle, WholeOracle};
use mmb_scan::{EditPatterns, EditScratch, EditStep, Pattern, PatternKind};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

/// Few bytes, so that much matches and is begun.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![
        8 => proptest::sample::select(&b"ab"[..]),
        3 => proptest::sample::select(&b"ABc<>\n\0\xff"[..]),
        1 => any::<u8>(),
    ]
}

fn text() -> impl Strategy<Value = PatternKind> {
    prop_oneof![vec(byte(), 1..4), vec(byte(), 1..12), vec(proptest::sample::select(&b"ab"[..]), 1..90)]
        .prop_map(PatternKind::Text)
}

/// A small regex whose matches have a bound.
fn regex_part() -> impl Strategy<Value = String> {
    let classes =
        ["a", "b", "A", ".", "[ab]", "[^a]", "[^>]", "<", "[b-cB]", "(?s:.)", "(?i:ab)", "\\x00", "\\n"];
    let leaf = prop_oneof![
        1 => byte().prop_map(|byte| format!("\\x{byte:02x}")),
        3 => proptest::sample::select(classes.to_vec()).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 20, 4, |inner| {
        let repeated = (inner.clone(), 0..4_u32, 0..5_u32, any::<bool>());
        prop_oneof![
            vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
            vec(inner, 1..4).prop_map(|parts| format!("(?:{})", parts.join("|"))),
            repeated.prop_map(|(part, min, more, is_lazy)| {
                format!("({part}){{{min},{}}}{}", min + more, if is_lazy { "?" } else { "" })
            }),
        ]
    })
}

fn regex() -> impl Strategy<Value = PatternKind> {
    let start = vec![
        "",
        "",
        "",
        "",
        "",
        "^",
        "\\A",
        "(?m)^",
        "(?:^|a)",
        "a(?m:^)",
        "(?:(?m:^)|\\n){1,2}",
        "\\n?(?m:^)",
    ];
    (proptest::sample::select(start), regex_part())
        .prop_map(|(start, part)| PatternKind::Regex(format!("{start}(?:{part})")))
}

fn pattern_list(kind: impl Strategy<Value = PatternKind>) -> impl Strategy<Value = Vec<Pattern>> {
    vec((kind, any::<bool>()), 1..7).prop_map(|patterns| {
        let pattern = |((kind, ignores_case), id)| Pattern { kind, ignores_case, id };
        patterns.into_iter().zip(0..).map(pattern).collect()
    })
}

fn patterns() -> impl Strategy<Value = Vec<Pattern>> {
    prop_oneof![pattern_list(text()), pattern_list(regex()), pattern_list(prop_oneof![text(), regex()])]
}

/// A stream with parts of the patterns in it.
fn stream(patterns: &[Pattern], runs: &[Vec<u8>], cuts: &[(usize, usize)]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        stream.extend(run);
        let (which, cut) = cuts[index % cuts.len()];
        if let PatternKind::Text(text) = &patterns[which % patterns.len()].kind {
            stream.extend(&text[..text.len() - cut % text.len()]);
        }
    }
    stream
}

fn runs() -> impl Strategy<Value = (Vec<Vec<u8>>, Vec<(usize, usize)>)> {
    (
        vec(vec(byte(), 0..12), 1..6),
        vec((any::<usize>(), prop_oneof![Just(0_usize), Just(1), any::<usize>()]), 1..6),
    )
}

/// The undecided bytes of a stream, and what was decided.
struct Stream<'patterns> {
    patterns: &'patterns EditPatterns,
    scratch: EditScratch,
    oracle: &'patterns StepOracle,
    held: Vec<u8>,
    /// Where they begin in the stream.
    begin: usize,
    before: Option<u8>,
    edits: Vec<Edit>,
}

impl<'patterns> Stream<'patterns> {
    fn new(patterns: &'patterns EditPatterns, oracle: &'patterns StepOracle) -> Stream<'patterns> {
        let mut scratch = EditScratch::new();
        scratch.prepare(patterns);
        Stream { patterns, scratch, oracle, held: Vec::new(), begin: 0, before: None, edits: Vec::new() }
    }

    /// Takes the next bytes, and decides what can be.
    fn take(&mut self, bytes: &[u8], is_end: bool) {
        self.held.extend(bytes);
        let mut from = 0;
        loop {
            let has_match = self.oracle.next(&self.held, from, self.before, true) != EditStep::Nothing;
            let step = if has_match || is_end {
                self.patterns.next(&mut self.scratch, &self.held, from, self.before, is_end)
            } else {
                let begun = self.patterns.begun(&mut self.scratch, &self.held, from, self.before);
                begun.map_or(EditStep::Nothing, |start| EditStep::Begun { start })
            };
            match step {
                EditStep::Nothing => return self.pass(self.held.len()),
                EditStep::Begun { start } => return self.pass(start),
                EditStep::Match { start, end, id } => {
                    self.edits.push((self.begin + start, self.begin + end, id));
                    from = end;
                }
            }
        }
    }

    fn pass(&mut self, len: usize) {
        self.before = self.held[..len].last().copied().or(self.before);
        self.held.drain(..len);
        self.begin += len;
        assert!(self.held.len() < self.patterns.longest(), "{} bytes are held", self.held.len());
    }
}

/// The edits of a stream that arrives in pieces of these lengths, in turn.
fn edits_of_pieces(
    patterns: &EditPatterns,
    oracle: &StepOracle,
    stream: &[u8],
    lengths: &[usize],
) -> Vec<Edit> {
    let mut undecided = Stream::new(patterns, oracle);
    let mut rest = stream;
    for length in lengths.iter().cycle() {
        let (piece, behind) = rest.split_at(rest.len().min(*length));
        rest = behind;
        undecided.take(piece, false);
        if rest.is_empty() {
            break;
        }
    }
    undecided.take(&[], true);
    undecided.edits
}

/// Compares the edits of a stream in pieces with those of the oracle. Every cut in two is tried in streams of up to 60 bytes.
fn compare(patterns: &[Pattern], stream: &[u8], lengths: &[usize]) {
    let compiled = EditPatterns::compile(patterns).expect("patterns");
    let (whole, step) = (WholeOracle::new(patterns), StepOracle::new(patterns));
    let expected = whole.edits(stream);
    for lengths in [lengths, &[1], &[usize::MAX], &[2, 7]] {
        let edits = edits_of_pieces(&compiled, &step, stream, lengths);
        assert_eq!(edits, expected, "{patterns:?} in {stream:?} in pieces of {lengths:?}");
    }
    for cut in 1..stream.len().min(60) {
        let edits = edits_of_pieces(&compiled, &step, stream, &[cut, stream.len()]);
        assert_eq!(edits, expected, "{patterns:?} in {stream:?}, cut at {cut}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn every_step_is_what_its_definition_says(
        patterns in patterns(),
        (runs, cuts) in runs(),
        from in 0..40_usize,
        before in prop_oneof![Just(None), Just(Some(b'\n')), Just(Some(b'a'))],
    ) {
        let compiled = EditPatterns::compile(&patterns);
        prop_assume!(compiled.is_ok());
        let compiled = compiled.expect("checked");
        let mut scratch = EditScratch::new();
        scratch.prepare(&compiled);
        let oracle = StepOracle::new(&patterns);
        let stream = stream(&patterns, &runs, &cuts);
        for from in [0, from.min(stream.len()), stream.len()] {
            for is_end in [false, true] {
                let step = compiled.next(&mut scratch, &stream, from, before, is_end);
                prop_assert_eq!(step, oracle.next(&stream, from, before, is_end), "{:?} from {}", &stream, from);
            }
            let begun = compiled.begun(&mut scratch, &stream, from, before);
            prop_assert_eq!(begun, oracle.begun(&stream, from, before), "{:?} from {}", &stream, from);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn pieces_of_any_size_are_edited_as_the_whole(
        patterns in patterns(),
        (runs, cuts) in runs(),
        lengths in vec(prop_oneof![1..8_usize, 8..60_usize], 1..6),
    ) {
        prop_assume!(EditPatterns::compile(&patterns).is_ok());
        compare(&patterns, &stream(&patterns, &runs, &cuts), &lengths);
    }
}

#[test]
fn hostile_streams_are_edited_as_the_whole() {
    let regexes: &[&[&str]] = &[
        &["aa"],
        &["a{1,20}"],
        &["a{2,3}b{0,5}"],
        &["<[^>]{0,30}>"],
        &["abcde", "bc"],
        &["abcde", "bcd", "cdx", "e", "dx{0,3}"],
        &["ab|abab|ababab", "(?i)B[AB]{3}"],
        &["(?:a|ab)(?:c|bcd){0,2}", "b"],
        &["\\x00{2,4}", "\\x00a"],
        &["a.{0,8}b", "b.{0,8}a"],
        &["(?m)^a{1,3}", "^b"],
        &["[ab]{3}a[ab]{3}"],
        &["a.{0,3}b.{1,4}a", "(?:a.{0,2}b){1,3}"],
        &["(?:[ab]{1,3}c?){2,4}c"],
    ];
    let streams: &[&[u8]] = &[
        b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        b"abababababababababababababaababababababaabbbaabbaba",
        b"<a><<b><ccccccccccccccccccccccccccccccc><<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<>>",
        b"abcdabcdeabcabcdxbcabcdxxxxabcdabcde",
        b"ABABabBabABAbbaBAbaabcbcdabcbcdbc",
        b"\0\0\0\0\0a\0a\0\0\0\0a",
        b"b\naa\naaaa\n\nab\nb",
    ];
    for sources in regexes {
        let patterns: Vec<_> =
            sources.iter().zip(0..).map(|(source, id)| Pattern::regex(id, *source)).collect();
        streams.iter().for_each(|stream| compare(&patterns, stream, &[3, 5]));
    }
}

/// Compares with the oracle's steps, for streams that are too long for all lengths of matches.
fn compare_long(patterns: &[Pattern], stream: &[u8]) -> usize {
    let compiled = EditPatterns::compile(patterns).expect("patterns");
    let oracle = StepOracle::new(patterns);
    let (mut expected, mut from) = (Vec::new(), 0);
    while let EditStep::Match { start, end, id } = oracle.next(stream, from, None, true) {
        expected.push((start, end, id));
        from = end;
    }
    let (mut scratch, mut edits) = (EditScratch::new(), Vec::new());
    scratch.prepare(&compiled);
    for length in [1448, 300, 1_000_000] {
        edits.clear();
        let (mut begin, mut end) = (0, 0);
        while begin < stream.len() {
            end = stream.len().min(end + length);
            let before = begin.checked_sub(1).map(|last| stream[last]);
            let (bytes, is_end) = (&stream[begin..end], end == stream.len());
            let mut from = 0;
            begin += loop {
                match compiled.next(&mut scratch, bytes, from, before, is_end) {
                    EditStep::Nothing => break bytes.len(),
                    EditStep::Begun { start } => break start,
                    EditStep::Match { start, end, id } => {
                        edits.push((begin + start, begin + end, id));
                        from = end;
                    }
                }
            };
        }
        assert_eq!(edits, expected, "{patterns:?} in pieces of {length} bytes");
    }
    expected.len()
}

/// Texts, texts in either case and regexes look at the stream in turn.
#[test]
fn several_searches_take_turns() {
    let patterns = [
        Pattern::text(0, "abcabd"),
        Pattern::text(1, "cab"),
        Pattern::text(2, "BAC").ignoring_case(),
        Pattern::regex(3, "<[^>]{0,400}>"),
        Pattern::regex(4, "(?m)^d[a-d]{2,300}d"),
        Pattern::text(5, "dddddddddd"),
    ];
    let mut random = Sequence(5);
    let mut matches = 0;
    for letters in
        [&b"ABCDxyzefghiabcd<>"[..], b"xxxxxxxxxxxxxxxxxxxxxxxabcd<\n", b"xy<z\ndddddddd", b"abcABCd"]
    {
        let stream: Vec<u8> = (0..6000).map(|_| letters[random.next(letters.len())]).collect();
        matches += compare_long(&patterns, &stream);
    }
    assert!(matches > 100, "{matches}");
}

/// Regexes whose automaton would be too large together: each can count while others have ended.
#[test]
fn regexes_in_groups_are_edited_as_the_whole() {
    let regex = |id: u32| {
        let letter = char::from(b'a' + id as u8);
        Pattern::regex(id, format!("[^{letter}xy]{{1,90}}{letter}{{2}}[xy]?"))
    };
    let patterns: Vec<_> = (0..13).map(regex).collect();
    let mut random = Sequence(6);
    for letters in [&b"abcdefghijklmxyyyxxxxxxxx"[..], b"aabbccdefghijklmmxy", b"abx"] {
        let stream: Vec<u8> = (0..3000).map(|_| letters[random.next(letters.len())]).collect();
        assert!(compare_long(&patterns, &stream) > 20);
    }
}

#[test]
fn equal_matches_are_of_the_pattern_that_comes_first() {
    let text = |id| Pattern::text(id, "ab");
    let either = |id| Pattern::text(id, "AB").ignoring_case();
    let regex = |id| Pattern::regex(id, "a[b-c]");
    for (patterns, id) in [
        (vec![text(7), either(8), regex(9)], 7),
        (vec![either(7), text(8), regex(9)], 7),
        (vec![regex(7), text(8), either(9)], 7),
        (vec![text(3), text(2), text(1)], 3),
        (vec![regex(3), regex(2)], 3),
    ] {
        let compiled = EditPatterns::compile(&patterns).expect("patterns");
        let step = compiled.next(&mut EditScratch::new(), b"xxab", 0, None, false);
        assert_eq!(step, EditStep::Match { start: 2, end: 4, id }, "{patterns:?}");
    }
}

/// A sequence that repeats from its seed (Knuth's linear congruential generator).
struct Sequence(u64);

impl Sequence {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

/// Edits and what is begun among many texts, by a table of all of them.
struct ManyTexts {
    texts: HashMap<Vec<u8>, u32>,
    /// Prefixes by the number of their bytes.
    prefixes: Vec<HashSet<Vec<u8>>>,
}

impl ManyTexts {
    fn new(patterns: &[Pattern]) -> ManyTexts {
        let (mut texts, mut prefixes) = (HashMap::new(), Vec::new());
        for pattern in patterns {
            let PatternKind::Text(text) = &pattern.kind else { continue };
            texts.entry(text.clone()).or_insert(pattern.id);
            prefixes.resize(text.len().max(prefixes.len()), HashSet::new());
            (1..text.len()).for_each(|len| _ = prefixes[len].insert(text[..len].to_vec()));
        }
        ManyTexts { texts, prefixes }
    }

    fn begun(&self, bytes: &[u8]) -> Option<usize> {
        let lens = (1..self.prefixes.len().min(bytes.len() + 1)).rev();
        let start_of = |len| bytes.len() - len;
        lens.map(start_of).find(|start| self.prefixes[bytes.len() - start].contains(&bytes[*start..]))
    }

    fn edits(&self, stream: &[u8]) -> Vec<Edit> {
        let (mut edits, mut start) = (Vec::new(), 0);
        let mut lens: Vec<_> = self.texts.keys().map(Vec::len).collect();
        lens.sort_unstable_by_key(|len| std::cmp::Reverse(*len));
        lens.dedup();
        while start < stream.len() {
            let ends = lens.iter().map(|len| start + len).filter(|end| *end <= stream.len());
            let longest = ends
                .into_iter()
                .find_map(|end| self.texts.get(&stream[start..end]).map(|id| (start, end, *id)));
            edits.extend(longest);
            start = longest.map_or(start + 1, |(_, end, _)| end);
        }
        edits
    }
}

#[test]
fn many_and_long_texts_are_edited_as_the_whole() {
    for (texts, shortest, more, letters) in [
        (3000, 8, 17, 26),
        (500, 1, 30, 3),
        (40, 60, 12, 2),
        (40, 1, 300, 4),
        (2, 2000, 49, 3),
        (300, 40, 60, 256),
    ] {
        let mut random = Sequence(texts as u64);
        let patterns: Vec<_> = (0..texts)
            .map(|id| {
                let len = shortest + random.next(more);
                Pattern::text(id as u32, (0..len).map(|_| random.next(letters) as u8).collect::<Vec<_>>())
            })
            .collect();
        let compiled = EditPatterns::compile(&patterns).expect("texts");
        let oracle = ManyTexts::new(&patterns);
        let mut stream: Vec<u8> = Vec::new();
        for _ in 0..60 {
            stream.extend((0..random.next(30)).map(|_| random.next(letters) as u8));
            if let PatternKind::Text(text) = &patterns[random.next(texts)].kind {
                stream
                    .extend(&text[..if random.next(2) == 0 { text.len() } else { random.next(text.len()) }]);
            }
        }
        let expected = oracle.edits(&stream);
        assert!(!expected.is_empty());
        let mut scratch = EditScratch::new();
        scratch.prepare(&compiled);
        for _ in 0..4 {
            let (mut edits, mut begin, mut end) = (Vec::new(), 0, 0);
            while begin < stream.len() {
                let max = if random.next(2) == 0 { 20 } else { 700 };
                end = stream.len().min(end + 1 + random.next(max));
                let is_end = end == stream.len();
                let bytes = &stream[begin..end];
                assert_eq!(compiled.begun(&mut scratch, bytes, 0, None), oracle.begun(bytes));
                let mut from = 0;
                begin = loop {
                    match compiled.next(&mut scratch, bytes, from, None, is_end) {
                        EditStep::Nothing => break end,
                        EditStep::Begun { start } => break begin + start,
                        EditStep::Match { start, end, id } => {
                            edits.push((begin + start, begin + end, id));
                            from = end;
                        }
                    }
                };
            }
            assert_eq!(edits, expected, "{texts} texts of {letters} letters");
        }
    }
}
