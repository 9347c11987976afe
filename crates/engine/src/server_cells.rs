//! Counters of servers, and the types in which servers are reported.

use crate::cells::{CountCell, CounterCell};
use crate::counters::Count;
use mmb_base::{Id, id_types};
use mmb_policy::{RuleId, ServerName};
use std::collections::HashMap;
use std::sync::Arc;

id_types! {
    /// The slot of a server of a rule, under which workers count.
    pub(crate) struct ServerSlot;
}

/// A server of a rule with `lb`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The rule.
    pub rule: RuleId,
    /// The server.
    pub server: ServerName,
    /// The server's weight; `None`: it was removed from the list of its rule and still has connections.
    pub weight: Option<u8>,
    /// The state of the server.
    pub state: ServerState,
    /// Whether it gets new connections.
    pub is_open: bool,
    /// When the server entered this state, in milliseconds since 1970; `None`: when its rule was added.
    pub since_ms: Option<u64>,
    /// The reason for the state, if one was given.
    pub reason: Option<String>,
    /// The last result of a health check: whether the server had failed, and when the result was reported, in
    /// milliseconds since 1970.
    pub checked: Option<(bool, u64)>,
    /// Its current open connections, without closed connections that are kept only for late packets.
    pub connections: u64,
    /// The number of connections that it got since the counters were cleared.
    pub total: u64,
    /// The packets of these connections, in both directions.
    pub traffic: Count,
}

/// The state of a server in a rule after a server command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderedServer {
    /// The rule.
    pub rule: RuleId,
    /// The state of the server.
    pub state: ServerState,
    /// Whether it gets new connections.
    pub is_open: bool,
}

/// The state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// In service.
    Up,
    /// It keeps its connections and gets no new ones.
    Drain,
    /// An operator took it out of service.
    Down,
    /// A health check took it out of service.
    Failed,
    /// It was removed from the list of its rule.
    Removed,
}

impl ServerState {
    /// The state's name.
    pub const fn name(self) -> &'static str {
        match self {
            ServerState::Up => "up",
            ServerState::Drain => "drain",
            ServerState::Down => "down",
            ServerState::Failed => "failed",
            ServerState::Removed => "removed",
        }
    }
}

/// The packets of connections that have not ended, by server.
#[derive(Clone, Debug, Default)]
pub struct ServerTraffic(HashMap<ServerSlot, Count>);

impl ServerTraffic {
    pub(crate) fn add(&mut self, slot: ServerSlot, more: Count) {
        let sum = self.0.entry(slot).or_default();
        *sum = *sum + more;
    }

    pub(crate) fn add_all(&mut self, more: ServerTraffic) {
        more.0.into_iter().for_each(|(slot, count)| self.add(slot, count));
    }

    pub(crate) fn count(&self, slot: ServerSlot) -> Count {
        self.0.get(&slot).copied().unwrap_or_default()
    }
}

/// Identifies the connections of a server.
#[derive(Clone, Debug)]
pub struct ServerConnections(pub(crate) Vec<ServerSlot>);

/// A worker's counters of one server.
#[derive(Debug, Default)]
struct ServerCell {
    /// The number of connections that began, of connections that are no longer open, and of the latter those
    /// that have ended.
    began: CounterCell,
    closed: CounterCell,
    ended: CounterCell,
    /// The packets of ended connections.
    traffic: CountCell,
}

/// The counters of a server, summed over workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerCount {
    pub(crate) began: u64,
    pub(crate) closed: u64,
    pub(crate) ended: u64,
    pub(crate) traffic: Count,
}

impl ServerCount {
    /// The number of open connections.
    pub(crate) fn open(self) -> u64 {
        // The counters are read one after the other while workers change them.
        self.began.saturating_sub(self.closed)
    }

    /// Whether the server has connections, open or kept only for late packets.
    pub(crate) fn is_used(self) -> bool {
        self.began > self.ended
    }
}

impl std::ops::Add for ServerCount {
    type Output = ServerCount;

    fn add(self, more: ServerCount) -> ServerCount {
        ServerCount {
            began: self.began + more.began,
            closed: self.closed + more.closed,
            ended: self.ended + more.ended,
            traffic: self.traffic + more.traffic,
        }
    }
}

/// Slots per chunk.
const CHUNK: usize = 64;

/// One worker's counters of servers, by slot. A clone shares the counters. Chunks are never freed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerCells(Arc<Vec<Arc<[ServerCell]>>>);

impl ServerCells {
    /// Provides zeroed cells for a slot that no worker uses.
    pub(crate) fn allocate(&mut self, slot: ServerSlot) {
        while self.0.len() * CHUNK <= slot.index() {
            Arc::make_mut(&mut self.0).push((0..CHUNK).map(|_| ServerCell::default()).collect());
        }
        if let Some(cell) = self.cell(slot) {
            cell.began.reset();
            cell.closed.reset();
            cell.ended.reset();
            cell.traffic.reset();
        }
    }

    /// Counts a connection that begins. Only the worker that owns the cells calls this.
    pub(crate) fn connection_began(&self, slot: ServerSlot) {
        self.cell(slot).into_iter().for_each(|cell| cell.began.add(1));
    }

    /// Counts a connection that is no longer open. Only the worker that owns the cells calls this.
    pub(crate) fn connection_closed(&self, slot: ServerSlot) {
        self.cell(slot).into_iter().for_each(|cell| cell.closed.add(1));
    }

    /// Counts the end of a connection that was [closed](ServerCells::connection_closed) before, and all of
    /// its packets. Only the worker that owns the cells calls this.
    pub(crate) fn connection_ended(&self, slot: ServerSlot, traffic: Count) {
        if let Some(cell) = self.cell(slot) {
            cell.traffic.add(traffic);
            cell.ended.add(1);
        }
    }

    /// The counters of a slot.
    pub(crate) fn read(&self, slot: ServerSlot) -> ServerCount {
        let count = self.cell(slot).map(|cell| {
            let (closed, ended) = (cell.closed.read(), cell.ended.read());
            ServerCount { closed, ended, began: cell.began.read(), traffic: cell.traffic.read() }
        });
        count.unwrap_or_default()
    }

    fn cell(&self, slot: ServerSlot) -> Option<&ServerCell> {
        self.0.get(slot.index() / CHUNK)?.get(slot.index() % CHUNK)
    }
}
