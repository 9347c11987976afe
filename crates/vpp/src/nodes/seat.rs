//! What a thread of VPP works with.

use mmb_engine::Worker;

/// One thread's part of the engine.
pub(crate) struct Seat {
    /// Decides about packets.
    pub(crate) worker: Worker,
}

impl Seat {
    pub(crate) fn new(worker: Worker) -> Seat {
        Seat { worker }
    }
}
