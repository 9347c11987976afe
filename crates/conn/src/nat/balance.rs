//! Load balancing: round robin, consistent hashing, or least connections.

use super::addresses::ValueSet;
use super::available::AvailablePorts;
use super::random::{NatRandom, scale};
use crate::Tuple;
use mmb_random::Prf;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
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

/// The number of entries of a table, a prime, and the most servers it is used for: each server's share is then equal within one per cent,
/// since the entries of any two servers differ by at most one.
const SIZES: [(u64, u64); 2] = [(65_537, 655), (655_373, 6_553)];

/// Number of probes in sets without a table, before the hash selects an index.
const PROBES: u64 = 64;

/// A lookup table for consistent hashing (Eisenbud et al., Maglev, NSDI 2016, section 3.4).
///
/// Sets that are too large for a table are looked up by probing: the first of a sequence of hashes that is a value of the set wins, so that
/// removing a value moves only the connections that it had.
#[derive(Debug)]
pub(super) struct Maglev(Box<[u16]>);

impl Maglev {
    pub(super) fn new(values: &ValueSet) -> Maglev {
        let size =
            SIZES.iter().find(|(_, most)| (1..=*most).contains(&values.len())).map_or(0, |(size, _)| *size);
        Maglev(if size == 0 { Box::default() } else { fill(size, values) })
    }

    /// The index of the value that a hash selects. There must be a value.
    pub(super) fn pick(&self, hash: u64, values: &ValueSet) -> u64 {
        if !self.0.is_empty() {
            return u64::from(self.0[scale(hash, self.0.len() as u64) as usize]);
        }
        let (low, high) = values.hull().unwrap_or_default();
        let span = u128::MAX.checked_shr((low ^ high).leading_zeros()).unwrap_or(0);
        (0..PROBES)
            .find_map(|probe| values.index_of((low & !span) | (wide(hash, probe) & span)))
            .unwrap_or_else(|| scale(hash, values.len()))
    }
}

/// Fills a table: values take entries in turns, each in a permutation of its own.
fn fill(size: u64, values: &ValueSet) -> Box<[u16]> {
    const FREE: u16 = u16::MAX;
    let mut orders: Vec<(u64, u64)> = (0..values.len())
        .map(|index| {
            let value = values.nth(index);
            let folded = mix(value as u64 ^ mix((value >> 64) as u64));
            (scale(folded, size), 1 + scale(mix(folded), size - 1))
        })
        .collect();
    let mut table = vec![FREE; size as usize].into_boxed_slice();
    let mut left = size;
    while left > 0 {
        for (index, (next, skip)) in orders.iter_mut().enumerate().take(left as usize) {
            while table[*next as usize] != FREE {
                // Both are below `size`: a division for each step would take most of the time.
                *next += *skip;
                if *next >= size {
                    *next -= size;
                }
            }
            table[*next as usize] = index as u16;
            left -= 1;
        }
    }
    table
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

/// Mixes the bits of a number. It has no key: only the hash with which a table is looked up is secret.
fn mix(number: u64) -> u64 {
    SplitMix64::seed_from_u64(number).next_u64()
}

/// The number of connections of each value, and the value with the fewest. Idle values take no memory.
pub(super) struct Least {
    idle: AvailablePorts,
    /// A binary heap of values with connections: the one with the fewest first, of equal ones the one with the lowest index.
    busy: Vec<(u32, u64)>,
    /// The position of a value in the heap.
    places: HashMap<u64, usize>,
}

impl Least {
    /// State for `values` values without connections.
    pub(super) fn new(values: u64) -> Least {
        Least { idle: AvailablePorts::new(values), busy: Vec::new(), places: HashMap::new() }
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
        self.idle.reserve() && self.busy.try_reserve(1).is_ok() && self.places.try_reserve(1).is_ok()
    }

    /// Adds a connection; [`Least::reserve`] comes before.
    pub(super) fn hold(&mut self, index: u64) {
        let place = match self.places.get(&index) {
            Some(place) => *place,
            None => {
                self.idle.mark_exhausted(index);
                self.busy.push((0, index));
                self.places.insert(index, self.busy.len() - 1);
                self.busy.len() - 1
            }
        };
        self.busy[place].0 += 1;
        let place = self.rise(place);
        self.sink(place);
    }

    /// Removes a connection.
    pub(super) fn release(&mut self, index: u64) {
        let Some(&place) = self.places.get(&index) else { return };
        self.busy[place].0 -= 1;
        let (is_idle, place) = (self.busy[place].0 == 0, self.rise(place));
        if is_idle {
            // Only idle values have fewer, and they are not in the heap.
            let last = self.busy.len() - 1;
            self.swap(place, last);
            self.busy.pop();
            self.places.remove(&index);
            self.idle.reopen(index);
            if place < last {
                self.sink(place);
            }
        }
    }

    /// Moves an entry up until its parent has no more connections. Returns its position.
    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 && self.busy[place] < self.busy[(place - 1) / 2] {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        place
    }

    /// Moves an entry down until its children have no fewer connections.
    fn sink(&mut self, mut place: usize) {
        loop {
            let children = (2 * place + 1..self.busy.len()).take(2);
            let Some(least) = children.min_by_key(|child| self.busy[*child]) else { break };
            if self.busy[place] < self.busy[least] {
                break;
            }
            self.swap(place, least);
            place = least;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.busy.swap(one, other);
        for place in [one, other] {
            if let Some(noted) = self.places.get_mut(&self.busy[place].1) {
                *noted = place;
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
        fn whom_fewest_have_chosen_comes_first(steps in proptest::collection::vec((any::<bool>(), 0_u64..9), 0..200)) {
            let (mut least, mut plain) = (Least::new(9), [0_u32; 9]);
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
                prop_assert_eq!(least.places.len() as u64 + least.idle.count(), 9);
            }
        }
    }

    /// The server that each of `hashes` connections gets.
    fn given(servers: &ValueSet, hashes: u64) -> Vec<u128> {
        (0..hashes).map(|number| servers.nth(servers.maglev().pick(mix(number), servers))).collect()
    }

    fn without(servers: &ValueSet, gone: u128) -> ValueSet {
        let rest = (0..servers.len()).map(|index| servers.nth(index)).filter(|server| *server != gone);
        ValueSet::new(rest.map(|server| (server, server)).collect())
    }

    #[test]
    fn tables_give_every_server_the_same_share() {
        for count in [1, 2, 3, 10, 100, 655, 656, 2000] {
            let servers = ValueSet::new(vec![(1 << 40, (1 << 40) + count - 1)]);
            let Maglev(table) = servers.maglev();
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
