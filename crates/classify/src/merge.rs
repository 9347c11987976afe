//! Which tuples share a table: from the rules' masks and a sample of their keys to few groups with relaxed masks.
//!
//! A table costs every packet a hash and a look at a filter, whether anything is found or not; a chain of entries with
//! one relaxed key costs only packets that get there. So tuples are put together under a mask that all of them fix, as
//! long as the relaxed keys of their rules stay apart. What keeps them apart is counted on the rules themselves, never
//! assumed: real addresses cluster.
//!
//! Greedy, as for set cover: of all candidate masks the one that takes the most tuples in, with chains within the
//! limits, becomes a group; then again with the tuples that are left. Candidates come from the tuples' masks, their
//! addresses cut to a ladder of prefix lengths, ports and other fields left out. If many groups are left, longer chains
//! are allowed (they become lists, see `loosen`), and what is cheapest in all is taken.

use crate::flat;
use crate::loosen::SHORT_CHAIN;
use crate::segment::Shape;
use crate::table::{LaneMask, MOST_MEMBERS};
use mmb_packet::Class;
use std::collections::HashSet;

/// The lane of the ports.
const PORTS: usize = 4;
/// Tuples whose masks make candidates, at most.
const SOURCES: usize = 384;
/// Candidates, at most.
const CANDIDATES: usize = 4096;
/// Candidates of one round that are tried, at most.
const TRIALS: usize = 48;
/// So many groups are few.
const FEW_GROUPS: usize = 6;
/// Cycles of a packet for a table, for a row, for an entry of a chain, for a list in place of a long chain.
const TABLE: f64 = 11.0;
const ROW: f64 = 0.8;
const ENTRY: f64 = 5.0;
const LONG: f64 = 40.0;
/// Tables in which a packet that some rule is about finds a chain.
const MET: f64 = 2.0;

/// How long chains may get.
#[derive(Clone, Copy)]
struct Limits {
    /// Entries that share their relaxed key with an entry, on average over a tuple's entries.
    mean: f64,
    /// At most.
    worst: f64,
}

/// From strict to loose.
const LEVELS: [Limits; 3] = [
    Limits { mean: 1.5, worst: 12.0 },
    Limits { mean: 6.0, worst: 24.0 },
    Limits { mean: 16.0, worst: 40.0 },
];

/// A tuple as the merger knows it.
#[derive(Clone, Debug)]
pub(crate) struct Tuple {
    pub(crate) mask: LaneMask,
    /// About how many entries it has.
    pub(crate) entries: usize,
    /// Some of its keys.
    pub(crate) sample: Vec<LaneMask>,
}

/// Tuples that share a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// The bits that all of them fix.
    pub(crate) relaxed: LaneMask,
    /// The bits that any of them fixes.
    pub(crate) span: LaneMask,
    /// Their numbers.
    pub(crate) tuples: Vec<usize>,
}

impl Group {
    /// A group of one.
    pub(crate) fn of(number: usize, mask: &LaneMask) -> Group {
        Group { relaxed: *mask, span: *mask, tuples: vec![number] }
    }

    fn new(numbers: Vec<usize>, tuples: &[Tuple]) -> Group {
        let (mut relaxed, mut span) = ([u32::MAX; Shape::WHOLE.lanes], LaneMask::default());
        for &number in &numbers {
            for lane in 0..span.len() {
                relaxed[lane] &= tuples[number].mask[lane];
                span[lane] |= tuples[number].mask[lane];
            }
        }
        Group { relaxed, span, tuples: numbers }
    }

    /// About how many entries its table will have.
    pub(crate) fn entries(&self, tuples: &[Tuple]) -> usize {
        self.tuples.iter().map(|&number| tuples[number].entries).sum()
    }
}

/// Groups of all tuples. `share`: the part of the keys that is in the samples.
pub(crate) fn merge(class: Class, tuples: &[Tuple], share: f64) -> Vec<Group> {
    let candidates = candidates(class, tuples);
    let mut merger = Merger { tuples, share, tally: Tally::new(tuples) };
    let mut all: Vec<usize> = (0..tuples.len()).collect();
    // Small ones first: a tuple that fills a mask's whole space is not to keep others out.
    all.sort_by_key(|&number| tuples[number].sample.len());
    let mut best: Option<(f64, Vec<Group>)> = None;
    for limits in LEVELS {
        let groups = merger.greedy(&candidates, &all, limits);
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

struct Merger<'a> {
    tuples: &'a [Tuple],
    share: f64,
    tally: Tally,
}

impl Merger<'_> {
    /// About what groups cost a packet, in cycles: every table, and the chains that a packet meets which some rule is
    /// about. The figures are rough; what counts is that a table costs all packets and a chain few.
    fn cost(&mut self, groups: &[Group]) -> f64 {
        let (mut tables, mut rows, mut chains, mut keys) = (0.0, 0, 0.0, 0);
        for group in groups {
            let entries = group.entries(self.tuples);
            if entries <= flat::MOST_OF_A_TUPLE && rows + entries <= flat::MOST {
                rows += entries;
                tables += ROW * entries as f64;
                continue;
            }
            tables += TABLE;
            self.tally.clear();
            for pass in 0..2 {
                for key in group.tuples.iter().flat_map(|&number| &self.tuples[number].sample) {
                    let at = self.tally.place(relaxed_hash(key, &group.relaxed));
                    if pass == 0 {
                        if self.tally.counts[at] == 0 {
                            self.tally.used.push(at);
                        }
                        self.tally.counts[at] += 1;
                    } else {
                        let others = f64::from(self.tally.counts[at] - 1) / self.share;
                        chains += if others < SHORT_CHAIN as f64 {
                            ENTRY * others
                        } else {
                            LONG.min(12.0 + 4.0 * others)
                        };
                        keys += 1;
                    }
                }
            }
        }
        tables + chains / keys.max(1) as f64 * MET
    }

    /// Groups of the tuples of `left`, each in one.
    fn greedy(&mut self, candidates: &[LaneMask], left: &[usize], limits: Limits) -> Vec<Group> {
        let mut left = left.to_vec();
        let mut groups = Vec::new();
        let fits = |mask: &LaneMask, number: usize| within(mask, &self.tuples[number].mask);
        let mut open: Vec<(usize, LaneMask)> =
            candidates.iter().map(|mask| (left.iter().filter(|&&n| fits(mask, n)).count(), *mask)).collect();
        while left.len() > 1 {
            open.retain(|&(most, _)| most > 1);
            // The counts only get smaller: those of earlier rounds are bounds.
            open.sort_by_key(|&(most, mask)| std::cmp::Reverse((most, bits(&mask))));
            let mut best: Option<(Vec<usize>, LaneMask)> = None;
            for (most, mask) in open.iter_mut().take(TRIALS) {
                let found = best.as_ref().map_or(1, |(numbers, _)| numbers.len());
                if *most < found {
                    break;
                }
                let taken = self.trial(mask, &left, limits);
                *most = taken.len().min(*most);
                let tighter = || best.as_ref().is_none_or(|(_, than)| bits(mask) > bits(than));
                if taken.len() > found || taken.len() == found && found > 1 && tighter() {
                    best = Some((taken, *mask));
                }
            }
            let Some((taken, _)) = best else { break };
            left.retain(|number| !taken.contains(number));
            groups.push(Group::new(taken, self.tuples));
        }
        groups.extend(left.into_iter().map(|number| Group::of(number, &self.tuples[number].mask)));
        groups
    }

    /// The tuples of `left` that a table with this relaxed mask would take in.
    fn trial(&mut self, mask: &LaneMask, left: &[usize], limits: Limits) -> Vec<usize> {
        self.tally.clear();
        let mut taken = Vec::new();
        let mut span = *mask;
        for &number in left {
            let tuple = &self.tuples[number];
            let wider = union(&span, &tuple.mask);
            // Keys that are longer than any member's own would waste memory.
            let longest = lanes(&tuple.mask).max(lanes(&span)).max(Shape::SMALL.lanes);
            if !within(mask, &tuple.mask)
                || Shape::of(lanes(&wider)) != Shape::of(longest)
                || taken.len() == MOST_MEMBERS
            {
                continue;
            }
            if self.tally.take_in(&tuple.sample, mask, self.share, limits) {
                taken.push(number);
                span = wider;
            }
        }
        taken
    }
}

/// How many sampled keys have each relaxed key.
struct Tally {
    keys: Vec<u64>,
    counts: Vec<u32>,
    used: Vec<usize>,
}

impl Tally {
    fn new(tuples: &[Tuple]) -> Tally {
        let most: usize = tuples.iter().map(|tuple| tuple.sample.len()).sum();
        let size = (most * 2 + 2).next_power_of_two();
        Tally { keys: vec![0; size], counts: vec![0; size], used: Vec::new() }
    }

    fn clear(&mut self) {
        self.used.drain(..).for_each(|at| self.counts[at] = 0);
    }

    fn place(&mut self, key: u64) -> usize {
        let mut at = key as usize & (self.keys.len() - 1);
        while self.counts[at] != 0 && self.keys[at] != key {
            at = (at + 1) & (self.keys.len() - 1);
        }
        self.keys[at] = key;
        at
    }

    /// Adds a tuple's keys if that keeps the limits.
    fn take_in(&mut self, sample: &[LaneMask], mask: &LaneMask, share: f64, limits: Limits) -> bool {
        let (before, mut shared, mut worst) = (self.used.len(), 0, 0);
        let mut placed = Vec::with_capacity(sample.len());
        for key in sample {
            let at = self.place(relaxed_hash(key, mask));
            if self.counts[at] == 0 {
                self.used.push(at);
            }
            shared += self.counts[at];
            worst = worst.max(self.counts[at]);
            self.counts[at] += 1;
            placed.push(at);
        }
        let mean = f64::from(shared) / share / sample.len().max(1) as f64;
        // One or two that meet in a small sample are chance.
        let worst = if share < 1.0 && worst < 4 { 0.0 } else { f64::from(worst) / share };
        if mean <= limits.mean && worst <= limits.worst {
            return true;
        }
        // Backwards, so that what was empty before is empty again.
        placed.into_iter().rev().for_each(|at| self.counts[at] -= 1);
        self.used.truncate(before);
        false
    }
}

fn relaxed_hash(key: &LaneMask, mask: &LaneMask) -> u64 {
    key.iter().zip(mask).fold(0x9e37_79b9_7f4a_7c15, |hash: u64, (lane, mask)| {
        let mixed = (hash ^ u64::from(lane & mask)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ mixed >> 32
    })
}

/// Masks that tables could have.
fn candidates(class: Class, tuples: &[Tuple]) -> Vec<LaneMask> {
    let mut all = HashSet::new();
    let step = tuples.len().div_ceil(SOURCES).max(1);
    for tuple in tuples.iter().step_by(step) {
        let mut masks = vec![LaneMask::default()];
        for choices in parts(class, &tuple.mask) {
            masks = masks.iter().flat_map(|mask| choices.iter().map(move |part| union(mask, part))).collect();
        }
        all.extend(masks);
        if all.len() > 16 * CANDIDATES {
            break;
        }
    }
    all.remove(&LaneMask::default());
    let mut all: Vec<LaneMask> = all.into_iter().collect();
    let count =
        |mask: &LaneMask| tuples.iter().step_by(step).filter(|tuple| within(mask, &tuple.mask)).count();
    all.sort_by_cached_key(|mask| (std::cmp::Reverse(count(mask)), std::cmp::Reverse(bits(mask)), *mask));
    all.truncate(CANDIDATES);
    all
}

/// The parts of a mask that may be relaxed apart from each other, each with its choices.
fn parts(class: Class, mask: &LaneMask) -> Vec<Vec<LaneMask>> {
    let (addresses, ladder): (&[(usize, usize)], &[u32]) = match class {
        Class::Ip4 => (&[(13, 1), (14, 1)], &[8, 16, 24]),
        Class::Ip6 => (&[(12, 4), (16, 4)], &[16, 32, 48, 64]),
        Class::Other => (&[], &[]),
    };
    let mut rest = *mask;
    let mut parts = Vec::new();
    for &(first, count) in addresses {
        let mut own = LaneMask::default();
        own[first..first + count].copy_from_slice(&mask[first..first + count]);
        rest[first..first + count].fill(0);
        let cut = |&length: &u32| {
            let mut cut = own;
            for (at, lane) in cut[first..first + count].iter_mut().enumerate() {
                let here = length.saturating_sub(at as u32 * 32).min(32);
                *lane &= u32::MAX.checked_shl(32 - here).unwrap_or(0).to_be();
            }
            cut
        };
        parts.push(distinct(ladder.iter().map(cut).chain([LaneMask::default(), own])));
    }
    let mut own = LaneMask::default();
    own[PORTS] = std::mem::take(&mut rest[PORTS]);
    let half = |half: u32| {
        let mut part = own;
        part[PORTS] &= half.to_be();
        part
    };
    parts.push(distinct([LaneMask::default(), half(0xffff), half(0xffff_0000), own]));
    let singles = (0..rest.len()).map(|lane| {
        let mut single = LaneMask::default();
        single[lane] = rest[lane];
        single
    });
    parts.push(distinct(singles.chain([LaneMask::default(), rest])));
    parts
}

fn distinct(masks: impl IntoIterator<Item = LaneMask>) -> Vec<LaneMask> {
    let mut masks: Vec<LaneMask> = masks.into_iter().collect();
    masks.sort_unstable();
    masks.dedup();
    masks
}

fn within(mask: &LaneMask, other: &LaneMask) -> bool {
    mask.iter().zip(other).all(|(mask, other)| mask & other == *mask)
}

fn union(a: &LaneMask, b: &LaneMask) -> LaneMask {
    std::array::from_fn(|lane| a[lane] | b[lane])
}

fn bits(mask: &LaneMask) -> u32 {
    mask.iter().map(|lane| lane.count_ones()).sum()
}

fn lanes(mask: &LaneMask) -> usize {
    mask.iter().filter(|lane| **lane != 0).count()
}
