//! A panic in a node costs the packets that it has not sent on, and does not end VPP.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The number of a frame's buffers that the node no longer owns: sent on, handed over or freed.
#[derive(Debug, Default)]
pub(super) struct SentCount(Cell<usize>);

impl SentCount {
    /// Counts the next buffers of the frame as sent. Call it before VPP gets them: after a panic in between they are lost, but no buffer is
    /// used twice.
    pub(super) fn add(&self, buffers: usize) {
        self.0.set(self.0.get() + buffers);
    }

    /// Runs a node's work on a frame. If it panics, `drop` gets the buffers that were not sent.
    pub(super) fn contain<S, B>(
        &self,
        state: &mut S,
        frame: &[B],
        work: impl FnOnce(&mut S),
        drop: impl FnOnce(&mut S, &[B]),
    ) {
        let done = catch_unwind(AssertUnwindSafe(|| work(state)));
        if done.is_err() {
            let left = frame.get(self.0.get()..).unwrap_or_default();
            // A second panic must not end VPP either: the buffers are lost then.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(state, left)));
        }
    }
}
