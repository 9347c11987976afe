//! The time of events: workers have a clock that begins at zero and never goes back, people want the time of day.

use jiff::Timestamp;
use std::time::{Duration, Instant, SystemTime};

/// Translates the times of workers to the time of day.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerClock {
    /// When the workers' clock was zero; `None`: their time is not the time that passes, and events happen when they are read.
    origin: Option<Instant>,
}

impl WorkerClock {
    /// A clock for workers whose time began then.
    pub fn new(origin: Option<Instant>) -> WorkerClock {
        WorkerClock { origin }
    }

    /// The time of day that a time of workers is, by the system's clock as it goes now.
    pub fn time_of_day(&self, at_ns: u64) -> SystemTime {
        let ago = self.origin.and_then(|origin| origin.elapsed().checked_sub(Duration::from_nanos(at_ns)));
        let now = SystemTime::now();
        now.checked_sub(ago.unwrap_or_default()).unwrap_or(now)
    }
}

/// A time in UTC as RFC 3339 writes it, in microseconds: `2026-01-02T03:04:05.678901Z`.
pub fn rfc3339(time: SystemTime) -> String {
    // The system's clock cannot be beyond the years that have four digits.
    let time = Timestamp::try_from(time).unwrap_or_default();
    format!("{time:.6}")
}

/// Reads what [`rfc3339`] has written.
pub fn read_rfc3339(text: &str) -> Option<SystemTime> {
    let ns = u64::try_from(text.parse::<Timestamp>().ok()?.as_nanosecond()).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_six_digits_and_are_in_utc() {
        let at = |ns| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_nanos(ns));
        assert_eq!(at(0), "1970-01-01T00:00:00.000000Z");
        // `date -u -d @1709210096.789012 +%FT%T.%6NZ`
        assert_eq!(at(1_709_210_096_789_012_345), "2024-02-29T12:34:56.789012Z");
        let read = read_rfc3339("2024-02-29T12:34:56.789012Z");
        assert_eq!(read, Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(1_709_210_096_789_012_000)));
        assert_eq!(read_rfc3339("yesterday"), None);
    }

    #[test]
    fn an_event_is_as_old_as_the_clock_of_its_worker_says() {
        let clock = WorkerClock::new(Some(Instant::now()));
        let second = Duration::from_secs(1);
        std::thread::sleep(Duration::from_millis(2));
        let before = SystemTime::now();
        let began = clock.time_of_day(0);
        assert!(began <= before - Duration::from_millis(2) && began > before - 60 * second);
        assert!(clock.time_of_day(1_000_000) > began);
        // The clock of a worker that is ahead of the one that reads.
        assert!(clock.time_of_day(u64::MAX) >= before);
        assert!(WorkerClock::default().time_of_day(5) >= before);
    }
}
