//! The keyed hash of tuples.
//!
//! Senders choose the tuples of packets, and must not be able to choose their positions in the index.
//!
//! An IPv4 tuple is hashed with pair-multiply-shift (Thorup, High Speed Hashing for Integers and Strings,
//! arXiv:1504.06804). Each 32-bit word is added to a separate 64-bit key, and the sums are multiplied in
//! pairs. The products are added modulo 2^64, and the upper half of the result is used. Two different tuples,
//! whatever they are, collide with probability 2^-32 over the choice of the keys. The two halves of a hash
//! are two such sums under independent keys. The sums of a vector of packets are computed side by side. The
//! part that all packets of a port have in common is computed once.
//!
//! Longer records are hashed with NH (Black et al., UMAC, CRYPTO 1999) over 64-bit words, with collision
//! probability 2^-64. The result is folded to 64 bits under two more keys.
//!
//! These bounds apply only while hashes stay secret: a few of them reveal the keys. A choice that is visible
//! from outside (an address, a server, a worker) uses a [`Prf`](mmb_random::Prf) with another seed.

use crate::ends::Ends;
use crate::{Tuple, Wire};
use mmb_base::VECTOR;
use mmb_packet::columns::Column;
use mmb_random::{Generator, Seed};

/// A hash function whose keys derive from one secret seed. Its hashes must stay secret.
#[derive(Clone, Copy)]
pub struct TupleHasher {
    keys: [u64; 8],
    /// The keys of both sums.
    sum_keys: [[u64; 6]; 2],
    #[cfg(test)]
    is_weak: bool,
}

/// Two sums of products, either complete or partial. Partial sums are added to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HashSums(pub(crate) [u64; 2]);

impl HashSums {
    /// Adds another part to these sums.
    #[inline(always)]
    pub(crate) fn plus(self, other: HashSums) -> HashSums {
        let HashSums([first, second]) = other;
        HashSums([self.0[0].wrapping_add(first), self.0[1].wrapping_add(second)])
    }
}

impl TupleHasher {
    /// Derives the keys from a seed, which must have no other use.
    pub fn new(seed: Seed) -> TupleHasher {
        let mut keys = Generator::new(seed);
        let mut words = || keys.word();
        TupleHasher {
            keys: std::array::from_fn(|_| words()),
            sum_keys: std::array::from_fn(|_| std::array::from_fn(|_| words())),
            #[cfg(test)]
            is_weak: false,
        }
    }

    /// A hasher under which all IPv4 tuples collide, as in an attack.
    #[cfg(test)]
    pub(crate) fn weak() -> TupleHasher {
        TupleHasher { keys: [0; 8], sum_keys: [[0; 6]; 2], is_weak: true }
    }

    /// The hash of a tuple; all of its bits are equally good.
    #[inline]
    pub fn hash(&self, tuple: &Tuple) -> u64 {
        if tuple.family == 4 {
            let flow = self.flow_sums(Ends::from_tuple(tuple), tuple.proto);
            return self.hash_of(flow.plus(self.ingress_sums(tuple)));
        }
        let keys = &self.keys;
        let product = |[high, low]: [u64; 2], index: usize| {
            u128::from(high.wrapping_add(keys[index])) * u128::from(low.wrapping_add(keys[index + 1]))
        };
        let [from, to] = tuple.addresses.map(halves);
        let [first, second] = others(tuple);
        let rest = [first | u64::from(Ends::from_tuple(tuple).ports), second];
        self.folded(product(from, 0).wrapping_add(product(to, 2)).wrapping_add(product(rest, 4)))
    }

    /// The partial sums of an IPv4 tuple over its ends and its protocol.
    #[inline(always)]
    fn flow_sums(&self, ends: Ends, proto: u8) -> HashSums {
        let addresses = [ends.addresses as u32, (ends.addresses >> 32) as u32];
        HashSums(self.sum_keys.map(|keys| flow_sum(&keys, addresses, ends.ports, proto.into())))
    }

    /// The partial sums of an IPv4 tuple over its wire and its side.
    pub(crate) fn ingress_sums(&self, tuple: &Tuple) -> HashSums {
        let Tuple { wire: Wire { port, vlans }, side, .. } = *tuple;
        let [first, second] =
            [u64::from(port) | u64::from(vlans.outer) << 16, u64::from(vlans.inner) | (side as u64) << 16];
        HashSums(self.sum_keys.map(|[.., a, b]| a.wrapping_add(first).wrapping_mul(b.wrapping_add(second))))
    }

    /// [`TupleHasher::flow_sums`] of the first `count` packets of a vector, whose protocols are in `protos`.
    #[inline(always)]
    pub(crate) fn sum_flows(
        &self,
        [from, to]: [&Column; 2],
        ports: &Column,
        protos: &Column,
        count: usize,
        sums: &mut [[u64; VECTOR]; 2],
    ) {
        for (keys, sums) in self.sum_keys.iter().zip(sums) {
            let ends = from[..count].iter().zip(&to[..count]);
            let rest = ports[..count].iter().zip(&protos[..count]);
            for (sum, ((&from, &to), (&ports, &proto))) in sums[..count].iter_mut().zip(ends.zip(rest)) {
                *sum = flow_sum(keys, [from, to], ports, proto);
            }
        }
    }

    /// The hash of an IPv4 tuple from its complete sums; all of its bits are equally good.
    #[inline(always)]
    pub(crate) fn hash_of(&self, HashSums([first, second]): HashSums) -> u64 {
        #[cfg(test)]
        if self.is_weak {
            return 0;
        }
        first >> 32 | second & !u64::from(u32::MAX)
    }

    /// The hash of a record of four words, which must include the kind of the record.
    #[inline]
    pub fn hash_words(&self, [first, second, third, fourth]: [u64; 4]) -> u64 {
        let keys = &self.keys;
        let product = |high: u64, low: u64, index: usize| {
            u128::from(high.wrapping_add(keys[index])) * u128::from(low.wrapping_add(keys[index + 1]))
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

#[inline(always)]
fn flow_sum(keys: &[u64; 6], [from, to]: [u32; 2], ports: u32, proto: u32) -> u64 {
    let sum = |key: u64, word: u32| key.wrapping_add(u64::from(word));
    let addresses = sum(keys[0], from).wrapping_mul(sum(keys[1], to));
    addresses.wrapping_add(sum(keys[2], ports).wrapping_mul(sum(keys[3], proto)))
}

impl std::fmt::Debug for TupleHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hasher(..)")
    }
}

/// The upper and the lower half of an address.
#[inline]
fn halves(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

/// The fields of a tuple other than its ends, as two numbers. The lower 32 bits of the first one are free for
/// the ports.
#[inline]
fn others(tuple: &Tuple) -> [u64; 2] {
    let Tuple { wire: Wire { port, vlans }, side, proto, family, .. } = *tuple;
    let first = u64::from(port) << 32 | u64::from(vlans.outer) << 48;
    let second =
        u64::from(vlans.inner) | (side as u64) << 16 | u64::from(proto) << 24 | u64::from(family) << 32;
    [first, second]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Side, Vlans};
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
            // The mean is 100, and the standard deviation is 10.
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
