//! The keyed hash of tuples.
//!
//! Senders choose the tuples of packets, and must not be able to choose their positions in the index. With NH (Black et al., UMAC, CRYPTO
//! 1999) two different tuples collide with probability 2^-64 over the choice of its keys, whatever the tuples are; its result is folded to
//! 64 bits under two more keys.
//!
//! This holds as long as hashes stay secret: a few of them reveal the keys. A choice that can be seen from outside (an address, a server, a
//! worker) uses a [`Prf`](mmb_random::Prf) with another seed.

use crate::record::Ends;
use crate::{Side, Tuple, Vlans, Wire};
use mmb_random::{Generator, Seed};

/// A hash under keys that derive from one secret seed. Its hashes must stay secret.
#[derive(Clone, Copy)]
pub struct TupleHasher {
    keys: [u64; 8],
}

impl TupleHasher {
    /// Derives the keys from a seed that is used for nothing else.
    pub fn new(seed: Seed) -> TupleHasher {
        let mut keys = Generator::new(seed);
        TupleHasher { keys: std::array::from_fn(|_| keys.word()) }
    }

    /// A hasher under which all IPv4 tuples collide, as in an attack.
    #[cfg(test)]
    pub(crate) fn weak() -> TupleHasher {
        TupleHasher { keys: [0; 8] }
    }

    /// The hash of a tuple; all of its bits are equally good.
    #[inline]
    pub fn hash(&self, tuple: &Tuple) -> u64 {
        if tuple.family == 4 {
            return self.hash_of(Ends::of(tuple), others(tuple));
        }
        let keys = &self.keys;
        let product = |[high, low]: [u64; 2], at: usize| {
            u128::from(high.wrapping_add(keys[at])) * u128::from(low.wrapping_add(keys[at + 1]))
        };
        let [from, to] = tuple.addresses.map(halves);
        let [first, second] = others(tuple);
        let rest = [first | u64::from(Ends::of(tuple).ports), second];
        self.folded(product(from, 0).wrapping_add(product(to, 2)).wrapping_add(product(rest, 4)))
    }

    /// The hash of the IPv4 tuple with these ends and these [`others`].
    #[inline(always)]
    pub(crate) fn hash_of(&self, ends: Ends, others: [u64; 2]) -> u64 {
        let keys = &self.keys;
        let address = |address: u32, at: usize| {
            u128::from(keys[at]) * u128::from(u64::from(address).wrapping_add(keys[at + 1]))
        };
        let first = (others[0] | u64::from(ends.ports)).wrapping_add(keys[4]);
        let sum = address(ends.addresses as u32, 0)
            .wrapping_add(address((ends.addresses >> 32) as u32, 2))
            .wrapping_add(u128::from(first) * u128::from(others[1].wrapping_add(keys[5])));
        self.folded(sum)
    }

    /// The hash of a record of four words, of which one tells its kind.
    #[inline]
    pub(crate) fn hash_words(&self, [first, second, third, fourth]: [u64; 4]) -> u64 {
        let keys = &self.keys;
        let product = |high: u64, low: u64, at: usize| {
            u128::from(high.wrapping_add(keys[at])) * u128::from(low.wrapping_add(keys[at + 1]))
        };
        self.folded(product(first, second, 0).wrapping_add(product(third, fourth, 2)))
    }

    #[inline(always)]
    fn folded(&self, sum: u128) -> u64 {
        let keys = &self.keys;
        let folded = u128::from(sum as u64 ^ keys[6]) * u128::from((sum >> 64) as u64 ^ keys[7]);
        (folded as u64) ^ (folded >> 64) as u64
    }
}

impl std::fmt::Debug for TupleHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hasher(..)")
    }
}

/// An address as two numbers.
#[inline]
fn halves(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

/// The fields of a tuple besides its ends as two numbers, with room for the ports.
#[inline]
pub(crate) fn others(tuple: &Tuple) -> [u64; 2] {
    let Tuple { wire: Wire { port, vlans }, side, proto, family, .. } = *tuple;
    let first = u64::from(port) << 32 | u64::from(vlans.outer) << 48;
    let second = u64::from(vlans.inner) | (side as u64) << 16 | u64::from(family) << 32;
    [first, with_proto(second, proto)]
}

/// The tuple with these [`others`], of protocol 0 and without ends, with a protocol.
pub(crate) fn tuple_of([first, second]: [u64; 2], proto: u8) -> Tuple {
    Tuple {
        wire: Wire {
            port: (first >> 32) as u16,
            vlans: Vlans { outer: (first >> 48) as u16, inner: second as u16 },
        },
        side: match (second >> 16) as u8 {
            0 => Side::Low,
            1 => Side::High,
            _ => Side::Any,
        },
        proto,
        family: (second >> 32) as u8,
        ..Tuple::default()
    }
}

/// The second of these numbers with a protocol, from that of protocol 0.
#[inline(always)]
pub(crate) fn with_proto(second: u64, proto: u8) -> u64 {
    second | u64::from(proto) << 24
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn tuple(number: u32) -> Tuple {
        Tuple {
            addresses: [u128::from(0x0a00_0000 + (number >> 4)), 0x0102_0304],
            ports: [1024 + (number & 15) as u16, 443],
            proto: 6,
            family: 4,
            ..Tuple::default()
        }
    }

    #[test]
    fn neighbours_spread_over_every_part_of_a_hash() {
        let hasher = TupleHasher::new(Seed::repeatable(1));
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
            Tuple { addresses: [base.addresses[0] | 1 << 100, base.addresses[1]], family: 6, ..base },
            Tuple { ports: [1, 443], ..base },
            Tuple { ports: [base.ports[0], 444], ..base },
            Tuple { wire: Wire { port: 2, ..base.wire }, ..base },
            Tuple { wire: Wire { vlans: Vlans { outer: 7, inner: 0 }, ..base.wire }, ..base },
            Tuple { wire: Wire { vlans: Vlans { outer: 0, inner: 7 }, ..base.wire }, ..base },
            Tuple { side: Side::High, ..base },
            Tuple { side: Side::Any, ..base },
            Tuple { proto: 17, ..base },
            Tuple { family: 6, ..base },
        ];
        let hashes: HashSet<u64> =
            others.iter().map(|tuple| TupleHasher::new(Seed::repeatable(1)).hash(tuple)).collect();
        assert_eq!(hashes.len(), others.len());
        assert_ne!(
            TupleHasher::new(Seed::repeatable(1)).hash(&base),
            TupleHasher::new(Seed::repeatable(2)).hash(&base)
        );
    }
}
