//! Sets of numbers: what comparisons of a numeric field allow. The checker intersects them to find rules that match
//! nothing, the classifier makes keys and range checks of them, and importers reckon with them.

use crate::field::ones;
use crate::rule::{Cond, NumberSet};

/// A set of numbers: sorted intervals, both ends included, that neither touch nor overlap. Equal sets are equal values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Intervals(Vec<(u128, u128)>);

impl Intervals {
    /// No number.
    pub const EMPTY: Intervals = Intervals(Vec::new());

    /// The numbers `first` to `last`; none if they are in the wrong order.
    pub fn range(first: u128, last: u128) -> Intervals {
        Intervals(if first <= last { vec![(first, last)] } else { Vec::new() })
    }

    /// One number.
    pub fn one(number: u128) -> Intervals {
        Intervals::range(number, number)
    }

    /// The numbers of `width` bits.
    pub fn of_width(width: u8) -> Intervals {
        Intervals::range(0, ones(width))
    }

    /// These numbers.
    pub fn of(numbers: &[u128]) -> Intervals {
        numbers.iter().map(|&n| (n, n)).collect()
    }

    /// The numbers of `width` bits that satisfy a comparison.
    pub fn compared(cond: Cond, set: &NumberSet, width: u8) -> Intervals {
        let member: Intervals = set.0.iter().map(|item| item.bounds(width)).collect();
        // Orders have a single number: the checker saw to it.
        let n = member.0.first().map_or(0, |interval| interval.0);
        match cond {
            Cond::Eq => member,
            Cond::Ne => member.complement(ones(width)),
            Cond::Lt => Intervals::range(n, u128::MAX).complement(ones(width)),
            Cond::Le => Intervals::range(0, n),
            Cond::Gt => Intervals::range(0, n).complement(ones(width)),
            Cond::Ge => Intervals::range(n, ones(width)),
        }
    }

    /// The bits that all numbers of the set have alike, of `width` bits, as a mask and what they are, if the set is all numbers
    /// with these bits: `(0b1001, 0b0001)` for 1, 3, 5 and 7 of four bits.
    pub fn alike(&self, width: u8) -> Option<(u128, u128)> {
        let &(first, _) = self.0.first()?;
        let (mut free, mut count) = (0, 0u128);
        for &(low, high) in &self.0 {
            // All bits below the highest in which the ends differ take every value.
            free |= low ^ first | ones((128 - (low ^ high).leading_zeros()) as u8);
            // All 2^128 numbers count as 0, as they do below: a set that is not empty has no other way to that.
            count = count.wrapping_add(high - low).wrapping_add(1);
        }
        let fixed = ones(width) & !free;
        let all = 1u128.checked_shl((free & ones(width)).count_ones()).unwrap_or(0);
        (count == all && first <= ones(width)).then_some((fixed, first & fixed))
    }

    /// The numbers up to `max` that are not in the set.
    pub fn complement(&self, max: u128) -> Intervals {
        Intervals::range(0, max).minus(self)
    }

    /// The numbers of this set that are not in the other.
    pub fn minus(&self, other: &Intervals) -> Intervals {
        let mut gaps = Vec::with_capacity(other.0.len() + 1);
        let mut next = Some(0);
        for &(first, last) in &other.0 {
            if let Some(start) = next.filter(|&start| start < first) {
                gaps.push((start, first - 1));
            }
            next = last.checked_add(1);
        }
        gaps.extend(next.map(|start| (start, u128::MAX)));
        self.intersect(&Intervals(gaps))
    }

    /// The numbers in both.
    pub fn intersect(&self, other: &Intervals) -> Intervals {
        let mut out = Vec::new();
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(&&(a_first, a_last)), Some(&&(b_first, b_last))) = (a.peek(), b.peek()) {
            let (first, last) = (a_first.max(b_first), a_last.min(b_last));
            if first <= last {
                out.push((first, last));
            }
            if a_last < b_last {
                a.next();
            } else {
                b.next();
            }
        }
        Intervals(out)
    }

    /// The numbers in either.
    pub fn union(&self, other: &Intervals) -> Intervals {
        self.0.iter().chain(&other.0).copied().collect()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the set contains a number.
    pub fn contains(&self, number: u128) -> bool {
        let behind = self.0.partition_point(|&(first, _)| first <= number);
        behind > 0 && self.0[behind - 1].1 >= number
    }

    /// The only number of the set.
    pub fn single(&self) -> Option<u128> {
        match self.0[..] {
            [(first, last)] if first == last => Some(first),
            _ => None,
        }
    }

    /// The intervals, in order.
    pub fn as_slice(&self) -> &[(u128, u128)] {
        &self.0
    }

    /// The numbers, in order, if there are at most `max`.
    pub fn numbers(&self, max: usize) -> Option<Vec<u128>> {
        let mut numbers = Vec::new();
        for &(first, last) in &self.0 {
            if last - first >= (max - numbers.len()) as u128 {
                return None;
            }
            numbers.extend(first..=last);
        }
        Some(numbers)
    }
}

/// The union of intervals, of which `first <= last`.
impl FromIterator<(u128, u128)> for Intervals {
    fn from_iter<I: IntoIterator<Item = (u128, u128)>>(intervals: I) -> Intervals {
        let mut sorted: Vec<_> = intervals.into_iter().collect();
        sorted.sort_unstable();
        // The later interval begins no earlier: it is joined if it begins in the earlier one or right behind.
        sorted.dedup_by(|later, earlier| {
            let joined = later.0 <= earlier.1.saturating_add(1);
            if joined {
                earlier.1 = earlier.1.max(later.1);
            }
            joined
        });
        Intervals(sorted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::NumberItem;
    use proptest::prelude::*;

    /// Intervals of numbers up to 15, or of the 16 greatest.
    fn any_pairs() -> impl Strategy<Value = Vec<(u128, u128)>> {
        let pairs = prop::collection::vec((0u128..=15, 0u128..=15), 0..4);
        (pairs, any::<bool>()).prop_map(|(pairs, high)| {
            let at = |n: u128| if high { u128::MAX - 15 + n } else { n };
            pairs.into_iter().map(|(a, b)| (at(a.min(b)), at(a.max(b)))).collect()
        })
    }

    fn has(pairs: &[(u128, u128)], n: u128) -> bool {
        pairs.iter().any(|&(first, last)| (first..=last).contains(&n))
    }

    proptest! {
        #[test]
        fn sets_behave_as_sets(a in any_pairs(), b in any_pairs(), max in 0u128..=20) {
            let (x, y): (Intervals, Intervals) = (a.iter().copied().collect(), b.iter().copied().collect());
            for n in (0..=20).chain(u128::MAX - 20..=u128::MAX) {
                prop_assert_eq!(x.contains(n), has(&a, n));
                prop_assert_eq!(x.complement(max).contains(n), n <= max && !has(&a, n));
                prop_assert_eq!(x.complement(u128::MAX).contains(n), !has(&a, n));
                prop_assert_eq!(x.intersect(&y).contains(n), has(&a, n) && has(&b, n));
                prop_assert_eq!(x.union(&y).contains(n), has(&a, n) || has(&b, n));
                prop_assert_eq!(x.minus(&y).contains(n), has(&a, n) && !has(&b, n));
            }
            prop_assert_eq!(x.is_empty(), a.is_empty());
            prop_assert_eq!(x.complement(u128::MAX).complement(u128::MAX), x);
        }

        #[test]
        fn intervals_are_sorted_and_apart(a in any_pairs(), b in any_pairs()) {
            let (x, y): (Intervals, Intervals) = (a.into_iter().collect(), b.into_iter().collect());
            for set in [x.union(&y), x.intersect(&y), x.minus(&y), y.complement(u128::MAX)] {
                prop_assert!(set.as_slice().iter().all(|(first, last)| first <= last));
                prop_assert!(set.as_slice().windows(2).all(|two| two[1].0 - two[0].1 > 1), "{set:?}");
            }
        }

        #[test]
        fn numbers_are_listed_if_there_are_few(a in any_pairs(), max in 0usize..=20) {
            let all: Vec<u128> = (0..=15).chain(u128::MAX - 15..=u128::MAX).filter(|&n| has(&a, n)).collect();
            let set: Intervals = a.into_iter().collect();
            prop_assert_eq!(set.single(), (all.len() == 1).then(|| all[0]));
            prop_assert_eq!(set.numbers(max), (all.len() <= max).then_some(all));
        }

        #[test]
        fn all_numbers_but_one_have_no_bits_alike(n: u128) {
            prop_assert_eq!(Intervals::one(n).complement(u128::MAX).alike(128), None);
            prop_assert_eq!(Intervals::one(n).alike(128), Some((u128::MAX, n)));
            prop_assert_eq!(Intervals::of_width(128).alike(128), Some((0, 0)));
        }

        #[test]
        fn bits_are_alike_in_all_numbers_that_have_them(
            numbers in prop::collection::vec(0u128..=15, 1..8), mask in 0u128..=15, value in 0u128..=15, prefix: bool,
        ) {
            let cube = |mask, value| (0u128..=15).filter(move |n| n & mask == value & mask);
            let numbers = if prefix { cube(mask, value).collect() } else { numbers };
            let alike = Intervals::of(&numbers).alike(4);
            prop_assert!(!prefix || alike == Some((mask, value & mask)));
            let cubes = (0..=15).flat_map(|mask| (0..=15).map(move |value| (mask, value & mask)));
            let expected = cubes.clone().find(|&(mask, value)| {
                Intervals::of(&cube(mask, value).collect::<Vec<_>>()) == Intervals::of(&numbers)
            });
            prop_assert_eq!(alike, expected);
        }

        #[test]
        fn comparisons_hold_for_what_they_say(n in 0u128..=15) {
            let set = NumberSet(vec![NumberItem::One(n)]);
            let holds = |cond, number| Intervals::compared(cond, &set, 4).contains(number);
            for number in 0..=20 {
                let fits = number <= 15;
                prop_assert_eq!(holds(Cond::Eq, number), number == n);
                prop_assert_eq!(holds(Cond::Ne, number), fits && number != n);
                prop_assert_eq!(holds(Cond::Lt, number), number < n);
                prop_assert_eq!(holds(Cond::Le, number), number <= n);
                prop_assert_eq!(holds(Cond::Gt, number), fits && number > n);
                prop_assert_eq!(holds(Cond::Ge, number), fits && number >= n);
            }
        }
    }

    #[test]
    fn all_addresses_but_one_have_no_bits_alike() {
        let all = Intervals::range(0, u128::MAX);
        assert_eq!(all.alike(128), Some((0, 0)));
        assert_eq!(all.minus(&Intervals::range(7, 7)).alike(128), None);
        assert_eq!(Intervals::range(0, u128::MAX - 1).alike(128), None);
        assert_eq!(Intervals::range(1 << 127, u128::MAX).alike(128), Some((1 << 127, 1 << 127)));
    }

    #[test]
    fn sets_of_several_items_are_members_or_not() {
        let set = NumberSet(vec![
            NumberItem::Range(20, 30),
            NumberItem::Prefix(0x80, 1),
            NumberItem::One(19),
            NumberItem::One(1),
        ]);
        assert_eq!(Intervals::compared(Cond::Eq, &set, 8).as_slice(), [(1, 1), (19, 30), (128, 255)]);
        assert_eq!(Intervals::compared(Cond::Ne, &set, 8).as_slice(), [(0, 0), (2, 18), (31, 127)]);
    }

    #[test]
    fn comparisons_at_the_ends() {
        let set = |n| NumberSet(vec![NumberItem::One(n)]);
        for (width, max) in [(8, 255), (128, u128::MAX)] {
            assert!(Intervals::compared(Cond::Lt, &set(0), width).is_empty());
            assert!(Intervals::compared(Cond::Gt, &set(max), width).is_empty());
            assert_eq!(Intervals::compared(Cond::Ge, &set(max), width), Intervals::one(max));
            assert_eq!(Intervals::compared(Cond::Le, &set(max), width), Intervals::of_width(width));
            assert_eq!(Intervals::compared(Cond::Ne, &set(0), width), Intervals::range(1, max));
        }
        assert_eq!(Intervals::of_width(128).complement(u128::MAX), Intervals::EMPTY);
        assert_eq!(Intervals::range(1, 0), Intervals::EMPTY);
    }
}
