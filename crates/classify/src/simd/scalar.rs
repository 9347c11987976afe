//! The kernels in plain code.

use super::hashes::{Hashes, Seeds};
use super::terms::{Bits, Equal, Term};
use crate::VECTOR;
use mmb_packet::columns::Column;

/// Keys that are hashed side by side: the compiler makes them one or two registers.
pub(super) const BLOCK: usize = 16;

/// Hashes with NH (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, CRYPTO 1999): pairs of seeded words are multiplied and
/// summed up in 64 bits, so that two keys agree with a probability of at most 2^-32 whoever chose them; then the sum is
/// folded with two more seeds.
#[inline(always)]
pub(super) fn hash(lanes: &[Column], len: usize, terms: &[Term], seeds: &Seeds, out: &mut Hashes) {
    let blocks = out.hashes.as_chunks_mut::<BLOCK>().0.iter_mut().zip(out.marks.as_chunks_mut::<BLOCK>().0);
    for (block, (hashes, marks)) in blocks.enumerate().take(len.div_ceil(BLOCK)) {
        let word = |term: &Term, seed: u32| -> [u32; BLOCK] {
            let column = &lanes[usize::from(term.lane)].as_chunks::<BLOCK>().0[block];
            column.map(|lane| (lane & term.mask).wrapping_add(seed))
        };
        let mut sums = [0u64; BLOCK];
        let seeds_of = |pair: usize| (seeds.terms[2 * pair], seeds.terms[2 * pair + 1]);
        let (pairs, rest) = terms.as_chunks::<2>();
        for (index, [left, right]) in pairs.iter().enumerate().take(Seeds::TERMS / 2) {
            let (left, right) = (word(left, seeds_of(index).0), word(right, seeds_of(index).1));
            for i in 0..BLOCK {
                sums[i] = sums[i].wrapping_add(u64::from(left[i]) * u64::from(right[i]));
            }
        }
        if let [last] = rest {
            let (seed, factor) = seeds_of((pairs.len()).min(Seeds::TERMS / 2 - 1));
            let last = word(last, seed);
            for i in 0..BLOCK {
                sums[i] = sums[i].wrapping_add(u64::from(last[i]) * u64::from(factor));
            }
        }
        for i in 0..BLOCK {
            (hashes[i], marks[i]) = fold(sums[i], seeds.fold);
        }
    }
}

/// The hash and the marks of one key's masked terms.
pub(super) fn hash_one(seeds: &Seeds, mut masked: impl Iterator<Item = u32>) -> (u32, u32) {
    let mut sum = 0u64;
    let mut seed = seeds.terms.iter();
    while let (Some(word), Some(&a), Some(&b)) = (masked.next(), seed.next(), seed.next()) {
        let right = masked.next().map_or(b, |word| word.wrapping_add(b));
        sum = sum.wrapping_add(u64::from(word.wrapping_add(a)) * u64::from(right));
    }
    fold(sum, seeds.fold)
}

/// Both halves of the folded sum, since neither end of it alone is even, stirred once more, since keys that follow each
/// other would lie in rows, as the hash; of the sum's middle bits three bits of a filter word.
#[inline(always)]
fn fold(sum: u64, factors: [u32; 2]) -> (u32, u32) {
    let mixed = (sum & 0xffff_ffff)
        .wrapping_mul(u64::from(factors[0]))
        .wrapping_add((sum >> 32).wrapping_mul(u64::from(factors[1])));
    let middle = (mixed >> 12) as u32;
    let mark = |shift: u32| 1u32 << (middle >> shift & 31);
    let hash = (mixed >> 32) as u32 ^ mixed as u32;
    let hash = (hash ^ hash >> 15).wrapping_mul(0x9e37_79b1);
    (hash ^ hash >> 13, mark(0) | mark(5) | mark(10))
}

/// Compares 64 keys, a bit each.
#[inline(always)]
pub(super) fn equal(lanes: &[Column], len: usize, terms: &[Equal]) -> Bits {
    let mut bits = [0; VECTOR / 64];
    for (block, bits) in bits.iter_mut().enumerate().take(len.div_ceil(64)) {
        let mut differ = [0u32; 64];
        for term in terms {
            let column = &lanes[usize::from(term.lane)].as_chunks::<64>().0[block];
            for (differ, lane) in differ.iter_mut().zip(column) {
                *differ |= (lane & term.mask) ^ term.value;
            }
        }
        *bits = differ.iter().rev().fold(0, |bits, &differ| bits << 1 | u64::from(differ == 0));
    }
    bits
}

/// A bit for each lane that is negative.
#[cfg(any(test, not(target_arch = "x86_64")))]
pub(super) fn negative_lanes(lanes: &[i32; 8]) -> u32 {
    lanes.iter().rev().fold(0, |bits, &lane| bits << 1 | u32::from(lane < 0))
}
