//! A clock that moves only when told.

use std::cell::Cell;

/// Virtual time in nanoseconds since an epoch of its own.
#[derive(Debug, Default)]
pub struct Clock {
    now_ns: Cell<u64>,
}

impl Clock {
    /// The time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    /// Lets time pass.
    pub fn advance_ms(&self, by_ms: u64) {
        self.now_ns.set(self.now_ns.get() + by_ms * 1_000_000);
    }
}
