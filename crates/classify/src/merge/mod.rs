//! Decides which tuples share a table: makes few groups with relaxed masks of the rules' masks and a sample of their keys.
//!
//! A table costs every packet a hash and a look at a filter, whether anything is found or not; a chain of entries with
//! one relaxed key costs only packets that get there. So tuples are put together under a mask that all of them fix, as
//! long as the relaxed keys of their rules stay apart. What keeps them apart is counted on the rules themselves, never
//! assumed (`tally`): real addresses cluster.
//!
//! Candidates for relaxed masks come from the tuples' masks (`candidates`). Of all candidates the one that takes the
//! most tuples in, with chains within the limits, becomes a group; then again with the tuples that are left (`greedy`). If
//! many groups are left, longer chains are allowed (they become lists, see `relax`), and what is cheapest in all is taken
//! (`cost`).

mod candidates;
mod cost;
mod greedy;
mod group;
mod tally;
#[cfg(test)]
mod tests;

use group::MergeLimits;
pub(crate) use group::{MergedTuple, TupleGroup};
use mmb_packet::Class;
use tally::KeyCounts;

/// Up to this number of groups, longer chains are not tried.
const STOP_AT_GROUPS: usize = 3;

/// From strict to loose.
const LEVELS: [MergeLimits; 6] = [
    MergeLimits { mean: 0.1, max: 12.0 },
    MergeLimits { mean: 0.5, max: 12.0 },
    MergeLimits { mean: 1.5, max: 12.0 },
    MergeLimits { mean: 6.0, max: 64.0 },
    MergeLimits { mean: 24.0, max: 256.0 },
    MergeLimits { mean: 96.0, max: 1024.0 },
];

/// Each tuple in a group of its own, the smallest first.
pub(crate) fn apart(tuples: &[MergedTuple]) -> Vec<TupleGroup> {
    let mut groups: Vec<TupleGroup> =
        tuples.iter().enumerate().map(|(number, tuple)| TupleGroup::single(number, &tuple.mask)).collect();
    groups.sort_by_key(|group| group.entries(tuples));
    groups
}

/// Groups of all tuples, the smallest first. `share`: the part of the keys that is in the samples.
pub(crate) fn merge(class: Class, tuples: &[MergedTuple], share: f64) -> Vec<TupleGroup> {
    let candidates = candidates::candidates(class, tuples);
    let mut merger = Merger { class, tuples, share, tally: KeyCounts::new(tuples) };
    let mut all: Vec<usize> = (0..tuples.len()).collect();
    // Small ones first: a tuple that fills a mask's whole space is not to keep others out.
    all.sort_by_key(|&number| tuples[number].sample.len());
    let mut best: Option<(f64, Vec<TupleGroup>)> = None;
    for limits in LEVELS {
        let mut groups = merger.greedy(&candidates, &all, limits);
        groups.sort_by_key(|group| group.entries(tuples));
        let cost = merger.cost(&groups);
        let is_enough = groups.len() <= STOP_AT_GROUPS;
        if best.as_ref().is_none_or(|(min, _)| cost < *min) {
            best = Some((cost, groups));
        }
        if is_enough {
            break;
        }
    }
    best.map(|(_, groups)| groups).unwrap_or_default()
}

/// The state of merging.
struct Merger<'a> {
    class: Class,
    tuples: &'a [MergedTuple],
    share: f64,
    tally: KeyCounts,
}
