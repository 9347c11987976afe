//! Which tuples share a table: from the rules' masks and a sample of their keys to few groups with relaxed masks.
//!
//! A table costs every packet a hash and a look at a filter, whether anything is found or not; a chain of entries with
//! one relaxed key costs only packets that get there. So tuples are put together under a mask that all of them fix, as
//! long as the relaxed keys of their rules stay apart. What keeps them apart is counted on the rules themselves, never
//! assumed (`tally`): real addresses cluster.
//!
//! Candidates for relaxed masks come from the tuples' masks (`candidates`). Of all candidates the one that takes the
//! most tuples in, with chains within the limits, becomes a group; then again with the tuples that are left (`greedy`). If
//! many groups are left, longer chains are allowed (they become lists, see `loosen`), and what is cheapest in all is taken
//! (`cost`).

mod candidates;
mod cost;
mod greedy;
mod tally;
#[cfg(test)]
mod tests;

use crate::lane_mask::{LaneMask, common, union};
use mmb_packet::Class;
use tally::Tally;

/// So many groups are few.
const FEW_GROUPS: usize = 3;

/// How long chains may get.
#[derive(Clone, Copy)]
struct MergeLimits {
    /// Entries that share their relaxed key with an entry, on average over a tuple's entries.
    mean: f64,
    /// At most.
    worst: f64,
}

/// From strict to loose.
const LEVELS: [MergeLimits; 6] = [
    MergeLimits { mean: 0.1, worst: 12.0 },
    MergeLimits { mean: 0.5, worst: 12.0 },
    MergeLimits { mean: 1.5, worst: 12.0 },
    MergeLimits { mean: 6.0, worst: 64.0 },
    MergeLimits { mean: 24.0, worst: 256.0 },
    MergeLimits { mean: 96.0, worst: 1024.0 },
];

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
    fn of(number: usize, mask: &LaneMask) -> TupleGroup {
        TupleGroup { relaxed: *mask, span: *mask, tuples: vec![number] }
    }

    fn new(numbers: Vec<usize>, tuples: &[MergedTuple]) -> TupleGroup {
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
    fn sample<'a>(&'a self, tuples: &'a [MergedTuple]) -> impl Iterator<Item = &'a LaneMask> {
        self.tuples.iter().flat_map(|&number| &tuples[number].sample)
    }
}

/// Each tuple in a group of its own, the smallest first.
pub(crate) fn apart(tuples: &[MergedTuple]) -> Vec<TupleGroup> {
    let mut groups: Vec<TupleGroup> =
        tuples.iter().enumerate().map(|(number, tuple)| TupleGroup::of(number, &tuple.mask)).collect();
    groups.sort_by_key(|group| group.entries(tuples));
    groups
}

/// Groups of all tuples, the smallest first. `share`: the part of the keys that is in the samples.
pub(crate) fn merge(class: Class, tuples: &[MergedTuple], share: f64) -> Vec<TupleGroup> {
    let candidates = candidates::candidates(class, tuples);
    let mut merger = Merger { class, tuples, share, tally: Tally::new(tuples) };
    let mut all: Vec<usize> = (0..tuples.len()).collect();
    // Small ones first: a tuple that fills a mask's whole space is not to keep others out.
    all.sort_by_key(|&number| tuples[number].sample.len());
    let mut best: Option<(f64, Vec<TupleGroup>)> = None;
    for limits in LEVELS {
        let mut groups = merger.greedy(&candidates, &all, limits);
        groups.sort_by_key(|group| group.entries(tuples));
        let cost = merger.cost(&groups);
        let few = groups.len() <= FEW_GROUPS;
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, groups));
        }
        if few {
            break;
        }
    }
    best.map(|(_, groups)| groups).unwrap_or_default()
}

/// What choosing and reckoning work on.
struct Merger<'a> {
    class: Class,
    tuples: &'a [MergedTuple],
    share: f64,
    tally: Tally,
}
