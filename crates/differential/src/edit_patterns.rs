//! Edits of a stream that arrives in pieces: the edit matcher against the `regex` crate over the whole stream.
//!
//! An input is that of [`scan`](mod@crate::scan). The oracle asks about each start in order, each length downward and each pattern in order whether
//! that is a match.

use crate::scan::read;
use mmb_scan::{EditPatterns, EditScratch, EditStep, Pattern, PatternKind};
use regex::bytes::{Regex, RegexBuilder};

/// The most bytes of the stream: the oracle needs the cube of them.
const MAX_STREAM_BYTES: usize = 96;
/// The most memory of a compiled regex of the oracle.
const MAX_REGEX_MEMORY: usize = 1 << 20;

/// The start, the end and the pattern's id of each edit.
type Edits = Vec<(usize, usize, u32)>;

/// Runs an input.
///
/// # Errors
/// The edits are not the oracle's, or what is begun differs from what is next.
pub fn edit_patterns(data: &[u8]) -> Result<(), String> {
    let Some((patterns, stream, pieces)) = read(data) else { return Ok(()) };
    let stream = &stream[..stream.len().min(MAX_STREAM_BYTES)];
    let Ok(edits) = EditPatterns::compile(&patterns) else { return Ok(()) };
    let Some(expected) = oracle(&patterns, stream) else { return Ok(()) };
    let lengths: [&[usize]; 4] = [&pieces, &[1], &[MAX_STREAM_BYTES], &[33, 2]];
    for lengths in lengths {
        let found = edits_of_pieces(&edits, stream, lengths)?;
        if found != expected {
            return Err(format!(
                "{patterns:?} in {stream:?} in pieces of {lengths:?}: found {found:?}, expected {expected:?}"
            ));
        }
    }
    Ok(())
}

/// The edits of a stream that arrives in pieces of these lengths, in turn, and then ends.
fn edits_of_pieces(patterns: &EditPatterns, stream: &[u8], lengths: &[usize]) -> Result<Edits, String> {
    let mut scratch = EditScratch::new();
    scratch.prepare(patterns);
    let mut edits = Vec::new();
    let (mut begin, mut end) = (0_usize, 0);
    for length in lengths.iter().cycle() {
        // All pieces have come: once more, since nothing more comes.
        let is_end = end == stream.len();
        end = stream.len().min(end + length);
        let before = begin.checked_sub(1).map(|last| stream[last]);
        let bytes = &stream[begin..end];
        let mut from = 0;
        let passed = loop {
            match step(patterns, &mut scratch, bytes, from, before, is_end)? {
                EditStep::Nothing => break bytes.len(),
                EditStep::Begun { start } => break start,
                EditStep::Match { start, end, id } => {
                    edits.push((begin + start, begin + end, id));
                    from = end;
                }
            }
        };
        if bytes.len() - passed >= patterns.longest() {
            return Err(format!("{} bytes are held", bytes.len() - passed));
        }
        begin += passed;
        if is_end {
            break;
        }
    }
    Ok(edits)
}

/// What is next. If no match lies in the bytes, what is begun is the same.
fn step(
    patterns: &EditPatterns,
    scratch: &mut EditScratch,
    bytes: &[u8],
    from: usize,
    before: Option<u8>,
    is_end: bool,
) -> Result<EditStep, String> {
    let next = patterns.next(scratch, bytes, from, before, is_end);
    if !is_end && patterns.next(scratch, bytes, from, before, true) == EditStep::Nothing {
        let begun = patterns.begun(scratch, bytes, from, before);
        if next != begun.map_or(EditStep::Nothing, |start| EditStep::Begun { start }) {
            return Err(format!("{next:?} is next in {bytes:?} from {from}, but {begun:?} is begun"));
        }
    }
    Ok(next)
}

/// The edits of a whole stream. `None` if a regex is too much for the oracle.
fn oracle(patterns: &[Pattern], stream: &[u8]) -> Option<Edits> {
    let regexes: Option<Vec<_>> = patterns.iter().map(ending).collect();
    let regexes = regexes?;
    let is_match = |regex: &Regex, start, end| {
        regex.find_at(&stream[..end], start).is_some_and(|found| found.start() == start)
    };
    let (mut edits, mut start) = (Vec::new(), 0);
    while start < stream.len() {
        let longest = (start + 1..=stream.len()).rev().find_map(|end| {
            let pattern = regexes.iter().position(|regex| is_match(regex, start, end))?;
            Some((start, end, patterns[pattern].id))
        });
        edits.extend(longest);
        start = longest.map_or(start + 1, |(_, end, _)| end);
    }
    Some(edits)
}

/// A regex for the matches that end with what is searched. `None` for those that could have a comment behind which the rest is lost.
fn ending(pattern: &Pattern) -> Option<Regex> {
    let source = match &pattern.kind {
        PatternKind::Text(bytes) => bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect(),
        PatternKind::Regex(source) if source.contains('#') => return None,
        PatternKind::Regex(source) => source.clone(),
    };
    let mut builder = RegexBuilder::new(&format!("(?:{source})\\z"));
    builder.unicode(false).case_insensitive(pattern.ignores_case).size_limit(MAX_REGEX_MEMORY).build().ok()
}
