//! Lookup tables for consistent hashing (Eisenbud et al., Maglev, NSDI 2016, section 3.4).

use super::random::scale;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The number of entries of a table, a prime, and the most servers it is used for: each server's share is then equal within one per cent,
/// since the entries of any two servers differ by at most one.
const SIZES: [(u64, u64); 2] = [(65_537, 655), (655_373, 6_553)];

/// A table over the values of a set. Sets that are too large have an empty one, and are looked up by probing.
#[derive(Debug)]
pub(super) struct Maglev(pub(super) Box<[u16]>);

impl Maglev {
    /// The table over `values` values, of which `nth` returns each with its weight.
    pub(super) fn new(values: u64, nth: impl Fn(u64) -> (u128, u8)) -> Maglev {
        let size = SIZES.iter().find(|(_, most)| (1..=*most).contains(&values)).map_or(0, |(size, _)| *size);
        Maglev(if size == 0 { Box::default() } else { fill(size, values, nth) })
    }

    /// The index of the value that a hash selects, unless the table is empty.
    pub(super) fn find(&self, hash: u64) -> Option<u64> {
        self.0.get(scale(hash, self.0.len() as u64) as usize).map(|index| u64::from(*index))
    }
}

/// Fills a table: values take entries in turns, each in a permutation of its own, and as many in a turn as its weight says (section 3.4).
fn fill(size: u64, values: u64, nth: impl Fn(u64) -> (u128, u8)) -> Box<[u16]> {
    const FREE: u16 = u16::MAX;
    let mut orders: Vec<(u64, u64, u8)> = (0..values)
        .map(|index| {
            let (value, weight) = nth(index);
            let folded = mix(value as u64 ^ mix((value >> 64) as u64));
            (scale(folded, size), 1 + scale(mix(folded), size - 1), weight)
        })
        .collect();
    if orders.iter().all(|(.., weight)| *weight == 0) {
        return Box::default();
    }
    let mut table = vec![FREE; size as usize].into_boxed_slice();
    let mut left = size;
    while left > 0 {
        for (index, (next, skip, weight)) in orders.iter_mut().enumerate() {
            for _ in 0..u64::from(*weight).min(left) {
                while table[*next as usize] != FREE {
                    // Both are below `size`: a division for each step would take most of the time.
                    *next += *skip;
                    if *next >= size {
                        *next -= size;
                    }
                }
                table[*next as usize] = index as u16;
                left -= 1;
            }
        }
    }
    table
}

/// Mixes the bits of a number. It has no key: only the hash with which a table is looked up is secret.
pub(super) fn mix(number: u64) -> u64 {
    SplitMix64::seed_from_u64(number).next_u64()
}
