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
/// Keys that are counted in rounds that find nothing, about at most.
const VAIN: usize = 4 << 20;
/// So many groups are few.
const FEW_GROUPS: usize = 3;
/// Cycles of a packet for a table, for a row, for an entry of a chain, for a list in place of a long chain.
const TABLE: f64 = 11.0;
const ROW: f64 = 0.8;
const ENTRY: f64 = 5.0;
const LONG: f64 = 40.0;
/// Entries of a class whose lists the cache holds, and how many times as long as these others take.
const NEAR: usize = 65_536;
const FAR: f64 = 8.0;
/// Cycles for a bucket that is looked at.
const VISIT: f64 = 60.0;
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
const LEVELS: [Limits; 6] = [
    Limits { mean: 0.1, worst: 12.0 },
    Limits { mean: 0.5, worst: 12.0 },
    Limits { mean: 1.5, worst: 12.0 },
    Limits { mean: 6.0, worst: 64.0 },
    Limits { mean: 24.0, worst: 256.0 },
    Limits { mean: 96.0, worst: 1024.0 },
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
        let all: usize = self.tuples.iter().map(|tuple| tuple.entries).sum();
        let far = if all > NEAR { FAR } else { 1.0 };
        for group in groups {
            let entries = group.entries(self.tuples);
            if entries <= flat::MOST_OF_A_TUPLE && rows + entries <= flat::MOST {
                rows += entries;
                tables += ROW * entries as f64;
                continue;
            }
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
                        chains += if others < SHORT_CHAIN as f64 { ENTRY * others } else { LONG * far };
                        keys += 1;
                    }
                }
            }
            // A dense table's filter lets many packets pass that no rule is about.
            let density = self.tally.used.len() as f64 / self.share / space(&group.relaxed).exp2();
            tables += TABLE + VISIT * (1.0 - (-density).exp());
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
        let mut vain = 0;
        while left.len() > 1 && vain < VAIN {
            open.retain(|&(most, _)| most > 1);
            if open.is_empty() {
                break;
            }
            // The counts only get smaller: those of earlier rounds are bounds.
            open.sort_by_key(|&(most, mask)| std::cmp::Reverse((most, bits(&mask))));
            let mut best: Option<(Vec<usize>, LaneMask)> = None;
            let counted = self.tally.counted;
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
            let Some((taken, _)) = best else {
                // That none of these takes two in is known now; others may.
                vain += self.tally.counted - counted;
                continue;
            };
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
            if !within(mask, &tuple.mask) || taken.len() == MOST_MEMBERS {
                continue;
            }
            let wider = union(&span, &tuple.mask);
            // Keys that are longer than any member's own would waste memory.
            let longest = lanes(&tuple.mask).max(lanes(&span)).max(Shape::SMALL.lanes);
            let fits = Shape::of(lanes(&wider)) == Shape::of(longest);
            if fits && self.tally.take_in(&tuple.sample, mask, self.share, limits) {
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
    /// Keys that were ever counted.
    counted: usize,
}

impl Tally {
    fn new(tuples: &[Tuple]) -> Tally {
        let most: usize = tuples.iter().map(|tuple| tuple.sample.len()).sum();
        let size = (most * 2 + 2).next_power_of_two();
        Tally { keys: vec![0; size], counts: vec![0; size], used: Vec::new(), counted: 0 }
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
        let before = self.used.len();
        let most_shared = limits.mean * share * sample.len() as f64;
        // One or two that meet in a small sample are chance.
        let longest = limits.worst * share;
        let longest = if share < 1.0 { longest.max(3.0) } else { longest };
        let (mut shared, mut fits) = (0.0, true);
        let mut placed = Vec::with_capacity(sample.len());
        for key in sample {
            let at = self.place(relaxed_hash(key, mask));
            if self.counts[at] == 0 {
                self.used.push(at);
            }
            let others = f64::from(self.counts[at]);
            shared += others;
            self.counts[at] += 1;
            placed.push(at);
            fits = shared <= most_shared && others <= longest;
            if !fits {
                break;
            }
        }
        self.counted += placed.len();
        if fits {
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

/// Bits of a mask in which packets differ: of addresses and ports all, of other lanes about one.
fn space(mask: &LaneMask) -> f64 {
    let bits = |(lane, mask): (usize, &u32)| match lane {
        PORTS | 12.. => mask.count_ones(),
        _ => u32::from(*mask != 0),
    };
    mask.iter().enumerate().map(bits).sum::<u32>().into()
}

fn lanes(mask: &LaneMask) -> usize {
    mask.iter().filter(|lane| **lane != 0).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// The lanes of IPv4 addresses.
    const SOURCE: usize = 13;
    const DESTINATION: usize = 14;

    fn random(state: &mut u64) -> u32 {
        *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((*state ^ *state >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    fn prefix(len: u32) -> u32 {
        u32::MAX.checked_shl(32 - len).unwrap_or(0).to_be()
    }

    fn mask(source: u32, destination: u32, ports: u32) -> LaneMask {
        let mut mask = LaneMask::default();
        (mask[SOURCE], mask[DESTINATION], mask[PORTS]) = (prefix(source), prefix(destination), ports.to_be());
        mask
    }

    /// A tuple with random keys, of which `key` gives the addresses and ports.
    fn tuple(mask: LaneMask, keys: usize, share: f64, mut key: impl FnMut() -> LaneMask) -> Tuple {
        let draw = |_| {
            let key = key();
            std::array::from_fn(|lane| key[lane] & mask[lane])
        };
        let mut sample: Vec<LaneMask> = (0..keys).map(draw).collect();
        sample.sort_unstable();
        sample.dedup();
        Tuple { mask, entries: (sample.len() as f64 / share) as usize, sample }
    }

    fn uniform(state: &mut u64) -> LaneMask {
        std::array::from_fn(|_| random(state))
    }

    /// Tuples of the usual fields: prefixes of both addresses, with and without ports.
    fn shapes(state: &mut u64, count: usize) -> Vec<LaneMask> {
        let mut masks = vec![mask(32, 32, u32::MAX)];
        while masks.len() < count {
            let (source, destination) = (8 + random(state) % 25, 8 + random(state) % 25);
            let ports = [0, 0xffff, 0xffff_0000, u32::MAX][random(state) as usize % 4];
            let mask = mask(source, destination, ports);
            if source + destination + ports.count_ones() >= 27 && !masks.contains(&mask) {
                masks.push(mask);
            }
        }
        masks
    }

    /// Entries that a key's search compares on average over a group's keys, and at most.
    fn chains(group: &Group, tuples: &[Tuple]) -> (f64, usize) {
        let mut counts: HashMap<LaneMask, usize> = HashMap::new();
        let keys = || group.tuples.iter().flat_map(|&number| &tuples[number].sample);
        for key in keys() {
            *counts.entry(std::array::from_fn(|lane| key[lane] & group.relaxed[lane])).or_default() += 1;
        }
        let squares: usize = counts.values().map(|count| count * count).sum();
        (squares as f64 / keys().count() as f64, counts.values().copied().max().unwrap_or(0))
    }

    #[test]
    fn many_shapes_of_a_million_uniform_rules_take_few_tables() {
        let mut state = 5;
        let share = 8192.0 / 1e6;
        let tuples: Vec<Tuple> = shapes(&mut state, 256)
            .into_iter()
            .map(|mask| tuple(mask, 32, share, || uniform(&mut state)))
            .collect();
        let groups = merge(Class::Ip4, &tuples, share);
        assert!(groups.len() <= 12, "{} groups", groups.len());
        for group in &groups {
            let (mean, worst) = chains(group, &tuples);
            assert!(mean < 1.5 && worst < 5, "{mean} on average, {worst} at most in the sample");
        }
    }

    #[test]
    fn clustered_rules_do_not_get_long_chains() {
        let mut state = 3;
        // Few networks, few hosts in each, some far more popular than others.
        let networks: Vec<u32> = (0..40).map(|_| random(&mut state) & 0xffff_0000).collect();
        let address = |state: &mut u64| {
            let popular = (random(state) % 40).min(random(state) % 40).min(random(state) % 40);
            let host = (random(state) % 4096).min(random(state) % 4096);
            (networks[popular as usize] | host).to_be()
        };
        let mut tuples = Vec::new();
        for mask in shapes(&mut state.clone(), 64) {
            let mut key = || {
                let mut key = uniform(&mut state);
                (key[SOURCE], key[DESTINATION]) = (address(&mut state), address(&mut state));
                key[PORTS] = (random(&mut state) % 8 * 0x0001_0040 + random(&mut state) % 20).to_be();
                key
            };
            tuples.push(tuple(mask, 200, 1.0, &mut key));
        }
        let groups = merge(Class::Ip4, &tuples, 1.0);
        assert!(groups.len() < tuples.len() / 2, "{} groups", groups.len());
        let loosest = LEVELS[LEVELS.len() - 1];
        for group in &groups {
            let (mean, worst) = chains(group, &tuples);
            // Each pair is counted at both of its ends.
            assert!(
                mean <= 2.0 * loosest.mean + 1.0 && worst as f64 <= loosest.worst + 1.0,
                "{mean} {worst}"
            );
        }
    }

    #[test]
    fn one_rule_a_mask_takes_few_tables() {
        let mut state = 7;
        let tuples: Vec<Tuple> = shapes(&mut state, 400)
            .into_iter()
            .map(|mask| tuple(mask, 1, 1.0, || uniform(&mut state)))
            .collect();
        let groups = merge(Class::Ip4, &tuples, 1.0);
        assert!(groups.len() <= 12, "{} groups", groups.len());
    }

    #[test]
    fn a_table_has_as_many_members_as_fit_a_byte() {
        let mut state = 7;
        let tuples: Vec<Tuple> = (0..600)
            .map(|number| {
                // A prefix that all have, and bits of another lane that tell them apart.
                let mut mask = mask(24, 0, 0);
                mask[3] = number + 1;
                tuple(mask, 1, 1.0, || uniform(&mut state))
            })
            .collect();
        let groups = merge(Class::Ip4, &tuples, 1.0);
        assert!((3..=5).contains(&groups.len()), "{} groups", groups.len());
        assert!(groups.iter().all(|group| group.tuples.len() <= MOST_MEMBERS));
    }

    #[test]
    fn tuples_that_share_no_bits_stay_apart() {
        let mut state = 1;
        let single = |lane: usize| {
            let mut mask = LaneMask::default();
            mask[lane] = u32::MAX;
            mask
        };
        let mut tuples: Vec<Tuple> =
            (0..20).map(|lane| tuple(single(lane), 50, 1.0, || uniform(&mut state))).collect();
        // Nor has that one any, which all packets match.
        tuples.push(tuple(LaneMask::default(), 1, 1.0, LaneMask::default));
        assert_eq!(merge(Class::Ip4, &tuples, 1.0).len(), 21);
    }

    #[test]
    fn tuples_whose_keys_agree_in_all_that_they_share_stay_apart() {
        let mut state = 1;
        // One server's rules: by destination port, and by source port.
        let mut server = |ports: u32| {
            tuple(mask(0, 32, ports), 500, 1.0, || {
                let mut key = uniform(&mut state);
                key[DESTINATION] = 7;
                key
            })
        };
        let tuples = [server(0xffff), server(0xffff_0000)];
        assert_eq!(merge(Class::Ip4, &tuples, 1.0).len(), 2);
    }

    #[test]
    fn keys_do_not_get_longer_than_their_bucket() {
        let mut state = 1;
        // All fix the source; each four lanes of different fields.
        let tuples: Vec<Tuple> = (0..4)
            .map(|number| {
                let mut mask = mask(32, 0, 0);
                (0..3).for_each(|lane| mask[number * 3 + lane + usize::from(number == 3) * 5] |= u32::MAX);
                tuple(mask, 40, 1.0, || uniform(&mut state))
            })
            .collect();
        let groups = merge(Class::Ip4, &tuples, 1.0);
        assert!(groups.iter().all(|group| lanes(&group.span) <= Shape::SMALL.lanes), "{groups:?}");
    }

    /// Masks of few lanes and lengths, so that many share bits, with keys of few bits, so that many agree.
    fn some_tuples() -> impl Strategy<Value = Vec<Tuple>> {
        let lane = prop::sample::select(vec![0, 0, 0xff, 0xffff, 0xff_ffff, u32::MAX]);
        let mask = prop::collection::vec(lane, 6);
        let tuple = (mask, 1..60usize, any::<u64>(), 1..6u32).prop_map(|(lanes, keys, mut state, bits)| {
            let mut mask = LaneMask::default();
            for (at, lane) in [0, 3, PORTS, 5, SOURCE, DESTINATION].into_iter().zip(lanes) {
                mask[at] = lane;
            }
            let key = || std::array::from_fn(|_| (random(&mut state) >> (32 - bits)) * 0x0101_0101);
            tuple(mask, keys, 1.0, key)
        });
        prop::collection::vec(tuple, 0..40).prop_map(|mut tuples| {
            tuples.sort_by_key(|tuple| tuple.mask);
            tuples.dedup_by_key(|tuple| tuple.mask);
            tuples
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_tuple_is_in_one_group_that_suits_it(tuples in some_tuples(), small: bool) {
            let share = if small { 0.1 } else { 1.0 };
            let groups = merge(Class::Ip4, &tuples, share);
            let mut numbers: Vec<usize> = groups.iter().flat_map(|group| group.tuples.clone()).collect();
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..tuples.len()).collect::<Vec<_>>());
            for group in &groups {
                let members = || group.tuples.iter().map(|&number| &tuples[number].mask);
                let longest = members().map(lanes).max().unwrap_or(0);
                prop_assert!(members().all(|mask| within(&group.relaxed, mask) && within(mask, &group.span)));
                prop_assert_eq!(&members().fold(LaneMask::default(), |span, mask| union(&span, mask)), &group.span);
                prop_assert_eq!(Shape::of(lanes(&group.span)), Shape::of(longest));
                prop_assert!(group.tuples.len() == 1 || bits(&group.relaxed) > 0);
                let (_, worst) = chains(group, &tuples);
                let alone = group.tuples.len() == 1;
                prop_assert!(alone || share < 1.0 || worst as f64 <= LEVELS[LEVELS.len() - 1].worst + 1.0);
            }
        }
    }
}
