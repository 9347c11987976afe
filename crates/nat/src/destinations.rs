//! Destinations of connections: fixed ones, pools, and load-balanced servers.
//!
//! Connections are counted per set of servers, not per rule. All rules that balance over the same set by the
//! same method take turns together and see each other's connections.

use crate::addresses::ValueSet;
use crate::balance::{Balance, LeastConnections};
use crate::hashed::{hash_of, pick};
use crate::interned::Interned;
use crate::mapping::{BalancedPart, Balancing, Mapping, NatError, RuleVersion};
use crate::open_servers::OpenServers;
use crate::ports::{PortMapping, random, within};
use crate::random::{NatRandom, scale};
use mmb_base::id_types;
use mmb_conn::{DESTINATION, Tuple};
use mmb_random::Prf;
use std::collections::HashMap;

id_types! {
    /// A set of servers and its balancing state; valid while a rule or a connection uses it.
    struct ServerSetId;
}

/// A set that connections are balanced over, and the method.
#[derive(PartialEq, Eq, Hash)]
struct BalancedValue {
    balance: Balance,
    over: BalancedPart,
    servers: ValueSet,
}

/// The balancing state of a set of servers.
struct ServerSet {
    servers: ValueSet,
    turn: u64,
    least: Option<LeastConnections>,
}

/// A server that a connection is counted for: its set, and its index in the set.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedServer {
    set: ServerSetId,
    server: u64,
}

/// The destination of a connection.
#[derive(Clone, Copy)]
pub(super) struct NatDestination {
    pub(super) address: u128,
    pub(super) port: u16,
    /// The server to count the connection for.
    pub(super) counted: Option<CountedServer>,
}

/// The destinations of all connections.
pub(super) struct DestinationTable {
    prf: Prf,
    sets: Interned<ServerSetId, BalancedValue, ServerSet>,
    /// The sets that a rule balances over. There are several if the rule was combined with different rules.
    sets_by_rule: HashMap<RuleVersion, Vec<ServerSetId>>,
    /// The open servers of those rules that have servers out of service.
    open: HashMap<RuleVersion, OpenServers>,
}

impl DestinationTable {
    /// A table without sets. `prf` selects destinations that must be the same for the same connection.
    pub(super) fn new(prf: Prf) -> DestinationTable {
        DestinationTable { prf, sets: Interned::new(), sets_by_rule: HashMap::new(), open: HashMap::new() }
    }

    #[cfg(test)]
    pub(super) fn sets(&self) -> usize {
        self.sets.len()
    }

    /// Chooses the destination of a connection. A later `attempt` may choose another one.
    ///
    /// # Errors
    /// The mapping has no destination for it, or there is no memory for the balancing state.
    pub(super) fn choose(
        &mut self,
        rule: RuleVersion,
        mapping: &Mapping,
        arrived: &Tuple,
        attempt: u64,
        secrets: &mut NatRandom,
    ) -> Result<NatDestination, NatError> {
        let mut destination = NatDestination {
            address: arrived.addresses[DESTINATION],
            port: arrived.ports[DESTINATION],
            counted: None,
        };
        let mut server = None;
        if let (Some(balancing), Some(servers)) = (mapping.balance, mapping.servers()) {
            let (value, counted) = self.server(rule, (balancing, servers), arrived, attempt, secrets)?;
            (server, destination.counted) = (Some((balancing.over, value)), counted);
        }
        let server = |part| server.filter(|(over, _)| *over == part).map(|(_, value)| value);
        if let Some(addresses) = &mapping.daddr {
            destination.address = match server(BalancedPart::Address) {
                Some(server) => server,
                None if addresses.is_empty() => return Err(NatError::NoAddress),
                None if attempt == 0 => addresses.nth(scale(self.hash_source(arrived), addresses.len())),
                None => addresses.nth(secrets.below(addresses.len())),
            };
        }
        if let Some(ports) = &mapping.dport {
            destination.port = match server(BalancedPart::Port) {
                Some(server) => server as u16,
                None => port_of(ports, destination.port, attempt, secrets).ok_or(NatError::NoAddress)?,
            };
        }
        Ok(destination)
    }

    /// The hash of a connection's source.
    fn hash_source(&self, arrived: &Tuple) -> u64 {
        let Tuple { addresses: [source, _], family, .. } = *arrived;
        self.prf.hash(&Tuple { addresses: [source, 0], family, ..Tuple::default() }.to_bytes())
    }

    /// Chooses a server of a set. Also returns the server to count the connection for, if the method counts
    /// connections.
    fn server(
        &mut self,
        rule: RuleVersion,
        (balancing, servers): (Balancing, &ValueSet),
        arrived: &Tuple,
        attempt: u64,
        secrets: &mut NatRandom,
    ) -> Result<(u128, Option<CountedServer>), NatError> {
        let Balancing { method, over, .. } = balancing;
        let spread = BalancedValue { balance: method, over, servers: servers.clone() };
        let set = self.set(rule, spread, secrets).ok_or(NatError::NoMemory)?;
        let ServerSet { servers, turn, least } = self.sets.state(set).ok_or(NatError::NoAddress)?;
        let open = if self.open.is_empty() { None } else { self.open.get(&balancing.rule) };
        let (turns, unavailable) = match open {
            None => (servers.turns(), NatError::NoAddress),
            Some(open) => (open.turns(), NatError::NoServer),
        };
        if turns == 0 {
            return Err(unavailable);
        }
        let at_turn = |turn| open.map_or_else(|| servers.at_turn(turn), |open| open.at_turn(turn));
        let server = match (method, &*least, open) {
            (Balance::Hash, _, None) => pick(hash_of(&self.prf, arrived, attempt), servers),
            (Balance::Hash, _, Some(open)) => open.pick(hash_of(&self.prf, arrived, attempt), servers),
            (Balance::Least, Some(least), None) if attempt == 0 => least.pick(secrets).ok_or(unavailable)?,
            (Balance::Least, Some(least), Some(open)) if attempt == 0 => {
                least.pick_open(open, secrets).ok_or(unavailable)?
            }
            (Balance::Least, ..) => at_turn(secrets.below(turns)),
            (Balance::RoundRobin, ..) => {
                *turn = turn.wrapping_add(1);
                at_turn(*turn % turns)
            }
        };
        Ok((servers.nth(server), least.as_ref().map(|_| CountedServer { set, server })))
    }

    /// The id of a set, which the rule uses from then on. `None` if memory is exhausted.
    fn set(
        &mut self,
        rule: RuleVersion,
        spread: BalancedValue,
        secrets: &mut NatRandom,
    ) -> Option<ServerSetId> {
        self.sets_by_rule.try_reserve(1).ok()?;
        let rule_sets = self.sets_by_rule.entry(rule).or_default();
        if let Some(set) = self.sets.find(&spread).filter(|set| rule_sets.contains(set)) {
            return Some(set);
        }
        rule_sets.try_reserve(1).ok()?;
        let set = self.sets.hold(spread, |spread| ServerSet::new(spread, secrets))?;
        rule_sets.push(set);
        Some(set)
    }

    /// Reserves memory to count a connection for its server. Returns false if memory is exhausted.
    #[must_use]
    pub(super) fn reserve(&mut self, CountedServer { set, .. }: CountedServer) -> bool {
        let least = self.sets.state(set).and_then(|servers| servers.least.as_mut());
        least.is_none_or(LeastConnections::reserve)
    }

    /// Counts a connection for its server. [`DestinationTable::reserve`] must be called before.
    pub(super) fn hold(&mut self, CountedServer { set, server }: CountedServer) {
        self.sets.hold_id(set);
        if let Some(ServerSet { least: Some(least), .. }) = self.sets.state(set) {
            least.hold(server);
        }
    }

    /// Removes a connection that has ended from the count of its server.
    pub(super) fn release(&mut self, CountedServer { set, server }: CountedServer) {
        if let Some(ServerSet { least: Some(least), .. }) = self.sets.state(set) {
            least.release(server);
        }
        self.sets.release(set);
    }

    /// Sets which servers of a rule take new connections.
    pub(super) fn set_open(&mut self, rule: RuleVersion, open: Option<OpenServers>) {
        match open {
            Some(open) => _ = self.open.insert(rule, open),
            None => _ = self.open.remove(&rule),
        }
    }

    /// Forgets a removed rule, and the sets that no other rule and no connection uses.
    pub(super) fn forget(&mut self, rule: RuleVersion) {
        self.sets_by_rule.remove(&rule).into_iter().flatten().for_each(|set| self.sets.release(set));
    }
}

impl ServerSet {
    fn new(spread: &BalancedValue, secrets: &mut NatRandom) -> ServerSet {
        let servers = spread.servers.clone();
        let turn = secrets.below(servers.turns().max(1));
        let least = (spread.balance == Balance::Least).then(|| LeastConnections::new(&servers));
        ServerSet { servers, turn, least }
    }
}

impl Mapping {
    /// Whether a second attempt may give another destination.
    pub(super) fn has_choice(&self) -> bool {
        let many_ports = |ports: &PortMapping| ports.values().len() > 1;
        self.daddr.as_ref().is_some_and(|addresses| addresses.len() > 1)
            || self.dport.as_ref().is_some_and(many_ports)
    }
}

/// Chooses a destination port. All ports of the ranges are allowed, since no binding uses ports of the
/// responder.
fn port_of(ports: &PortMapping, port: u16, attempt: u64, secrets: &mut NatRandom) -> Option<u16> {
    let ranges = ports.ranges();
    if ports.keeps_own_port() && attempt == 0 && within(ranges, port) {
        return Some(port);
    }
    random(ranges, secrets)
}
