//! From the results of probes to the health of servers: it changes after some equal results in a row.

/// How many results in a row change the health of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thresholds {
    /// Passes that make a failed server healthy.
    pub(super) rise: u32,
    /// Failures that make a healthy server fail.
    pub(super) fall: u32,
}

/// The health of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerHealth {
    pub(super) is_healthy: bool,
    /// Results in a row that say otherwise.
    against: u32,
}

impl ServerHealth {
    /// A server whose health is known, or assumed.
    pub(super) fn new(is_healthy: bool) -> ServerHealth {
        ServerHealth { is_healthy, against: 0 }
    }

    /// Takes a result into account. Returns whether the health changes.
    pub(super) fn count(&mut self, passed: bool, thresholds: Thresholds) -> bool {
        if passed == self.is_healthy {
            self.against = 0;
            return false;
        }
        self.against += 1;
        let changes = self.against >= if passed { thresholds.rise } else { thresholds.fall };
        if changes {
            *self = ServerHealth::new(passed);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_changes_after_results_in_a_row() {
        let thresholds = Thresholds { rise: 2, fall: 3 };
        let mut health = ServerHealth::new(true);
        let results = [false, false, true, false, false, false, true, false, true, true, false];
        let healthy: Vec<bool> = results
            .iter()
            .map(|passed| {
                let before = health.is_healthy;
                let changes = health.count(*passed, thresholds);
                assert_eq!(changes, before != health.is_healthy);
                health.is_healthy
            })
            .collect();
        let expected = [true, true, true, true, true, false, false, false, false, true, true];
        assert_eq!(healthy, expected);
        let mut at_once = ServerHealth::new(false);
        assert!(at_once.count(true, Thresholds { rise: 1, fall: 1 }) && at_once.is_healthy);
    }
}
