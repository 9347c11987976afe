//! Load balancing: the methods, and the search for the value with the fewest connections.

use crate::addresses::ValueSet;
use crate::available::AvailableIndices;
use crate::open_servers::OpenServers;
use crate::random::NatRandom;
use std::collections::HashMap;

/// How connections are distributed over values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Balance {
    /// In turn.
    RoundRobin,
    /// By a keyed hash of the connection's five-tuple. A tuple gets the same server for the lifetime of the
    /// process, under every rule with the same servers. Few connections move when a server is added or
    /// removed. Each process has its own key: without a secret key, a client that knows the servers could
    /// direct all its connections to one of them.
    Hash,
    /// The value with the fewest connections of all connections that were balanced over the same servers.
    /// Among idle values, a random one.
    Least,
}

/// Counts the connections of values, and finds the value with the fewest connections for its weight. In sets
/// of more than [`OpenServers::MAX_SERVERS`] values, idle values take no memory.
pub(super) struct LeastConnections {
    idle: AvailableIndices,
    /// A binary heap of the values with connections, each with its number of connections. The value with the
    /// fewest connections for its weight comes first; of equal ones, the value with the lowest index.
    busy: Vec<(u32, u64)>,
    /// The position of a value in the heap.
    positions: HashMap<u64, usize>,
    /// The number of connections of each value, if there are at most [`OpenServers::MAX_SERVERS`] values.
    counts: Box<[u32]>,
    /// The values, with the weights by which connections are compared.
    values: ValueSet,
}

impl LeastConnections {
    /// State for values without connections.
    pub(super) fn new(values: &ValueSet) -> LeastConnections {
        let mut idle = AvailableIndices::new(values.len());
        if values.is_weighted() {
            // Values of weight 0 are never picked. A set with weights has at most a thousand values.
            (0..values.len()).filter(|index| values.weight(*index) == 0).for_each(|index| {
                if idle.reserve() {
                    idle.remove(index);
                }
            });
        }
        let counted = if values.len() <= OpenServers::MAX_SERVERS { values.len() } else { 0 };
        let counts = vec![0; counted as usize].into_boxed_slice();
        LeastConnections { idle, busy: Vec::new(), positions: HashMap::new(), counts, values: values.clone() }
    }

    /// Whether a value has fewer connections for its weight than another. Of equal values, the lower index
    /// counts as less.
    fn is_less(&self, one: (u32, u64), other: (u32, u64)) -> bool {
        self.is_emptier(one, other) || !self.is_emptier(other, one) && one.1 < other.1
    }

    /// Whether a value has fewer connections for its weight than another.
    fn is_emptier(&self, (one, first): (u32, u64), (other, second): (u32, u64)) -> bool {
        let load = |connections: u32, index| u64::from(connections) * u64::from(self.values.weight(index));
        load(one, second) < load(other, first)
    }

    fn count(&mut self, index: u64, delta: i32) {
        if let Some(count) = self.counts.get_mut(index as usize) {
            *count = count.wrapping_add_signed(delta);
        }
    }

    /// The index of a value with the fewest connections, if there is any value.
    pub(super) fn pick(&self, secrets: &mut NatRandom) -> Option<u64> {
        match self.idle.count() {
            0 => self.busy.first().map(|(_, index)| *index),
            idle => Some(self.idle.nth(secrets.below(idle))),
        }
    }

    /// The index of an open value with the fewest connections, if any is open; of equal values, a random
    /// one. Compares all open values.
    pub(super) fn pick_open(&self, open: &OpenServers, secrets: &mut NatRandom) -> Option<u64> {
        let values = self.counts.len() as u64;
        let start = secrets.below(values.max(1));
        let indices = (start..values).chain(0..start).filter(|index| open.has(*index));
        let entry = |index| (self.counts[index as usize], index);
        indices.reduce(|least, index| if self.is_emptier(entry(index), entry(least)) { index } else { least })
    }

    /// Reserves memory for one more connection. Returns false if memory is exhausted.
    #[must_use]
    pub(super) fn reserve(&mut self) -> bool {
        self.idle.reserve() && self.busy.try_reserve(1).is_ok() && self.positions.try_reserve(1).is_ok()
    }

    /// Adds a connection. [`LeastConnections::reserve`] must be called before.
    pub(super) fn hold(&mut self, index: u64) {
        self.count(index, 1);
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
        let position = self.sift_up(position);
        self.sift_down(position);
    }

    /// Removes a connection.
    pub(super) fn release(&mut self, index: u64) {
        let Some(&position) = self.positions.get(&index) else { return };
        self.count(index, -1);
        self.busy[position].0 -= 1;
        let (is_idle, position) = (self.busy[position].0 == 0, self.sift_up(position));
        if is_idle {
            // Without connections, the value has risen to the root of the heap: only idle values have as few,
            // and they are not in the heap.
            let last = self.busy.len() - 1;
            self.swap(position, last);
            self.busy.pop();
            self.positions.remove(&index);
            self.idle.put_back(index);
            if position < last {
                self.sift_down(position);
            }
        }
    }

    /// Moves an entry up until its parent has no more connections. Returns its position.
    fn sift_up(&mut self, mut position: usize) -> usize {
        while position > 0 && self.is_less(self.busy[position], self.busy[(position - 1) / 2]) {
            self.swap(position, (position - 1) / 2);
            position = (position - 1) / 2;
        }
        position
    }

    /// Moves an entry down until its children have no fewer connections.
    fn sift_down(&mut self, mut position: usize) {
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
            if let Some(known_position) = self.positions.get_mut(&self.busy[position].1) {
                *known_position = position;
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
            let (mut least, mut plain) = (LeastConnections::new(&values), [0_u32; 9]);
            let mut secrets = NatRandom::new(mmb_random::Seed::repeatable(1));
            for (adds, index) in steps {
                let load = &mut plain[index as usize];
                if adds {
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
                let open = OpenServers::new(&values, |index| index % 3 != 0);
                let picked = least.pick_open(&open, &mut secrets).expect("six are open") as usize;
                let fewest = plain.iter().enumerate().filter(|(index, _)| index % 3 != 0).map(|(_, load)| *load).min();
                prop_assert!(!picked.is_multiple_of(3) && Some(plain[picked]) == fewest);
            }
        }
    }

    #[test]
    fn connections_are_in_proportion_to_weights() {
        let values = ValueSet::weighted(&[((10, 10), 3), ((11, 12), 1), ((13, 13), 0)]);
        let mut secrets = NatRandom::new(mmb_random::Seed::repeatable(1));
        let mut least = LeastConnections::new(&values);
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
}
