//! A large set of numbers that is asked for members by packets and changed by commands: sorted intervals in blocks.
//!
//! A search finds the block by a binary search of the blocks' first numbers, which are few enough for a second-level cache, and the interval by one
//! within the block. Both have a fixed number of steps and no branches on data, so that [`IntervalIndex::members`] searches for several numbers
//! side by side: the misses of one step are waited for at once.
//!
//! A clone shares the blocks; a change copies those that it touches and the list of blocks.

use super::element::Number;
use mmb_base::{SharedSlice, prefetch};
use std::collections::HashSet;

/// The most intervals of a block: a power of two.
const BLOCK: usize = 64;
/// Intervals of a new block: there is room for some more.
const FILL: usize = 48;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Disjoint intervals of numbers, both ends included, that do not touch.
#[derive(Clone, Debug)]
pub struct IntervalIndex<N> {
    /// The first number of each block.
    firsts: Vec<N>,
    /// In the order of their numbers, none empty; each a slice of one.
    blocks: Vec<SharedSlice<Block<N>>>,
    /// The intervals of all blocks.
    len: usize,
}

/// Neighbouring intervals.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Block<N> {
    /// Places that are not used repeat the last interval, so that a search finds it there.
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
    /// About what a block takes: itself, the count of its clones, and its places in the lists.
    const BYTES_OF_BLOCK: usize =
        size_of::<Block<N>>() + LINE + size_of::<N>() + size_of::<SharedSlice<Block<N>>>();

    /// The union of intervals that come in the order of their first numbers.
    pub(super) fn of_sorted(intervals: impl Iterator<Item = (N, N)>) -> IntervalIndex<N> {
        let mut index = IntervalIndex::default();
        let joined = union(intervals);
        index.len = joined.len();
        index.blocks = joined.chunks(FILL).map(Block::shared).collect();
        index.firsts = index.blocks.iter().map(|block| block[0].firsts[0]).collect();
        index
    }

    /// Whether a number is a member.
    #[inline]
    pub fn contains(&self, number: N) -> bool {
        self.members(&[number]) != 0
    }

    /// The numbers that are members, a bit for each: of at most 32. Searching for some 16 at once is several times as fast as for one after the
    /// other where the set is larger than the caches.
    #[inline]
    pub fn members<const COUNT: usize>(&self, numbers: &[N; COUNT]) -> u32 {
        const { assert!(COUNT <= 32) };
        if self.blocks.is_empty() {
            return 0;
        }
        // The last block that begins no later, or the first one.
        let (mut at, mut len) = ([0; COUNT], self.firsts.len());
        while len > 1 {
            let half = len / 2;
            for (at, number) in at.iter_mut().zip(numbers) {
                let upper = *at + half;
                // A conditional move: which half it is is not to be predicted.
                *at = if self.firsts[upper] <= *number { upper } else { *at };
            }
            len -= half;
        }
        let blocks = at.map(|at| &self.blocks[at][0]);
        if COUNT > 1 {
            blocks.iter().for_each(|block| block.fetch());
        }
        let mut at = [0; COUNT];
        let mut half = BLOCK / 2;
        while half > 0 {
            for ((at, block), number) in at.iter_mut().zip(blocks).zip(numbers) {
                let upper = (*at + half) % BLOCK;
                *at = if block.firsts[upper] <= *number { upper } else { *at };
            }
            half /= 2;
        }
        let mut members = 0;
        for (bit, ((at, block), number)) in at.into_iter().zip(blocks).zip(numbers).enumerate() {
            let is_member = (block.firsts[at] <= *number) & (*number <= block.lasts[at]);
            members |= u32::from(is_member) << bit;
        }
        members
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
        self.blocks.iter().flat_map(|block| block[0].iter())
    }

    /// The greatest member.
    pub fn last(&self) -> Option<N> {
        self.blocks.last().map(|block| block[0].lasts[BLOCK - 1])
    }

    /// About the bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.blocks.len() * IntervalIndex::<N>::BYTES_OF_BLOCK
    }

    /// About the bytes of the blocks that it does not share with another one in memory.
    pub(super) fn bytes_beyond(&self, other: &IntervalIndex<N>) -> usize {
        let shared: HashSet<*const Block<N>> = other.blocks.iter().map(|block| block.as_ptr()).collect();
        let own = self.blocks.iter().filter(|block| !shared.contains(&block.as_ptr()));
        own.count() * IntervalIndex::<N>::BYTES_OF_BLOCK
    }

    /// Whether it has a member of these numbers.
    pub(super) fn meets(&self, first: N, last: N) -> bool {
        let (from, to) = self.blocks_near(first, last);
        self.blocks[from..to]
            .iter()
            .flat_map(|block| block[0].iter())
            .any(|one| one.0 <= last && one.1 >= first)
    }

    /// Adds the numbers of an interval.
    pub(super) fn add(&mut self, first: N, last: N) {
        self.replace(first, last, &[(first, last)]);
    }

    /// Within `first` to `last`, has exactly the numbers of these intervals, which are sorted and lie within.
    pub(super) fn replace(&mut self, first: N, last: N, members: &[(N, N)]) {
        let (from, to) = self.blocks_near(first, last);
        let old: Vec<(N, N)> = self.blocks[from..to].iter().flat_map(|block| block[0].iter()).collect();
        let before = old.iter().filter(|one| one.0 < first).map(|one| (one.0, one.1.min(first.before())));
        let after = old.iter().filter(|one| one.1 > last).map(|one| (one.0.max(last.after()), one.1));
        let joined = union(before.chain(members.iter().copied()).chain(after));
        self.len = self.len - old.len() + joined.len();
        let chunk = if joined.len() <= BLOCK { BLOCK } else { FILL };
        let blocks: Vec<_> = joined.chunks(chunk).map(Block::shared).collect();
        self.firsts.splice(from..to, blocks.iter().map(|block| block[0].firsts[0]));
        self.blocks.splice(from..to, blocks);
    }

    /// The blocks whose intervals meet an interval or touch it, and a neighbour where all would fit one block.
    fn blocks_near(&self, first: N, last: N) -> (usize, usize) {
        let from = self.blocks.partition_point(|block| block[0].lasts[BLOCK - 1].after_or_most() < first);
        let to = self.firsts.partition_point(|start| start.before_or_least() <= last).max(from);
        let (mut from, mut to) = (from, to);
        let len =
            |from: usize, to: usize| self.blocks[from..to].iter().map(|block| block[0].len).sum::<usize>();
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
    fn shared(intervals: &[(N, N)]) -> SharedSlice<Block<N>> {
        let at = |i: usize| intervals[i.min(intervals.len() - 1)];
        let block = |_| Block {
            firsts: std::array::from_fn(|i| at(i).0),
            lasts: std::array::from_fn(|i| at(i).1),
            len: intervals.len(),
        };
        SharedSlice::from_fn(1, block)
    }

    /// Asks for the lines that a search begins with: all first numbers, or those in the middle of each half.
    #[inline]
    fn fetch(&self) {
        let of_line = LINE / size_of::<N>();
        let stride = of_line.max(BLOCK / 4);
        (0..BLOCK).step_by(stride).for_each(|at| prefetch(&self.firsts[at]));
    }

    fn iter(&self) -> impl Iterator<Item = (N, N)> + '_ {
        self.firsts.iter().copied().zip(self.lasts.iter().copied()).take(self.len)
    }
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
            for n in (0..620).step_by(31) {
                let numbers: [u32; 31] = std::array::from_fn(|i| n + i as u32);
                let alone = numbers.iter().rev().fold(0, |bits, n| bits << 1 | u32::from(index.contains(*n)));
                prop_assert_eq!(index.members(&numbers), alone);
            }
            let listed: Vec<_> = index.iter().collect();
            prop_assert_eq!(listed.len(), index.len());
            prop_assert!(listed.windows(2).all(|two| two[0].1 < two[1].0 && two[1].0 - two[0].1 > 1));
            prop_assert!(index.blocks.iter().all(|block| (1..=BLOCK).contains(&block[0].len)));
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
