//! The rounds of folding. A round folds the connections that were listed when it began.

/// How long counts wait under load at most, in milliseconds.
pub(super) const LAG_MS: u64 = 900;

/// How long a round takes, in milliseconds. A connection that is listed during a round is folded by the end
/// of the next one.
const ROUND_MS: u64 = LAG_MS / 2;

/// The rounds of folding.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FoldRounds {
    /// The time of the last call, in milliseconds.
    at_ms: u64,
    /// Number of connections that were folded since the start.
    pub(super) done: u64,
    /// `done` reaches this number by the end of the round, at `ends_ms`.
    target: u64,
    ends_ms: u64,
}

impl FoldRounds {
    /// Number of connections to fold now, so that the round ends in time.
    pub(super) fn due(&mut self, now_ms: u64) -> u64 {
        let passed_ms = now_ms - std::mem::replace(&mut self.at_ms, now_ms);
        let left_ms = self.ends_ms.saturating_sub(now_ms);
        let left = self.target.saturating_sub(self.done);
        left.saturating_mul(passed_ms).div_ceil((left_ms + passed_ms).max(1))
    }

    /// Begins a round for the connections that are listed, if the last round is over.
    pub(super) fn begin_if_over(&mut self, now_ms: u64, listed: u64) {
        if self.done >= self.target {
            self.target = self.done + listed;
            self.ends_ms = now_ms + ROUND_MS;
        }
    }
}
