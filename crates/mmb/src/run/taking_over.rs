//! Waits for another mmb to end that still has an interface, a socket or a lock that this mmb needs.
//!
//! The kernel closes the sockets and locks of a killed process only after it has freed the memory of that
//! process, which takes a while for large tables and huge pages. A start right after `kill -9`, or beside a
//! daemon that is stopping, therefore waits for a bounded time.

use crate::output;
use std::fmt::Display;
use std::time::{Duration, Instant};

/// How long a start waits in all.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it tries.
const INTERVAL: Duration = Duration::from_millis(50);

/// The rest of the time that a start may wait.
pub(super) struct Patience {
    /// `None` before the first wait.
    deadline: Option<Instant>,
    limit: Duration,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { deadline: None, limit: PATIENCE }
    }

    /// Calls `take` until it succeeds or the time is over. Only an error for which `is_taken` returns true is
    /// tried again: another mmb has the resource. Reports the first such error. `pause` waits between two
    /// tries; if it returns false, the wait ends early.
    ///
    /// # Errors
    /// The last error of `take`.
    pub(super) fn take<T, E: Display>(
        &mut self,
        is_taken: impl Fn(&E) -> bool,
        mut take: impl FnMut() -> Result<T, E>,
        pause: impl Fn(Duration) -> bool,
    ) -> Result<T, E> {
        let mut is_reported = false;
        loop {
            let error = match take() {
                Err(error) if is_taken(&error) => error,
                taken => return taken,
            };
            let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + self.limit);
            if !is_reported {
                is_reported = true;
                let left = deadline.saturating_duration_since(Instant::now()).as_secs_f32().ceil();
                output::report_error(&format!("waiting for up to {left} s, since {error}"));
            }
            if Instant::now() >= deadline || !pause(INTERVAL) {
                return Err(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn what_becomes_free_is_taken() {
        let (mut patience, tries) = (Patience::new(), Cell::new(0));
        let take = || {
            tries.set(tries.get() + 1);
            if tries.get() < 3 { Err("taken") } else { Ok("mine") }
        };
        assert_eq!(patience.take(|error| *error == "taken", take, |_| true), Ok("mine"));
        assert_eq!(tries.get(), 3);
    }

    #[test]
    fn other_errors_a_signal_and_the_end_of_the_patience_end_the_wait() {
        let mut patience = Patience::new();
        assert_eq!(patience.take::<(), _>(|_| false, || Err("other"), |_| panic!("waits")), Err("other"));
        assert_eq!(patience.take::<(), _>(|_| true, || Err("taken"), |_| false), Err("taken"));
        let mut patience = Patience { deadline: None, limit: Duration::ZERO };
        assert_eq!(patience.take::<(), _>(|_| true, || Err("taken"), |_| true), Err("taken"));
    }
}
