//! Destinations of connections: fixed ones, pools, and load-balanced servers.
//!
//! Servers are counted per set, not per rule: all rules that balance over the same set by the same method take turns together and see each
//! other's connections.

use super::addresses::ValueSet;
use super::balance::{Balance, Least, hash_of, pick};
use super::interned::Interned;
use super::mapping::{Mapping, NatError, RuleVersion};
use super::ports::{PortMapping, random, within};
use super::random::{NatRandom, scale};
use crate::{DESTINATION, Tuple};
use mmb_base::id_types;
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
    over: BalancedOver,
}

#[derive(PartialEq, Eq, Hash)]
enum BalancedOver {
    Addresses(ValueSet),
    Ports(ValueSet),
}

/// The balancing state of a set of servers.
struct ServerSet {
    servers: ValueSet,
    turn: u64,
    least: Option<Least>,
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
    /// The sets that a rule balances over: several if it was combined with different rules.
    of_rule: HashMap<RuleVersion, Vec<ServerSetId>>,
}

impl DestinationTable {
    /// A table without sets. `prf` selects destinations that must be the same for the same connection.
    pub(super) fn new(prf: Prf) -> DestinationTable {
        DestinationTable { prf, sets: Interned::new(), of_rule: HashMap::new() }
    }

    #[cfg(test)]
    pub(super) fn sets(&self) -> usize {
        self.sets.len()
    }

    /// Chooses the destination of a connection; a second `attempt` may give another.
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
        let mut to = NatDestination {
            address: arrived.addresses[DESTINATION],
            port: arrived.ports[DESTINATION],
            counted: None,
        };
        let over_ports = mapping.balances_ports();
        let mut server = None;
        if let Some(balance) = mapping.balance {
            let over = match (over_ports, &mapping.dport, &mapping.daddr) {
                (true, Some(ports), _) => Some(BalancedOver::Ports(ports.values().clone())),
                (_, _, addresses) => addresses.clone().map(BalancedOver::Addresses),
            };
            if let Some(over) = over {
                let (value, counted) =
                    self.server(rule, BalancedValue { balance, over }, arrived, attempt, secrets)?;
                (server, to.counted) = (Some(value), counted);
            }
        }
        if let Some(addresses) = &mapping.daddr {
            to.address = match server.filter(|_| !over_ports) {
                Some(server) => server,
                None if addresses.is_empty() => return Err(NatError::NoAddress),
                None if attempt == 0 => addresses.nth(scale(self.of_source(arrived), addresses.len())),
                None => addresses.nth(secrets.below(addresses.len())),
            };
        }
        if let Some(ports) = &mapping.dport {
            to.port = match server.filter(|_| over_ports) {
                Some(server) => server as u16,
                None => port_of(ports, to.port, attempt, secrets).ok_or(NatError::NoAddress)?,
            };
        }
        Ok(to)
    }

    /// The hash of a connection's source.
    fn of_source(&self, arrived: &Tuple) -> u64 {
        let Tuple { addresses: [source, _], family, .. } = *arrived;
        self.prf.hash(&Tuple { addresses: [source, 0], family, ..Tuple::default() }.to_bytes())
    }

    /// Chooses a server of a set, and whether to count the connection for it.
    fn server(
        &mut self,
        rule: RuleVersion,
        spread: BalancedValue,
        arrived: &Tuple,
        attempt: u64,
        secrets: &mut NatRandom,
    ) -> Result<(u128, Option<CountedServer>), NatError> {
        let balance = spread.balance;
        let set = self.set(rule, spread, secrets).ok_or(NatError::NoMemory)?;
        let ServerSet { servers, turn, least } = self.sets.state(set).ok_or(NatError::NoAddress)?;
        if servers.turns() == 0 {
            return Err(NatError::NoAddress);
        }
        let server = match (balance, &*least) {
            (Balance::Hash, _) => pick(hash_of(&self.prf, arrived, attempt), servers),
            (Balance::Least, Some(least)) if attempt == 0 => {
                least.pick(secrets).ok_or(NatError::NoAddress)?
            }
            (Balance::Least, _) => servers.at_turn(secrets.below(servers.turns())),
            (Balance::RoundRobin, _) => {
                *turn = (*turn + 1) % servers.turns();
                servers.at_turn(*turn)
            }
        };
        Ok((servers.nth(server), least.as_ref().map(|_| CountedServer { set, server })))
    }

    /// The id of a set, which the rule uses from now on; `None` if there is no memory.
    fn set(
        &mut self,
        rule: RuleVersion,
        spread: BalancedValue,
        secrets: &mut NatRandom,
    ) -> Option<ServerSetId> {
        self.of_rule.try_reserve(1).ok()?;
        let of_rule = self.of_rule.entry(rule).or_default();
        if let Some(set) = self.sets.find(&spread).filter(|set| of_rule.contains(set)) {
            return Some(set);
        }
        of_rule.try_reserve(1).ok()?;
        let set = self.sets.hold(spread, |spread| ServerSet::new(spread, secrets))?;
        of_rule.push(set);
        Some(set)
    }

    /// Reserves memory to count a connection for its server. False if there is none.
    #[must_use]
    pub(super) fn reserve(&mut self, CountedServer { set, .. }: CountedServer) -> bool {
        let least = self.sets.state(set).and_then(|servers| servers.least.as_mut());
        least.is_none_or(Least::reserve)
    }

    /// Counts a connection for its server; [`DestinationTable::reserve`] comes before.
    pub(super) fn hold(&mut self, CountedServer { set, server }: CountedServer) {
        self.sets.hold_id(set);
        if let Some(ServerSet { least: Some(least), .. }) = self.sets.state(set) {
            least.hold(server);
        }
    }

    /// Uncounts a connection that has ended.
    pub(super) fn release(&mut self, CountedServer { set, server }: CountedServer) {
        if let Some(ServerSet { least: Some(least), .. }) = self.sets.state(set) {
            least.release(server);
        }
        self.sets.release(set);
    }

    /// Forgets a removed rule, and the sets that no other rule and no connection uses.
    pub(super) fn forget(&mut self, rule: RuleVersion) {
        self.of_rule.remove(&rule).into_iter().flatten().for_each(|set| self.sets.release(set));
    }
}

impl ServerSet {
    fn new(spread: &BalancedValue, secrets: &mut NatRandom) -> ServerSet {
        let (BalancedOver::Addresses(servers) | BalancedOver::Ports(servers)) = &spread.over;
        let servers = servers.clone();
        let turn = secrets.below(servers.turns().max(1));
        let least = (spread.balance == Balance::Least).then(|| Least::new(&servers));
        ServerSet { servers, turn, least }
    }
}

impl Mapping {
    /// Whether balancing is over the destination ports: there is at most one address.
    fn balances_ports(&self) -> bool {
        self.dport.is_some() && self.daddr.as_ref().is_none_or(|addresses| addresses.len() == 1)
    }

    /// Whether a second attempt may give another destination.
    pub(super) fn has_choice(&self) -> bool {
        let many_ports = |ports: &PortMapping| ports.values().len() > 1;
        self.daddr.as_ref().is_some_and(|addresses| addresses.len() > 1)
            || self.dport.as_ref().is_some_and(many_ports)
    }
}

/// A destination port: any of the ranges, since no binding uses ports of the responder.
fn port_of(ports: &PortMapping, port: u16, attempt: u64, secrets: &mut NatRandom) -> Option<u16> {
    let ranges = ports.ranges();
    if ports.keeps() && attempt == 0 && within(ranges, port) {
        return Some(port);
    }
    random(ranges, secrets)
}
