//! When memory that was freed goes back to the system.
//!
//! Every change of the policy frees pieces of the one before, between pieces that are still in use. The C
//! library keeps such memory and fills it again, but never as tightly: over many thousands of small changes
//! the resident memory creeps up, although no more is in use. So it is given back after a number of changes,
//! and not often, since the C library then looks at everything that is free.

use std::time::{Duration, Instant};

/// Changes after which memory is given back.
const CHANGES: u64 = 1000;

/// The shortest time between two times after small changes.
const INTERVAL: Duration = Duration::from_secs(10);

/// Decides when memory is given back.
pub(super) struct TrimSchedule {
    /// The version of the policy when it was given back last.
    version: u64,
    at: Instant,
}

impl TrimSchedule {
    pub(super) fn new(version: u64, now: Instant) -> TrimSchedule {
        TrimSchedule { version, at: now }
    }

    /// Whether to give memory back now: `freed` says that something large was freed.
    pub(super) fn is_due(&mut self, version: u64, freed: bool, now: Instant) -> bool {
        let has_crept = version.saturating_sub(self.version) >= CHANGES
            && now.saturating_duration_since(self.at) >= INTERVAL;
        if freed || has_crept {
            *self = TrimSchedule { version, at: now };
        }
        freed || has_crept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_after_many_changes_and_not_often() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut schedule = TrimSchedule::new(1, start);
        assert!(!schedule.is_due(CHANGES, false, at(3600)), "few changes");
        assert!(schedule.is_due(1 + CHANGES, false, at(3600)));
        assert!(!schedule.is_due(10 * CHANGES, false, at(3601)), "it was given back just now");
        assert!(schedule.is_due(10 * CHANGES, false, at(3610)));
        assert!(schedule.is_due(10 * CHANGES, true, at(3610)), "something large");
        assert!(!schedule.is_due(10 * CHANGES, false, at(7200)), "no change since");
    }
}
