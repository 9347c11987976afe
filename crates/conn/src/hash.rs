//! The keyed hash of tuples.
//!
//! Who sends packets chooses tuples, and must not be able to choose their places in the index. NH (Black et al., UMAC,
//! CRYPTO 1999) makes two different tuples meet with a chance of 2^-64 over the choice of its keys, whatever the tuples are;
//! what it yields is folded to 64 bits under two more keys.

use crate::Tuple;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A hash under keys that are made from one secret seed.
#[derive(Clone, Copy, Debug)]
pub struct Hasher {
    keys: [u64; 7],
}

impl Hasher {
    /// Whoever knows `seed` can tell all hashes.
    pub fn new(seed: u64) -> Hasher {
        let mut keys = SplitMix64::seed_from_u64(seed);
        Hasher { keys: std::array::from_fn(|_| keys.next_u64()) }
    }

    /// All tuples of IPv4 have one hash, as an adversary would like it.
    #[cfg(test)]
    pub(crate) fn weak() -> Hasher {
        Hasher { keys: [0; 7] }
    }

    /// The hash of a tuple, all bits of it alike.
    #[inline]
    pub fn hash(&self, tuple: &Tuple) -> u64 {
        let [from, to] = tuple.addresses;
        let keys = &self.keys;
        let product = |address: u128, at: usize| {
            let [high, low] = [(address >> 64) as u64, address as u64];
            u128::from(high.wrapping_add(keys[at])) * u128::from(low.wrapping_add(keys[at + 1]))
        };
        let rest = u128::from(packed_rest(tuple)) << 32 | u128::from(packed_ports(tuple));
        let sum = product(from, 0).wrapping_add(product(to, 2)).wrapping_add(rest * u128::from(keys[4]));
        let folded = u128::from(sum as u64 ^ keys[5]) * u128::from((sum >> 64) as u64 ^ keys[6]);
        (folded as u64) ^ (folded >> 64) as u64
    }
}

/// Both ports as one number. They lie so in a tuple, next to what [`packed_rest`] tells, so that one load does.
#[inline]
pub(crate) fn packed_ports(tuple: &Tuple) -> u32 {
    u32::from(tuple.ports[0]) | u32::from(tuple.ports[1]) << 16
}

/// Wire, protocol and family as one number.
#[inline]
pub(crate) fn packed_rest(tuple: &Tuple) -> u32 {
    u32::from(tuple.wire) | u32::from(tuple.proto) << 16 | u32::from(tuple.family) << 24
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn tuple(number: u32) -> Tuple {
        Tuple {
            addresses: [u128::from(0x0a00_0000 + (number >> 4)), 0x0102_0304],
            ports: [1024 + (number & 15) as u16, 443],
            wire: 0,
            proto: 6,
            family: 4,
        }
    }

    #[test]
    fn neighbours_spread_over_every_part_of_a_hash() {
        let hasher = Hasher::new(1);
        for shift in [0, 12, 28, 54] {
            let mut seen = [0u32; 1024];
            (0..102_400).for_each(|number| seen[(hasher.hash(&tuple(number)) >> shift & 1023) as usize] += 1);
            // A hundred each, ten of deviation.
            assert!(seen.iter().all(|times| (45..170).contains(times)), "bits from {shift}: {seen:?}");
        }
    }

    #[test]
    fn every_field_and_every_seed_counts() {
        let base = tuple(1);
        let others = [
            base,
            base.reversed(),
            Tuple { addresses: [base.addresses[0] + 1, base.addresses[1]], ..base },
            Tuple { addresses: [base.addresses[0] | 1 << 100, base.addresses[1]], ..base },
            Tuple { ports: [1, 443], ..base },
            Tuple { ports: [base.ports[0], 444], ..base },
            Tuple { wire: 2, ..base },
            Tuple { proto: 17, ..base },
            Tuple { family: 6, ..base },
        ];
        let hashes: HashSet<u64> = others.iter().map(|tuple| Hasher::new(1).hash(tuple)).collect();
        assert_eq!(hashes.len(), others.len());
        assert_ne!(Hasher::new(1).hash(&base), Hasher::new(2).hash(&base));
    }
}
