//! Folding: adds the packets that the quick pass counted for connections to the counters of their rules.
//!
//! A call of the worker with few packets folds some connections, so that counters are exact after each vector
//! on a quiet link. Under load, connections are folded in the order of their first unfolded packet, each
//! within [`LAG_MS`](super::fold_rounds::LAG_MS). Before the control thread reads counters, it asks the
//! worker to fold the rest (`control`).
//!
//! Verdicts and snapshots of earlier policies are kept until the packets that were counted under them are
//! folded. Until then, no other rule gets the slot of a rule that is still to be credited. A successor of a
//! rule takes over its slot and counts from zero: remaining packets of the predecessor are not credited.

use super::tracking::Conntrack;
use crate::compiled::Snapshot;
use mmb_conn::{FOLD_BATCH, QuickPort};
use mmb_policy::settings::Zone;
use std::sync::Arc;

/// A call with at most this number of packets folds [`FOLDED_WHEN_QUIET`] connections.
const MAX_QUIET_PACKETS: usize = 32;
const FOLDED_WHEN_QUIET: usize = 64;

/// Connections that a call without packets folds.
const FOLDED_WHEN_IDLE: usize = 1024;

/// A connection with at least this number of packets since it was folded last is worth offloading.
const MIN_OFFERED_PACKETS: u16 = 64;

/// The most connections that a call folds.
const MAX_FOLDED: u64 = 1 << 12;

impl Conntrack {
    /// Starts to cache verdicts for a policy, and configures the quick pass for its ports. `previous` is the
    /// previous policy.
    pub(super) fn begin_epoch(&mut self, snapshot: &Arc<Snapshot>, previous: Option<Arc<Snapshot>>) {
        let listed = self.table.listed() as u64;
        let kept = previous.filter(|_| listed > 0).map(|previous| (previous, self.folding.done + listed));
        if !self.state.cache.begin_epoch(snapshot, kept) {
            return;
        }
        self.state.rule_cells = snapshot.cells[self.state.worker].clone();
        self.table.begin_epoch();
        let tagged = snapshot.connections.zone == Zone::Vlan;
        self.quick_ports.clear();
        self.quick_ports.extend(snapshot.routes.iter().map(|route| {
            let (wire, side) = (route.wire, route.side);
            let is_usable = route.enabled && route.egress.is_some() && snapshot.caches_verdicts();
            match is_usable {
                true => self.table.quick_port(wire, side, tagged && !wire.is_routed()),
                false => QuickPort::LEFT,
            }
        }));
    }

    /// Folds connections after a call with this number of packets.
    pub(crate) fn fold_some(&mut self, packets: usize) {
        let now_ms = self.state.now_ms;
        let due = self.folding.due(now_ms).min(MAX_FOLDED);
        if self.table.listed() > 0 {
            let at_once = match packets {
                0 => FOLDED_WHEN_IDLE,
                1..=MAX_QUIET_PACKETS => FOLDED_WHEN_QUIET,
                _ => 0,
            };
            self.fold_up_to(at_once.max(due as usize));
        }
        self.folding.begin_if_over(now_ms, self.table.listed() as u64);
        self.state.cells.unfolded(self.table.listed() as u64);
    }

    /// Folds all connections.
    pub(crate) fn fold_all(&mut self) {
        self.fold_up_to(usize::MAX);
        self.state.cells.unfolded(0);
    }

    /// Folds at most this number of connections. Returns how many were folded since the start, and how many
    /// are still to be folded.
    pub(crate) fn fold_chunk(&mut self, max: usize) -> (u64, usize) {
        self.fold_up_to(max);
        self.state.cells.unfolded(self.table.listed() as u64);
        self.folding()
    }

    fn fold_up_to(&mut self, max: usize) {
        let mut left = max;
        while left > 0 {
            let ids = self.table.next_listed(left);
            ids.iter().for_each(|id| self.state.cache.prefetch(*id));
            for id in &ids {
                let unfolded = self.table.fold_listed(*id);
                self.state.credit(unfolded);
                if unfolded.is_some_and(|unfolded| {
                    unfolded.packets.iter().any(|packets| *packets >= MIN_OFFERED_PACKETS)
                }) {
                    self.offer_again(*id);
                }
            }
            self.folding.done += ids.len() as u64;
            left -= ids.len();
            if ids.len() < FOLD_BATCH {
                break;
            }
        }
        self.state.cache.free_former(self.folding.done);
    }

    /// Number of connections that were folded since the start, and of those that are still to be folded.
    pub(crate) fn folding(&self) -> (u64, usize) {
        (self.folding.done, self.table.listed())
    }

    /// Folds the connections whose counts have reached their limit in the quick pass.
    pub(super) fn fold_full(&mut self) {
        while let Some(id) = self.quick.full.pop() {
            let unfolded = self.table.fold(id);
            self.state.credit(unfolded);
        }
    }
}
