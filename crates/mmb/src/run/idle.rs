//! What a packet thread does when nothing has come.

use mmb_io::Waiter;
use mmb_policy::settings::Poll;
use std::time::Duration;

/// Empty turns before a thread goes to sleep: a gap inside a burst is shorter than going to sleep and waking up.
const EMPTY_TURNS: u32 = 32;
/// The longest sleep; orders to stop or to spin are seen that late.
const LONGEST: Duration = Duration::from_millis(20);

/// A thread's patience.
#[derive(Debug)]
pub(super) struct Idle {
    waiter: Waiter,
    empty_turns: u32,
}

impl Idle {
    pub(super) fn new(waiter: Waiter) -> Idle {
        Idle { waiter, empty_turns: 0 }
    }

    /// A turn brought something.
    #[inline]
    pub(super) fn worked(&mut self) {
        if self.empty_turns > 0 {
            self.empty_turns = 0;
            self.waiter.reset();
        }
    }

    /// A turn brought nothing. `sleeps` tells that the thread goes to sleep, and says whether it may.
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
