//! The words that the control thread writes and every packet thread reads in each iteration.

use mmb_policy::settings::Poll;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The orders of the control side to all packet threads.
#[derive(Debug, Default)]
pub(super) struct ThreadOrders {
    /// End after the current vector.
    pub(super) stop: AtomicBool,
    /// Never sleep.
    pub(super) spin: AtomicBool,
    /// The number of orders about links so far.
    pub(super) links: AtomicU32,
}

impl ThreadOrders {
    /// The way in which an idle thread waits.
    pub(super) fn poll(&self) -> Poll {
        if self.spin.load(Ordering::Relaxed) { Poll::Spin } else { Poll::Adaptive }
    }
}
