//! Directions that hold bytes back, in the order in which they began to.

use super::side::EditId;
use crate::table::StreamId;
use std::collections::TryReserveError;
use std::collections::VecDeque;

/// A direction that holds bytes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) due_ms: u64,
    pub(crate) stream: StreamId,
    /// The stream has ended if it has another one.
    pub(crate) edit: EditId,
    pub(crate) direction: usize,
}

/// The queue of a table. All wait for the same time, so that the order of beginning is that of ending. A direction is in it once at most.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue(VecDeque<Waiting>);

impl WaitQueue {
    /// Gets the memory for both directions of that many streams, beside those that wait now.
    pub(crate) fn reserve(&mut self, streams: usize) -> Result<(), TryReserveError> {
        self.0.try_reserve(2 * streams)
    }

    /// Adds a direction; memory was reserved.
    pub(crate) fn push(&mut self, waiting: Waiting) {
        self.0.push_back(waiting);
    }

    /// Takes the first one, if its time has come.
    pub(crate) fn pop_due(&mut self, now_ms: u64) -> Option<Waiting> {
        self.0.pop_front_if(|waiting| waiting.due_ms <= now_ms)
    }

    /// When the first one is due.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.0.front().map(|waiting| waiting.due_ms)
    }
}
