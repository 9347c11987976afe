//! Sets of numbers as ranges: what comparisons of a numeric field become.

use mmb_policy::rule::{Cond, NumberSet, ones};

/// A set of the numbers of `width` bits: sorted ranges, both ends included, that neither touch nor overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    width: u8,
    ranges: Vec<(u128, u128)>,
}

impl Bounds {
    /// The numbers of `width` bits that satisfy a comparison.
    pub(crate) fn of(cond: Cond, set: &NumberSet, width: u8) -> Bounds {
        let items = || set.0.iter().map(|item| item.bounds(width));
        let member = Bounds::new(items(), width);
        let first = member.ranges.first().map_or(0, |r| r.0);
        let last = member.ranges.last().map_or(0, |r| r.1);
        match cond {
            Cond::Eq => member,
            Cond::Ne => member.complement(),
            Cond::Lt => Bounds::new([(first, ones(width))], width).complement(),
            Cond::Le => Bounds::new([(0, last)], width),
            Cond::Gt => Bounds::new([(0, last)], width).complement(),
            Cond::Ge => Bounds::new([(first, ones(width))], width),
        }
    }

    /// The union of ranges; what lies above the width is cut off.
    pub(crate) fn new(ranges: impl IntoIterator<Item = (u128, u128)>, width: u8) -> Bounds {
        let max = ones(width);
        let mut sorted: Vec<_> = ranges.into_iter().filter(|r| r.0 <= r.1 && r.0 <= max).collect();
        sorted.sort_unstable();
        let mut ranges: Vec<(u128, u128)> = Vec::with_capacity(sorted.len());
        for (first, last) in sorted {
            let last = last.min(max);
            match ranges.last_mut() {
                Some(before) if first <= before.1 || first - before.1 == 1 => before.1 = before.1.max(last),
                _ => ranges.push((first, last)),
            }
        }
        Bounds { width, ranges }
    }

    /// The numbers of the same width that are not in the set.
    pub(crate) fn complement(&self) -> Bounds {
        let mut ranges = Vec::with_capacity(self.ranges.len() + 1);
        let mut free = Some(0);
        for &(first, last) in &self.ranges {
            if let Some(from) = free.filter(|&from| from < first) {
                ranges.push((from, first - 1));
            }
            free = last.checked_add(1).filter(|&next| next <= ones(self.width));
        }
        ranges.extend(free.map(|from| (from, ones(self.width))));
        Bounds { width: self.width, ranges }
    }

    /// The numbers that are in both sets.
    pub(crate) fn intersect(&self, other: &Bounds) -> Bounds {
        let neither = [self.complement().ranges, other.complement().ranges].concat();
        Bounds::new(neither, self.width).complement()
    }

    /// Whether no number is in the set.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether every number of the width is in the set.
    pub(crate) fn is_full(&self) -> bool {
        self.ranges == [(0, ones(self.width))]
    }

    /// Whether the set holds a number.
    pub(crate) fn contains(&self, number: u128) -> bool {
        let after = self.ranges.partition_point(|r| r.1 < number);
        self.ranges.get(after).is_some_and(|r| r.0 <= number)
    }

    /// The ranges, sorted, apart from each other.
    pub(crate) fn ranges(&self) -> &[(u128, u128)] {
        &self.ranges
    }

    /// The members, if there are at most `most`.
    pub(crate) fn values(&self, most: usize) -> Option<Vec<u128>> {
        let mut values = Vec::new();
        for &(first, last) in &self.ranges {
            if last - first >= most as u128 || values.len() + (last - first) as usize >= most {
                return None;
            }
            values.extend(first..=last);
        }
        Some(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_policy::rule::NumberItem;

    fn of(cond: Cond, number: u128) -> Vec<(u128, u128)> {
        Bounds::of(cond, &NumberSet(vec![NumberItem::One(number)]), 8).ranges
    }

    #[test]
    fn comparisons_become_ranges() {
        assert_eq!(of(Cond::Eq, 5), [(5, 5)]);
        assert_eq!(of(Cond::Ne, 5), [(0, 4), (6, 255)]);
        assert_eq!(of(Cond::Ne, 0), [(1, 255)]);
        assert_eq!(of(Cond::Lt, 5), [(0, 4)]);
        assert_eq!(of(Cond::Lt, 0), []);
        assert_eq!(of(Cond::Le, 5), [(0, 5)]);
        assert_eq!(of(Cond::Gt, 5), [(6, 255)]);
        assert_eq!(of(Cond::Gt, 255), []);
        assert_eq!(of(Cond::Ge, 0), [(0, 255)]);
    }

    #[test]
    fn ranges_that_touch_are_joined() {
        let bounds = Bounds::new([(10, 20), (1, 3), (21, 30), (15, 16)], 8);
        assert_eq!(bounds.ranges(), [(1, 3), (10, 30)]);
        assert_eq!(bounds.complement().ranges(), [(0, 0), (4, 9), (31, 255)]);
        assert_eq!(bounds.complement().complement(), bounds);
        assert_eq!(
            bounds.intersect(&Bounds::new([(2, 12), (30, 255)], 8)).ranges(),
            [(2, 3), (10, 12), (30, 30)]
        );
        assert!(bounds.contains(30) && !bounds.contains(31) && !bounds.contains(0) && bounds.contains(1));
    }

    #[test]
    fn the_widest_numbers_do_not_overflow() {
        let all = Bounds::new([(0, u128::MAX)], 128);
        assert!(all.is_full() && all.complement().is_empty());
        assert_eq!(all.values(16), None);
        let last = Bounds::new([(u128::MAX, u128::MAX)], 128);
        assert_eq!(last.complement().ranges(), [(0, u128::MAX - 1)]);
        assert_eq!(last.values(1), Some(vec![u128::MAX]));
    }

    #[test]
    fn few_values_are_listed() {
        let bounds = Bounds::new([(80, 81), (443, 443)], 16);
        assert_eq!(bounds.values(3), Some(vec![80, 81, 443]));
        assert_eq!(bounds.values(2), None);
    }
}
