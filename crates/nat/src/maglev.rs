//! Lookup tables for consistent hashing (Eisenbud et al., Maglev, NSDI 2016, section 3.4).

use crate::random::scale;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The number of entries of a table, a prime, and the largest number of servers for which it is used. Servers
/// of equal weight have almost the same number of entries, so that their shares are equal within one per
/// cent.
///
/// When one of n servers is added or removed, connections of other servers move too: a share that grows with
/// n²/entries. The sizes keep this share below 1/n for up to 1300 servers, so that at most 2/n of all
/// connections move.
const SIZES: [(u64, u64); 3] = [(65_537, 130), (655_373, 400), (6_553_577, 6_553)];

/// A table over the values of a set. A set that is too large has an empty table, and is looked up by probing.
#[derive(Debug)]
pub(super) struct Maglev(pub(super) Box<[u16]>);

impl Maglev {
    /// The table over these values. The values take entries in the cycle of `turns`, in which each has turns
    /// in proportion to its weight.
    pub(super) fn new(values: u64, nth: impl Fn(u64) -> u128, turns: (u64, impl Fn(u64) -> u64)) -> Maglev {
        match Maglev::size(values) {
            Some(size) if turns.0 > 0 => Maglev(fill(size, (0..values).map(nth), turns)),
            _ => Maglev(Box::default()),
        }
    }

    /// The number of entries of a table over this number of values. `None` if there are too many values, or
    /// none.
    fn size(values: u64) -> Option<u64> {
        SIZES.iter().find(|(_, max)| (1..=*max).contains(&values)).map(|(size, _)| *size)
    }

    /// The bytes of a table over this number of values.
    pub(super) fn bytes(values: u64) -> u64 {
        Maglev::size(values).unwrap_or_default() * size_of::<u16>() as u64
    }

    /// The index of the value that a hash selects, unless the table is empty.
    pub(super) fn find(&self, hash: u64) -> Option<u64> {
        self.0.get(scale(hash, self.0.len() as u64) as usize).map(|index| u64::from(*index))
    }
}

/// Fills a table: the values take turns, and each takes the next free entry in its permutation
/// (section 3.4). The permutation depends only on the value, not on its index.
fn fill(
    size: u64,
    values: impl Iterator<Item = u128>,
    (turns, at_turn): (u64, impl Fn(u64) -> u64),
) -> Box<[u16]> {
    let mut orders: Vec<(u64, u64)> = values
        .map(|value| {
            let folded = mix(value as u64 ^ mix((value >> 64) as u64));
            (scale(folded, size), 1 + scale(mix(folded), size - 1))
        })
        .collect();
    let mut table = vec![0; size as usize].into_boxed_slice();
    // The bits fit a processor's cache where a large table does not.
    let mut taken = vec![0_u64; size.div_ceil(64) as usize];
    for turn in (0..turns).cycle().take(size as usize) {
        let index = at_turn(turn);
        let (next, skip) = &mut orders[index as usize];
        while taken[(*next / 64) as usize] >> (*next % 64) & 1 == 1 {
            // Both numbers are below `size`, so a subtraction suffices. A division for each step would take
            // most of the time.
            *next += *skip;
            if *next >= size {
                *next -= size;
            }
        }
        taken[(*next / 64) as usize] |= 1 << (*next % 64);
        table[*next as usize] = index as u16;
    }
    table
}

/// Mixes the bits of a number. It has no key: only the hash with which a table is looked up is secret.
pub(super) fn mix(number: u64) -> u64 {
    SplitMix64::seed_from_u64(number).next_u64()
}
