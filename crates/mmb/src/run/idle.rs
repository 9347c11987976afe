//! The waiting of an idle packet thread.

use mmb_io::Waiter;
use mmb_policy::settings::Poll;
use std::time::Duration;

/// Empty iterations before a thread sleeps: a gap within a burst is shorter than the time to sleep and to wake up.
const EMPTY_TURNS: u32 = 32;
/// The longest sleep, and so the longest delay of an order to stop or to spin.
const LONGEST: Duration = Duration::from_millis(20);

/// The idle state of a thread.
#[derive(Debug)]
pub(super) struct Idle {
    waiter: Waiter,
    empty_turns: u32,
}

impl Idle {
    pub(super) fn new(waiter: Waiter) -> Idle {
        Idle { waiter, empty_turns: 0 }
    }

    /// Records an iteration with packets.
    #[inline]
    pub(super) fn worked(&mut self) {
        if self.empty_turns > 0 {
            self.empty_turns = 0;
            self.waiter.reset();
        }
    }

    /// Records an iteration without packets. `sleeps` announces that the thread sleeps, and returns whether it may.
    #[inline]
    pub(super) fn rest(&mut self, poll: Poll, sleeps: impl FnOnce() -> bool) {
        if poll == Poll::Spin || self.empty_turns < EMPTY_TURNS {
            self.empty_turns = self.empty_turns.saturating_add(1);
            std::hint::spin_loop();
        } else if sleeps() {
            self.waiter.wait(LONGEST);
        }
    }
}
