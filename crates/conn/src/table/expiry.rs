//! Times connections out, a bounded number per call.

use super::ConnectionTable;
use crate::wheel::{self, CLOSED, ExpiryQueues, HALF_OPEN};
use crate::{CloseReason, ConnId, Connection, LONGEST_S};
use mmb_base::Id;

/// Due connections that one call of [`ConnectionTable::advance`] checks at least, if there are that many.
pub(super) const CHECKED_AT_LEAST: usize = 512;

/// Connections that it checks for each millisecond since the last call: a million within four seconds, however rarely a host calls.
const CHECKED_PER_MS: u64 = 250;

/// The most connections that one call checks, which takes some milliseconds: only a host that did not call for 64 milliseconds reaches it.
/// A host that sleeps longer checks [`ConnectionTable::is_behind`].
pub(super) const MOST_CHECKED: u64 = 1 << 14;

impl ConnectionTable {
    /// Advances the time and ends connections that have timed out. Checks a bounded number of connections and continues with the next call,
    /// so that the delay of a vector is bounded: some hundred if vectors follow each other, some thousand after a pause. If the clock jumps by
    /// more than 24 days, all connections end at once.
    pub fn advance(&mut self, now_ms: u64, closed: &mut dyn FnMut(&Connection, CloseReason)) {
        let clock_jump = now_ms.saturating_sub(self.now_ms) > u64::from(LONGEST_S) * 1000;
        self.now_ms = self.now_ms.max(now_ms);
        if clock_jump && self.len > 0 {
            return self.end_all(closed);
        }
        let passed_ms = self.now_ms - std::mem::replace(&mut self.advanced_ms, self.now_ms);
        let mut left =
            (passed_ms.saturating_mul(CHECKED_PER_MS).min(MOST_CHECKED) as usize).max(CHECKED_AT_LEAST);
        for order in HALF_OPEN.start..CLOSED.end {
            while left > 0
                && let Some(id) = self.queues.first(order)
                && self.has_timed_out(id)
            {
                self.expire(id, closed);
                left -= 1;
            }
        }
        let mut steps = wheel::STEPS;
        while left > 0
            && let Some(id) = self.queues.due(self.now_ms, &mut steps)
        {
            left -= 1;
            if self.has_timed_out(id) { self.expire(id, closed) } else { self.requeue(id) }
        }
        self.continue_sweep(left, closed);
        self.sweep_epochs();
        self.behind = left == 0 || self.sweep.is_some();
    }

    /// Whether connections may be due that the last call of [`ConnectionTable::advance`] did not reach: an idle host calls again.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.behind && self.len > 0
    }

    fn end_all(&mut self, closed: &mut dyn FnMut(&Connection, CloseReason)) {
        for id in self.slab.ids(ConnId::FIRST, usize::MAX).0 {
            if self.slab.is_live(id) {
                self.expire(id, closed);
            }
        }
    }

    /// Re-checks when connections expire, since their timeouts may have become shorter.
    fn continue_sweep(&mut self, most: usize, closed: &mut dyn FnMut(&Connection, CloseReason)) {
        let Some(from) = self.sweep else { return };
        let (ids, next) = self.slab.ids(from, most);
        for id in ids {
            if !self.slab.is_live(id) || !ExpiryQueues::is_in_wheel(&self.slab, id) {
                continue;
            }
            if self.has_timed_out(id) { self.expire(id, closed) } else { self.requeue(id) }
        }
        self.sweep = next;
    }

    fn has_timed_out(&self, id: ConnId) -> bool {
        self.expires_ms(id, self.now_ms) == 0
    }

    fn expire(&mut self, id: ConnId, closed: &mut dyn FnMut(&Connection, CloseReason)) {
        // The next connection in the queue is likely to expire next: its cache lines load while this one ends.
        if let Some(next) = self.slab.cold(id).links.next {
            self.slab.prefetch(next);
        }
        let reason = CloseReason::expired(self.state(id));
        self.end(id, reason, closed);
    }

    fn requeue(&mut self, id: ConnId) {
        let ends_ms = self.now_ms + self.expires_ms(id, self.now_ms);
        self.queues.leave(&mut self.slab, id);
        self.queues.join(&mut self.slab, id, ends_ms, false);
    }
}
