//! The servers of rules that balance: states and counters.

use super::Engine;
use crate::compiled::UnknownServer;
use crate::server_cells::{OrderedServer, ServerConnections, ServerInfo, ServerTraffic};
use mmb_policy::{ServerCommand, ServerName};

impl Engine {
    /// Applies what is said about a server, from the next connection on. Existing connections stay. `now_ms` is the time since 1970. Returns
    /// what the server is now in each rule that has it.
    ///
    /// # Errors
    /// There is no such server.
    pub fn order_server(
        &mut self,
        now_ms: u64,
        command: &ServerCommand,
    ) -> Result<Vec<OrderedServer>, UnknownServer> {
        let ordered = self.compiler.servers_mut().order(now_ms, command)?;
        self.tell_open_servers();
        Ok(ordered)
    }

    /// Tells workers which servers take new connections.
    pub(super) fn tell_open_servers(&mut self) {
        self.common.set_open_servers(self.compiler.servers_mut().take_changes());
    }

    /// The connections that a server has in these rules, for [`Connections::kill_of_server`](crate::Connections::kill_of_server).
    pub fn server_connections(&self, server: ServerName, rules: &[OrderedServer]) -> ServerConnections {
        ServerConnections(self.compiler.servers().slots_of(server, rules))
    }

    /// Whether any rule has servers.
    pub fn has_servers(&self) -> bool {
        !self.compiler.servers().is_empty()
    }

    /// All servers, by rule. `live` is what [`Connections::server_traffic`](crate::Connections::server_traffic) has returned: counters lack the packets of
    /// connections without it.
    pub fn servers(&self, live: &ServerTraffic) -> Vec<ServerInfo> {
        self.compiler.servers().list(live)
    }

    /// Lets the counters of servers begin at zero again. `live` as for [`Engine::servers`].
    pub fn clear_server_counters(&mut self, live: &ServerTraffic) {
        self.compiler.servers_mut().clear_counts(live);
    }
}
