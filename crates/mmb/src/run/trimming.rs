//! Decides when freed memory is returned to the system.
//!
//! Every change of the policy frees pieces of the previous policy, between pieces that are still in use. The C
//! library reuses such memory, but with gaps: over many thousands of small changes the resident memory grows,
//! although no more is in use. Therefore mmb trims the heap after a number of changes, and when there have been none
//! for a while, but not often: the C library then walks everything that is free.

use std::time::{Duration, Instant};

/// The number of changes after which memory is returned.
const CHANGES: u64 = 1000;

/// The shortest time between two trims after small changes, and the time without a change after which memory is returned.
const INTERVAL: Duration = Duration::from_secs(10);

/// The schedule of trims.
pub(super) struct TrimSchedule {
    /// The version of the policy at the last trim.
    version: u64,
    at: Instant,
    /// The last version of the policy that was seen, and when it was new.
    last: u64,
    changed: Instant,
}

impl TrimSchedule {
    pub(super) fn new(version: u64, now: Instant) -> TrimSchedule {
        TrimSchedule { version, at: now, last: version, changed: now }
    }

    /// Whether to trim now. `freed` says that something large was freed.
    pub(super) fn is_due(&mut self, version: u64, freed: bool, now: Instant) -> bool {
        if version != self.last {
            (self.last, self.changed) = (version, now);
        }
        let is_long_since = |then| now.saturating_duration_since(then) >= INTERVAL;
        let has_crept = version.saturating_sub(self.version) >= CHANGES && is_long_since(self.at);
        let has_rested = version != self.version && is_long_since(self.changed);
        let is_due = freed || has_crept || has_rested;
        if is_due {
            (self.version, self.at) = (version, now);
        }
        is_due
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
        assert!(!schedule.is_due(CHANGES, false, at(3600)), "few changes, and the last one just now");
        assert!(schedule.is_due(1 + CHANGES, false, at(3600)));
        assert!(!schedule.is_due(10 * CHANGES, false, at(3601)), "it was given back just now");
        assert!(schedule.is_due(10 * CHANGES, false, at(3610)));
        assert!(schedule.is_due(10 * CHANGES, true, at(3610)), "something large");
        assert!(!schedule.is_due(10 * CHANGES, false, at(7200)), "no change since");
        assert!(!schedule.is_due(10 * CHANGES + 1, false, at(7200)), "one change");
        assert!(!schedule.is_due(10 * CHANGES + 1, false, at(7209)));
        assert!(schedule.is_due(10 * CHANGES + 1, false, at(7210)), "none for a while");
        assert!(!schedule.is_due(10 * CHANGES + 1, false, at(9999)), "given back");
    }
}
