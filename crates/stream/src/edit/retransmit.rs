//! Output that is still to be retransmitted.

use arrayvec::ArrayVec;

/// The most ranges. Nearly always, all of them are retransmitted before the next packet arrives.
const MAX_RANGES: usize = 4;

/// Ranges of output, in order, which neither overlap nor touch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetransmitRanges {
    ranges: [(u64, u64); MAX_RANGES],
    count: u8,
}

impl RetransmitRanges {
    /// Adds a range. If there are too many, the two ranges with the smallest gap are merged.
    pub(crate) fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut start, mut end) = (start, end);
        let mut ranges: ArrayVec<(u64, u64), { MAX_RANGES + 1 }> = ArrayVec::new();
        for &(other_start, other_end) in self.ranges() {
            if other_start <= end && start <= other_end {
                (start, end) = (start.min(other_start), end.max(other_end));
            } else {
                ranges.push((other_start, other_end));
            }
        }
        let index = ranges.iter().position(|(other_start, _)| *other_start > start).unwrap_or(ranges.len());
        ranges.insert(index, (start, end));
        if ranges.len() > MAX_RANGES {
            let gap = |pair: &[(u64, u64)]| pair[1].0 - pair[0].1;
            let closest = ranges.windows(2).enumerate().min_by_key(|(_, pair)| gap(pair));
            let first = closest.map_or(0, |(first, _)| first);
            let (_, end) = ranges.remove(first + 1);
            ranges[first].1 = end;
        }
        self.count = ranges.len() as u8;
        self.ranges[..ranges.len()].copy_from_slice(&ranges);
    }

    fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges[..usize::from(self.count)]
    }

    /// The first range.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.ranges().first().copied()
    }

    /// Removes everything before `offset`.
    pub(crate) fn remove_before(&mut self, offset: u64) {
        if self.first().is_none_or(|(start, _)| start >= offset) {
            return;
        }
        let mut rest = RetransmitRanges::default();
        for &(start, end) in self.ranges() {
            rest.add(start.max(offset), end);
        }
        *self = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_hold_what_was_added_and_not_removed(
            steps in prop::collection::vec((0..200u64, 0..30u64, any::<bool>()), 0..60),
        ) {
            let (mut retransmit, mut wanted, mut removed) = (RetransmitRanges::default(), [false; 256], 0);
            for (from, len, removes) in steps {
                if removes {
                    removed = removed.max(from / 4);
                    retransmit.remove_before(removed);
                } else {
                    retransmit.add(from.max(removed), (from + len).max(removed));
                    (from..from + len).for_each(|at| wanted[at as usize] = true);
                }
                let ranges = retransmit.ranges();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
                prop_assert!(ranges.iter().all(|(from, to)| removed <= *from && from < to));
                let holds = |at: u64| ranges.iter().any(|(from, to)| (*from..*to).contains(&at));
                prop_assert!((removed..256).all(|at| holds(at) || !wanted[at as usize]));
            }
        }
    }

    #[test]
    fn of_too_many_ranges_the_closest_become_one() {
        let mut retransmit = RetransmitRanges::default();
        for from in [0, 100, 190, 300, 400] {
            retransmit.add(from, from + 10);
        }
        assert_eq!(retransmit.ranges(), [(0, 10), (100, 200), (300, 310), (400, 410)]);
        retransmit.add(5, 120);
        assert_eq!(retransmit.first(), Some((0, 200)));
    }
}
