//! Which matches an edit replaces, and what of one is begun at the end of the bytes so far.
//!
//! Purpose: an edit masks, removes or replaces matches in a stream. It has to know where a match starts, and bytes that may yet become a match
//! must not be sent. [`EditPatterns`] are compiled once, off the packet path, and shared by all workers. Each worker has an [`EditScratch`].
//!
//! Life-cycle: [`EditPatterns::compile`]; [`EditScratch::prepare`] on each worker's scratch; for the undecided bytes of a stream
//! [`EditPatterns::next`] until it tells [`EditStep::Begun`] or [`EditStep::Nothing`]. Bytes before the next step's place are decided. Those of a
//! begun match are put before the bytes that come next.
//!
//! What is edited: the leftmost match; of those that start there the longest; of those equally long the one of the pattern that comes first in the
//! list. The search goes on behind its end. The result does not depend on how the stream is cut into pieces.
//!
//! How: [`texts`] are searched by `aho-corasick`, many of them by their first bytes. Whether one is begun is told by filters of the last bytes
//! ([`begun`]), then by an automaton of all prefixes. Regexes become a deterministic automaton ([`dfa`]) that runs from each place where a match may
//! begin. If that reads much in vain, one pass backward ([`backward`]) finds the earliest start. `compile` makes all tables.
//!
//! What it costs at most, with *n* bytes, a longest match of *L*, and regexes of *P* positions (their bytes and classes, each as often as it is
//! repeated):
//!
//! | | most |
//! | --- | --- |
//! | `begun`, texts | for each of the last *L*, a look into a filter and two steps of an automaton; mostly six looks in all |
//! | `next`, texts | for each byte up to the match, a look into a filter and four steps; `begun` if the match is among the last *L* |
//! | `begun`, regexes | for each of the last *L*, 2 + *P* / 512 steps, *P* / 64 operations on words and one for each part that may be left out; mostly a search for a first byte |
//! | `next`, regexes | the same for each of *n*; *L* steps from the start of the match |
//!
//! Hence many short matches that could have been long ones (`a(?:.{0,999}z)?`) cost *L* each. In regexes of more than 16,384 positions, or with
//! `(?m)^` behind their begin, each place may read *L*. `examples/edit_cycles.rs` measures usual and hostile streams.

mod backward;
mod begun;
mod candidates;
mod dfa;
mod first;
mod nfa;
mod prefixes;
mod regexes;
mod texts;

use crate::error::{PatternError, PatternRefusal};
use crate::pattern::{Pattern, PatternKind};
use crate::set::{PatternSet, SetDigest};
use crate::translate::{EditRegex, edit_regex};
use crate::{MAX_EDIT_TEXT_BYTES, MAX_PATTERNS, MAX_REGEXES, MAX_SET_POSITIONS, MAX_TEXT_BYTES};
use first::{First, What};
use regexes::{EditHir, RegexGroup, regex_groups};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use texts::{EditText, EditTexts};

/// Places at which several searches look before one of them goes on: twice as many each time.
const FIRST_BLOCK: usize = 256;

/// The patterns of an edit. A clone is the same patterns, and costs nothing.
#[derive(Clone)]
pub struct EditPatterns {
    compiled: Arc<Compiled>,
}

struct Compiled {
    texts: Option<EditTexts>,
    groups: Vec<RegexGroup>,
    /// The id of each pattern.
    ids: Vec<u32>,
    longest: usize,
    digest: SetDigest,
}

/// What comes next in the bytes of a stream. Places are indexes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditStep {
    /// All bytes may pass.
    Nothing,
    /// The bytes from there on may become a match, or a longer one, when more of them have arrived. Those before may pass.
    Begun {
        /// The first of them.
        start: usize,
    },
    /// A match that is edited. The bytes before it may pass.
    Match {
        /// Its first byte.
        start: usize,
        /// The byte behind it.
        end: usize,
        /// The pattern's.
        id: u32,
    },
}

/// The working memory of one worker, for all edits. With too little of it, all is found as well, but slowly in bytes that are made for that.
#[derive(Debug, Default)]
pub struct EditScratch {
    words: Vec<u64>,
}

impl EditScratch {
    /// For no edits so far.
    pub fn new() -> EditScratch {
        EditScratch::default()
    }

    /// Gets the memory for an edit, at most some kilobytes: not for the packet path.
    pub fn prepare(&mut self, patterns: &EditPatterns) {
        let words = patterns.compiled.groups.iter().map(RegexGroup::scratch_words).max().unwrap_or(0);
        if words > self.words.len() {
            self.words.resize(words, 0);
        }
    }

    /// Its bytes.
    pub fn memory(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }
}

impl EditPatterns {
    /// Compiles patterns; of equally long matches, that of the one that comes first counts. Refuses the regexes that [`PatternSet::compile`] refuses, and
    /// those whose matches depend on the stream's end, have no bound or one above [`MAX_EDIT_MATCH_BYTES`](crate::MAX_EDIT_MATCH_BYTES). Takes a tenth of
    /// a second for 10,000 texts, half of one for a large regex, and some seconds at most.
    ///
    /// # Errors
    /// A pattern is refused, or they are too many or too large.
    pub fn compile(patterns: &[Pattern]) -> Result<EditPatterns, PatternError> {
        match patterns.len() {
            0 => return Err(PatternError::NoPatterns),
            1..=MAX_PATTERNS => {}
            many => return Err(PatternError::TooManyPatterns(many)),
        }
        let (texts, regexes) = sort(patterns)?;
        let longest_regex = regexes.iter().filter_map(|regex| regex.hir.properties().maximum_len()).max();
        let texts = if texts.is_empty() { None } else { Some(EditTexts::new(&texts)?) };
        let longest = texts.as_ref().map(EditTexts::longest).max(longest_regex).unwrap_or(0);
        let compiled = Compiled {
            texts,
            groups: regex_groups(&regexes)?,
            ids: patterns.iter().map(|pattern| pattern.id).collect(),
            longest,
            digest: PatternSet::digest_of(patterns),
        };
        Ok(EditPatterns { compiled: Arc::new(compiled) })
    }

    /// No match has more bytes.
    pub fn longest(&self) -> usize {
        self.compiled.longest
    }

    /// Whether other clones of these patterns exist.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.compiled) > 1
    }

    /// The digest of the patterns, their order and ids included.
    pub fn digest(&self) -> SetDigest {
        self.compiled.digest
    }

    /// What comes first at or behind `from` in the undecided bytes of a stream. `before` is the byte of the stream before them, `None` at its start: `^`
    /// depends on it. With `is_end` no bytes come behind them.
    ///
    /// A match that is told starts before all others and all begun ones, and no more bytes can make it longer.
    ///
    /// Who knows that the first match behind `from` ends at `end` may begin at `end - longest()` instead: nothing before is begun or a match. Who
    /// knows that none ends behind `from` calls [`EditPatterns::begun`].
    pub fn next(
        &self,
        scratch: &mut EditScratch,
        bytes: &[u8],
        from: usize,
        before: Option<u8>,
        is_end: bool,
    ) -> EditStep {
        let Compiled { texts, groups, ids, .. } = &*self.compiled;
        let searches =
            groups.len() + texts.as_ref().map_or(0, |texts| if texts.is_one_search() { 1 } else { 2 });
        let mut block = if searches > 1 { FIRST_BLOCK.max(self.longest()) } else { bytes.len() };
        let mut starts = from..from;
        while starts.end < bytes.len() {
            starts = starts.end..bytes.len().min(starts.end.saturating_add(block));
            block = block.saturating_mul(2);
            let Some(First { start, what }) =
                self.first(&mut scratch.words, bytes, starts.clone(), before, is_end)
            else {
                continue;
            };
            return match what {
                What::Begun => EditStep::Begun { start },
                What::Match { end, pattern } => {
                    EditStep::Match { start, end, id: ids.get(pattern as usize).copied().unwrap_or_default() }
                }
            };
        }
        EditStep::Nothing
    }

    /// The earliest place at or behind `from` whence more bytes may make a match, or a longer one: that of [`EditStep::Begun`] if it is known that no
    /// match lies in `bytes[from..]`. It looks at the last `longest() - 1` bytes at most, and mostly at fewer.
    #[inline]
    pub fn begun(
        &self,
        scratch: &mut EditScratch,
        bytes: &[u8],
        from: usize,
        before: Option<u8>,
    ) -> Option<usize> {
        let Compiled { texts, groups, .. } = &*self.compiled;
        let mut earliest = texts.as_ref().and_then(|texts| texts.begun(bytes, from));
        for group in groups {
            let begun = group.begun(&mut scratch.words, bytes, from, before);
            earliest = earliest.into_iter().chain(begun).min();
        }
        earliest
    }

    /// What comes first of all that starts in `starts`.
    fn first(
        &self,
        scratch: &mut [u64],
        bytes: &[u8],
        starts: Range<usize>,
        before: Option<u8>,
        is_end: bool,
    ) -> Option<First> {
        let Compiled { texts, groups, .. } = &*self.compiled;
        let mut first = texts.as_ref().and_then(|texts| texts.first(bytes, starts.clone(), is_end));
        for group in groups {
            let end = first.map_or(starts.end, |first| first.start + 1);
            first = First::of(first, group.first(scratch, bytes, starts.start..end, before, is_end));
        }
        first
    }
}

impl fmt::Debug for EditPatterns {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compiled { ids, longest, digest, .. } = &*self.compiled;
        let mut output = formatter.debug_struct("EditPatterns");
        output
            .field("len", &ids.len())
            .field("longest", longest)
            .field("digest", digest)
            .finish_non_exhaustive()
    }
}

/// Tells texts and regexes apart, in the order of their patterns. Checks the limits of each and of all.
fn sort(patterns: &[Pattern]) -> Result<(Vec<EditText>, Vec<EditHir>), PatternError> {
    let (mut texts, mut regexes) = (Vec::new(), Vec::new());
    let (mut all_positions, mut all_bytes) = (0, 0);
    for (pattern, index) in patterns.iter().zip(0_u32..) {
        let refused = |refusal| PatternError::Refused { index: index as usize, refusal };
        let (bytes, ignores_case) = match &pattern.kind {
            PatternKind::Text(bytes) => (bytes.clone(), pattern.ignores_case),
            PatternKind::Regex(source) => match edit_regex(source, pattern.ignores_case).map_err(refused)? {
                EditRegex::Text { bytes, ignores_case } => (bytes, ignores_case),
                EditRegex::Regex { hir, positions } => {
                    all_positions += positions;
                    regexes.push(EditHir { hir, pattern: index });
                    continue;
                }
            },
        };
        match bytes.len() {
            0 => return Err(refused(PatternRefusal::EmptyText)),
            1..=MAX_TEXT_BYTES => all_bytes += bytes.len(),
            long => return Err(refused(PatternRefusal::LongText(long))),
        }
        texts.push(EditText { bytes, ignores_case, pattern: index });
    }
    if all_bytes > MAX_EDIT_TEXT_BYTES {
        return Err(PatternError::LongTexts(all_bytes));
    }
    if regexes.len() > MAX_REGEXES {
        return Err(PatternError::TooManyRegexes(regexes.len()));
    }
    if all_positions > MAX_SET_POSITIONS {
        return Err(PatternError::TooLarge(all_positions));
    }
    Ok((texts, regexes))
}
