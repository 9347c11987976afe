//! Verdicts that are known, and counts that are not folded.
//!
//! The quick pass counts packets in flow lines. Folding moves the counts of a connection to its totals, and hands them to the table's owner,
//! who adds them to the counters of the connection's rules. Connections with such counts are in a list, in the order of their first packet.
//!
//! An epoch is a number of 12 bits. Before one comes again, all flow lines must have forgotten it: a sweep over some lines a call does
//! that. Should epochs follow each other so fast that it has not ended, no verdict is known until it has.

use super::ConnectionTable;
use super::epochs::SECOND_HALF;
use crate::queue::FOLDED;
use crate::record::LAST_EPOCH;
use crate::{ConnId, Direction, Unfolded};
use arrayvec::ArrayVec;
use mmb_base::Id;
use mmb_packet::PortId;

/// Flow lines that a call of the sweep checks.
const SWEPT: usize = 256;

impl ConnectionTable {
    /// Begins an epoch, in which no verdict is known.
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

    /// Continues the sweep that forgets old epochs.
    pub(super) fn sweep_epochs(&mut self) {
        let Some(from) = self.epochs.sweep else { return };
        let (ids, next) = self.slab.ids(from, SWEPT);
        let now = self.epoch;
        let is_old = |epoch: u16| (epoch >= SECOND_HALF) != (now >= SECOND_HALF);
        for id in ids {
            let line = self.slab.line_mut(id);
            if line.epoch() != 0 && (now == 0 || is_old(line.epoch())) {
                line.forget();
            }
        }
        self.epochs.sweep = next;
        if next.is_none() && now == 0 {
            self.begin_epoch();
        }
    }

    /// Records that the verdict of a connection's packets of a direction which come in by a port is known: they pass without an edit.
    /// Connections whose packets need more than a flow line are left out, and so are all others while no epoch has begun.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    #[inline]
    pub fn know(&mut self, id: ConnId, direction: Direction, port: PortId) {
        let line = self.slab.line(id);
        if !line.knows(direction, port.0, self.epoch) && self.epoch != 0 && line.wide().is_none() {
            self.know_newly(id, direction, port);
        }
    }

    #[inline(never)]
    fn know_newly(&mut self, id: ConnId, direction: Direction, port: PortId) {
        let line = self.slab.line(id);
        let has_counts_of_before = line.epoch() != self.epoch && line.unfolded(id).is_some();
        if self.slab.cold(id).is_untagged(direction) && !has_counts_of_before {
            self.slab.line_mut(id).know(direction, port.0, self.epoch);
        }
    }

    /// Records that the verdict of a connection's packets of a direction is not known. Counts are to be folded first.
    ///
    /// # Panics
    /// As [`ConnectionTable::get`].
    pub fn forget(&mut self, id: ConnId, direction: Direction) {
        self.slab.line_mut(id).forget_one(direction);
    }

    /// Folds the counts of a connection.
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

    /// Takes connections from the front of the list of those with counts that are not folded, and prefetches them: each must be passed to
    /// [`ConnectionTable::fold_listed`] at once.
    pub fn next_listed(&mut self, most: usize) -> ArrayVec<ConnId, FOLDED> {
        let ids: ArrayVec<ConnId, FOLDED> =
            std::iter::from_fn(|| self.unfolded.pop()).take(most.min(FOLDED)).collect();
        ids.iter().for_each(|id| self.slab.prefetch(*id));
        ids
    }

    /// Folds the counts of a connection that was taken from the list.
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
