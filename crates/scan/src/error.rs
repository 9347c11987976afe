//! Why patterns are refused.

use crate::{
    MAX_EDIT_MATCH_BYTES, MAX_EDIT_TEXT_BYTES, MAX_PATTERNS, MAX_POSITIONS, MAX_REGEX_BYTES, MAX_REGEXES,
    MAX_REPEATS, MAX_SET_POSITIONS, MAX_STATE_BYTES, MAX_TEXT_BYTES,
};
use std::fmt;
use thiserror::Error;

/// Why a set of patterns cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PatternError {
    /// One of them is refused.
    #[error("pattern {index}: {refusal}")]
    Refused {
        /// Its place in the list, from 0.
        index: usize,
        /// Why.
        refusal: PatternRefusal,
    },
    /// The list is empty.
    #[error("a set of patterns needs at least one")]
    NoPatterns,
    /// The list is too long.
    #[error("{0} patterns are too many: a set has at most {MAX_PATTERNS}")]
    TooManyPatterns(usize),
    /// Too many of them are regexes.
    #[error(
        "{0} regexes are too many: a set has at most {MAX_REGEXES}; write those without wildcards as texts"
    )]
    TooManyRegexes(usize),
    /// All regexes together are too large.
    #[error(
        "the regexes are too large together: {0} bytes and classes with repetitions, at most {MAX_SET_POSITIONS}; use lower counts in repetitions"
    )]
    TooLarge(u64),
    /// The texts of an edit have too many bytes.
    #[error(
        "the texts have {0} bytes, and those of an edit at most {MAX_EDIT_TEXT_BYTES} together; use shorter ones"
    )]
    LongTexts(usize),
    /// The regexes of an edit have too many states together.
    #[error(
        "the regexes are too large together for an edit: use lower counts in repetitions, or several rules"
    )]
    TooManyStates,
    /// The state of each stream would be too large.
    #[error(
        "the patterns need {0} bytes for each stream, at most {MAX_STATE_BYTES}; use fewer regexes with counted repetitions, or lower counts"
    )]
    StateTooLarge(usize),
    /// The processor lacks instructions that the matcher needs.
    #[error("this processor lacks instructions that Vectorscan needs (SSE4.2 on x86-64)")]
    UnsupportedProcessor,
    /// Built without the library.
    #[error("mmb was built without Vectorscan: install libvectorscan-dev and build again")]
    NoLibrary,
    /// There is no memory.
    #[error("there is no memory to compile the patterns")]
    NoMemory,
    /// Compiling the patterns exceeds the budget.
    #[error("the patterns take more than {budget} to compile{}; use fewer regexes, or lower counts in repetitions", Costliest(.pattern.as_deref()))]
    OverBudget {
        /// The part of the budget that was exceeded, as "20 s of processor time".
        budget: String,
        /// The index of the pattern that takes the most time alone, if known.
        index: Option<usize>,
        /// That pattern, shortened.
        pattern: Option<String>,
    },
    /// The compilation was given up, or the compiler failed.
    #[error("the patterns were not compiled: {0}")]
    Unfinished(String),
    /// The cache lacks the patterns, and nothing compiles them here.
    #[error("the patterns are not compiled yet")]
    NotCompiled,
    /// The library failed for another reason.
    #[error("the patterns cannot be compiled together: {0}")]
    Other(String),
}

/// Why a pattern is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PatternRefusal {
    /// A text without bytes.
    #[error("an empty text matches everywhere; write at least one byte")]
    EmptyText,
    /// A text of too many bytes.
    #[error("a text of {0} bytes is too long: at most {MAX_TEXT_BYTES}; the first of them may do")]
    LongText(usize),
    /// A regex of too many bytes.
    #[error("a regex of {0} bytes is too long: at most {MAX_REGEX_BYTES}; make several of it")]
    LongRegex(usize),
    /// Not a regex.
    #[error("not a regex: {0}")]
    Syntax(String),
    /// `(?=`, `(?!`, `(?<=`, `(?<!`.
    #[error("look-around is not supported; let the regex match those bytes too")]
    LookAround,
    /// `\1`.
    #[error("back-references are not supported; write out what is repeated")]
    BackReference,
    /// `\b` and the like.
    #[error(
        "word boundaries depend on the byte behind a match, which may not have arrived; match that byte, as in [^0-9A-Za-z_]"
    )]
    WordBoundary,
    /// `(?m)$` and ends of lines that are CR LF.
    #[error(
        "the end of a line depends on the byte behind it, which may not have arrived; match it, as in \\r?\\n"
    )]
    LineEnd,
    /// Something in Unicode mode.
    #[error(
        "regexes are over bytes, not characters; leave out (?u) and \\p, write other than ASCII outside of [ ]"
    )]
    Unicode,
    /// It also matches where nothing is.
    #[error("it matches the empty string, so everywhere; require a byte, as in + in place of *")]
    MatchesEmpty,
    /// It matches nowhere, or a class of it has no bytes.
    #[error("it can match nothing: a class in it has no bytes")]
    MatchesNothing,
    /// `^` behind or `$` before something, or repeated.
    #[error("^ can only be at the begin and $ only at the end of what a regex matches")]
    InnerAnchor,
    /// A count of a repetition is too high.
    #[error("a repetition of {0} is too high: at most {MAX_REPEATS}")]
    Repeats(u32),
    /// Too large when repetitions are written out.
    #[error(
        "too large: {0} bytes and classes with repetitions, at most {MAX_POSITIONS}; use lower counts in repetitions, or * and +"
    )]
    TooLarge(u64),
    /// A regex of an edit whose matches have no bound.
    #[error(
        "its matches have no longest one, and an edit needs a whole match: write a count, as [^>]{{0,200}} for [^>]*"
    )]
    UnboundedMatch,
    /// A regex of an edit whose matches are too long.
    #[error(
        "it matches up to {0} bytes, and an edit at most {MAX_EDIT_MATCH_BYTES}: use lower counts in repetitions"
    )]
    LongMatch(usize),
    /// A regex of an edit that speaks of the end of the stream.
    #[error("an edit cannot wait for the end of the stream; leave out $ and \\z")]
    EditAtEnd,
    /// A regex of an edit with too many states.
    #[error(
        "too many parts of it match the same bytes at a time; make what is repeated exclude what comes behind it, as <[^>]{{0,200}}> for <.{{0,200}}>"
    )]
    TooManyStates,
    /// The library's own limits.
    #[error("too large for the matcher; use lower counts in repetitions, or * and +")]
    TooComplex,
    /// The library refuses it for another reason.
    #[error("the matcher refuses it: {0}")]
    Other(String),
}

/// The part of a message about the pattern that costs most.
struct Costliest<'p>(Option<&'p str>);

impl fmt::Display for Costliest<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |pattern| write!(formatter, ", of all the most for {pattern}"))
    }
}

impl PatternError {
    /// The place of the pattern that the error is about, from 0; `None` if it is about all of them.
    pub fn index(&self) -> Option<usize> {
        match self {
            PatternError::Refused { index, .. } => Some(*index),
            PatternError::OverBudget { index, .. } => *index,
            PatternError::NoPatterns
            | PatternError::TooManyPatterns(_)
            | PatternError::TooManyRegexes(_)
            | PatternError::TooLarge(_)
            | PatternError::LongTexts(_)
            | PatternError::TooManyStates
            | PatternError::StateTooLarge(_)
            | PatternError::UnsupportedProcessor
            | PatternError::NoLibrary
            | PatternError::NoMemory
            | PatternError::Unfinished(_)
            | PatternError::NotCompiled
            | PatternError::Other(_) => None,
        }
    }
}
