//! The SIMD room: hashing and comparing a vector's keys eight or sixteen at a time, and fetching memory ahead.
//!
//! Every kernel is one plain function ([`scalar`]) that is also compiled for AVX2 and AVX-512, where it does the same
//! with wider registers, or written in those instructions by hand where the compiler does not find them. Which one runs is
//! chosen once, when the process starts to classify, by what the processor has. All of them give the same result for every
//! input, which the tests here hold them to. On other architectures than x86-64 the plain functions run.
//!
//! The only unsafe code of this crate: calls of functions that need instructions whose presence [`SimdLevel::detect`] has
//! checked, and prefetches, which touch nothing.

mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::VECTOR;
use crate::keys::Column;
use std::sync::OnceLock;

/// What the processor can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SimdLevel {
    /// What every processor of the architecture has.
    Scalar,
    /// AVX2: 8 lanes.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL: 16 lanes.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// A lane and the bits of it that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) lane: u8,
    pub(crate) mask: u32,
}

/// A lane, the bits of it that count, and what they are to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Equal {
    pub(crate) lane: u8,
    pub(crate) mask: u32,
    pub(crate) value: u32,
}

/// The random words of a keyed hash: one a term, and those that the sum is folded with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seeds {
    pub(crate) terms: [u32; Seeds::TERMS],
    /// Odd.
    pub(crate) fold: [u32; 2],
}

impl Seeds {
    /// As many as the longer key has lanes.
    pub(crate) const TERMS: usize = 20;

    /// Seeds from a generator of random numbers.
    pub(crate) fn draw(mut random: impl FnMut() -> u64) -> Seeds {
        Seeds {
            terms: std::array::from_fn(|_| random() as u32),
            fold: std::array::from_fn(|_| random() as u32 | 1),
        }
    }
}

/// Hashes of a vector's keys: where to look, and which bits of the filter to look for.
#[derive(Clone, Debug)]
pub(crate) struct Hashes {
    pub(crate) hashes: Box<[u32; VECTOR]>,
    pub(crate) marks: Box<[u32; VECTOR]>,
}

impl Default for Hashes {
    fn default() -> Self {
        Hashes { hashes: Box::new([0; VECTOR]), marks: Box::new([0; VECTOR]) }
    }
}

impl Hashes {
    /// Hashes the first `len` keys: the terms of each, masked, under the seeds. What lies behind them is left or
    /// overwritten with anything. As part of a [`Kernel`] it is compiled for each level.
    #[inline(always)]
    pub(crate) fn fill(&mut self, lanes: &[Column], len: usize, terms: &[Term], seeds: &Seeds) {
        scalar::hash(lanes, len, terms, seeds, self);
    }
}

/// Plain code that is compiled for each level. What `run` calls is to be inlined into it.
pub(crate) trait Kernel {
    /// Does the work.
    fn run(self);
}

/// A bit for each key of a vector.
pub(crate) type Bits = [u64; VECTOR / 64];

/// The hash of one key's terms, given as masked lanes, and its marks.
pub(crate) fn hash_one(seeds: &Seeds, masked: impl Iterator<Item = u32>) -> (u32, u32) {
    scalar::hash_one(seeds, masked)
}

impl SimdLevel {
    /// What this processor can do, or less if the environment variable `MMB_SIMD` asks for it (`scalar`, `avx2`).
    pub(crate) fn detect() -> SimdLevel {
        static LEVEL: OnceLock<SimdLevel> = OnceLock::new();
        *LEVEL.get_or_init(|| {
            let most = match std::env::var("MMB_SIMD").as_deref() {
                Ok("scalar") => Some(SimdLevel::Scalar),
                #[cfg(target_arch = "x86_64")]
                Ok("avx2") => Some(SimdLevel::Avx2),
                _ => None,
            };
            let best = SimdLevel::available().last().copied().unwrap_or(SimdLevel::Scalar);
            most.map_or(best, |most| most.min(best))
        })
    }

    /// Everything that this processor can do, the slowest first.
    pub(crate) fn available() -> Vec<SimdLevel> {
        [vec![SimdLevel::Scalar], SimdLevel::wider()].concat()
    }

    #[cfg(target_arch = "x86_64")]
    fn wider() -> Vec<SimdLevel> {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match (avx2, avx512) {
            (true, true) => vec![SimdLevel::Avx2, SimdLevel::Avx512],
            (true, false) => vec![SimdLevel::Avx2],
            (false, _) => Vec::new(),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn wider() -> Vec<SimdLevel> {
        Vec::new()
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SimdLevel::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => "avx512",
        }
    }

    /// Runs a kernel as it is compiled for this level.
    #[inline]
    pub(crate) fn run(self, kernel: impl Kernel) {
        match self {
            SimdLevel::Scalar => kernel.run(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this level exists only where `available` found AVX2, BMI1, BMI2 and POPCNT.
            SimdLevel::Avx2 => unsafe { x86::run_avx2(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this level exists only where `available` found those and AVX-512 F, BW, DQ and VL.
            SimdLevel::Avx512 => unsafe { x86::run_avx512(kernel) },
        }
    }

    /// The keys among the first `len` of which all terms are equal.
    #[inline]
    pub(crate) fn equal(self, lanes: &[Column], len: usize, terms: &[Equal]) -> Bits {
        let mut bits = match self {
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
}

/// Asks for the cache line of a value that is about to be read.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of the architecture; a prefetch reads nothing that the program could see.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
            std::ptr::from_ref(value).cast(),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (*state ^ *state >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn columns(state: &mut u64, bits: u32) -> Vec<Column> {
        (0..20).map(|_| std::array::from_fn(|_| random(state) as u32 >> (32 - bits))).collect()
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
        let mut state = 1;
        let lanes = columns(&mut state, 32);
        for terms in 0..=20 {
            let terms: Vec<Term> = (0..terms)
                .map(|lane| Term { lane: (lane * 7 % 20) as u8, mask: random(&mut state) as u32 })
                .collect();
            let seeds = Seeds::draw(|| random(&mut state));
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
                let mut state = draw;
                let seeds = Seeds::draw(|| random(&mut state));
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
    fn every_level_compares_like_a_loop() {
        let mut state = 2;
        // Few bits, so that keys are often equal.
        let lanes = columns(&mut state, 2);
        for terms in 0..=4 {
            let terms: Vec<Equal> = (0..terms)
                .map(|lane| {
                    let mask = 1 + random(&mut state) as u32 % 3;
                    Equal { lane, mask, value: random(&mut state) as u32 & mask }
                })
                .collect();
            for level in SimdLevel::available() {
                for len in [0, 1, 8, 63, 64, 65, 200, 256] {
                    let bits = level.equal(&lanes, len, &terms);
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
