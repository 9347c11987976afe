//! Load balancing: round robin, consistent hashing, or least connections.

use super::addresses::ValueSet;
use super::available::AvailableIndices;
use super::maglev::mix;
use super::random::{NatRandom, scale};
use crate::Tuple;
use mmb_random::Prf;
use std::collections::HashMap;

/// How connections are distributed over values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Balance {
    /// In turn.
    RoundRobin,
    /// By a keyed hash of the connection's five-tuple: the same tuple always gets the same server, under every rule with the same servers,
    /// for the lifetime of the process. Few connections move when a server is added or removed. Another process has another key: without
    /// one, a client that knows the servers could direct all its connections to one of them.
    Hash,
    /// The value with the fewest connections of all that were balanced over the same servers; among idle ones, a random one.
    Least,
}

/// Number of probes in sets without a table, before the hash selects an index.
const PROBES: u64 = 64;

/// The index of the value that a hash selects. There must be a value.
///
/// Sets that are too large for a table are looked up by probing: the first of a sequence of hashes that is a value of the set wins, so that
/// removing a value moves only the connections that it had.
pub(super) fn pick(hash: u64, values: &ValueSet) -> u64 {
    values.maglev().find(hash).unwrap_or_else(|| {
        let (low, high) = values.hull().unwrap_or_default();
        let span = u128::MAX.checked_shr((low ^ high).leading_zeros()).unwrap_or(0);
        (0..PROBES)
            .find_map(|probe| values.index_of((low & !span) | (wide(hash, probe) & span)))
            .unwrap_or_else(|| scale(hash, values.len()))
    })
}

/// The hash of a connection that selects its server; each `attempt` gives another. It does not depend on the ingress.
pub(super) fn hash_of(prf: &Prf, tuple: &Tuple, attempt: u64) -> u64 {
    let mut bytes = [0; Tuple::BYTES + 8];
    let anywhere = tuple.beside(&Tuple::default());
    bytes[..Tuple::BYTES].copy_from_slice(&anywhere.to_bytes());
    bytes[Tuple::BYTES..].copy_from_slice(&attempt.to_le_bytes());
    prf.hash(&bytes)
}

fn wide(hash: u64, probe: u64) -> u128 {
    let low = mix(hash ^ mix(probe));
    u128::from(mix(low)) << 64 | u128::from(low)
}

/// The number of connections of each value, and the value with the fewest for its weight. Idle values take no memory.
pub(super) struct Least {
    idle: AvailableIndices,
    /// A binary heap of values with connections: the one with the fewest first, of equal ones the one with the lowest index.
    busy: Vec<(u32, u64)>,
    /// The position of a value in the heap.
    positions: HashMap<u64, usize>,
    /// The values, by whose weights their connections are compared.
    values: ValueSet,
}

impl Least {
    /// State for values without connections.
    pub(super) fn new(values: &ValueSet) -> Least {
        let mut idle = AvailableIndices::new(values.len());
        if values.is_weighted() {
            // Those without a weight are never picked: at most a thousand.
            (0..values.len()).filter(|index| values.weight(*index) == 0).for_each(|index| {
                if idle.reserve() {
                    idle.remove(index);
                }
            });
        }
        Least { idle, busy: Vec::new(), positions: HashMap::new(), values: values.clone() }
    }

    /// Whether a value has fewer connections for its weight than another; of equal ones, the lower index comes first.
    fn is_less(&self, (one, first): (u32, u64), (other, second): (u32, u64)) -> bool {
        let load = |connections: u32, index| u64::from(connections) * u64::from(self.values.weight(index));
        (load(one, second), first) < (load(other, first), second)
    }

    /// The index of a value with the fewest connections, if there is any value.
    pub(super) fn pick(&self, secrets: &mut NatRandom) -> Option<u64> {
        match self.idle.count() {
            0 => self.busy.first().map(|(_, index)| *index),
            idle => Some(self.idle.nth(secrets.below(idle))),
        }
    }

    /// Reserves memory for one more connection. False if there is none.
    #[must_use]
    pub(super) fn reserve(&mut self) -> bool {
        self.idle.reserve() && self.busy.try_reserve(1).is_ok() && self.positions.try_reserve(1).is_ok()
    }

    /// Adds a connection; [`Least::reserve`] comes before.
    pub(super) fn hold(&mut self, index: u64) {
        let position = match self.positions.get(&index) {
            Some(position) => *position,
            None => {
                self.idle.remove(index);
                self.busy.push((0, index));
                self.positions.insert(index, self.busy.len() - 1);
                self.busy.len() - 1
            }
        };
        self.busy[position].0 += 1;
        let position = self.rise(position);
        self.sink(position);
    }

    /// Removes a connection.
    pub(super) fn release(&mut self, index: u64) {
        let Some(&position) = self.positions.get(&index) else { return };
        self.busy[position].0 -= 1;
        let (is_idle, position) = (self.busy[position].0 == 0, self.rise(position));
        if is_idle {
            // Only idle values have fewer, and they are not in the heap.
            let last = self.busy.len() - 1;
            self.swap(position, last);
            self.busy.pop();
            self.positions.remove(&index);
            self.idle.put_back(index);
            if position < last {
                self.sink(position);
            }
        }
    }

    /// Moves an entry up until its parent has no more connections. Returns its position.
    fn rise(&mut self, mut position: usize) -> usize {
        while position > 0 && self.is_less(self.busy[position], self.busy[(position - 1) / 2]) {
            self.swap(position, (position - 1) / 2);
            position = (position - 1) / 2;
        }
        position
    }

    /// Moves an entry down until its children have no fewer connections.
    fn sink(&mut self, mut position: usize) {
        loop {
            let children = (2 * position + 1..self.busy.len()).take(2);
            let fewest =
                |one, other| if self.is_less(self.busy[other], self.busy[one]) { other } else { one };
            let Some(least) = children.reduce(fewest) else { break };
            if self.is_less(self.busy[position], self.busy[least]) {
                break;
            }
            self.swap(position, least);
            position = least;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.busy.swap(one, other);
        for position in [one, other] {
            if let Some(noted) = self.positions.get_mut(&self.busy[position].1) {
                *noted = position;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_value_that_fewest_chose_comes_first(steps in proptest::collection::vec((any::<bool>(), 0_u64..9), 0..200)) {
            let values = ValueSet::new(vec![(0, 8)]);
            let (mut least, mut plain) = (Least::new(&values), [0_u32; 9]);
            let mut secrets = NatRandom::new(mmb_random::Seed::repeatable(1));
            for (more, index) in steps {
                let load = &mut plain[index as usize];
                if more {
                    prop_assert!(least.reserve());
                    least.hold(index);
                    *load += 1;
                } else if *load > 0 {
                    least.release(index);
                    *load -= 1;
                }
                let picked = least.pick(&mut secrets).expect("there are values") as usize;
                let fewest = *plain.iter().min().expect("there are values");
                prop_assert_eq!(plain[picked], fewest);
                prop_assert!(fewest == 0 || plain[..picked].iter().all(|load| *load > fewest));
                prop_assert_eq!(least.positions.len() as u64 + least.idle.count(), 9);
            }
        }
    }

    #[test]
    fn connections_are_in_proportion_to_weights() {
        let values = ValueSet::weighted(&[((10, 10), 3), ((11, 12), 1), ((13, 13), 0)]);
        let mut secrets = NatRandom::new(mmb_random::Seed::repeatable(1));
        let mut least = Least::new(&values);
        let mut counts = [0_u32; 4];
        for step in 1..=500 {
            let picked = least.pick(&mut secrets).expect("there are values");
            assert!(least.reserve());
            least.hold(picked);
            counts[picked as usize] += 1;
            if step % 5 == 0 {
                assert_eq!(counts, [3 * step / 5, step / 5, step / 5, 0]);
            }
        }
        (0..60).for_each(|_| least.release(1));
        assert!((0..60).all(|_| {
            let picked = least.pick(&mut secrets);
            assert!(least.reserve());
            picked.into_iter().for_each(|picked| least.hold(picked));
            picked == Some(1)
        }));
        let mut shares = [0_u32; 4];
        values.maglev().0.iter().for_each(|server| shares[usize::from(*server)] += 1);
        let size: u32 = shares.iter().sum();
        assert!(shares[3] == 0 && shares[0].abs_diff(size / 5 * 3) < size / 100, "{shares:?}");
        assert!(
            shares[1].abs_diff(size / 5) < size / 100 && shares[2].abs_diff(size / 5) < size / 100,
            "{shares:?}"
        );
    }

    /// A server that drains moves hardly any connection of others, like one that goes.
    #[test]
    fn few_hashes_move_when_a_weight_changes() {
        let list = |weight| ValueSet::weighted(&[((700, 706), 2), ((707, 707), weight)]);
        let (before, after) = (given(&list(2), 20_000), given(&list(0), 20_000));
        assert!(after.iter().all(|server| *server != 707));
        let others = before.iter().zip(&after).filter(|(before, _)| **before != 707);
        let moved = others.filter(|(before, after)| before != after).count();
        assert!(moved < 20_000 / 20, "{moved} of other servers moved");
    }

    /// The server that each of `hashes` connections gets.
    fn given(servers: &ValueSet, hashes: u64) -> Vec<u128> {
        (0..hashes).map(|number| servers.nth(pick(mix(number), servers))).collect()
    }

    fn without(servers: &ValueSet, gone: u128) -> ValueSet {
        let rest = (0..servers.len()).map(|index| servers.nth(index)).filter(|server| *server != gone);
        ValueSet::new(rest.map(|server| (server, server)).collect())
    }

    #[test]
    fn tables_give_every_server_the_same_share() {
        for count in [1, 2, 3, 10, 100, 655, 656, 2000] {
            let servers = ValueSet::new(vec![(1 << 40, (1 << 40) + count - 1)]);
            let table = &servers.maglev().0;
            let mut shares = vec![0_u32; count as usize];
            table.iter().for_each(|server| shares[usize::from(*server)] += 1);
            let mean = table.len() as f64 / count as f64;
            assert!(shares.iter().all(|share| (f64::from(*share) - mean).abs() <= mean * 0.02), "{count}");
        }
    }

    #[test]
    fn few_connections_move_when_a_server_goes() {
        for count in [3_u128, 10, 100] {
            let servers = ValueSet::new(vec![(700, 700 + count - 1)]);
            let (before, after) = (given(&servers, 20_000), given(&without(&servers, 701), 20_000));
            let moved = before
                .iter()
                .zip(&after)
                .filter(|(before, after)| before != after && **before != 701)
                .count();
            assert!(moved < 20_000 / 20, "{moved} of {count} servers' connections moved");
        }
    }

    #[test]
    fn sets_without_a_table_lose_only_what_fell_on_a_server() {
        let servers = ValueSet::new(vec![(0x0A00_0000, 0x0A00_FFFF), (0x0A02_0000, 0x0A02_FFFF)]);
        let rest = ValueSet::new(vec![
            (0x0A00_0000, 0x0A00_0FFF),
            (0x0A00_1001, 0x0A00_FFFF),
            (0x0A02_0000, 0x0A02_FFFF),
        ]);
        assert!(servers.maglev().0.is_empty());
        let (before, after) = (given(&servers, 50_000), given(&rest, 50_000));
        assert!(before.iter().zip(&after).all(|(before, after)| before == after || *before == 0x0A00_1000));
        let lower = before.iter().filter(|server| **server < 0x0A01_0000).count();
        assert!((24_000..26_000).contains(&lower));
        // With sparse addresses no probe may hit one: every hash still gets one of them.
        let sparse = ValueSet::new((0..7000).map(|number| (number << 100, number << 100)).collect());
        assert!(given(&sparse, 1000).iter().all(|server| sparse.index_of(*server).is_some()));
    }
}
