//! The waiting of an idle packet thread.

use mmb_io::Waiter;
use mmb_policy::settings::Poll;
use std::time::{Duration, Instant};

/// The time without packets before a thread sleeps: a gap within a burst is shorter than the time to sleep and to wake up.
const AWAKE: Duration = Duration::from_micros(30);
/// The longest sleep, and so the longest delay of an order to stop or to spin.
const LONGEST: Duration = Duration::from_millis(20);

/// The idle state of a thread.
#[derive(Debug)]
pub(super) struct Idle {
    waiter: Waiter,
    /// The first iteration without packets after one with packets.
    empty_since: Option<Instant>,
}

impl Idle {
    pub(super) fn new(waiter: Waiter) -> Idle {
        Idle { waiter, empty_since: None }
    }

    /// Records an iteration with packets.
    #[inline]
    pub(super) fn worked(&mut self) {
        if self.empty_since.take().is_some() {
            self.waiter.reset();
        }
    }

    /// Records an iteration without packets. `sleeps` announces that the thread sleeps, and returns whether it may.
    #[inline]
    pub(super) fn rest(&mut self, poll: Poll, sleeps: impl FnOnce() -> bool) {
        let since = *self.empty_since.get_or_insert_with(Instant::now);
        if poll == Poll::Spin || since.elapsed() < AWAKE {
            std::hint::spin_loop();
        } else if sleeps() {
            self.waiter.wait(LONGEST);
        }
    }
}
