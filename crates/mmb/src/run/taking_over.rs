//! Waits for another mmb to end that still has an interface, a socket or a lock that this mmb needs.
//!
//! The kernel closes the sockets and locks of a killed process only after it has freed the memory of that
//! process, which takes a while for large tables and huge pages. A start right after `kill -9`, or beside a
//! daemon that is stopping, therefore waits for a bounded time.

use crate::output;
use std::time::{Duration, Instant};

/// How long a start waits in all.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// How often it tries.
const INTERVAL: Duration = Duration::from_millis(50);

/// What another process has, and that process if it is known.
pub(super) type Held = (String, Option<u32>);

/// The rest of the time that a start may wait.
pub(super) struct TakeoverWait {
    /// `None` before the first wait.
    deadline: Option<Instant>,
    limit: Duration,
}

impl TakeoverWait {
    pub(super) fn new() -> TakeoverWait {
        TakeoverWait { deadline: None, limit: LONGEST_WAIT }
    }

    /// Calls `take` until it succeeds or the time is over. Only an error for which `held_resource` returns the resource
    /// and the process that has it is tried again. Reports the first such wait. `pause` waits between two tries; if
    /// it returns false, the wait ends early.
    ///
    /// # Errors
    /// The last error of `take`.
    pub(super) fn take<T, E>(
        &mut self,
        held_resource: impl Fn(&E) -> Option<Held>,
        mut take: impl FnMut() -> Result<T, E>,
        pause: impl Fn(Duration) -> bool,
    ) -> Result<T, E> {
        let mut is_reported = false;
        loop {
            let taken = take();
            let Some((resource, process)) = taken.as_ref().err().and_then(&held_resource) else {
                return taken;
            };
            let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + self.limit);
            if !is_reported {
                is_reported = true;
                let left = deadline.saturating_duration_since(Instant::now()).as_secs_f32().ceil();
                let process =
                    process.map_or_else(|| "another process".to_owned(), |id| format!("process {id}"));
                output::report_error(&format!(
                    "waiting up to {left} s for {resource}, which {process} still has"
                ));
            }
            if Instant::now() >= deadline || !pause(INTERVAL) {
                return taken;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn held(error: &&str) -> Option<Held> {
        (*error == "taken").then(|| ("interface 'a'".to_owned(), Some(7)))
    }

    #[test]
    fn what_becomes_free_is_taken() {
        let (mut wait, tries) = (TakeoverWait::new(), Cell::new(0));
        let take = || {
            tries.set(tries.get() + 1);
            if tries.get() < 3 { Err("taken") } else { Ok("mine") }
        };
        assert_eq!(wait.take(held, take, |_| true), Ok("mine"));
        assert_eq!(tries.get(), 3);
    }

    #[test]
    fn a_wait_ends_at_another_error_at_a_signal_and_at_its_deadline() {
        let mut wait = TakeoverWait::new();
        assert_eq!(wait.take::<(), _>(held, || Err("other"), |_| panic!("waits")), Err("other"));
        assert_eq!(wait.take::<(), _>(held, || Err("taken"), |_| false), Err("taken"));
        let mut wait = TakeoverWait { deadline: None, limit: Duration::ZERO };
        assert_eq!(wait.take::<(), _>(held, || Err("taken"), |_| true), Err("taken"));
    }
}
