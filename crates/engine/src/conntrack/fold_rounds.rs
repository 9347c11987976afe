//! The rounds of folding: what was listed when a round began is folded in it.

/// How long counts wait under load, in milliseconds.
pub(super) const LAG_MS: u64 = 900;

/// How long a round of folding takes: the connections that are listed when it begins are folded in it.
const ROUND_MS: u64 = LAG_MS / 2;

/// The rounds of folding.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FoldRounds {
    /// The time of the last call, in milliseconds.
    at_ms: u64,
    /// Number of connections that were folded since the start.
    pub(super) done: u64,
    /// This number will be reached in this round, which ends at this time.
    until: u64,
    ends_ms: u64,
}

impl FoldRounds {
    /// Number of connections that are due now.
    pub(super) fn due(&mut self, now_ms: u64) -> u64 {
        let passed_ms = now_ms - std::mem::replace(&mut self.at_ms, now_ms);
        let left_ms = self.ends_ms.saturating_sub(now_ms);
        let left = self.until.saturating_sub(self.done);
        left.saturating_mul(passed_ms).div_ceil((left_ms + passed_ms).max(1))
    }

    /// Begins a round for the connections that are listed, if the last one is over.
    pub(super) fn begin_if_over(&mut self, now_ms: u64, listed: u64) {
        if self.done >= self.until {
            self.until = self.done + listed;
            self.ends_ms = now_ms + ROUND_MS;
        }
    }
}
