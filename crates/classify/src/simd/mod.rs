//! Hashing and comparing a vector's keys eight or sixteen at a time.
//!
//! Every kernel is one plain function ([`scalar`]) that is also compiled for AVX2 and AVX-512, where it does the same
//! with wider registers, or written in those instructions by hand where the compiler does not find them. Which one runs is
//! chosen once, when the process starts to classify, by what the processor has. All of them give the same result for every
//! input, which the tests here hold them to. On other architectures than x86-64 the plain functions run.
//!
//! The only unsafe code of this crate: calls of functions that need instructions whose presence [`SimdLevel::detect`] has
//! checked.

mod hashes;
mod scalar;
mod terms;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use hashes::{Hashes, Seeds};
pub(crate) use terms::{Bits, Equal, Term};

use crate::VECTOR;
use mmb_base::simd::SimdLevel;
use mmb_packet::columns::Column;

impl Hashes {
    /// Hashes the first `len` keys: the terms of each, masked, under the seeds. What lies behind them is left or
    /// overwritten with anything. As part of a [`Kernel`](mmb_base::simd::Kernel) it is compiled for each level.
    #[inline(always)]
    pub(crate) fn fill(&mut self, lanes: &[Column], len: usize, terms: &[Term], seeds: &Seeds) {
        scalar::hash(lanes, len, terms, seeds, self);
    }
}

/// The hash of one key's terms, given as masked lanes, and its marks.
pub(crate) fn hash_one(seeds: &Seeds, masked: impl Iterator<Item = u32>) -> (u32, u32) {
    scalar::hash_one(seeds, masked)
}

/// The keys among the first `len` of which all terms are equal.
#[inline]
pub(crate) fn equal(level: SimdLevel, lanes: &[Column], len: usize, terms: &[Equal]) -> Bits {
    let mut bits = match level {
        SimdLevel::Scalar => scalar::equal(lanes, len, terms),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this level exists only where `available` found AVX2.
        SimdLevel::Avx2 => unsafe { x86::equal_avx2(lanes, len, terms) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this level exists only where `available` found AVX-512 F, BW, DQ and VL.
        SimdLevel::Avx512 => unsafe { x86::equal_avx512(lanes, len, terms) },
    };
    if len < VECTOR {
        bits[len / 64] &= (1 << (len % 64)) - 1;
        bits[len / 64 + 1..].fill(0);
    }
    bits
}

/// A bit for each lane that is negative.
#[inline(always)]
pub(crate) fn negative_lanes(lanes: &[i32; 8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    return x86::negative_lanes(lanes);
    #[cfg(not(target_arch = "x86_64"))]
    scalar::negative_lanes(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_base::simd::Kernel;
    use mmb_random::RepeatableRandom;

    fn columns(state: &mut RepeatableRandom, bits: u32) -> Vec<Column> {
        (0..20).map(|_| std::array::from_fn(|_| state.word() as u32 >> (32 - bits))).collect()
    }

    struct Fill<'a> {
        out: &'a mut Hashes,
        lanes: &'a [Column],
        len: usize,
        terms: &'a [Term],
        seeds: &'a Seeds,
    }

    impl Kernel for Fill<'_> {
        #[inline(always)]
        fn run(self) {
            self.out.fill(self.lanes, self.len, self.terms, self.seeds);
        }
    }

    #[test]
    fn every_level_hashes_like_one_key_alone() {
        let mut state = RepeatableRandom::new(1);
        let lanes = columns(&mut state, 32);
        for terms in 0..=20 {
            let terms: Vec<Term> = (0..terms)
                .map(|lane| Term { lane: (lane * 7 % 20) as u8, mask: state.word() as u32 })
                .collect();
            let seeds = Seeds::draw(|| state.word());
            for level in SimdLevel::available() {
                for len in [1, 7, 8, 16, 33, 255, 256] {
                    let mut out = Hashes::default();
                    level.run(Fill { out: &mut out, lanes: &lanes, len, terms: &terms, seeds: &seeds });
                    let found = out.hashes.iter().zip(&out.marks[..]).take(len);
                    for (key, (&hash, &marks)) in found.enumerate() {
                        let masked = terms.iter().map(|term| lanes[usize::from(term.lane)][key] & term.mask);
                        assert_eq!((hash, marks), hash_one(&seeds, masked), "{} {len}", level.name());
                        assert!((1..=3).contains(&marks.count_ones()));
                    }
                }
            }
        }
    }

    #[test]
    fn hashes_are_even_over_every_byte() {
        // Numbers that follow each other, as addresses do, in one lane and in more.
        for terms in 1..=5 {
            for draw in 0..20 {
                let mut state = RepeatableRandom::new(draw);
                let seeds = Seeds::draw(|| state.word());
                let key = |n: u32| (0..terms).map(move |term| if term == 0 { n.to_be() } else { n % 64 });
                for shift in [0, 4, 8, 12, 16, 20, 24] {
                    let mut counts = [0i32; 256];
                    (0..25_600).for_each(|n| {
                        let (hash, _) = hash_one(&seeds, key(n));
                        counts[(hash >> shift & 0xff) as usize] += 1;
                    });
                    // A hundred times a chi-squared of 255 degrees of freedom: 255 on average, its deviation 23.
                    let squares: i32 = counts.iter().map(|count| (count - 100).pow(2)).sum();
                    assert!(squares < 100 * 400, "{terms} terms, draw {draw}, bit {shift}: {squares}");
                }
            }
        }
    }

    #[test]
    fn negative_lanes_have_their_bits() {
        let mut state = RepeatableRandom::new(3);
        for _ in 0..1000 {
            let lanes: [i32; 8] = std::array::from_fn(|_| match state.word() % 3 {
                0 => -1,
                1 => 0,
                _ => state.word() as i32,
            });
            assert_eq!(negative_lanes(&lanes), scalar::negative_lanes(&lanes), "{lanes:?}");
        }
    }

    #[test]
    fn every_level_compares_like_a_loop() {
        let mut state = RepeatableRandom::new(2);
        // Few bits, so that keys are often equal.
        let lanes = columns(&mut state, 2);
        for terms in 0..=4 {
            let terms: Vec<Equal> = (0..terms)
                .map(|lane| {
                    let mask = 1 + state.word() as u32 % 3;
                    Equal { lane, mask, value: state.word() as u32 & mask }
                })
                .collect();
            for level in SimdLevel::available() {
                for len in [0, 1, 8, 63, 64, 65, 200, 256] {
                    let bits = equal(level, &lanes, len, &terms);
                    for key in 0..VECTOR {
                        let same = |t: &Equal| lanes[usize::from(t.lane)][key] & t.mask == t.value;
                        let expected = key < len && terms.iter().all(same);
                        assert_eq!(bits[key / 64] >> (key % 64) & 1 == 1, expected, "{} {key}", level.name());
                    }
                }
            }
        }
    }
}
