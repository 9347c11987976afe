//! The cache against a map, at each level, and against traffic that wants it to fail.

use super::places::FlowPlaces;
use super::*;
use crate::RuleSlot;
use mmb_base::Id;
use mmb_random::RepeatableRandom;
use std::collections::HashMap;

const LANES: usize = 20;

/// A class whose keys have some lanes.
fn class(read: &LaneMask) -> ClassFlows {
    let mut flows = ClassFlows::new(1, &mut Generator::new(Seed::repeatable(4)));
    flows.begin(read);
    flows
}

fn columns(keys: &[LaneMask]) -> Vec<Column> {
    (0..LANES).map(|lane| std::array::from_fn(|key| keys.get(key).map_or(0, |key| key[lane]))).collect()
}

/// The matches of a key: some slots that depend on nothing else.
fn matches(masked: &LaneMask, max: usize) -> Vec<RuleSlot> {
    let sum = masked.iter().fold(1u32, |sum, lane| sum.wrapping_mul(31).wrapping_add(*lane));
    (0..sum as usize % (max + 1)).filter_map(|at| RuleSlot::new(sum % 1000 + 1 + at as u32)).collect()
}

/// Passes a vector through; returns how many keys hit. Everything that it says is compared with `matches`.
fn pass(
    level: SimdLevel,
    flows: &mut ClassFlows,
    places: &mut FlowPlaces,
    (read, max): (&LaneMask, usize),
    keys: &[LaneMask],
) -> usize {
    let lanes = columns(keys);
    // Packets in another order than their keys.
    let packets: [u8; VECTOR] = std::array::from_fn(|key| (key as u8).wrapping_mul(5).wrapping_add(3));
    let mut scratch = Scratch::default();
    scratch.clear();
    let find = FindFlows {
        class: flows,
        places,
        lanes: &lanes,
        len: keys.len(),
        packets: &packets,
        scratch: &mut scratch,
    };
    level.run(find);
    let masked = |key: &LaneMask| crate::lane_mask::common(key, read);
    let missed: Vec<u8> = flows.misses[..flows.missed].to_vec();
    assert!(missed.is_sorted());
    {
        let (_, _, mut log) = scratch.parts();
        for &key in &missed {
            let slots = matches(&masked(&keys[usize::from(key)]), max);
            slots.into_iter().for_each(|slot| log.hit(packets[usize::from(key)], slot));
        }
    }
    scratch.sort_by_packet();
    let mut some = 0;
    for (key, lanes) in keys.iter().enumerate() {
        let packet = packets[key];
        assert_eq!(scratch.slots(packet.into()), matches(&masked(lanes), max), "key {key}, {}", level.name());
        some += usize::from(!scratch.slots(packet.into()).is_empty());
    }
    assert_eq!(scratch.matched().len(), some);
    // As the columns are when the hits are taken away.
    let left: Vec<LaneMask> = missed.iter().map(|key| keys[usize::from(*key)]).collect();
    for (to, &from) in missed.iter().enumerate() {
        flows.hashes.hashes[to] = flows.hashes.hashes[usize::from(from)];
    }
    let of: Vec<u8> = missed.iter().map(|key| packets[usize::from(*key)]).collect();
    assert_eq!(flows.remember(places, (&columns(&left), &of), &scratch), 0);
    keys.len() - missed.len()
}

/// Passes all keys through, a vector after the other; returns how many hit.
fn pass_all(
    level: SimdLevel,
    flows: &mut ClassFlows,
    places: &mut FlowPlaces,
    (read, max): (&LaneMask, usize),
    keys: &[LaneMask],
) -> usize {
    keys.chunks(VECTOR).map(|keys| pass(level, flows, places, (read, max), keys)).sum()
}

/// The whole of the first lanes.
fn whole(lanes: usize) -> LaneMask {
    std::array::from_fn(|lane| if lane < lanes { u32::MAX } else { 0 })
}

fn random_key(random: &mut RepeatableRandom, bits: u32) -> LaneMask {
    std::array::from_fn(|_| random.word() as u32 >> (32 - bits))
}

#[test]
fn every_level_gives_what_was_found_before() {
    let mut random = RepeatableRandom::new(3);
    for level in SimdLevel::available() {
        for lanes in [1, 5, 7, 13, 20] {
            // Bits within lanes too: keys that differ elsewhere are one flow.
            let read: LaneMask = std::array::from_fn(|lane| if lane < lanes { 0x0fff_ff07 } else { 0 });
            for max in [0, 6, 11, 28, 96, 110] {
                let (mut flows, mut places) = (class(&read), FlowPlaces::new());
                let keys: Vec<LaneMask> = (0..600).map(|_| random_key(&mut random, 4)).collect();
                let mut seen: HashMap<LaneMask, usize> = HashMap::new();
                for len in [1, 3, 16, 100, 255, 256, 256, 256, 256] {
                    let vector: Vec<LaneMask> =
                        (0..len).map(|_| keys[random.word() as usize % keys.len()]).collect();
                    let masked: Vec<_> =
                        vector.iter().map(|key| crate::lane_mask::common(key, &read)).collect();
                    let hits = pass(level, &mut flows, &mut places, (&read, max), &vector);
                    let known = masked.iter().filter(|key| seen.contains_key(*key)).count();
                    assert!(hits <= known, "{hits} of {known}");
                    // All flows find places, but those with too many matches.
                    if max <= 96 {
                        assert_eq!(hits, known, "{lanes} lanes, {max} matches");
                    }
                    masked.into_iter().for_each(|key| *seen.entry(key).or_default() += 1);
                }
                places.clear();
                let hits = pass(level, &mut flows, &mut places, (&read, max), &keys[..1]);
                assert_eq!(hits, 0, "nothing is left after a change");
            }
        }
    }
}

/// Whoever sends headers that do not come back hardly displaces flows that have packets.
#[test]
fn flows_stay_under_a_flood_of_random_headers() {
    let mut random = RepeatableRandom::new(5);
    let read = whole(5);
    let (mut flows, mut places) = (class(&read), FlowPlaces::new());
    let level = SimdLevel::available()[0];
    let steady: Vec<LaneMask> = (0..20_000).map(|_| random_key(&mut random, 32)).collect();
    let mut hits = 0;
    for _ in 0..3 {
        hits = pass_all(level, &mut flows, &mut places, (&read, 6), &steady);
    }
    assert!(hits > steady.len() * 99 / 100, "{hits}");
    // Twenty times as many headers as there are places, a packet of each steady flow among a hundred of them.
    for part in steady.chunks(2) {
        let flood: Vec<LaneMask> = (0..VECTOR - 2).map(|_| random_key(&mut random, 32)).collect();
        pass(level, &mut flows, &mut places, (&read, 6), &[&flood[..], part].concat());
    }
    let left = pass_all(level, &mut flows, &mut places, (&read, 6), &steady);
    assert!(left > steady.len() * 9 / 10, "{left} of {} flows are left", steady.len());
}

/// More flows with very many matches than there are blocks for: those that have packets get one, whatever others come.
#[test]
fn blocks_go_from_flow_to_flow() {
    let mut random = RepeatableRandom::new(6);
    let read = whole(5);
    let (mut flows, mut places) = (class(&read), FlowPlaces::new());
    let level = SimdLevel::available()[0];
    for round in 0..3 {
        let steady: Vec<LaneMask> = (0..2_000).map(|_| random_key(&mut random, 32)).collect();
        let mut hits = 0;
        // Four times as many headers that do not come back as there are blocks, and a vector of them before each packet of a steady flow.
        for _ in 0..250 {
            let flood: Vec<LaneMask> = (0..VECTOR).map(|_| random_key(&mut random, 32)).collect();
            pass(level, &mut flows, &mut places, (&read, 96), &flood);
            hits = pass_all(level, &mut flows, &mut places, (&read, 96), &steady);
        }
        assert!(hits > steady.len() * 9 / 10, "round {round}: {hits} of {} flows", steady.len());
        if round == 1 {
            places.clear();
        }
    }
}

/// Keys with one hash, which an attacker does not know how to make, displace each other and nothing breaks.
#[test]
fn keys_that_collide_are_told_apart() {
    let read = whole(2);
    let (mut flows, mut places) = (class(&read), FlowPlaces::new());
    let level = SimdLevel::available()[0];
    // With these seeds the product of the first pair of lanes is always 0.
    flows.seeds = Seeds { terms: [0; Seeds::TERMS], fold: [1, 1] };
    let keys: Vec<LaneMask> =
        (0..200).map(|n| std::array::from_fn(|lane| if lane == 1 { n } else { 0 })).collect();
    for _ in 0..20 {
        let hits = pass(level, &mut flows, &mut places, (&read, 6), &keys);
        assert!(hits <= 7, "a set has seven places: {hits}");
    }
    // What keys matched under another policy is not found when other keys have come to their set.
    places.clear();
    for (number, key) in keys[..7].iter().enumerate() {
        assert_eq!(pass(level, &mut flows, &mut places, (&read, 5), &[*key]), 0, "key {number}");
    }
}
