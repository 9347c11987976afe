//! Output that is still to be retransmitted.

use arrayvec::ArrayVec;

/// The most ranges. Nearly always, all of them are retransmitted before the next packet arrives.
const RANGES: usize = 4;

/// Ranges of output, in order, which neither overlap nor touch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AgainRanges {
    ranges: [(u64, u64); RANGES],
    count: u8,
}

impl AgainRanges {
    /// Adds a range. If there are too many, the two ranges with the smallest gap are merged.
    pub(crate) fn add(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let (mut from, mut to) = (from, to);
        let mut ranges: ArrayVec<(u64, u64), { RANGES + 1 }> = ArrayVec::new();
        for &(start, end) in self.ranges() {
            if start <= to && from <= end {
                (from, to) = (from.min(start), to.max(end));
            } else {
                ranges.push((start, end));
            }
        }
        let place = ranges.iter().position(|(start, _)| *start > from).unwrap_or(ranges.len());
        ranges.insert(place, (from, to));
        if ranges.len() > RANGES {
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
        if self.first().is_none_or(|(from, _)| from >= offset) {
            return;
        }
        let mut kept = AgainRanges::default();
        for &(from, to) in self.ranges() {
            kept.add(from.max(offset), to);
        }
        *self = kept;
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
            let (mut again, mut wanted, mut removed) = (AgainRanges::default(), [false; 256], 0);
            for (from, len, removes) in steps {
                if removes {
                    removed = removed.max(from / 4);
                    again.remove_before(removed);
                } else {
                    again.add(from.max(removed), (from + len).max(removed));
                    (from..from + len).for_each(|at| wanted[at as usize] = true);
                }
                let ranges = again.ranges();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
                prop_assert!(ranges.iter().all(|(from, to)| removed <= *from && from < to));
                let holds = |at: u64| ranges.iter().any(|(from, to)| (*from..*to).contains(&at));
                prop_assert!((removed..256).all(|at| holds(at) || !wanted[at as usize]));
            }
        }
    }

    #[test]
    fn of_too_many_ranges_the_closest_become_one() {
        let mut again = AgainRanges::default();
        for from in [0, 100, 190, 300, 400] {
            again.add(from, from + 10);
        }
        assert_eq!(again.ranges(), [(0, 10), (100, 200), (300, 310), (400, 410)]);
        again.add(5, 120);
        assert_eq!(again.first(), Some((0, 200)));
    }
}
