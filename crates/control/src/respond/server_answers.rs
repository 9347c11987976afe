//! Answers about the servers of load balancers.

use super::{AnswerResult, Responder};
use crate::history::entry::{Entry, EntryAction};
use mmb_engine::{OrderedServer, ServerInfo, ServerTraffic};
use mmb_language::Command;
use mmb_policy::rule::Target;
use mmb_policy::{Rule, ServerCommand, ServerOrder};
use mmb_protocol::answer::{Answer, CountLine, ServerLine, ServerStateLine};
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

/// The most bytes that a server takes while servers are listed.
const SERVER_BYTES: u64 = 256;

impl Responder<'_> {
    /// The packets of the connections that servers have now. If a worker does not answer, their counters lack them.
    pub(super) fn server_traffic(&self) -> ServerTraffic {
        let (has_servers, connections) = {
            let daemon = self.daemon();
            (daemon.engine().has_servers(), daemon.engine().connections())
        };
        if has_servers { connections.server_traffic().unwrap_or_default() } else { ServerTraffic::default() }
    }

    /// Lists the servers of all rules.
    pub(super) fn servers(&mut self, terse: bool) -> io::Result<AnswerResult> {
        let daemon = self.daemon();
        let count: usize = daemon.policy().rules.iter().map(|rule| server_count(&rule)).sum();
        if let Err(short) = daemon.check_memory_now(count as u64 * SERVER_BYTES) {
            return Ok(Err(short.to_string()));
        }
        drop(daemon);
        let live = if terse { ServerTraffic::default() } else { self.server_traffic() };
        let servers = self.daemon().engine().servers(&live);
        servers.into_iter().try_for_each(|server| self.send(&Answer::Server(line(server, terse)))).map(Ok)
    }

    /// Applies what is said about a server, and ends its connections if they are to end.
    pub(super) fn order_server(&mut self, command: &ServerCommand) -> io::Result<AnswerResult> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let (ordered, server_connections, connections) = {
            let mut daemon = self.daemon();
            let ordered = match daemon.order_server(now_ms, command) {
                Ok(ordered) => ordered,
                Err(refusal) => return Ok(Err(refusal.to_string())),
            };
            let engine = daemon.engine();
            let server_connections = engine.server_connections(command.server, &ordered);
            (ordered, server_connections, engine.connections())
        };
        for OrderedServer { rule, state, is_open: open } in ordered {
            let (server, state) = (command.server.to_string(), state.name().to_owned());
            self.send(&Answer::ServerState(ServerStateLine { rule: rule.0, server, state, open }))?;
        }
        let killed =
            command.kill.then(|| connections.kill_server_connections(&server_connections)).transpose();
        // Checks tell the health of every server again and again; a change of it is told by the checker. What ends connections is recorded always.
        let is_check = matches!(command.order, ServerOrder::Healthy | ServerOrder::Failed);
        if !is_check || command.kill {
            let text = Command::Server(command.clone()).to_string();
            let entry = Entry::new(self.context.author, EntryAction::Server, text);
            self.daemon().record(Entry { connections: killed.as_ref().ok().copied().flatten(), ..entry });
        }
        match killed {
            Ok(Some(connections)) => self.send(&Answer::Killed(CountLine { connections })).map(Ok),
            Ok(None) => Ok(Ok(())),
            Err(error) => Ok(Err(error.to_string())),
        }
    }
}

fn line(info: ServerInfo, terse: bool) -> ServerLine {
    let health = info.checked.map(|(has_failed, _)| match has_failed {
        true => ServerOrder::Failed,
        false => ServerOrder::Healthy,
    });
    ServerLine {
        rule: info.rule.0,
        server: info.server.to_string(),
        weight: info.weight,
        state: info.state.name().to_owned(),
        open: info.is_open,
        since_ms: info.since_ms,
        reason: info.reason,
        health: health.map(|health| health.word().to_owned()),
        checked_ms: info.checked.map(|(_, checked_ms)| checked_ms),
        connections: info.connections,
        total: info.total,
        packets: Some(info.traffic.packets).filter(|_| !terse),
        bytes: Some(info.traffic.bytes).filter(|_| !terse),
    }
}

/// The number of servers that a rule names.
fn server_count(rule: &Rule) -> usize {
    let servers = rule.targets.iter().map(|target| match target {
        Target::Lb(_, servers, _) => servers.items.0.len(),
        _ => 0,
    });
    servers.sum()
}
