//! What a node's panic costs: the packets that it has not sent on, and not VPP.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many of a frame's buffers are another's already: sent on, handed over or freed.
#[derive(Debug, Default)]
pub(super) struct SentCount(Cell<usize>);

impl SentCount {
    /// So many more of the frame's buffers, the first of those that were left, are sent now. To be said before VPP is given them: what
    /// a panic then leaves unsent is lost, but nothing is used twice.
    pub(super) fn add(&self, buffers: usize) {
        self.0.set(self.0.get() + buffers);
    }

    /// Does a node's work on a frame. If that ends with a panic, `drop` gets the buffers that were not sent.
    pub(super) fn contain(&self, frame: &[u32], work: impl FnOnce(), drop: impl FnOnce(&[u32])) {
        let done = catch_unwind(AssertUnwindSafe(work));
        if done.is_err() {
            let left = frame.get(self.0.get()..).unwrap_or_default();
            // What is wrong with the drop as well must not end VPP either: the buffers are lost then.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(left)));
        }
    }
}
