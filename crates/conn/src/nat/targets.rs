//! What rules ask for, as a worker remembers it between connections.

use super::Mapping;
use super::addresses::Addresses;
use super::balance::{Balance, Least, hash_of};
use super::ports::{Ports, nth, within};
use super::random::{Key, Secrets, scale};
use crate::{SOURCE, Tuple};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// The source side of a mapping. Rules that ask for the same share their bindings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wanted {
    pub(super) addresses: Option<Addresses>,
    pub(super) ranges: Option<Vec<(u16, u16)>>,
}

/// All that is asked for, numbered. A number is free again when no rule and no binding uses it.
#[derive(Default)]
pub(super) struct Targets {
    numbers: HashMap<Arc<Wanted>, u32>,
    /// What a number stands for, and how many rules and bindings use it.
    targets: Vec<(Arc<Wanted>, u32)>,
    free: Vec<u32>,
}

impl Targets {
    /// The number, for one user more.
    fn intern(&mut self, wanted: Wanted) -> u32 {
        if let Some(number) = self.numbers.get(&wanted).copied() {
            self.hold(number);
            return number;
        }
        let wanted = Arc::new(wanted);
        let target = (Arc::clone(&wanted), 1);
        let number = match self.free.pop() {
            Some(number) => {
                self.targets[number as usize] = target;
                number
            }
            None => {
                self.targets.push(target);
                self.targets.len() as u32 - 1
            }
        };
        self.numbers.insert(wanted, number);
        number
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn wanted(&self, number: u32) -> &Arc<Wanted> {
        &self.targets[number as usize].0
    }

    pub(super) fn hold(&mut self, number: u32) {
        self.targets[number as usize].1 += 1;
    }

    pub(super) fn release(&mut self, number: u32) {
        let (wanted, users) = &mut self.targets[number as usize];
        *users -= 1;
        if *users == 0 {
            self.numbers.remove(wanted);
            self.free.push(number);
        }
    }
}

/// A rule with a mapping, and how far its balancing has come.
pub(super) struct Rule {
    mapping: Mapping,
    /// Of [`Targets`], if the mapping has a source side.
    pub(super) target: Option<u32>,
    /// Told apart from an earlier rule with the same number.
    pub(super) serial: u32,
    /// What is balanced over: the destination addresses, or ports if there is at most one address.
    servers: Option<Addresses>,
    over_ports: bool,
    dports: Vec<(u16, u16)>,
    turn: u64,
    least: Option<Least>,
}

/// Where a connection goes.
#[derive(Clone, Copy)]
pub(super) struct Destination {
    pub(super) address: u128,
    pub(super) port: u16,
    /// The server to count the connection for.
    pub(super) counted: Option<u128>,
}

/// The rules of a worker that have made connections.
#[derive(Default)]
pub(super) struct Rules {
    rules: HashMap<u32, Rule>,
    serials: u32,
}

impl Rules {
    /// What is known of a rule, which begins anew if its mapping is another one now.
    pub(super) fn of(
        &mut self,
        number: u32,
        mapping: &Mapping,
        targets: &mut Targets,
        secrets: &mut Secrets,
    ) -> &mut Rule {
        match self.rules.entry(number) {
            Entry::Vacant(place) => {
                self.serials = self.serials.wrapping_add(1);
                place.insert(Rule::new(mapping, self.serials, None, targets, secrets))
            }
            Entry::Occupied(entry) => {
                let rule = entry.into_mut();
                if rule.mapping != *mapping {
                    let new = Rule::new(mapping, rule.serial, Some(rule), targets, secrets);
                    let old = std::mem::replace(rule, new);
                    old.target.into_iter().for_each(|target| targets.release(target));
                }
                rule
            }
        }
    }

    pub(super) fn forget(&mut self, number: u32, targets: &mut Targets) {
        if let Some(target) = self.rules.remove(&number).and_then(|rule| rule.target) {
            targets.release(target);
        }
    }

    /// Counts a connection for its server.
    pub(super) fn hold(&mut self, number: u32, serial: u32, server: u128) {
        if let Some((least, index)) = self.counter(number, serial, server) {
            least.hold(index);
        }
    }

    /// A connection that was counted for a server has ended.
    pub(super) fn release(&mut self, number: u32, serial: u32, server: u128) {
        if let Some((least, index)) = self.counter(number, serial, server) {
            least.release(index);
        }
    }

    fn counter(&mut self, number: u32, serial: u32, server: u128) -> Option<(&mut Least, u64)> {
        let rule = self.rules.get_mut(&number).filter(|rule| rule.serial == serial)?;
        let index = rule.servers.as_ref()?.index_of(server)?;
        Some((rule.least.as_mut()?, index))
    }
}

impl Rule {
    fn new(
        mapping: &Mapping,
        serial: u32,
        old: Option<&Rule>,
        targets: &mut Targets,
        secrets: &mut Secrets,
    ) -> Rule {
        let ranges = mapping.sport.as_ref().map(Ports::ranges);
        let wanted = Wanted { addresses: mapping.saddr.clone(), ranges };
        let has_source = wanted.addresses.is_some() || wanted.ranges.is_some();
        let dports = mapping.dport.as_ref().map(Ports::ranges).unwrap_or_default();
        let over_ports =
            mapping.daddr.as_ref().is_none_or(|addresses| addresses.len() == 1) && mapping.dport.is_some();
        let servers = mapping.balance.and_then(|_| match over_ports {
            true => Some(
                dports
                    .iter()
                    .map(|(low, high)| (u128::from(*low), u128::from(*high)))
                    .collect::<Vec<_>>()
                    .into(),
            ),
            false => mapping.daddr.clone(),
        });
        let least = servers.as_ref().filter(|_| mapping.balance == Some(Balance::Least)).map(
            |servers: &Addresses| {
                // Connections of before keep their servers, so those stay as busy as they are.
                let loads = old.and_then(Rule::loads).into_iter().flatten();
                let loads = loads.filter_map(|(server, load)| Some((servers.index_of(server)?, load)));
                Least::new(servers.len(), loads)
            },
        );
        let turn = secrets.below(servers.as_ref().map_or(1, |servers| servers.len().max(1)));
        let target = has_source.then(|| targets.intern(wanted));
        Rule { mapping: mapping.clone(), target, serial, servers, over_ports, dports, turn, least }
    }

    fn loads(&self) -> Option<impl Iterator<Item = (u128, u32)>> {
        let servers = self.servers.as_ref()?;
        Some(self.least.as_ref()?.loads().map(|(index, load)| (servers.nth(index), load)))
    }

    /// Where a connection goes; a second `attempt` may give another place. `None`: the mapping has no place for it.
    pub(super) fn destination(
        &mut self,
        arrived: &Tuple,
        attempt: u64,
        key: &Key,
        secrets: &mut Secrets,
    ) -> Option<Destination> {
        let [_, address] = arrived.addresses;
        let [_, port] = arrived.ports;
        let mut to = Destination { address, port, counted: None };
        let server = match &self.servers {
            Some(servers) if servers.is_empty() => return None,
            Some(_) => Some(self.server(arrived, attempt, secrets)?),
            None => None,
        };
        if let Some(addresses) = &self.mapping.daddr {
            to.address = match server.filter(|_| !self.over_ports) {
                Some(server) => server,
                None if addresses.is_empty() => return None,
                None if attempt == 0 => {
                    addresses.nth(scale(key.of(&arrived.addresses[SOURCE]), addresses.len()))
                }
                None => addresses.nth(secrets.below(addresses.len())),
            };
        }
        if let Some(ports) = &self.mapping.dport {
            to.port = match server.filter(|_| self.over_ports) {
                Some(server) => server as u16,
                None => self.dport(ports, port, attempt, secrets)?,
            };
        }
        to.counted = server.filter(|_| self.least.is_some());
        Some(to)
    }

    fn server(&mut self, arrived: &Tuple, attempt: u64, secrets: &mut Secrets) -> Option<u128> {
        let servers = self.servers.as_ref()?;
        let index = match (self.mapping.balance?, &self.least) {
            (Balance::Hash, _) => servers.maglev().pick(hash_of(arrived, attempt), servers),
            (Balance::Least, Some(least)) if attempt == 0 => least.pick(secrets)?,
            (Balance::Least, _) => secrets.below(servers.len()),
            (Balance::RoundRobin, _) => {
                self.turn = (self.turn + 1) % servers.len();
                self.turn
            }
        };
        Some(servers.nth(index))
    }

    fn dport(&self, ports: &Ports, port: u16, attempt: u64, secrets: &mut Secrets) -> Option<u16> {
        let keeps = matches!(ports, Ports::Within(_)) && attempt == 0;
        if keeps && within(&self.dports, port) {
            return Some(port);
        }
        let total: u64 = self.dports.iter().map(|(low, high)| u64::from(high - low) + 1).sum();
        (total > 0).then(|| nth(&self.dports, secrets.below(total)))
    }

    /// Whether a second attempt may give another destination.
    pub(super) fn has_choice(&self) -> bool {
        self.mapping.daddr.as_ref().is_some_and(|addresses| addresses.len() > 1)
            || self.dports.iter().map(|(low, high)| u32::from(high - low) + 1).sum::<u32>() > 1
    }
}
