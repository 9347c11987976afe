//! The servers of balanced connections. Each connection counts as an open connection of the server that a
//! rule chose for it, until the connection is closed or reset. A connection in time-wait exists only for late
//! packets and does not count.
//!
//! A connection does not store its server. The server follows from the rules with which the connection was
//! created, which its rule set keeps, and from its tuples. It is the same from the first packet to the end.

use super::shared::WorkerState;
use super::tracking::Conntrack;
use crate::counters::Count;
use crate::server_cells::{ServerConnections, ServerSlot, ServerTraffic};
use mmb_conn::{CloseReason, ConnId, Connection, Direction, ResourceIds};

impl WorkerState {
    /// The server of a connection, if a rule balances it.
    fn server(&self, connection: &Connection) -> Option<ServerSlot> {
        let set = connection.ids.rule_set.filter(|set| self.sets.balances(*set))?;
        self.sets.server(set, &connection.tuple(Direction::Reply))
    }

    /// Counts the end of a connection for its server.
    pub(super) fn leave_server(&self, connection: &Connection) {
        if let Some(slot) = self.server(connection) {
            if !connection.has_left_server {
                self.server_cells.connection_closed(slot);
            }
            self.server_cells.connection_ended(slot, traffic(connection));
        }
    }
}

impl Conntrack {
    /// Counts a new connection for its server.
    pub(super) fn enter_server(&mut self, id: ConnId) {
        let Conntrack { table, state, .. } = self;
        if let Some(set) = table.ids(id).rule_set.filter(|set| state.sets.balances(*set)) {
            let [_, reply] = table.tuples(id);
            let server = state.sets.server(set, &reply);
            server.into_iter().for_each(|slot| state.server_cells.connection_began(slot));
        }
    }

    /// Removes a connection from the open connections of its server, because it is closed or reset.
    #[cold]
    pub(super) fn close_at_server(&mut self, id: ConnId) {
        let Conntrack { table, state, .. } = self;
        let ResourceIds { rule_set, lease, .. } = *table.ids(id);
        if table.has_left_server(id) || !rule_set.is_some_and(|set| state.sets.balances(set)) {
            return;
        }
        table.set_left_server(id);
        state.server(&table.get(id)).into_iter().for_each(|slot| state.server_cells.connection_closed(slot));
        lease.into_iter().for_each(|lease| state.shared.nat().leave_server(lease));
    }

    /// The packets of connections by server, in `max` slots of the table from `first`. Also returns where to
    /// continue.
    pub(crate) fn server_traffic(&self, first: ConnId, max: usize) -> (Option<ConnId>, ServerTraffic) {
        let mut found = ServerTraffic::default();
        let next = self.table.scan(first, max, &mut |_, connection| {
            if let Some(slot) = self.state.server(connection) {
                found.add(slot, traffic(connection));
            }
        });
        (next, found)
    }

    /// Ends the connections of `servers`, in `max` slots of the table from `first`. Returns where to
    /// continue, and the number of ended connections.
    pub(crate) fn kill_server_connections(
        &mut self,
        servers: &ServerConnections,
        first: ConnId,
        max: usize,
    ) -> (Option<ConnId>, u64) {
        let mut ended = Vec::new();
        let state = &self.state;
        let next = self.table.scan(first, max, &mut |id, connection| {
            if state.server(connection).is_some_and(|slot| servers.0.contains(&slot)) {
                ended.push(id);
            }
        });
        ended.iter().for_each(|id| self.end_or_close(*id, CloseReason::Killed));
        (next, ended.len() as u64)
    }
}

/// The packets of a connection in both directions.
fn traffic(connection: &Connection) -> Count {
    Count { packets: connection.packets.iter().sum(), bytes: connection.bytes.iter().sum() }
}
