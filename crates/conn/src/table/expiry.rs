//! Which connections end as time passes, a bounded number at a time.

use super::ConnectionTable;
use crate::wheel::{self, ExpiryQueues, HALF_OPEN, OVER};
use crate::{CloseReason, ConnId, Connection, LONGEST_S};

/// How many connections one call of [`ConnectionTable::advance`] asks at least whether they ended, where that many are due.
pub(super) const ASKED: usize = 512;

/// How many it asks for each millisecond since the last call: a million within four seconds, however seldom a host calls.
const ASKED_PER_MS: u64 = 250;

/// And at most, which takes some milliseconds: only who did nothing for 64 milliseconds comes to that. A host that sleeps longer
/// asks [`ConnectionTable::is_behind`].
pub(super) const MOST_ASKED: u64 = 1 << 14;

impl ConnectionTable {
    /// Lets time pass: ends connections whose time is up. Asks a bounded number of connections and goes on with the next call, so
    /// that a vector's time stays bounded: some hundred where vector follows vector, some thousand after a pause. Only after a leap of 24
    /// days, which no clock does, all end at once.
    pub fn advance(&mut self, now_ms: u64, closed: &mut dyn FnMut(&Connection, CloseReason)) {
        let leap = now_ms.saturating_sub(self.now_ms) > u64::from(LONGEST_S) * 1000;
        self.now_ms = self.now_ms.max(now_ms);
        if leap && self.len > 0 {
            return self.end_all(closed);
        }
        let passed_ms = self.now_ms - std::mem::replace(&mut self.advanced_ms, self.now_ms);
        let mut left = (passed_ms.saturating_mul(ASKED_PER_MS).min(MOST_ASKED) as usize).max(ASKED);
        for order in HALF_OPEN.start..OVER.end {
            while left > 0
                && let Some(place) = self.queues.first(order)
                && self.is_up(place)
            {
                self.expire(place, closed);
                left -= 1;
            }
        }
        let mut steps = wheel::STEPS;
        while left > 0
            && let Some(place) = self.queues.due(self.now_ms, &mut steps)
        {
            left -= 1;
            if self.is_up(place) { self.expire(place, closed) } else { self.wait_on(place) }
        }
        self.go_on_sweeping(left, closed);
        self.behind = left == 0 || self.sweep.is_some();
    }

    /// Whether connections may be due that the last call of [`ConnectionTable::advance`] did not come to: who has nothing else to do calls
    /// again.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.behind && self.len > 0
    }

    fn end_all(&mut self, closed: &mut dyn FnMut(&Connection, CloseReason)) {
        for place in 0..self.slab.used() {
            if self.slab.live(place).is_some() {
                self.expire(place, closed);
            }
        }
    }

    /// Asks connections anew when to ask them: their timeouts may be shorter than when they were asked last.
    fn go_on_sweeping(&mut self, most: usize, closed: &mut dyn FnMut(&Connection, CloseReason)) {
        let Some(from) = self.sweep else { return };
        let to = from.saturating_add(most as u32).min(self.slab.used());
        for place in from..to {
            if self.slab.live(place).is_none() || !ExpiryQueues::is_in_wheel(&self.slab, place) {
                continue;
            }
            if self.is_up(place) { self.expire(place, closed) } else { self.wait_on(place) }
        }
        self.sweep = Some(to).filter(|to| *to < self.slab.used());
    }

    fn is_up(&self, place: u32) -> bool {
        self.expires_ms(ConnId(place), self.now_ms) == 0
    }

    fn expire(&mut self, place: u32, closed: &mut dyn FnMut(&Connection, CloseReason)) {
        let connection = self.slab.at(place);
        // The one behind it is likely to be next: its lines come while this one ends.
        if let Some(next) = self.slab.live(connection.links.next) {
            next.prefetch();
        }
        let reason = CloseReason::expired(connection.state);
        self.end(place, reason, closed);
    }

    fn wait_on(&mut self, place: u32) {
        let ends_ms = self.now_ms + self.expires_ms(ConnId(place), self.now_ms);
        self.queues.leave(&mut self.slab, place);
        self.queues.join(&mut self.slab, place, ends_ms, false);
    }
}
