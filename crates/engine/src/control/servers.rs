//! The connections of servers.

use super::{CHUNK, Connections, NoAnswer};
use crate::server_cells::{ServerConnections, ServerTraffic};
use mmb_base::Id;
use mmb_conn::ConnId;
use std::sync::Arc;

impl Connections {
    /// The packets of connections that have not ended, by server. The counters of servers do not have them
    /// yet.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn server_traffic(&self) -> Result<ServerTraffic, NoAnswer> {
        self.collect_flows()?;
        let mut traffic = ServerTraffic::default();
        for worker in 0..self.workers.len() {
            let mut from = Some(ConnId::FIRST);
            while let Some(first) = from {
                let (next, found) =
                    self.ask(worker, move |conntrack, _| conntrack.server_traffic(first, CHUNK))?;
                traffic.add_all(found);
                from = next;
            }
        }
        Ok(traffic)
    }

    /// Ends the connections of a server. Returns their number.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn kill_server_connections(&self, server: &ServerConnections) -> Result<u64, NoAnswer> {
        let (server, mut killed) = (Arc::new(server.clone()), 0);
        for worker in 0..self.workers.len() {
            let mut from = Some(ConnId::FIRST);
            while let Some(first) = from {
                let server = Arc::clone(&server);
                let (next, ended) = self.ask(worker, move |conntrack, _| {
                    conntrack.kill_server_connections(&server, first, CHUNK)
                })?;
                killed += ended;
                from = next;
            }
        }
        Ok(killed)
    }
}
