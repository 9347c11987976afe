//! Cached verdicts, and counts that are not folded yet.
//!
//! The quick pass counts packets in flow lines. Folding moves the counts of a connection to its totals and
//! passes them to the table's owner, which adds them to the counters of the connection's rules. A list
//! contains the connections with such counts, in the order of their first packet.
//!
//! An epoch is a number of 12 bits. Before a number is reused, it must be removed from all flow lines. A
//! sweep does that, over some lines per call. If epochs follow each other so fast that a sweep has not ended
//! when the next one is due, no verdict is cached until it ends.

use super::ConnectionTable;
use super::epochs::SECOND_HALF;
use crate::queue::FOLD_BATCH;
use crate::record::LAST_EPOCH;
use crate::{ConnId, Direction, Unfolded};
use arrayvec::ArrayVec;
use mmb_base::Id;
use mmb_packet::PortId;

/// Flow lines that a call of the sweep checks.
const SWEPT: usize = 256;

impl ConnectionTable {
    /// Starts an epoch, in which no verdict is cached yet.
    pub fn begin_epoch(&mut self) {
        let next = if self.epochs.last == LAST_EPOCH { 1 } else { self.epochs.last + 1 };
        if next == 1 || next == SECOND_HALF {
            if self.epochs.sweep.is_some() {
                self.epoch = 0;
                return;
            }
            self.epochs.sweep = Some(ConnId::FIRST);
        }
        self.epochs.last = next;
        self.epoch = next;
    }

    /// Continues the sweep that removes old epochs.
    pub(super) fn sweep_epochs(&mut self) {
        let Some(from) = self.epochs.sweep else { return };
        let (ids, next) = self.slab.ids(from, SWEPT);
        let now = self.epoch;
        let is_old = |epoch: u16| (epoch >= SECOND_HALF) != (now >= SECOND_HALF);
        for id in ids {
            let line = self.slab.line_mut(id);
            if line.epoch() != 0 && (now == 0 || is_old(line.epoch())) {
                line.clear_verdicts();
            }
        }
        self.epochs.sweep = next;
        if next.is_none() && now == 0 {
            self.begin_epoch();
        }
    }

    /// Caches the verdict of a connection's packets of a direction that arrive on a port:
    /// they pass without an edit. This has no effect if
    ///
    /// - packets of the connection need more than a flow line,
    /// - counts of an earlier epoch are not folded, or
    /// - no epoch is current.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    #[inline]
    pub fn cache_verdict(&mut self, id: ConnId, direction: Direction, port: PortId) {
        let line = self.slab.line(id);
        if !line.has_verdict(direction, port.0, self.epoch) && self.epoch != 0 && line.wide().is_none() {
            self.cache_new_verdict(id, direction, port);
        }
    }

    #[inline(never)]
    fn cache_new_verdict(&mut self, id: ConnId, direction: Direction, port: PortId) {
        let line = self.slab.line(id);
        let has_counts_of_before = line.epoch() != self.epoch && line.unfolded(id).is_some();
        if self.slab.cold(id).is_untagged(direction) && !has_counts_of_before {
            self.slab.line_mut(id).cache_verdict(direction, port.0, self.epoch);
        }
    }

    /// Clears the cached verdict of a connection's packets of a direction. The caller must fold
    /// the counts first.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    pub fn clear_verdict(&mut self, id: ConnId, direction: Direction) {
        self.slab.line_mut(id).clear_verdict(direction);
    }

    /// Folds the counts of a connection. Returns them, if there are any.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    #[inline]
    pub fn fold(&mut self, id: ConnId) -> Option<Unfolded> {
        let unfolded = self.slab.line(id).unfolded(id);
        if unfolded.is_some() {
            self.slab.fold(id);
        }
        unfolded
    }

    /// Removes connections from the front of the list of those with counts that are not folded, and
    /// prefetches their records. The caller must pass each one to [`ConnectionTable::fold_listed`] at once.
    pub fn next_listed(&mut self, max: usize) -> ArrayVec<ConnId, FOLD_BATCH> {
        let ids: ArrayVec<ConnId, FOLD_BATCH> =
            std::iter::from_fn(|| self.unfolded.pop()).take(max.min(FOLD_BATCH)).collect();
        ids.iter().for_each(|id| self.slab.prefetch(*id));
        ids
    }

    /// Folds the counts of a connection that [`ConnectionTable::next_listed`] returned.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    pub fn fold_listed(&mut self, id: ConnId) -> Option<Unfolded> {
        self.slab.line_mut(id).unlist();
        self.fold(id)
    }

    /// Number of connections in the list.
    #[inline]
    pub fn listed(&self) -> usize {
        self.unfolded.len()
    }
}
