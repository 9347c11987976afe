//! Patterns in a stream that arrives in pieces: the scanner against other matchers over the whole stream.
//!
//! An input is a byte that selects the lengths of pieces, patterns, a byte 255, and the stream. A pattern is a byte of choices and its length,
//! then its bytes: bit 0 of the choices says that it is a regex, bit 1 that it ignores case. The oracle is plain: `aho-corasick` for texts,
//! and for each end of a regex's match the `regex` crate asked about the stream up to there.

use aho_corasick::{AhoCorasick, MatchKind};
use mmb_scan::{Pattern, PatternKind, PatternSet, ScanEnd, Scanner};
use regex::bytes::{Regex, RegexBuilder};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// The byte between patterns and stream.
const STREAM: u8 = 255;
/// The most patterns: more would take the fuzzer's time.
const MAX_PATTERNS: usize = 8;
/// The most bytes of a regex, for which the oracle needs the square of the stream.
const MAX_REGEX_BYTES: usize = 40;
/// The most bytes of the stream.
const MAX_STREAM_BYTES: usize = 400;
/// One of so many inputs has many texts besides.
const WITH_MANY: usize = 4;
/// The most memory of a compiled regex of the oracle.
const MAX_REGEX_MEMORY: usize = 1 << 20;

/// Bytes of the stream up to the end of a match, and the pattern's id.
type Matches = BTreeSet<(u64, u32)>;

/// Runs an input.
///
/// # Errors
/// The scanner's matches are not the oracle's.
pub fn scan(data: &[u8]) -> Result<(), String> {
    let Some((mut patterns, stream, pieces)) = read(data) else { return Ok(()) };
    if data.len().is_multiple_of(WITH_MANY) {
        patterns.extend(many_texts());
    }
    let Ok(set) = PatternSet::compile(&patterns) else { return Ok(()) };
    let Some(expected) = oracle(&patterns, stream) else { return Ok(()) };
    let lengths: [&[usize]; 4] = [&pieces, &[1], &[MAX_STREAM_BYTES], &[65, 3]];
    for lengths in lengths {
        let found = scanned(&set, stream, lengths)?;
        if found != expected {
            return Err(format!(
                "{:?} of {} patterns in {stream:?} in pieces of {lengths:?}: found {found:?}, expected {expected:?}",
                &patterns[..patterns.len().min(MAX_PATTERNS)],
                patterns.len()
            ));
        }
    }
    Ok(())
}

/// So many texts that those of a set are found by samples. They occur in no stream that is not made for it.
fn many_texts() -> impl Iterator<Item = Pattern> {
    (0..1001_u32).map(|number| Pattern::text(1000 + number, format!("{number:09}").into_bytes()))
}

/// Reads an input: patterns, stream, lengths of pieces.
pub(crate) fn read(data: &[u8]) -> Option<(Vec<Pattern>, &[u8], [usize; 2])> {
    let (first, mut rest) = data.split_first()?;
    let mut patterns = Vec::new();
    loop {
        let (choices, behind) = rest.split_first()?;
        rest = behind;
        if *choices == STREAM || patterns.len() == MAX_PATTERNS {
            break;
        }
        let (len, behind) = rest.split_first()?;
        let (bytes, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        let kind = if choices & 1 == 0 {
            PatternKind::Text(bytes.to_vec())
        } else {
            PatternKind::Regex(
                std::str::from_utf8(bytes).ok().filter(|source| source.len() <= MAX_REGEX_BYTES)?.to_owned(),
            )
        };
        patterns.push(Pattern { kind, ignores_case: choices & 2 != 0, id: patterns.len() as u32 });
    }
    let pieces = [1 + usize::from(first & 15), 1 + usize::from(first >> 4) * 11];
    Some((patterns, &rest[..rest.len().min(MAX_STREAM_BYTES)], pieces))
}

/// The scanner's matches in a stream that arrives in pieces of these lengths, in turn, and then ends.
fn scanned(set: &PatternSet, stream: &[u8], lengths: &[usize]) -> Result<Matches, String> {
    let mut scanner = Scanner::new(1).map_err(|error| error.to_string())?;
    scanner.prepare(set).map_err(|error| error.to_string())?;
    let mut state = scanner.open(set).ok_or("no room for one state")?;
    let mut found = Matches::new();
    let mut add = |id, end| {
        found.insert((end, id));
        ControlFlow::Continue(())
    };
    let (mut rest, mut lengths) = (stream, lengths.iter().cycle());
    while let Some(length) = lengths.next().filter(|_| !rest.is_empty()) {
        let (piece, behind) = rest.split_at(rest.len().min(*length));
        if scanner.scan(&mut state, piece, &mut add) != ScanEnd::AllScanned {
            return Err("a scan ended too soon".to_owned());
        }
        rest = behind;
    }
    if scanner.finish(state, &mut add) != ScanEnd::AllScanned {
        return Err("a stream did not end".to_owned());
    }
    if scanner.open_states() > 0 {
        return Err("a state is left".to_owned());
    }
    Ok(found)
}

/// All matches in a stream that has ended. `None` if a regex is too much for the oracle.
fn oracle(patterns: &[Pattern], stream: &[u8]) -> Option<Matches> {
    let mut found = Matches::new();
    for pattern in patterns {
        match &pattern.kind {
            PatternKind::Text(text) => {
                let mut builder = AhoCorasick::builder();
                builder.match_kind(MatchKind::Standard).ascii_case_insensitive(pattern.ignores_case);
                let automaton = builder.build([text]).ok()?;
                found.extend(
                    automaton.find_overlapping_iter(stream).map(|hit| (hit.end() as u64, pattern.id)),
                );
            }
            PatternKind::Regex(source) => {
                let regex = ending(source, pattern.ignores_case)?;
                let ends = (1..=stream.len()).filter(|end| regex.is_match(&stream[..*end]));
                found.extend(ends.map(|end| (end as u64, pattern.id)));
            }
        }
    }
    Some(found)
}

/// A regex for the same matches, where they end with what is searched. `None` for regexes that speak of the stream's end themselves, or could
/// have a comment behind which the rest is lost.
fn ending(source: &str, ignores_case: bool) -> Option<Regex> {
    if source.contains(['$', '#']) || source.contains("\\z") {
        return None;
    }
    let mut builder = RegexBuilder::new(&format!("(?:{source})\\z"));
    builder.unicode(false).case_insensitive(ignores_case).size_limit(MAX_REGEX_MEMORY).build().ok()
}
