//! Tasks of the control thread on a worker's connections. Each handles a limited number of table slots between two vectors, and returns where
//! the next one continues.

use super::info::{ConnectionInfo, Watcher};
use super::saved::SavedConnection;
use super::sources;
use super::tracking::Conntrack;
use mmb_conn::{CloseReason, ConnId, Connection};
use mmb_policy::ConnectionFilter;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

impl Conntrack {
    /// The connections that a filter matches, of `most` slots from `first`.
    pub(crate) fn list(
        &self,
        filter: &ConnectionFilter,
        first: u32,
        most: usize,
    ) -> (Option<u32>, Vec<ConnectionInfo>) {
        let mut found = Vec::new();
        let next = self.table.scan(first, most, &mut |id, connection| {
            let info = self.info(id, connection);
            if info.is_meant_by(filter) {
                found.push(info);
            }
        });
        (next, found)
    }

    /// Ends the connections that a filter matches, of `most` slots from `first`; returns their number too.
    pub(crate) fn kill(&mut self, filter: &ConnectionFilter, first: u32, most: usize) -> (Option<u32>, u64) {
        let mut ended = Vec::new();
        let next = self.table.scan(first, most, &mut |id, connection| {
            if self.info(id, connection).is_meant_by(filter) {
                ended.push(id);
            }
        });
        let reason = if filter.rule.is_some() { CloseReason::RuleDeleted } else { CloseReason::Killed };
        ended.iter().for_each(|id| self.end(*id, reason));
        (next, ended.len() as u64)
    }

    /// The connections of `most` slots from `first`, as they are saved to a file.
    pub(crate) fn save(&self, first: u32, most: usize) -> (Option<u32>, Vec<SavedConnection>) {
        let mut found = Vec::new();
        let next = self.table.scan(first, most, &mut |_, connection| found.push(self.saved(connection)));
        (next, found)
    }

    /// Publishes to all workers which of this worker's connections a prepared change of the hash distribution would assign to others. Scans
    /// at most `most` slots from `first`, and returns where to continue.
    pub(crate) fn claim_moved(&mut self, first: u32, most: usize) -> Option<u32> {
        let Conntrack { table, state, .. } = self;
        table.scan(first, most, &mut |_, connection| {
            // If another worker has created a connection with this tuple meanwhile, the tuple stays with that worker.
            let _ = state.shared.claim(connection, state.worker);
        })
    }

    /// Sends events to a watcher from now on.
    pub(crate) fn watch(&mut self, watcher: Watcher) {
        self.state.watchers.push(watcher);
    }

    /// Sends no more events to the watcher with this counter of lost events.
    pub(crate) fn unwatch(&mut self, lost: &Arc<AtomicU64>) {
        self.state.watchers.retain(|watcher| !Arc::ptr_eq(&watcher.lost, lost));
    }

    /// A connection as listings show it.
    fn info(&self, id: ConnId, connection: &Connection) -> ConnectionInfo {
        self.state.info(id, connection, self.table.expires_ms(id, self.state.now_ms))
    }

    fn saved(&self, connection: &Connection) -> SavedConnection {
        let rules = self.state.sets.rules(sources::rule_set(connection)).map(|rule| rule.id).collect();
        SavedConnection::of(connection, self.state.now_ms, *self.state.extras.get(connection.extra), rules)
    }
}
