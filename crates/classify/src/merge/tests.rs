//! Merging held to its limits, on rules of several kinds.

use super::*;
use crate::lane_fields::PORTS;
use crate::lane_mask::{LaneMask, bits, lane_count, union, within};
use crate::segment::SegmentShape;
use crate::table::MAX_MEMBERS;
use mmb_random::RepeatableRandom;
use proptest::prelude::*;
use std::collections::HashMap;

/// The lanes of IPv4 addresses.
const SOURCE: usize = 13;
const DESTINATION: usize = 14;

fn prefix(len: u32) -> u32 {
    u32::MAX.checked_shl(32 - len).unwrap_or(0).to_be()
}

fn mask(source: u32, destination: u32, ports: u32) -> LaneMask {
    let mut mask = LaneMask::default();
    (mask[SOURCE], mask[DESTINATION], mask[PORTS]) = (prefix(source), prefix(destination), ports.to_be());
    mask
}

/// A tuple with random keys, of which `key` gives the addresses and ports.
fn tuple(mask: LaneMask, keys: usize, share: f64, mut key: impl FnMut() -> LaneMask) -> MergedTuple {
    let draw = |_| {
        let key = key();
        std::array::from_fn(|lane| key[lane] & mask[lane])
    };
    let mut sample: Vec<LaneMask> = (0..keys).map(draw).collect();
    sample.sort_unstable();
    sample.dedup();
    MergedTuple { mask, entries: (sample.len() as f64 / share) as usize, sample }
}

fn uniform(state: &mut RepeatableRandom) -> LaneMask {
    std::array::from_fn(|_| state.word() as u32)
}

/// Tuples of the usual fields: prefixes of both addresses, with and without ports.
fn shapes(state: &mut RepeatableRandom, count: usize) -> Vec<LaneMask> {
    let mut masks = vec![mask(32, 32, u32::MAX)];
    while masks.len() < count {
        let (source, destination) = (8 + state.word() as u32 % 25, 8 + state.word() as u32 % 25);
        let ports = [0, 0xffff, 0xffff_0000, u32::MAX][state.word() as u32 as usize % 4];
        let mask = mask(source, destination, ports);
        if source + destination + ports.count_ones() >= 27 && !masks.contains(&mask) {
            masks.push(mask);
        }
    }
    masks
}

/// Entries that a key's search compares on average over a group's keys, and at most.
fn chains(group: &TupleGroup, tuples: &[MergedTuple]) -> (f64, usize) {
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
    let mut state = RepeatableRandom::new(5);
    let share = 8192.0 / 1e6;
    let tuples: Vec<MergedTuple> = shapes(&mut state, 256)
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
    let mut state = RepeatableRandom::new(3);
    // Few networks, few hosts in each, some far more popular than others.
    let networks: Vec<u32> = (0..40).map(|_| state.word() as u32 & 0xffff_0000).collect();
    let address = |state: &mut RepeatableRandom| {
        let popular = (state.word() as u32 % 40).min(state.word() as u32 % 40).min(state.word() as u32 % 40);
        let host = (state.word() as u32 % 4096).min(state.word() as u32 % 4096);
        (networks[popular as usize] | host).to_be()
    };
    let mut tuples = Vec::new();
    for mask in shapes(&mut state.clone(), 64) {
        let mut key = || {
            let mut key = uniform(&mut state);
            (key[SOURCE], key[DESTINATION]) = (address(&mut state), address(&mut state));
            key[PORTS] = (state.word() as u32 % 8 * 0x0001_0040 + state.word() as u32 % 20).to_be();
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
        assert!(mean <= 2.0 * loosest.mean + 1.0 && worst as f64 <= loosest.max + 1.0, "{mean} {worst}");
    }
}

#[test]
fn one_rule_a_mask_takes_few_tables() {
    let mut state = RepeatableRandom::new(7);
    let tuples: Vec<MergedTuple> =
        shapes(&mut state, 400).into_iter().map(|mask| tuple(mask, 1, 1.0, || uniform(&mut state))).collect();
    let groups = merge(Class::Ip4, &tuples, 1.0);
    assert!(groups.len() <= 12, "{} groups", groups.len());
}

#[test]
fn a_table_has_as_many_members_as_fit_a_byte() {
    let mut state = RepeatableRandom::new(7);
    let tuples: Vec<MergedTuple> = (0..600)
        .map(|number| {
            // A prefix that all have, and bits of another lane that tell them apart.
            let mut mask = mask(24, 0, 0);
            mask[3] = number + 1;
            tuple(mask, 1, 1.0, || uniform(&mut state))
        })
        .collect();
    let groups = merge(Class::Ip4, &tuples, 1.0);
    assert!((3..=5).contains(&groups.len()), "{} groups", groups.len());
    assert!(groups.iter().all(|group| group.tuples.len() <= MAX_MEMBERS));
}

#[test]
fn tuples_that_share_no_bits_stay_apart() {
    let mut state = RepeatableRandom::new(1);
    let single = |lane: usize| {
        let mut mask = LaneMask::default();
        mask[lane] = u32::MAX;
        mask
    };
    let mut tuples: Vec<MergedTuple> =
        (0..20).map(|lane| tuple(single(lane), 50, 1.0, || uniform(&mut state))).collect();
    // Nor has that one any, which all packets match.
    tuples.push(tuple(LaneMask::default(), 1, 1.0, LaneMask::default));
    assert_eq!(merge(Class::Ip4, &tuples, 1.0).len(), 21);
}

#[test]
fn tuples_whose_keys_agree_in_all_that_they_share_stay_apart() {
    let mut state = RepeatableRandom::new(1);
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
    let mut state = RepeatableRandom::new(1);
    // All fix the source; each four lanes of different fields.
    let tuples: Vec<MergedTuple> = (0..4)
        .map(|number| {
            let mut mask = mask(32, 0, 0);
            (0..3).for_each(|lane| mask[number * 3 + lane + usize::from(number == 3) * 5] |= u32::MAX);
            tuple(mask, 40, 1.0, || uniform(&mut state))
        })
        .collect();
    let groups = merge(Class::Ip4, &tuples, 1.0);
    assert!(groups.iter().all(|group| lane_count(&group.span) <= SegmentShape::SMALL.lanes), "{groups:?}");
}

/// Masks of few lanes and lengths, so that many share bits, with keys of few bits, so that many agree.
fn some_tuples() -> impl Strategy<Value = Vec<MergedTuple>> {
    let lane = prop::sample::select(vec![0, 0, 0xff, 0xffff, 0xff_ffff, u32::MAX]);
    let mask = prop::collection::vec(lane, 6);
    let tuple = (mask, 1..60usize, any::<u64>(), 1..6u32).prop_map(|(lanes, keys, seed, bits)| {
        let mut state = RepeatableRandom::new(seed);
        let mut mask = LaneMask::default();
        for (at, lane) in [0, 3, PORTS, 5, SOURCE, DESTINATION].into_iter().zip(lanes) {
            mask[at] = lane;
        }
        let key = || std::array::from_fn(|_| (state.word() as u32 >> (32 - bits)) * 0x0101_0101);
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
            let longest = members().map(lane_count).max().unwrap_or(0);
            prop_assert!(members().all(|mask| within(&group.relaxed, mask) && within(mask, &group.span)));
            prop_assert_eq!(&members().fold(LaneMask::default(), |span, mask| union(&span, mask)), &group.span);
            prop_assert_eq!(SegmentShape::for_lanes(lane_count(&group.span)), SegmentShape::for_lanes(longest));
            prop_assert!(group.tuples.len() == 1 || bits(&group.relaxed) > 0);
            let (_, worst) = chains(group, &tuples);
            let alone = group.tuples.len() == 1;
            prop_assert!(alone || share < 1.0 || worst as f64 <= LEVELS[LEVELS.len() - 1].max + 1.0);
        }
    }
}
