//! Sets of numbers as sorted, disjoint, non-adjacent intervals.

use crate::rule::{Cond, NumberSet};

/// A set of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Intervals(Vec<(u128, u128)>);

impl Intervals {
    /// The numbers `first` to `last`.
    pub(super) fn range(first: u128, last: u128) -> Intervals {
        Intervals(vec![(first, last)])
    }

    /// These numbers.
    pub(super) fn of(numbers: &[u128]) -> Intervals {
        Intervals::normal(numbers.iter().map(|&n| (n, n)).collect())
    }

    /// The numbers up to `max` that satisfy a comparison.
    pub(super) fn compared(cond: Cond, set: &NumberSet, width: u8, max: u128) -> Intervals {
        let items = || Intervals::normal(set.0.iter().map(|item| item.bounds(width)).collect());
        // Orders have a single number: the checker saw to it.
        let n = set.0.first().map_or(0, |item| item.bounds(width).0);
        match cond {
            Cond::Eq => items(),
            Cond::Ne => items().complement(max),
            Cond::Lt if n == 0 => Intervals(Vec::new()),
            Cond::Lt => Intervals::range(0, n - 1),
            Cond::Le => Intervals::range(0, n),
            Cond::Gt if n >= max => Intervals(Vec::new()),
            Cond::Gt => Intervals::range(n + 1, max),
            Cond::Ge => Intervals::range(n, max),
        }
    }

    fn normal(mut intervals: Vec<(u128, u128)>) -> Intervals {
        intervals.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(intervals.len());
        for (first, last) in intervals {
            match merged.last_mut() {
                Some(previous) if first <= previous.1.saturating_add(1) => previous.1 = previous.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Intervals(merged)
    }

    /// The numbers up to `max` that are not in the set.
    pub(super) fn complement(&self, max: u128) -> Intervals {
        let mut out = Vec::with_capacity(self.0.len() + 1);
        let mut next = Some(0);
        for &(first, last) in &self.0 {
            if let Some(start) = next
                && start < first
            {
                out.push((start, first - 1));
            }
            next = last.checked_add(1).filter(|&n| n <= max);
        }
        if let Some(start) = next {
            out.push((start, max));
        }
        Intervals(out)
    }

    /// The numbers in both.
    pub(super) fn intersect(&self, other: &Intervals) -> Intervals {
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
    pub(super) fn union(&self, other: &Intervals) -> Intervals {
        Intervals::normal(self.0.iter().chain(&other.0).copied().collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, n: u128) -> bool {
        let behind = self.0.partition_point(|&(first, _)| first <= n);
        behind > 0 && self.0[behind - 1].1 >= n
    }

    /// The set in words, if it has few parts.
    pub(super) fn in_words(&self) -> Option<String> {
        let part = |&(first, last): &(u128, u128)| match (first, last) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first} to {last}"),
        };
        match &self.0[..] {
            [(first, last)] if first == last => Some(format!("always {first}")),
            [one] => Some(part(one)),
            [one, two] => Some(format!("{} or {}", part(one), part(two))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::NumberItem;
    use proptest::prelude::*;

    fn any_set() -> impl Strategy<Value = Vec<(u128, u128)>> {
        prop::collection::vec((0u128..=15, 0u128..=15), 0..4)
            .prop_map(|pairs| pairs.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect())
    }

    proptest! {
        #[test]
        fn sets_behave_as_sets(a in any_set(), b in any_set()) {
            let has = |set: &[(u128, u128)], n| set.iter().any(|&(first, last)| (first..=last).contains(&n));
            let (x, y) = (Intervals::normal(a.clone()), Intervals::normal(b.clone()));
            for n in 0..=15 {
                prop_assert_eq!(x.contains(n), has(&a, n));
                prop_assert_eq!(x.complement(15).contains(n), !has(&a, n));
                prop_assert_eq!(x.intersect(&y).contains(n), has(&a, n) && has(&b, n));
                prop_assert_eq!(x.union(&y).contains(n), has(&a, n) || has(&b, n));
            }
            prop_assert_eq!(x.is_empty(), a.is_empty());
        }
    }

    #[test]
    fn comparisons_at_the_ends() {
        let set = |n| NumberSet(vec![NumberItem::One(n)]);
        assert!(Intervals::compared(Cond::Lt, &set(0), 8, 255).is_empty());
        assert!(Intervals::compared(Cond::Gt, &set(255), 8, 255).is_empty());
        assert_eq!(Intervals::compared(Cond::Ge, &set(255), 8, 255), Intervals::of(&[255]));
        assert_eq!(Intervals::compared(Cond::Ne, &set(0), 8, 255), Intervals::range(1, 255));
        assert_eq!(Intervals::range(0, u128::MAX).complement(u128::MAX), Intervals(Vec::new()));
    }
}
