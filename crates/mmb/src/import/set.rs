//! Sets of numbers as sorted, disjoint, non-adjacent intervals: what a filter allows in one dimension.

/// A set of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Set(Vec<(u128, u128)>);

impl Set {
    /// The numbers `first` to `last`; none if they are in the wrong order.
    pub(crate) fn range(first: u128, last: u128) -> Set {
        Set(if first <= last { vec![(first, last)] } else { Vec::new() })
    }

    /// One number.
    pub(crate) fn one(n: u128) -> Set {
        Set::range(n, n)
    }

    /// The numbers of `bits` bits that have the bits of `mask` in common with `value`.
    pub(crate) fn masked(value: u128, mask: u128, bits: u8) -> Set {
        let all = ones(bits);
        let (value, mask) = (value & mask & all, mask & all);
        // Bits below the lowest one of the mask are free: they make an interval; free bits above it make several.
        let low = ones(u8::try_from(mask.trailing_zeros()).unwrap_or(bits).min(bits));
        let free = all & !mask & !low;
        let mut intervals = Vec::new();
        let mut part = 0;
        loop {
            intervals.push((value | part, value | part | low));
            // The next number that has only free bits.
            part = (part | !free).wrapping_add(1) & free;
            if part == 0 {
                return Set::normal(intervals);
            }
        }
    }

    /// The numbers of a prefix: an address of `bits` bits of which the first `len` count.
    pub(crate) fn prefix(address: u128, len: u8, bits: u8) -> Set {
        let host = ones(bits.saturating_sub(len));
        Set::range(address & !host, address | host)
    }

    fn normal(mut intervals: Vec<(u128, u128)>) -> Set {
        intervals.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(intervals.len());
        for (first, last) in intervals {
            match merged.last_mut() {
                Some(previous) if first <= previous.1.saturating_add(1) => previous.1 = previous.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Set(merged)
    }

    /// The numbers in both.
    pub(crate) fn and(&self, other: &Set) -> Set {
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
        Set(out)
    }

    /// The numbers in either.
    pub(crate) fn or(&self, other: &Set) -> Set {
        Set::normal(self.0.iter().chain(&other.0).copied().collect())
    }

    /// The numbers of this set that are not in the other.
    pub(crate) fn minus(&self, other: &Set) -> Set {
        let mut gaps = Vec::with_capacity(other.0.len() + 1);
        let mut next = Some(0);
        for &(first, last) in &other.0 {
            if let Some(start) = next
                && start < first
            {
                gaps.push((start, first - 1));
            }
            next = last.checked_add(1);
        }
        gaps.extend(next.map(|start| (start, u128::MAX)));
        self.and(&Set(gaps))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The only number of the set.
    pub(crate) fn single(&self) -> Option<u128> {
        match self.0[..] {
            [(first, last)] if first == last => Some(first),
            _ => None,
        }
    }

    /// The intervals, in order.
    pub(crate) fn intervals(&self) -> &[(u128, u128)] {
        &self.0
    }

    /// The set with `n` taken from each number; none of them may be less.
    pub(crate) fn lowered(&self, n: u128) -> Set {
        Set(self.0.iter().map(|&(first, last)| (first - n, last - n)).collect())
    }

    /// The set as products: numbers are split above their lowest `bits` bits, and upper parts that go with the same
    /// lower ones stand together.
    pub(crate) fn factors(&self, bits: u8) -> Vec<(Set, Set)> {
        let low = ones(bits);
        let mut factors: Vec<(Set, Set)> = Vec::new();
        let mut add = |upper: Set, lower: Set| match factors.iter_mut().find(|(_, other)| *other == lower) {
            Some((uppers, _)) => *uppers = uppers.or(&upper),
            None => factors.push((upper, lower)),
        };
        // Every upper part at which an interval begins or ends may have lower ones of its own; those between have all.
        let mut edges: Vec<u128> =
            self.0.iter().flat_map(|&(first, last)| [first >> bits, last >> bits]).collect();
        edges.dedup();
        for &upper in &edges {
            let lower = self.and(&Set::range(upper << bits, upper << bits | low)).lowered(upper << bits);
            add(Set::one(upper), lower);
        }
        for &(first, last) in &self.0 {
            let (first, last) = (first >> bits, last >> bits);
            if last > first + 1 {
                add(Set::range(first + 1, last - 1), Set::range(0, low));
            }
        }
        factors
    }
}

/// A number of `bits` one bits.
pub(crate) fn ones(bits: u8) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_set() -> impl Strategy<Value = Set> {
        prop::collection::vec((0u128..=63, 0u128..=63), 0..5).prop_map(|pairs| {
            pairs.into_iter().fold(Set(Vec::new()), |set, (a, b)| set.or(&Set::range(a, b)))
        })
    }

    fn has(set: &Set, n: u128) -> bool {
        set.0.iter().any(|&(first, last)| (first..=last).contains(&n))
    }

    proptest! {
        #[test]
        fn sets_behave_as_sets(a in any_set(), b in any_set()) {
            for n in 0..=64 {
                prop_assert_eq!(has(&a.and(&b), n), has(&a, n) && has(&b, n));
                prop_assert_eq!(has(&a.or(&b), n), has(&a, n) || has(&b, n));
                prop_assert_eq!(has(&a.minus(&b), n), has(&a, n) && !has(&b, n));
            }
            prop_assert!(a.minus(&a).is_empty());
        }

        #[test]
        fn masks_fix_their_bits(value in 0u128..256, mask in 0u128..256) {
            let set = Set::masked(value, mask, 8);
            for n in 0..=300 {
                prop_assert_eq!(has(&set, n), n < 256 && n & mask == value & mask);
            }
        }

        #[test]
        fn factors_multiply_to_the_set(a in any_set()) {
            let factors = a.factors(2);
            for n in 0..=64 {
                let holds = factors.iter().filter(|(upper, lower)| has(upper, n >> 2) && has(lower, n & 3)).count();
                prop_assert_eq!(holds, usize::from(has(&a, n)));
            }
        }
    }

    #[test]
    fn prefixes_of_both_ends() {
        assert_eq!(Set::prefix(0x0a01_0203, 8, 32), Set::range(0x0a00_0000, 0x0aff_ffff));
        assert_eq!(Set::prefix(7, 32, 32).single(), Some(7));
        assert_eq!(Set::prefix(7, 0, 128), Set::range(0, u128::MAX));
    }
}
