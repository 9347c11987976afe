//! SIMD levels: code that is compiled once for each, and run as the best one that the processor has.
//!
//! A kernel is plain code that the compiler vectorizes with the instructions of its level. All levels give the same results. On other
//! architectures than x86-64 there is one level.

use std::sync::OnceLock;

/// A set of SIMD instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimdLevel {
    /// The instructions that every processor of the architecture has.
    Scalar,
    /// AVX2: 8 lanes.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL: 16 lanes.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// A bit for each lane that has a value, with the instructions that every processor of the architecture has.
#[inline(always)]
pub fn equal_lanes(lanes: &[u16; 12], value: u16) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of the architecture, and the loads read the first 16 and the last 8 of the array's 24 bytes.
    unsafe {
        use std::arch::x86_64::{
            _mm_cmpeq_epi16, _mm_loadl_epi64, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16,
            _mm_set1_epi16,
        };
        let value = _mm_set1_epi16(value as i16);
        let first = _mm_cmpeq_epi16(_mm_loadu_si128(lanes.as_ptr().cast()), value);
        let last = _mm_cmpeq_epi16(_mm_loadl_epi64(lanes.as_ptr().add(8).cast()), value);
        // The upper half of the second load is zero.
        _mm_movemask_epi8(_mm_packs_epi16(first, last)) as u32 & 0xfff
    }
    #[cfg(not(target_arch = "x86_64"))]
    lanes.iter().rev().fold(0, |mask, lane| mask << 1 | u32::from(*lane == value))
}

/// Plain code that is compiled for each level. Functions that `run` calls must be inlined into it.
pub trait Kernel {
    /// Does the work.
    fn run(self);
}

impl SimdLevel {
    /// The best level of this processor, or a lower one if the environment variable `MMB_SIMD` asks for it (`scalar`, `avx2`).
    pub fn detect() -> SimdLevel {
        static LEVEL: OnceLock<SimdLevel> = OnceLock::new();
        *LEVEL.get_or_init(|| {
            let max = match std::env::var("MMB_SIMD").as_deref() {
                Ok("scalar") => Some(SimdLevel::Scalar),
                #[cfg(target_arch = "x86_64")]
                Ok("avx2") => Some(SimdLevel::Avx2),
                _ => None,
            };
            let best = SimdLevel::available().last().copied().unwrap_or(SimdLevel::Scalar);
            max.map_or(best, |max| max.min(best))
        })
    }

    /// All levels of this processor, the slowest first.
    pub fn available() -> Vec<SimdLevel> {
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
    pub fn name(self) -> &'static str {
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
    pub fn run(self, kernel: impl Kernel) {
        match self {
            SimdLevel::Scalar => kernel.run(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this level exists only where `available` found AVX2, BMI1, BMI2 and POPCNT.
            SimdLevel::Avx2 => unsafe { run_avx2(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this level exists only where `available` found those and AVX-512 F, BW, DQ and VL.
            SimdLevel::Avx512 => unsafe { run_avx512(kernel) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn run_avx2(kernel: impl Kernel) {
    kernel.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,popcnt")]
fn run_avx512(kernel: impl Kernel) {
    kernel.run();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_equal_lane_has_its_bit() {
        let lanes = [7, 0, 7, 0xffff, 1, 0x0700, 7, 0x8000, 7, 9, 0, 0x8000];
        for value in [7, 0, 0xffff, 0x8000, 9, 2] {
            let wanted = (0..12).filter(|lane| lanes[*lane] == value).fold(0, |mask, lane| mask | 1 << lane);
            assert_eq!(equal_lanes(&lanes, value), wanted, "{value:#x}");
        }
    }
}
