//! Tasks of the control thread on a worker's connections. Each task visits a limited number of table slots
//! between two vectors, and returns where the next task continues.

use super::info::ConnectionInfo;
use super::saved_connection::{LeftOutConnection, SavedConnection};
use super::state_file::EncodedConnections;
use super::tracking::Conntrack;
use super::watched_events::Watcher;
use crate::compiled::{AffectedConnections, RuleLineage, Snapshot, StatefulChange};
use crate::drop::DropReason;
use mmb_conn::{CloseReason, ConnId, Connection, RuleSetId};
use mmb_nat::MAX_PREFETCHED;
use mmb_policy::{ConnectionFilter, RuleId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A connection to restore, and its rules.
pub(crate) type RestoreRequest = (SavedConnection, Vec<RuleLineage>);

/// The number of connections of a state that were restored, and of those that were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadSummary {
    /// Connections that were restored and still exist at the end of the restore.
    pub connections: u64,
    /// Restored connections with rules that the policy does not have: the connections have lost these rules.
    pub lost_rules: u64,
    /// Connections that were left out, by the name of the [reason](LeftOutConnection::reason).
    pub left_out: BTreeMap<&'static str, u64>,
}

impl LoadSummary {
    pub(crate) fn leave_out(&mut self, reason: &'static str, connections: u64) {
        if connections > 0 {
            *self.left_out.entry(reason).or_default() += connections;
        }
    }

    pub(crate) fn add(&mut self, other: LoadSummary) {
        self.connections += other.connections;
        self.lost_rules += other.lost_rules;
        for (reason, count) in other.left_out {
            *self.left_out.entry(reason).or_default() += count;
        }
    }
}

impl Conntrack {
    /// The connections that a filter matches, in `max` slots from `first`.
    pub(crate) fn list(
        &self,
        filter: &ConnectionFilter,
        first: ConnId,
        max: usize,
    ) -> (Option<ConnId>, Vec<ConnectionInfo>) {
        let mut found = Vec::new();
        let next = self.table.scan(first, max, &mut |id, connection| {
            let info = self.info(id, connection);
            if info.matches(filter) {
                found.push(info);
            }
        });
        (next, found)
    }

    /// Ends the connections that a filter matches, in `max` slots from `first`. Also returns their number.
    pub(crate) fn kill(
        &mut self,
        filter: &ConnectionFilter,
        first: ConnId,
        max: usize,
    ) -> (Option<ConnId>, u64) {
        let mut ended = Vec::new();
        let next = self.table.scan(first, max, &mut |id, connection| {
            if self.info(id, connection).matches(filter) {
                ended.push(id);
            }
        });
        let reason = if filter.rule.is_some() { CloseReason::RuleDeleted } else { CloseReason::Killed };
        ended.iter().for_each(|id| self.end_or_close(*id, reason));
        (next, ended.len() as u64)
    }

    /// Ends the connections with a rule that a change removes, in `max` slots from `first`. Also returns
    /// their number.
    pub(crate) fn kill_removed(
        &mut self,
        change: &StatefulChange,
        first: ConnId,
        max: usize,
    ) -> (Option<ConnId>, u64) {
        let mut ended = Vec::new();
        let sets = &self.state.sets;
        let next = self.table.scan(first, max, &mut |id, connection| {
            if sets.rules(connection.ids.rule_set).any(|rule| change.removes(rule.line)) {
                ended.push(id);
            }
        });
        ended.iter().for_each(|id| self.end_or_close(*id, CloseReason::RuleDeleted));
        (next, ended.len() as u64)
    }

    /// The numbers of connections that a change of the policy affects, in `max` rule sets from `first`.
    pub(crate) fn affected(
        &self,
        snapshot: &Snapshot,
        change: &StatefulChange,
        first: RuleSetId,
        max: u32,
    ) -> (Option<RuleSetId>, AffectedConnections) {
        self.state.sets.affected(snapshot, change, first, max)
    }

    /// Replaces the content of `found` by the connections in `max` slots from `first`, encoded for a file.
    /// Returns the next slot, and how many of these connections must not continue.
    pub(crate) fn save(
        &self,
        snapshot: &Snapshot,
        first: ConnId,
        max: usize,
        found: &mut EncodedConnections,
    ) -> (Option<ConnId>, u64) {
        found.clear();
        let (mut ended, mut rules) = (0, Vec::new());
        let next = self.table.scan(first, max, &mut |_, connection| {
            let saved = self.saved(snapshot, connection, std::mem::take(&mut rules));
            found.push(&saved);
            // A connection that its own ends have closed loses nothing, so it is not counted.
            let is_closed = saved.connection.state.is_closed() && !self.is_ended_by_rule(connection);
            ended += u64::from(saved.end.is_some() && !is_closed);
            rules = saved.rules;
        });
        (next, ended)
    }

    /// Records that packets of any connection may have been missed until now. The time is one millisecond
    /// ahead, so that it includes connections with a packet in the current millisecond.
    pub(crate) fn resync(&mut self) {
        self.table.resync(self.state.now_ms + 1);
    }

    /// Restores connections that another daemon saved, with those of their rules that the policy still has.
    /// Also returns the connections that were left out. Connections that a full table evicts are only
    /// counted.
    pub(crate) fn restore_all(
        &mut self,
        snapshot: &Snapshot,
        requests: &[RestoreRequest],
    ) -> (LoadSummary, Vec<LeftOutConnection>) {
        let (mut summary, mut left_out) = (LoadSummary::default(), Vec::new());
        // Packets were missed since the connections were saved, and some connections had a packet just before
        // that.
        self.resync();
        self.end_other_flows();
        let (previous_len, mut restored_count) = (self.table.len(), 0);
        let mut slots = Vec::new();
        for (index, (saved, rules)) in requests.iter().enumerate() {
            if index % MAX_PREFETCHED == 0 {
                self.prefetch_restored(
                    snapshot,
                    &requests[index..requests.len().min(index + MAX_PREFETCHED)],
                );
            }
            // The policy may have changed since the request was made.
            slots.clear();
            slots.extend(rules.iter().filter_map(|rule| snapshot.slot_of(*rule)));
            let restored = match self.table.would_have_timed_out(&saved.connection) {
                true => Err(LeftOutConnection::TIMEOUT),
                false => self.restore(snapshot, saved, &slots).map_err(DropReason::name),
            };
            match restored {
                Ok(()) => {
                    restored_count += 1;
                    summary.lost_rules += u64::from(slots.len() < saved.rules.len());
                }
                Err(reason) => {
                    summary.leave_out(reason, 1);
                    left_out.push(saved.left_out(reason));
                }
            }
        }
        // A full table evicts some of the restored connections, or some that existed before.
        let evicted = (previous_len + restored_count).saturating_sub(self.table.len());
        summary.connections = restored_count.saturating_sub(evicted) as u64;
        summary.leave_out(DropReason::ConnFull.name(), evicted as u64);
        (summary, left_out)
    }

    /// Prefetches the slots of connections that will be restored, the index buckets of their tuples, and what
    /// NAT reads. The mapping is assumed to be that of the first rule.
    fn prefetch_restored(&self, snapshot: &Snapshot, requests: &[RestoreRequest]) {
        self.table.prefetch_slots(requests.len(), &self.state).for_each(|id| self.state.cache.prefetch(id));
        for (saved, _) in requests {
            let [forward, reply] = &saved.connection.tuples;
            self.table.prefetch(reply, forward);
            self.table.prefetch(forward, reply);
        }
        let rule = |rule: &RuleLineage| snapshot.slot_of(*rule).and_then(|slot| snapshot.stateful(slot));
        let mapped = requests.iter().filter_map(|(saved, rules)| {
            let mapping = rules.iter().filter_map(rule).find(|rule| rule.maps).map(|rule| &rule.mapping)?;
            let [arrived, sent] = saved.translated();
            Some((mapping, arrived, sent))
        });
        let mut mapped = mapped.peekable();
        if mapped.peek().is_some() {
            self.state.shared.nat().prefetch_restored(mapped);
        }
    }

    /// Claims those of this worker's connections that a prepared change of the hash distribution would assign
    /// to other workers. Visits `max` slots from `first`, and returns where to continue.
    pub(crate) fn claim_moved(&mut self, first: ConnId, max: usize) -> Option<ConnId> {
        let Conntrack { table, state, .. } = self;
        table.scan(first, max, &mut |id, _| {
            // If another worker has meanwhile created a connection with this tuple, the tuple stays with that
            // worker.
            let _ = state.shared.claim(table, id, state.worker);
        })
    }

    /// Sends events to a watcher from now on.
    pub(crate) fn watch(&mut self, watcher: Watcher) {
        self.state.watchers.push(watcher);
    }

    /// Stops sending events to the watcher with this counter of lost events.
    pub(crate) fn unwatch(&mut self, lost: &Arc<AtomicU64>) {
        self.state.watchers.retain(|watcher| !Arc::ptr_eq(&watcher.lost, lost));
    }

    /// A connection as shown in listings.
    fn info(&self, id: ConnId, connection: &Connection) -> ConnectionInfo {
        self.state.info(Some(id), connection, self.table.expires_ms(id, self.state.now_ms))
    }

    /// Whether a rule on streams has ended a connection.
    fn is_ended_by_rule(&self, connection: &Connection) -> bool {
        let extension = connection.ids.extension.map(|id| self.state.extensions.get(id));
        let stream = extension.and_then(|extension| extension.stream);
        stream.is_some_and(|stream| self.state.streams.is_ended_by_rule(stream))
    }

    /// A connection as it is saved. Rules that were removed are left out, because another rule may have the
    /// id of a removed one. The connection must not continue if its ends count different sequence numbers and
    /// the difference is not constant, or if a rule has ended it. `rules` is a vector to reuse.
    fn saved(&self, snapshot: &Snapshot, connection: &Connection, mut rules: Vec<RuleId>) -> SavedConnection {
        rules.clear();
        rules.extend(self.state.sets.ids_in_force(snapshot, connection.ids.rule_set));
        let mut extension =
            connection.ids.extension.map(|id| *self.state.extensions.get(id)).unwrap_or_default();
        let mut end = None;
        // Streams are not saved, but what they add to the sequence numbers is.
        if let Some(stream) = extension.stream.take() {
            match self.state.streams.shifts(stream, connection.tuples()[0].proto) {
                Ok(shifts) => extension.shift(shifts),
                Err(saved_end) => end = Some(saved_end),
            }
        }
        SavedConnection::new(connection, self.state.now_ms, extension, end, rules)
    }
}
