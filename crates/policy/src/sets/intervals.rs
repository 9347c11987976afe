//! A large set of numbers that is asked for members by packets and changed by commands: sorted intervals in blocks.
//!
//! [`IntervalIndex::contains`] finds the block by a binary search of the blocks' first numbers, and the interval by one within the block, both without
//! branches on data. A clone shares the blocks; a change copies those that it touches and the list of blocks.

use super::element::Number;
use std::sync::Arc;

/// The most intervals of a block.
const BLOCK: usize = 64;
/// Intervals of a new block: there is room for some more.
const FILL: usize = 48;

/// Disjoint intervals of numbers, both ends included, that do not touch.
#[derive(Clone, Debug)]
pub struct IntervalIndex<N> {
    /// The first number of each block.
    firsts: Vec<N>,
    /// In the order of their numbers, none empty.
    blocks: Vec<Arc<Block<N>>>,
    /// The intervals of all blocks.
    len: usize,
}

/// Neighbouring intervals.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Block<N> {
    firsts: [N; BLOCK],
    lasts: [N; BLOCK],
    len: usize,
}

impl<N: Number> Default for IntervalIndex<N> {
    fn default() -> Self {
        IntervalIndex { firsts: Vec::new(), blocks: Vec::new(), len: 0 }
    }
}

impl<N: Number> IntervalIndex<N> {
    /// The union of intervals that come in the order of their first numbers.
    pub(super) fn of_sorted(intervals: impl Iterator<Item = (N, N)>) -> IntervalIndex<N> {
        let mut index = IntervalIndex::default();
        let joined = union(intervals);
        index.len = joined.len();
        index.blocks = joined.chunks(FILL).map(|chunk| Arc::new(Block::new(chunk))).collect();
        index.firsts = index.blocks.iter().map(|block| block.firsts[0]).collect();
        index
    }

    /// Whether a number is a member.
    #[inline]
    pub fn contains(&self, number: N) -> bool {
        let Some(block) = at_or_before(&self.firsts, number) else { return false };
        let block = &self.blocks[block];
        at_or_before(&block.firsts[..block.len.min(BLOCK)], number)
            .is_some_and(|at| number <= block.lasts[at])
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of intervals.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The intervals in order.
    pub fn iter(&self) -> impl Iterator<Item = (N, N)> + '_ {
        self.blocks.iter().flat_map(|block| block.iter())
    }

    /// The greatest member.
    pub fn last(&self) -> Option<N> {
        self.blocks.last().map(|block| block.lasts[block.len - 1])
    }

    /// About the bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.blocks.len() * (size_of::<Block<N>>() + size_of::<N>() + size_of::<usize>() + 16)
    }

    /// Whether it has a member of these numbers.
    pub(super) fn meets(&self, first: N, last: N) -> bool {
        let (from, to) = self.blocks_near(first, last);
        self.blocks[from..to].iter().flat_map(|block| block.iter()).any(|one| one.0 <= last && one.1 >= first)
    }

    /// Adds the numbers of an interval.
    pub(super) fn add(&mut self, first: N, last: N) {
        self.replace(first, last, &[(first, last)]);
    }

    /// Within `first` to `last`, has exactly the numbers of these intervals, which are sorted and lie within.
    pub(super) fn replace(&mut self, first: N, last: N, members: &[(N, N)]) {
        let (from, to) = self.blocks_near(first, last);
        let old: Vec<(N, N)> = self.blocks[from..to].iter().flat_map(|block| block.iter()).collect();
        let before = old.iter().filter(|one| one.0 < first).map(|one| (one.0, one.1.min(first.before())));
        let after = old.iter().filter(|one| one.1 > last).map(|one| (one.0.max(last.after()), one.1));
        let joined = union(before.chain(members.iter().copied()).chain(after));
        self.len = self.len - old.len() + joined.len();
        let chunk = if joined.len() <= BLOCK { BLOCK } else { FILL };
        let blocks: Vec<_> = joined.chunks(chunk).map(|chunk| Arc::new(Block::new(chunk))).collect();
        self.firsts.splice(from..to, blocks.iter().map(|block| block.firsts[0]));
        self.blocks.splice(from..to, blocks);
    }

    /// The blocks whose intervals meet an interval or touch it, and a neighbour where all would fit one block.
    fn blocks_near(&self, first: N, last: N) -> (usize, usize) {
        let from = self.blocks.partition_point(|block| block.lasts[block.len - 1].after_or_most() < first);
        let to = self.firsts.partition_point(|start| start.before_or_least() <= last).max(from);
        let (mut from, mut to) = (from, to);
        let len = |from: usize, to: usize| self.blocks[from..to].iter().map(|block| block.len).sum::<usize>();
        if from > 0 && len(from - 1, to) < FILL {
            from -= 1;
        }
        if to < self.blocks.len() && len(from, to + 1) < FILL {
            to += 1;
        }
        (from, to)
    }
}

impl<N: Number> Block<N> {
    /// A block of at least one interval and at most [`BLOCK`].
    fn new(intervals: &[(N, N)]) -> Block<N> {
        let at = |i: usize| intervals.get(i).copied().unwrap_or((N::MOST, N::MOST));
        let firsts = std::array::from_fn(|i| at(i).0);
        Block { firsts, lasts: std::array::from_fn(|i| at(i).1), len: intervals.len() }
    }

    fn iter(&self) -> impl Iterator<Item = (N, N)> + '_ {
        self.firsts.iter().copied().zip(self.lasts.iter().copied()).take(self.len)
    }
}

/// The place of the last of sorted numbers that is no greater than `number`.
#[inline]
fn at_or_before<N: Number>(numbers: &[N], number: N) -> Option<usize> {
    let (mut at, mut len) = (0, numbers.len());
    while len > 1 {
        let half = len / 2;
        // A conditional move: which half it is is not to be predicted.
        at = if numbers[at + half] <= number { at + half } else { at };
        len -= half;
    }
    numbers.get(at).filter(|first| **first <= number).map(|_| at)
}

/// The union of intervals that come in the order of their first numbers.
fn union<N: Number>(intervals: impl Iterator<Item = (N, N)>) -> Vec<(N, N)> {
    let mut joined: Vec<(N, N)> = Vec::new();
    for (first, last) in intervals {
        match joined.last_mut() {
            Some(before) if first <= before.1.after_or_most() => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs() -> impl Strategy<Value = Vec<(u32, u32)>> {
        let edge = prop_oneof![0u32..600, u32::MAX - 600..=u32::MAX];
        prop::collection::vec((edge, 0u32..6), 0..200).prop_map(|pairs| {
            pairs.into_iter().map(|(first, more)| (first, first.saturating_add(more))).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn members_are_those_of_the_intervals(base in pairs(), added in pairs(), cut in pairs()) {
            let mut sorted = base.clone();
            sorted.sort_unstable();
            let mut index = IntervalIndex::of_sorted(sorted.into_iter());
            let snapshot = index.clone();
            let has = |list: &[(u32, u32)], n: u32| list.iter().any(|one| (one.0..=one.1).contains(&n));
            added.iter().for_each(|one| index.add(one.0, one.1));
            cut.iter().for_each(|one| index.replace(one.0, one.1, &[]));
            for n in (0..620).chain(u32::MAX - 620..=u32::MAX) {
                prop_assert_eq!(snapshot.contains(n), has(&base, n));
                prop_assert_eq!(index.contains(n), (has(&base, n) || has(&added, n)) && !has(&cut, n));
            }
            let listed: Vec<_> = index.iter().collect();
            prop_assert_eq!(listed.len(), index.len());
            prop_assert!(listed.windows(2).all(|two| two[0].1 < two[1].0 && two[1].0 - two[0].1 > 1));
            prop_assert!(index.blocks.iter().all(|block| (1..=BLOCK).contains(&block.len)));
        }
    }

    #[test]
    fn the_ends_of_addresses_are_members_like_others() {
        let mut index = IntervalIndex::<u128>::default();
        assert!(!index.contains(0) && !index.contains(u128::MAX));
        index.add(0, u128::MAX);
        assert!(index.contains(0) && index.contains(u128::MAX) && index.len() == 1);
        index.replace(1, u128::MAX, &[(u128::MAX, u128::MAX)]);
        assert!(index.contains(0) && !index.contains(1) && index.contains(u128::MAX));
        index.replace(0, 0, &[]);
        assert_eq!(index.iter().collect::<Vec<_>>(), [(u128::MAX, u128::MAX)]);
    }

    #[test]
    fn blocks_that_become_small_are_joined() {
        let mut index = IntervalIndex::of_sorted((0..10_000u32).map(|n| (n * 2, n * 2)));
        (0..10_000u32).filter(|n| n % 50 != 0).for_each(|n| index.replace(n * 2, n * 2, &[]));
        assert_eq!(index.len(), 200);
        assert!(index.blocks.len() <= 16, "{}", index.blocks.len());
    }
}
