//! Masks that tables could have, made from the tuples' own: addresses cut to a ladder of prefix lengths, ports left out or
//! kept, and of the other lanes all, one or none.

use super::MergedTuple;
use crate::lane_fields::{PORTS, addresses};
use crate::lane_mask::{LaneMask, bits, common, union, within};
use mmb_packet::Class;
use std::collections::HashSet;
use std::ops::Range;

/// Tuples whose masks make candidates, at most.
const SOURCES: usize = 384;
/// Candidates, at most.
const CANDIDATES: usize = 4096;

/// Masks that tables could have.
pub(super) fn candidates(class: Class, tuples: &[MergedTuple]) -> Vec<LaneMask> {
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
    let ladder: &[u32] = if class == Class::Ip6 { &[16, 32, 48, 64] } else { &[8, 16, 24] };
    let none = LaneMask::default();
    let mut rest = *mask;
    let mut take = |lanes: Range<usize>| {
        let mut own = none;
        own[lanes.clone()].copy_from_slice(&mask[lanes.clone()]);
        rest[lanes].fill(0);
        own
    };
    let mut parts = Vec::new();
    for lanes in addresses(class) {
        let own = take(lanes.clone());
        let cut = |&length: &u32| common(&own, &prefix(lanes.clone(), length));
        parts.push(distinct(ladder.iter().map(cut).chain([none, own])));
    }
    let own = take(PORTS..PORTS + 1);
    let half = |half: u32| {
        let mut part = own;
        part[PORTS] &= half.to_be();
        part
    };
    parts.push(distinct([none, half(0xffff), half(0xffff_0000), own]));
    let single = |lane: usize| {
        let mut single = none;
        single[lane] = rest[lane];
        single
    };
    parts.push(distinct((0..rest.len()).map(single).chain([none, rest])));
    parts
}

/// The first bits of an address.
fn prefix(lanes: Range<usize>, length: u32) -> LaneMask {
    let mut mask = LaneMask::default();
    for (index, lane) in (0..).zip(&mut mask[lanes]) {
        let here = length.saturating_sub(index * 32).min(32);
        *lane = u32::MAX.checked_shl(32 - here).unwrap_or(0).to_be();
    }
    mask
}

fn distinct(masks: impl IntoIterator<Item = LaneMask>) -> Vec<LaneMask> {
    let mut masks: Vec<LaneMask> = masks.into_iter().collect();
    masks.sort_unstable();
    masks.dedup();
    masks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_may_reach_into_the_next_lane() {
        let mask = prefix(12..16, 48);
        assert_eq!((mask[12], mask[13], mask[14]), (u32::MAX, 0xffff_0000_u32.to_be(), 0));
        assert_eq!(prefix(13..14, 8)[13], 0xff00_0000_u32.to_be());
    }

    #[test]
    fn a_five_tuple_makes_every_combination_of_its_parts() {
        let mut mask = LaneMask::default();
        (mask[0], mask[PORTS], mask[13], mask[14]) = (0xff, u32::MAX, u32::MAX, u32::MAX);
        let tuple = MergedTuple { mask, entries: 1, sample: Vec::new() };
        let found = candidates(Class::Ip4, &[tuple]);
        // Four prefixes or none of both addresses, ports, protocol; but not nothing at all.
        assert_eq!(found.len(), 5 * 5 * 4 * 2 - 1);
        assert!(found.contains(&mask) && found.iter().all(|candidate| within(candidate, &mask)));
    }
}
