//! Pairs of prefixes with realistic locality, over a number of pairs of prefix lengths.
//!
//! Half of the rules use two networks of an earlier rule, at another prefix length: rules nest.

use super::{RuleIter, prefix, rule};
use crate::allocation::Allocation;
use mmb_policy::FieldId;
use mmb_random::RepeatableRandom;
use std::collections::HashSet;

/// Prefix lengths of routes and of rules.
const LENGTHS: [u8; 17] = [12, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32];
/// Pairs with a smaller sum leave hardly any room for distinct rules.
const SHORTEST_PAIR: u8 = 40;
/// Pairs of addresses that later rules use again.
const REMEMBERED: usize = 65_536;
/// The number of draws after which a rule may be a repetition.
const MAX_DRAWS: usize = 64;

fn pairs() -> Vec<(u8, u8)> {
    let all =
        LENGTHS.iter().flat_map(|&source| LENGTHS.iter().map(move |&destination| (source, destination)));
    all.filter(|(source, destination)| source + destination >= SHORTEST_PAIR).collect()
}

/// The maximum number of tuples.
pub(crate) fn max_tuples() -> usize {
    pairs().len()
}

/// `size` rules, evenly over `tuples` pairs of lengths.
pub(crate) fn rules(
    allocation: Allocation,
    size: usize,
    tuples: usize,
    mut random: RepeatableRandom,
) -> RuleIter {
    let mut pairs = pairs();
    random.shuffle(&mut pairs);
    pairs.truncate(tuples);
    let mut seen = HashSet::new();
    let mut remembered: Vec<(u32, u32)> = Vec::new();
    let mut draw = move |(source_len, destination_len): (u8, u8)| {
        let mut key = (0, 0, 0, 0);
        for _ in 0..MAX_DRAWS {
            let again = !remembered.is_empty() && random.chance(0.5);
            let (source, destination) = if again {
                random.of(&remembered)
            } else {
                (allocation.address(&mut random), allocation.address(&mut random))
            };
            key = (
                masked(source, source_len),
                source_len,
                masked(destination, destination_len),
                destination_len,
            );
            if seen.insert(key) {
                if !again && remembered.len() < REMEMBERED {
                    remembered.push((source, destination));
                }
                break;
            }
        }
        let source = prefix(FieldId::IpSaddr, key.0.into(), source_len, 32);
        rule(source.into_iter().chain(prefix(FieldId::IpDaddr, key.2.into(), destination_len, 32)).collect())
    };
    Box::new((0..size).map(move |number| draw(pairs[number % pairs.len()])))
}

/// An address without its last bits; `len` is above 0.
fn masked(address: u32, len: u8) -> u32 {
    address & (u32::MAX << (32 - len))
}
