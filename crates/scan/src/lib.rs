//! Sets of patterns, and where they match in streams of bytes.
//!
//! Purpose: find texts and regexes in the bytes of connections as these arrive, in pieces of any size. A [`PatternSet`] is compiled once, off
//! the packet path, and shared by all workers. Each worker has a [`Scanner`]: the working memory of the sets that it uses and a pool of
//! memory for [`ScanState`]s, of which each direction of a connection has one. After it is made, and the sets are prepared, opening, scanning
//! and closing call no allocator and take no lock.
//!
//! Life-cycle: [`PatternSet::compile`], or [`SetSource::set`] for a set that is used several times or compiled elsewhere
//! ([`DatabaseCompiler`]); for each worker [`PreparedSet::new`], on any thread, and [`Scanner::adopt`] between two
//! packets ([`Scanner::prepare`] does both); [`Scanner::open`], [`Scanner::scan`] for each piece in order,
//! [`Scanner::close`] or [`Scanner::finish`]; [`Scanner::release`] when a set is no longer used.
//!
//! What matches: *every* place where a pattern can end is reported, once for a pattern and a place, in ascending order of places; so `ab+` ends
//! twice in `abb`, and greedy or lazy makes no difference. Regexes have the syntax of the `regex` crate over bytes: `.` is every byte
//! but `\n`, unless `(?s)`; `^` and `\A` are the start of the stream, with `(?m)` the start of a line too; `$` and `\z` are the stream's end,
//! which only [`Scanner::finish`] can know. A match is reported with the piece in which it ends, hence what depends on
//! bytes *behind* a match (`\b`, `(?m)$`) is refused, as are look-around and back-references.
//!
//! Regexes and few texts are found by Vectorscan in streaming mode, as one database of a set; `ffi` has all unsafe code. Many texts, and one alone, are
//! found without it (`texts`), together with what Vectorscan finds of the same set.
//!
//! Where matches start, which of them an edit replaces, and what of one is begun at the end of the bytes, is told by [`EditPatterns`], without
//! Vectorscan.
#![deny(unsafe_code)]

mod cache;
mod edit;
mod error;
mod ffi;
mod filter;
mod job;
mod pattern;
mod pool;
mod scan_end;
mod scanner;
mod set;
mod texts;
mod translate;

pub use cache::{MAX_UNUSED_BYTES, SetCache, SetSource};
pub use edit::{EditPatterns, EditScratch, EditStep};
pub use error::{PatternError, PatternRefusal};
pub use job::{
    CompileJob, CompiledJob, DatabaseCompiler, InProcess, JobFailure, JobRefusal, outcome_from_bytes,
    outcome_to_bytes,
};
pub use pattern::{Pattern, PatternKind};
pub use pool::POOL_PAGE;
pub use scan_end::ScanEnd;
pub use scanner::{PreparedSet, ScanState, Scanner};
pub use set::{PatternSet, SetDigest};

/// The most patterns of a set.
pub const MAX_PATTERNS: usize = 1 << 16;
/// The most regexes of a set. A regex that only spells a text does not count. The compilation time grows with up to the
/// cube of their number; the compiler's budget bounds it.
pub const MAX_REGEXES: usize = 256;
/// The most bytes of a text.
pub const MAX_TEXT_BYTES: usize = 2048;
/// The most bytes of a regex as it is written.
pub const MAX_REGEX_BYTES: usize = 4096;
/// The highest count of a repetition.
pub const MAX_REPEATS: u32 = 4096;
/// The largest size of a regex: its bytes and classes, each as often as it is repeated. One class that is repeated counts a sixteenth of
/// that, since it becomes a counter.
pub const MAX_POSITIONS: u64 = 4096;
/// The largest size of all regexes of a set.
pub const MAX_SET_POSITIONS: u64 = 32 * 1024;
/// The most bytes of the state of a stream.
pub const MAX_STATE_BYTES: usize = POOL_PAGE;
/// The most bytes of a match of a regex that is edited.
pub const MAX_EDIT_MATCH_BYTES: usize = 4096;
/// The most bytes of all texts of an edit.
pub const MAX_EDIT_TEXT_BYTES: usize = 1 << 20;
