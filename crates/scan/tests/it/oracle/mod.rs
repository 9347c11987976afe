//! All places where patterns match in a whole stream, by other matchers and in the plainest way.

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use mmb_scan::{Pattern, PatternKind};
use regex::bytes::RegexBuilder;
use std::collections::BTreeSet;

/// Pattern ids, and the number of bytes up to the end of a match.
pub(crate) type Matches = BTreeSet<(u64, u32)>;

/// The matches in a stream; those that only its end makes with `is_finished`.
pub(crate) fn matches(patterns: &[Pattern], stream: &[u8], is_finished: bool) -> Matches {
    let mut found = Matches::new();
    for ignores_case in [false, true] {
        find_texts(patterns, ignores_case, stream, &mut found);
    }
    for pattern in patterns {
        if let PatternKind::Regex(source) = &pattern.kind {
            let ends = ends(source, pattern.ignores_case, stream, is_finished);
            found.extend(ends.into_iter().map(|end| (end, pattern.id)));
        }
    }
    found
}

fn find_texts(patterns: &[Pattern], ignores_case: bool, stream: &[u8], found: &mut Matches) {
    let (mut texts, mut ids) = (Vec::new(), Vec::new());
    for pattern in patterns.iter().filter(|pattern| pattern.ignores_case == ignores_case) {
        if let PatternKind::Text(bytes) = &pattern.kind {
            texts.push(bytes);
            ids.push(pattern.id);
        }
    }
    let mut builder = AhoCorasickBuilder::new();
    builder.match_kind(MatchKind::Standard).ascii_case_insensitive(ignores_case);
    let automaton: AhoCorasick = builder.build(texts).expect("few texts");
    for hit in automaton.find_overlapping_iter(stream) {
        found.insert((hit.end() as u64, ids[hit.pattern().as_usize()]));
    }
}

/// Where some match of a regex ends: each beginning of the stream of which an end matches.
fn ends(source: &str, ignores_case: bool, stream: &[u8], is_finished: bool) -> Vec<u64> {
    let compile = |source: String| {
        let mut builder = RegexBuilder::new(&source);
        builder
            .unicode(false)
            .case_insensitive(ignores_case)
            .build()
            .expect("a regex that was compiled before")
    };
    // An end of the stream that is not yet known matches nothing.
    let unfinished = source.replace("\\z", "[^\\x00-\\xff]").replace('$', "[^\\x00-\\xff]");
    let regex = compile(format!("(?:{unfinished})\\z"));
    let mut ends: Vec<_> = (1..=stream.len()).filter(|end| regex.is_match(&stream[..*end])).collect();
    if is_finished
        && compile(format!("(?:{source})\\z")).is_match(stream)
        && ends.last() != Some(&stream.len())
    {
        ends.push(stream.len());
    }
    ends.into_iter().map(|end| end as u64).collect()
}
