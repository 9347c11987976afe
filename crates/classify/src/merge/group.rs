//! Terms of merging: tuples with a sample of their keys, groups of them, and how long chains may get.

use crate::lane_mask::{LaneMask, common, union};

/// The longest chains that are allowed.
#[derive(Clone, Copy)]
pub(super) struct MergeLimits {
    /// Entries that share their relaxed key with an entry, on average over a tuple's entries.
    pub(super) mean: f64,
    /// The same, at most.
    pub(super) max: f64,
}

/// A tuple as the merger knows it.
#[derive(Clone, Debug)]
pub(crate) struct MergedTuple {
    pub(crate) mask: LaneMask,
    /// About how many entries it has.
    pub(crate) entries: usize,
    /// Some of its keys.
    pub(crate) sample: Vec<LaneMask>,
}

/// Tuples that share a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TupleGroup {
    /// The bits that all of them fix.
    pub(crate) relaxed: LaneMask,
    /// The bits that any of them fixes.
    pub(crate) span: LaneMask,
    /// Their numbers.
    pub(crate) tuples: Vec<usize>,
}

impl TupleGroup {
    /// A group of one.
    pub(super) fn single(number: usize, mask: &LaneMask) -> TupleGroup {
        TupleGroup { relaxed: *mask, span: *mask, tuples: vec![number] }
    }

    pub(super) fn new(numbers: Vec<usize>, tuples: &[MergedTuple]) -> TupleGroup {
        let masks = || numbers.iter().map(|&number| &tuples[number].mask);
        TupleGroup {
            relaxed: masks().copied().reduce(|all, mask| common(&all, &mask)).unwrap_or_default(),
            span: masks().fold(LaneMask::default(), |any, mask| union(&any, mask)),
            tuples: numbers,
        }
    }

    /// About how many entries its table will have.
    pub(crate) fn entries(&self, tuples: &[MergedTuple]) -> usize {
        self.tuples.iter().map(|&number| tuples[number].entries).sum()
    }

    /// Its sampled keys.
    pub(super) fn sample<'a>(&'a self, tuples: &'a [MergedTuple]) -> impl Iterator<Item = &'a LaneMask> {
        self.tuples.iter().flat_map(|&number| &tuples[number].sample)
    }
}
