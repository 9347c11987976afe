//! The working memory of a worker, which edits of all its connections use one after the other.

use crate::body::{Found, Run};
use crate::exchange::MAX_LIVE_RULES;
use crate::head_edit::HeadTable;
use crate::limits::{MAX_GATHERED_BYTES, MAX_MATCHES, MAX_RUNS, MAX_WRITTEN_BYTES};
use crate::rule::MAX_TAIL_BYTES;
use mmb_http::HeadBuffer;

/// The working memory of a worker: some 1.2 MiB. Made off the packet path; used on it without allocation.
#[derive(Debug, Default)]
pub struct HttpMemory {
    pub(crate) buffer: HeadBuffer,
    pub(crate) work: Work,
}

/// All of it but the places of a head's headers, which are read while the rest is written.
#[derive(Debug)]
pub(crate) struct Work {
    /// Slots of an exchange that begins or goes on.
    pub(crate) slots: Vec<u16>,
    /// Constraints whose regexes were found in a head.
    pub(crate) found_regexes: Vec<u16>,
    /// The value of a header that was folded.
    pub(crate) unfolded: Vec<u8>,
    pub(crate) table: HeadTable,
    pub(crate) runs: Vec<Run>,
    pub(crate) content: Vec<u8>,
    pub(crate) found: Vec<Found>,
    /// What stands in the place of bytes.
    pub(crate) text: Vec<u8>,
}

impl Default for Work {
    fn default() -> Self {
        Work {
            slots: Vec::with_capacity(MAX_LIVE_RULES),
            found_regexes: Vec::with_capacity(MAX_LIVE_RULES),
            unfolded: Vec::with_capacity(MAX_WRITTEN_BYTES),
            table: HeadTable::default(),
            runs: Vec::with_capacity(MAX_RUNS),
            content: Vec::with_capacity(MAX_GATHERED_BYTES),
            found: Vec::with_capacity(MAX_MATCHES),
            // All that is written at once may be neighbours: matches, what rules add, and a head.
            text: Vec::with_capacity(3 * MAX_WRITTEN_BYTES + MAX_LIVE_RULES * MAX_TAIL_BYTES),
        }
    }
}
