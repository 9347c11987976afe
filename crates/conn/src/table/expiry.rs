//! Times connections out, a bounded number per call.

use super::ConnectionTable;
use crate::owner::{CLOSE_BATCH, STEPS, TableOwner};
use crate::slab::ConnectionSlab;
use crate::wheel::{self, CLOSED, ExpiryQueues, HALF_OPEN};
use crate::{CloseReason, ConnId, Direction, LONGEST_S};
use arrayvec::ArrayVec;
use mmb_base::{Id, prefetch};

/// Due connections that one call of [`ConnectionTable::advance`] checks: twice as many as a vector has
/// packets.
pub(super) const CHECKED: usize = 512;

/// Connections that a call of [`ConnectionTable::advance_idle`] checks for each millisecond since the last
/// call. This is a million within four seconds, however rarely the host calls.
const CHECKED_PER_MS: u64 = 250;

/// The maximum number of connections that such a call checks, which takes some milliseconds. Only a host that
/// did not call for 64 milliseconds reaches it. A host that sleeps longer checks
/// [`ConnectionTable::is_behind`].
pub(super) const MAX_CHECKED: u64 = 1 << 14;

/// The time until an offloaded connection that seems to have timed out is rechecked. Its owner may not
/// have reported its last packets yet.
const OFFLOADED_RECHECK_MS: u64 = 250;

/// A walk along a queue from its front. Connections that the walk has passed may leave the queue.
struct QueueWalk {
    next: Option<ConnId>,
    left: usize,
}

impl QueueWalk {
    /// Adds the next connection to `ids`, and prefetches the one after it. False if there is none.
    #[inline]
    fn step(&mut self, slab: &ConnectionSlab, ids: &mut ArrayVec<ConnId, CLOSE_BATCH>) -> bool {
        let Some(id) = self.next.filter(|_| self.left > 0) else { return false };
        self.left -= 1;
        ids.push(id);
        self.next = slab.cold(id).links.next;
        self.next.into_iter().for_each(|next| slab.prefetch(next));
        true
    }
}

/// A connection that has timed out, and the hashes of its tuples.
struct Ending {
    id: ConnId,
    hashes: [u64; 2],
}

impl ConnectionTable {
    /// Advances the time and ends connections that have timed out. Checks a bounded number of connections and
    /// continues with the next call, so that the delay of a vector is bounded. If the clock jumps by more
    /// than 24 days, all connections end at once.
    pub fn advance(&mut self, now_ms: u64, owner: &mut impl TableOwner) {
        self.advance_by(now_ms, CHECKED, owner);
    }

    /// [`ConnectionTable::advance`] for a host without waiting packets. The longer the host did not call
    /// this, the more connections are checked.
    pub fn advance_idle(&mut self, now_ms: u64, owner: &mut impl TableOwner) {
        let before_ms = std::mem::replace(&mut self.idle_ms, now_ms.max(self.now_ms));
        let max = self.idle_ms.saturating_sub(before_ms).saturating_mul(CHECKED_PER_MS).min(MAX_CHECKED);
        self.advance_by(now_ms, CHECKED.max(max as usize), owner);
    }

    fn advance_by(&mut self, now_ms: u64, max: usize, owner: &mut impl TableOwner) {
        let clock_jump = now_ms.saturating_sub(self.now_ms) > u64::from(LONGEST_S) * 1000;
        self.now_ms = self.now_ms.max(now_ms);
        if clock_jump && self.len > 0 {
            return self.end_all(owner);
        }
        let mut left = max;
        for list in HALF_OPEN.start..CLOSED.end {
            while left > 0
                && let Some(first) = self.queues.first(list)
                && self.has_timed_out(first)
            {
                left -= self.check_queue(first, left, owner);
            }
        }
        let mut steps = wheel::STEPS;
        while left > 0
            && let Some(first) = self.queues.due(self.now_ms, &mut steps)
        {
            left -= self.check_queue(first, left, owner);
        }
        self.continue_sweep(left, owner);
        self.sweep_epochs();
        self.is_behind = left == 0 || self.sweep.is_some();
    }

    /// Checks connections from the front of a queue, at most `max`, and ends those that have timed out.
    /// Others in the wheel move to the slot of their timeout; in an eviction list, the first one that has not
    /// timed out ends the check. Returns how many were checked.
    ///
    /// Connections are handled in groups, in steps that each prefetch what the next step reads. A queue is a
    /// list, and a record contains the id of its successor. So the next group is collected one record at a
    /// time while this group ends.
    fn check_queue(&mut self, first: ConnId, max: usize, owner: &mut impl TableOwner) -> usize {
        let is_wheel = ExpiryQueues::is_in_wheel(&self.slab, first);
        let mut checked = 0;
        let mut walk = QueueWalk { next: Some(first), left: max };
        let mut ids = ArrayVec::<ConnId, CLOSE_BATCH>::new();
        loop {
            while !ids.is_full() && walk.step(&self.slab, &mut ids) {}
            if ids.is_empty() {
                return checked;
            }
            let mut ending = ArrayVec::<Ending, CLOSE_BATCH>::new();
            for id in ids.drain(..) {
                if self.has_timed_out(id) {
                    let hashes =
                        Direction::ALL.map(|direction| self.hasher.hash(&self.slab.tuple(id, direction)));
                    hashes.iter().for_each(|hash| prefetch(self.index.first(*hash)));
                    ending.push(Ending { id, hashes });
                } else if is_wheel {
                    self.requeue(id);
                } else {
                    walk.next = None;
                    break;
                }
                checked += 1;
            }
            for step in 0..STEPS {
                owner.prefetch(step, &mut ending.iter().map(|ending| (ending.id, *self.ids(ending.id))));
            }
            owner.closed_batch(ending.into_iter().map(|Ending { id, hashes }| {
                walk.step(&self.slab, &mut ids);
                let reason = CloseReason::expired(self.state(id));
                (self.remove_hashed(id, hashes), reason)
            }));
        }
    }

    /// Whether connections may be due that the last call of [`ConnectionTable::advance`] did not check. An
    /// idle host should then call it again.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.is_behind && self.len > 0
    }

    fn end_all(&mut self, owner: &mut impl TableOwner) {
        for id in self.slab.ids(ConnId::FIRST, usize::MAX).0 {
            if self.slab.is_live(id) {
                self.expire(id, owner);
            }
        }
    }

    /// Rechecks when connections expire, since their timeouts may have become shorter.
    fn continue_sweep(&mut self, max: usize, owner: &mut impl TableOwner) {
        let Some(from) = self.sweep else { return };
        let (ids, next) = self.slab.ids(from, max);
        for id in ids {
            if !self.slab.is_live(id) || !ExpiryQueues::is_in_wheel(&self.slab, id) {
                continue;
            }
            if self.has_timed_out(id) { self.expire(id, owner) } else { self.requeue(id) }
        }
        self.sweep = next;
    }

    /// Whether a connection has timed out. An offloaded connection has not, since the table does not see its
    /// packets.
    fn has_timed_out(&self, id: ConnId) -> bool {
        self.expires_ms(id, self.now_ms) == 0 && !self.slab.line(id).is_offloaded()
    }

    fn expire(&mut self, id: ConnId, owner: &mut impl TableOwner) {
        self.end(id, CloseReason::expired(self.state(id)), owner);
    }

    fn requeue(&mut self, id: ConnId) {
        let min = if self.slab.line(id).is_offloaded() { OFFLOADED_RECHECK_MS } else { 0 };
        let ends_ms = self.now_ms + self.expires_ms(id, self.now_ms).max(min);
        self.queues.leave(&mut self.slab, id);
        self.queues.join(&mut self.slab, id, ends_ms, false);
    }
}
