//! The servers of rules with `lb`: states and counters.

use super::Engine;
use crate::compiled::UnknownServer;
use crate::server_cells::{OrderedServer, ServerConnections, ServerInfo, ServerTraffic};
use mmb_policy::{ServerCommand, ServerName};

impl Engine {
    /// Applies a server command. It applies to new connections; existing connections stay. `now_ms` is the
    /// time since 1970. Returns the state of the server in each rule that has it.
    ///
    /// # Errors
    /// There is no such server.
    pub fn order_server(
        &mut self,
        now_ms: u64,
        command: &ServerCommand,
    ) -> Result<Vec<OrderedServer>, UnknownServer> {
        let ordered = self.compiler.servers_mut().order(now_ms, command)?;
        self.send_open_servers();
        Ok(ordered)
    }

    /// Passes to workers which servers accept new connections.
    pub(super) fn send_open_servers(&mut self) {
        self.common.set_open_servers(self.compiler.servers_mut().take_changes());
    }

    /// Identifies the connections that a server has in these rules, for
    /// [`Connections::kill_server_connections`](crate::Connections::kill_server_connections).
    pub fn server_connections(&self, server: ServerName, rules: &[OrderedServer]) -> ServerConnections {
        ServerConnections(self.compiler.servers().slots_of(server, rules))
    }

    /// Whether any rule has servers.
    pub fn has_servers(&self) -> bool {
        !self.compiler.servers().is_empty()
    }

    /// All servers, by rule. `live` is the result of
    /// [`Connections::server_traffic`](crate::Connections::server_traffic): it has the packets of connections
    /// that have not ended, which the counters lack.
    pub fn servers(&self, live: &ServerTraffic) -> Vec<ServerInfo> {
        self.compiler.servers().list(live)
    }

    /// Clears the counters of servers. `live` as for [`Engine::servers`].
    pub fn clear_server_counters(&mut self, live: &ServerTraffic) {
        self.compiler.servers_mut().clear_counts(live);
    }
}
