//! The servers of rules with `lb`, on the control side: their slots, states and counters.
//!
//! Life-cycle: a server is created with the rule whose list contains it. When the list changes, a server that
//! stays keeps its slot, state and counters. A server that is removed from the list is shown until its last
//! connection has ended. If it returns to the list before that, its counters continue. The slots of a removed
//! rule are reused when no worker can count for them: every snapshot that has them is freed, and their
//! connections have ended.
//!
//! An operator sets a server up, drain or down. A health check reports a server healthy or failed. Neither
//! overrules the other: a draining server stays so, whatever a check reports. If no server of a rule is up,
//! the servers whose checks failed take new connections. The checks themselves may be wrong, and a server
//! that does not answer is no worse than no server.

use super::stateful::StatefulRule;
use crate::server_cells::{
    OrderedServer, ServerCells, ServerCount, ServerInfo, ServerSlot, ServerState, ServerTraffic,
};
use mmb_base::IdPool;
use mmb_nat::{OpenServers, RuleVersion, ValueSet};
use mmb_policy::field::Field;
use mmb_policy::rule::Target;
use mmb_policy::{Rule, RuleId, ServerCommand, ServerName, ServerOrder};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The longest reason that is kept, in characters.
const MAX_REASON_CHARS: usize = 200;

/// Why a server command cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownServer {
    /// No rule has the server.
    #[error("no rule balances over {0}; `show servers` lists the servers")]
    NoRule(ServerName),
    /// The rule does not have the server.
    #[error("rule {0} does not balance over {1}; `show servers` lists the servers")]
    NotInRule(RuleId, ServerName),
    /// The rule balances over too many values.
    #[error("rule {0} balances over more than {max} values: only servers of shorter lists have states", max = OpenServers::MAX_SERVERS)]
    TooMany(RuleId),
}

/// A rule, and which of its servers take new connections; `None`: all.
pub(crate) type OpenChange = (RuleVersion, Option<OpenServers>);

/// The servers of all rules.
#[derive(Debug)]
pub(crate) struct ServerTable {
    /// Each worker's cells.
    cells: Vec<ServerCells>,
    slots: IdPool<ServerSlot>,
    rules: BTreeMap<RuleId, RuleServers>,
    /// The slots of removed rules, each with the generation of the first snapshot without it.
    retired: Vec<(ServerSlot, u64)>,
    /// The versions of rules that were replaced or removed while some of their servers were out of service,
    /// each with the generation of the first snapshot without it.
    former: Vec<(RuleVersion, u64)>,
    /// By slot: the values that are subtracted from its counters.
    baselines: HashMap<ServerSlot, ServerCount>,
    /// Changes that were not passed to the workers yet.
    changes: Vec<OpenChange>,
}

/// The servers of one rule.
#[derive(Debug)]
struct RuleServers {
    version: RuleVersion,
    /// The values of the list, in order, and whether they are too many for counters and states.
    values: ValueSet,
    is_too_long: bool,
    /// By index of the value. Empty if the list is too long.
    servers: Vec<Server>,
    /// Servers that were removed from the list, each with the generation of the first snapshot without it.
    former: Vec<(Server, u64)>,
}

#[derive(Clone, Debug)]
struct Server {
    slot: ServerSlot,
    name: ServerName,
    weight: u8,
    /// Up, drain or down.
    order: ServerOrder,
    has_failed: bool,
    since_ms: Option<u64>,
    reason: Option<String>,
    checked_ms: Option<u64>,
}

impl Server {
    fn new(slot: ServerSlot, name: ServerName, weight: u8) -> Server {
        Server {
            slot,
            name,
            weight,
            order: ServerOrder::Up,
            has_failed: false,
            since_ms: None,
            reason: None,
            checked_ms: None,
        }
    }

    fn state(&self) -> ServerState {
        match self.order {
            ServerOrder::Down => ServerState::Down,
            ServerOrder::Drain => ServerState::Drain,
            ServerOrder::Up | ServerOrder::Healthy | ServerOrder::Failed => match self.has_failed {
                _ if self.weight == 0 => ServerState::Drain,
                true => ServerState::Failed,
                false => ServerState::Up,
            },
        }
    }

    /// Applies a command. Returns whether it changes the state.
    fn apply(&mut self, now_ms: u64, order: ServerOrder, reason: Option<&str>) -> bool {
        let before = self.state();
        match order {
            ServerOrder::Up | ServerOrder::Drain | ServerOrder::Down => self.order = order,
            ServerOrder::Healthy | ServerOrder::Failed => {
                self.has_failed = order == ServerOrder::Failed;
                self.checked_ms = Some(now_ms);
            }
        }
        let changes = self.state() != before;
        if changes {
            self.since_ms = Some(now_ms);
            self.reason =
                reason.map(|text| text.chars().filter(|c| !c.is_control()).take(MAX_REASON_CHARS).collect());
        }
        changes
    }
}

impl RuleServers {
    /// For each server, whether it takes new connections.
    fn open(&self) -> Vec<bool> {
        let is_up = |server: &Server| server.state() == ServerState::Up;
        let none_is_up = !self.servers.iter().any(is_up);
        let takes = |server: &Server| is_up(server) || none_is_up && server.state() == ServerState::Failed;
        self.servers.iter().map(takes).collect()
    }

    /// Whether some servers with a weight above 0 take no new connections.
    fn is_limited(&self) -> bool {
        self.servers.iter().zip(self.open()).any(|(server, open)| !open && server.weight > 0)
    }

    /// The change for the workers.
    fn change(&self) -> OpenChange {
        let open = self.open();
        let some =
            || OpenServers::new(&self.values, |index| open.get(index as usize).is_some_and(|open| *open));
        // The checker refuses rules in which every weight is 0.
        (self.version, self.is_limited().then(some))
    }
}

impl ServerTable {
    pub(crate) fn new(workers: usize) -> ServerTable {
        ServerTable {
            cells: vec![ServerCells::default(); workers],
            slots: IdPool::default(),
            rules: BTreeMap::new(),
            retired: Vec::new(),
            former: Vec::new(),
            baselines: HashMap::new(),
            changes: Vec::new(),
        }
    }

    /// Each worker's cells, for a snapshot.
    pub(crate) fn cells(&self) -> &[ServerCells] {
        &self.cells
    }

    /// Sets the servers of a rule. `stateful` is its compiled form, and `generation` its first snapshot. If
    /// it replaces a rule, that rule has the same id. Returns the slots by index of the value; `None` if the
    /// rule does not balance, or balances over too many values.
    pub(crate) fn install(
        &mut self,
        rule: &Rule,
        stateful: &StatefulRule,
        generation: u64,
    ) -> Option<Arc<[ServerSlot]>> {
        let balances = rule.targets.iter().find_map(|target| {
            let Target::Lb(field, ..) = target else { return None };
            Some(*field)
        });
        let values = stateful.mapping.servers().cloned();
        let (field, values) = balances.zip(values).unzip();
        if values.is_none() && !self.rules.contains_key(&stateful.id) {
            return None;
        }
        let is_too_long = values.as_ref().is_some_and(|values| values.len() > OpenServers::MAX_SERVERS);
        let values = values.unwrap_or_else(|| ValueSet::new(Vec::new()));
        let before = self.rules.remove(&stateful.id);
        self.former.extend(
            before.as_ref().filter(|before| before.is_limited()).map(|before| (before.version, generation)),
        );
        let (old, mut former) = before.map(|before| (before.servers, before.former)).unwrap_or_default();
        let mut old: HashMap<ServerName, Server> =
            old.into_iter().map(|server| (server.name, server)).collect();
        let names = listed(field.filter(|_| !is_too_long), &values);
        let servers: Vec<Server> = (0..)
            .zip(names)
            .map(|(index, name)| {
                let weight = values.weight(index);
                let stays = old.remove(&name).map(|server| Server { weight, ..server });
                stays.unwrap_or_else(|| {
                    let returning = former.iter().position(|(server, _)| server.name == name);
                    let slot = returning.map(|position| former.swap_remove(position).0.slot);
                    Server::new(slot.unwrap_or_else(|| self.assign()), name, weight)
                })
            })
            .collect();
        former.extend(old.into_values().map(|server| (server, generation)));
        former.sort_unstable_by_key(|(server, _)| server.name);
        let slots = (!servers.is_empty()).then(|| servers.iter().map(|server| server.slot).collect());
        let rule = RuleServers { version: stateful.version, values, is_too_long, servers, former };
        self.changes.extend(Some(rule.change()).filter(|(_, open)| open.is_some()));
        self.rules.insert(stateful.id, rule);
        slots
    }

    /// Removes a rule, which snapshots from `generation` on do not have.
    pub(crate) fn remove(&mut self, rule: RuleId, generation: u64) {
        let Some(gone) = self.rules.remove(&rule) else { return };
        self.former.extend(gone.is_limited().then_some((gone.version, generation)));
        let RuleServers { servers, former, .. } = gone;
        let servers = servers.into_iter().chain(former.into_iter().map(|(server, _)| server));
        self.retired.extend(servers.map(|server| (server.slot, generation)));
    }

    /// Takes the changes since the last call. The caller must pass them to the workers before it publishes a
    /// snapshot, and after [`ServerTable::reclaim`].
    pub(crate) fn take_changes(&mut self) -> Vec<OpenChange> {
        std::mem::take(&mut self.changes)
    }

    /// Frees the slots that neither a connection nor a snapshot in use has. `oldest` is the oldest snapshot
    /// in use.
    pub(crate) fn reclaim(&mut self, oldest: u64) {
        let ServerTable { cells, slots, rules, retired, baselines, former, changes } = self;
        former.retain(|(version, generation)| {
            let stays = *generation > oldest;
            changes.extend((!stays).then_some((*version, None)));
            stays
        });
        let mut stays = |slot: ServerSlot, generation: u64| {
            let stays = generation > oldest || sum(cells, slot).is_used();
            if !stays {
                baselines.remove(&slot);
                slots.free(slot);
            }
            stays
        };
        retired.retain(|(slot, generation)| stays(*slot, *generation));
        for rule in rules.values_mut() {
            rule.former.retain(|(server, generation)| stays(server.slot, *generation));
        }
        rules.retain(|_, rule| rule.is_too_long || !rule.servers.is_empty() || !rule.former.is_empty());
    }

    /// Applies a command to a server of one rule, or of all rules that have it. Returns the new state of the
    /// server in each of these rules.
    ///
    /// # Errors
    /// There is no such server.
    pub(crate) fn order(
        &mut self,
        now_ms: u64,
        command: &ServerCommand,
    ) -> Result<Vec<OrderedServer>, UnknownServer> {
        let ServerCommand { order, server: name, rule: only, ref reason, .. } = *command;
        let selected = self.rules.iter_mut().filter(|(id, _)| only.is_none_or(|only| only == **id));
        let mut found = Vec::new();
        for (id, rule) in selected {
            if only.is_some() && rule.is_too_long {
                return Err(UnknownServer::TooMany(*id));
            }
            let Some(index) = rule.servers.iter().position(|server| server.name == name) else { continue };
            if rule.servers[index].apply(now_ms, order, reason.as_deref()) {
                self.changes.push(rule.change());
            }
            found.push(OrderedServer {
                rule: *id,
                state: rule.servers[index].state(),
                is_open: rule.open()[index],
            });
        }
        match only {
            _ if !found.is_empty() => Ok(found),
            Some(rule) => Err(UnknownServer::NotInRule(rule, name)),
            None => Err(UnknownServer::NoRule(name)),
        }
    }

    /// The slots of a server in these rules, also if it was removed from their lists.
    pub(crate) fn slots_of(&self, server: ServerName, rules: &[OrderedServer]) -> Vec<ServerSlot> {
        let rules = rules.iter().filter_map(|ordered| self.rules.get(&ordered.rule));
        let all =
            rules.flat_map(|rule| rule.servers.iter().chain(rule.former.iter().map(|(server, _)| server)));
        all.filter(|other| other.name == server).map(|server| server.slot).collect()
    }

    /// Whether there are servers.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// All servers. `live` is the traffic of connections that have not ended.
    pub(crate) fn list(&self, live: &ServerTraffic) -> Vec<ServerInfo> {
        let mut list = Vec::new();
        for (id, rule) in &self.rules {
            let info = |server: &Server, is_open: bool| self.info(*id, server, is_open, live);
            list.extend(rule.servers.iter().zip(rule.open()).map(|(server, open)| info(server, open)));
            let former = rule.former.iter().map(|(server, _)| info(server, false));
            let former = former.filter(|server| server.connections > 0);
            list.extend(former.map(|info| ServerInfo { weight: None, state: ServerState::Removed, ..info }));
        }
        list
    }

    /// Clears the counters. `live` is the traffic of connections that have not ended.
    pub(crate) fn clear_counts(&mut self, live: &ServerTraffic) {
        for rule in self.rules.values() {
            let servers = rule.servers.iter().chain(rule.former.iter().map(|(server, _)| server));
            for server in servers {
                let count = sum(&self.cells, server.slot);
                let traffic = count.traffic + live.count(server.slot);
                self.baselines.insert(server.slot, ServerCount { traffic, ..count });
            }
        }
    }

    fn info(&self, rule: RuleId, server: &Server, is_open: bool, live: &ServerTraffic) -> ServerInfo {
        let count = sum(&self.cells, server.slot);
        let before = self.baselines.get(&server.slot).copied().unwrap_or_default();
        let traffic = count.traffic + live.count(server.slot);
        ServerInfo {
            rule,
            server: server.name,
            weight: Some(server.weight),
            state: server.state(),
            is_open,
            since_ms: server.since_ms,
            reason: server.reason.clone(),
            checked: server.checked_ms.map(|checked_ms| (server.has_failed, checked_ms)),
            connections: count.open(),
            total: count.began.wrapping_sub(before.began),
            traffic: traffic.since(before.traffic),
        }
    }

    fn assign(&mut self) -> ServerSlot {
        let slot = self.slots.take();
        self.cells.iter_mut().for_each(|cells| cells.allocate(slot));
        slot
    }
}

/// The server names of the values of a list.
fn listed(field: Option<Field>, values: &ValueSet) -> impl Iterator<Item = ServerName> {
    field.into_iter().flat_map(move |field| {
        (0..values.len()).filter_map(move |index| ServerName::of(field, values.nth(index)))
    })
}

fn sum(cells: &[ServerCells], slot: ServerSlot) -> ServerCount {
    cells.iter().map(|cells| cells.read(slot)).fold(ServerCount::default(), std::ops::Add::add)
}
