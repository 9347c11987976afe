//! Sets of values that a mapping uses, stored as ranges: a /8 takes no more memory than one address.

use crate::maglev::Maglev;
use mmb_policy::Intervals;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// A set of values as ranges, both ends included. The values have indices from 0 in ascending order. Copies
/// share the data.
///
/// The values are addresses; ports, for load balancing over ports; or numbers, for a value that is chosen
/// once per connection.
#[derive(Clone, Debug)]
pub struct ValueSet(Arc<ValueSetInner>);

#[derive(Debug)]
struct ValueSetInner {
    ranges: Intervals,
    /// The index of each range's first value.
    first_indices: Vec<u64>,
    len: u64,
    /// A hash of the ranges and weights. Most comparisons and lookups of large sets need only this number.
    fingerprint: u64,
    maglev: OnceLock<Maglev>,
    /// `None` if all values have the weight 1.
    weights: Option<Weights>,
}

/// The weights of values that connections are balanced over.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Weights {
    /// By the value's index.
    by_index: Box<[u8]>,
    /// The indices of a round of turns. Each index has turns in proportion to its weight, spread evenly.
    turns: Box<[u16]>,
}

impl ValueSet {
    /// The set of all values of `ranges`, which may be in any order. Only the first 2^63 values of a larger
    /// set are used.
    pub fn new(ranges: Vec<(u128, u128)>) -> ValueSet {
        ValueSet::build(ranges, |_| None)
    }

    /// The set of all values of `ranges`, each range with the weight of its values. There must be at most
    /// 1000 values, some of them with a weight above 0.
    pub fn weighted(ranges: &[((u128, u128), u8)]) -> ValueSet {
        let weight = |value: u128| {
            let range = ranges.iter().find(|((low, high), _)| (*low..=*high).contains(&value));
            range.map_or(0, |(_, weight)| *weight)
        };
        ValueSet::build(ranges.iter().map(|(range, _)| *range).collect(), |values| {
            let values = values.as_slice().iter().flat_map(|(low, high)| *low..=*high);
            Some(Weights::new(values.map(weight).collect()))
        })
    }

    fn build(ranges: Vec<(u128, u128)>, weights: impl FnOnce(&Intervals) -> Option<Weights>) -> ValueSet {
        let ranges: Intervals = ranges.into_iter().filter(|(low, high)| low <= high).collect();
        let mut len = 0_u64;
        let mut first_indices = Vec::with_capacity(ranges.as_slice().len());
        for (low, high) in ranges.as_slice() {
            first_indices.push(len);
            let size = u64::try_from(high - low).unwrap_or(u64::MAX).saturating_add(1);
            len = len.saturating_add(size).min(1 << 63);
        }
        let weights = weights(&ranges);
        let mut hasher = DefaultHasher::new();
        (&ranges, &weights).hash(&mut hasher);
        ValueSet(Arc::new(ValueSetInner {
            weights,
            ranges,
            first_indices,
            len,
            fingerprint: hasher.finish(),
            maglev: OnceLock::new(),
        }))
    }

    /// Number of values.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The value with this index. `index` must be below [`ValueSet::len`].
    pub fn nth(&self, index: u64) -> u128 {
        let range = self.0.first_indices.partition_point(|first| *first <= index) - 1;
        self.0.ranges.as_slice()[range].0 + u128::from(index - self.0.first_indices[range])
    }

    /// The index of a value.
    pub fn index_of(&self, value: u128) -> Option<u64> {
        let ranges = self.0.ranges.as_slice();
        let range = ranges.partition_point(|(low, _)| *low <= value).checked_sub(1)?;
        let (low, high) = ranges[range];
        let offset = u64::try_from(value - low).ok().filter(|_| value <= high)?;
        self.0.first_indices[range].checked_add(offset).filter(|index| *index < self.0.len)
    }

    /// The smallest and the largest value, if there is any.
    pub(super) fn hull(&self) -> Option<(u128, u128)> {
        let ranges = self.0.ranges.as_slice();
        Some((ranges.first()?.0, ranges.last()?.1))
    }

    /// Whether the values have weights of their own.
    pub(super) fn is_weighted(&self) -> bool {
        self.0.weights.is_some()
    }

    /// The weight of the value with this index: its share of connections.
    pub fn weight(&self, index: u64) -> u8 {
        self.0.weights.as_ref().map_or(1, |weights| weights.by_index[index as usize])
    }

    /// The number of turns of a round, in which each value has its share.
    pub(super) fn turns(&self) -> u64 {
        self.0.weights.as_ref().map_or(self.len(), |weights| weights.turns.len() as u64)
    }

    /// The index of the value whose turn it is.
    pub(super) fn at_turn(&self, turn: u64) -> u64 {
        self.0.weights.as_ref().map_or(turn, |weights| weights.turns[turn as usize].into())
    }

    /// The table of consistent hashing over these values, built on first use.
    pub(super) fn maglev(&self) -> &Maglev {
        let turns = (self.turns(), |turn| self.at_turn(turn));
        self.0.maglev.get_or_init(|| Maglev::new(self.len(), |index| self.nth(index), turns))
    }
}

impl Weights {
    fn new(by_index: Box<[u8]>) -> Weights {
        let common = by_index.iter().fold(0, |common, weight| gcd(common, *weight)).max(1);
        // A round consists of as many equal parts as the value has turns. The nth turn is in the middle of
        // the nth part.
        let mut turns: Vec<(u32, u16)> = (0..)
            .zip(&by_index)
            .flat_map(|(index, weight)| {
                let weight = u32::from(weight / common);
                (0..weight).map(move |turn| ((2 * turn + 1) * ROUND / (2 * weight), index))
            })
            .collect();
        turns.sort_unstable();
        Weights { by_index, turns: turns.into_iter().map(|(_, index)| index).collect() }
    }
}

/// The length of a round, in arbitrary units.
const ROUND: u32 = 1 << 20;

fn gcd(one: u8, other: u8) -> u8 {
    if other == 0 { one } else { gcd(other, one % other) }
}

impl From<Vec<(u128, u128)>> for ValueSet {
    fn from(ranges: Vec<(u128, u128)>) -> ValueSet {
        ValueSet::new(ranges)
    }
}

impl PartialEq for ValueSet {
    fn eq(&self, other: &ValueSet) -> bool {
        let (one, other) = (&self.0, &other.0);
        Arc::ptr_eq(one, other)
            || one.fingerprint == other.fingerprint
                && one.ranges == other.ranges
                && one.weights == other.weights
    }
}

impl Eq for ValueSet {}

impl Hash for ValueSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.fingerprint.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn values_are_counted_in_order(ranges in proptest::collection::vec((0_u128..200, 0_u128..20), 0..12)) {
            let ranges: Vec<_> = ranges.into_iter().map(|(low, more)| (low, low + more)).collect();
            let plain: BTreeSet<u128> = ranges.iter().flat_map(|(low, high)| *low..=*high).collect();
            let set = ValueSet::new(ranges);
            prop_assert_eq!(set.len(), plain.len() as u64);
            for (index, value) in plain.iter().enumerate() {
                prop_assert_eq!(set.nth(index as u64), *value);
            }
            for value in 0..250 {
                let expected = plain.contains(&value).then(|| plain.range(..value).count() as u64);
                prop_assert_eq!(set.index_of(value), expected);
            }
        }
    }

    #[test]
    fn turns_are_shared_by_weight_and_spread() {
        let set = ValueSet::weighted(&[((10, 10), 6), ((12, 13), 2), ((7, 7), 0)]);
        let turns: Vec<_> = (0..set.turns()).map(|turn| set.nth(set.at_turn(turn))).collect();
        assert_eq!(turns, [10, 10, 12, 13, 10]);
        assert_eq!((0..4).map(|index| set.weight(index)).collect::<Vec<_>>(), [0, 6, 2, 2]);
        assert_ne!(set, ValueSet::new(vec![(7, 7), (10, 10), (12, 13)]));
        let plain = ValueSet::new(vec![(3, 5)]);
        assert_eq!((plain.turns(), plain.at_turn(2), plain.weight(1)), (3, 2, 1));
    }

    #[test]
    fn a_set_of_all_addresses_is_used_in_part() {
        let all = ValueSet::new(vec![(0, u128::MAX)]);
        assert_eq!(all.len(), 1 << 63);
        assert_eq!(all.nth(all.len() - 1), (1 << 63) - 1);
        assert_eq!(all.index_of(u128::MAX), None);
        assert_eq!(all.index_of(1 << 63), None);
    }
}
