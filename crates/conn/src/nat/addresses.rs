//! Sets of values that a mapping uses, stored as ranges: a /8 takes no more memory than one address.

use super::maglev::Maglev;
use mmb_policy::Intervals;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// Values in ranges, both ends included, numbered from 0 in ascending order. Copies share the data.
///
/// They are addresses; for load balancing over ports, ports; for a value that is chosen once per connection, numbers.
#[derive(Clone, Debug)]
pub struct ValueSet(Arc<ValueSetInner>);

#[derive(Debug)]
struct ValueSetInner {
    ranges: Intervals,
    /// The number of values before each range.
    before: Vec<u64>,
    len: u64,
    /// A hash of the ranges, so that sets of thousands are almost always compared and looked up by one number.
    fingerprint: u64,
    maglev: OnceLock<Maglev>,
}

impl ValueSet {
    /// The set of all values of `ranges`, in any order. Of a set of 2^63 or more values, only that many are used.
    pub fn new(ranges: Vec<(u128, u128)>) -> ValueSet {
        let ranges: Intervals = ranges.into_iter().filter(|(low, high)| low <= high).collect();
        let mut len = 0_u64;
        let mut before = Vec::with_capacity(ranges.as_slice().len());
        for (low, high) in ranges.as_slice() {
            before.push(len);
            let size = u64::try_from(high - low).unwrap_or(u64::MAX).saturating_add(1);
            len = len.saturating_add(size).min(1 << 63);
        }
        let mut hasher = DefaultHasher::new();
        ranges.hash(&mut hasher);
        ValueSet(Arc::new(ValueSetInner {
            ranges,
            before,
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
        let range = self.0.before.partition_point(|before| *before <= index) - 1;
        self.0.ranges.as_slice()[range].0 + u128::from(index - self.0.before[range])
    }

    /// The index of a value.
    pub(super) fn index_of(&self, value: u128) -> Option<u64> {
        let ranges = self.0.ranges.as_slice();
        let range = ranges.partition_point(|(low, _)| *low <= value).checked_sub(1)?;
        let (low, high) = ranges[range];
        let offset = u64::try_from(value - low).ok().filter(|_| value <= high)?;
        self.0.before[range].checked_add(offset).filter(|index| *index < self.0.len)
    }

    /// The smallest and the largest value, if there is any.
    pub(super) fn hull(&self) -> Option<(u128, u128)> {
        let ranges = self.0.ranges.as_slice();
        Some((ranges.first()?.0, ranges.last()?.1))
    }

    /// The table of consistent hashing over these values, built on first use.
    pub(super) fn maglev(&self) -> &Maglev {
        self.0.maglev.get_or_init(|| Maglev::new(self.len(), |index| self.nth(index)))
    }
}

impl From<Vec<(u128, u128)>> for ValueSet {
    fn from(ranges: Vec<(u128, u128)>) -> ValueSet {
        ValueSet::new(ranges)
    }
}

impl PartialEq for ValueSet {
    fn eq(&self, other: &ValueSet) -> bool {
        let (one, other) = (&self.0, &other.0);
        Arc::ptr_eq(one, other) || one.fingerprint == other.fingerprint && one.ranges == other.ranges
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
    fn a_set_of_all_addresses_is_used_in_part() {
        let all = ValueSet::new(vec![(0, u128::MAX)]);
        assert_eq!(all.len(), 1 << 63);
        assert_eq!(all.nth(all.len() - 1), (1 << 63) - 1);
        assert_eq!(all.index_of(u128::MAX), None);
        assert_eq!(all.index_of(1 << 63), None);
    }
}
