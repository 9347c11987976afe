//! The kernels for AVX2 and AVX-512.

use super::terms::{Bits, Equal};
use crate::VECTOR;
use mmb_packet::columns::Column;
use std::arch::x86_64::*;

/// Eight keys of a column.
#[inline]
#[target_feature(enable = "avx2")]
fn load8(keys: &[u32; 8]) -> __m256i {
    // SAFETY: the array is 32 bytes long, and the load asks for no alignment.
    unsafe { _mm256_loadu_si256(keys.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
pub(super) fn equal_avx2(lanes: &[Column], len: usize, terms: &[Equal]) -> Bits {
    let mut bits = [0; VECTOR / 64];
    for block in 0..len.div_ceil(8) {
        let mut differ = _mm256_setzero_si256();
        for term in terms {
            let keys = load8(&lanes[usize::from(term.lane)].as_chunks::<8>().0[block]);
            let masked = _mm256_and_si256(keys, _mm256_set1_epi32(term.mask as i32));
            differ = _mm256_or_si256(differ, _mm256_xor_si256(masked, _mm256_set1_epi32(term.value as i32)));
        }
        let same = _mm256_cmpeq_epi32(differ, _mm256_setzero_si256());
        let same = _mm256_movemask_ps(_mm256_castsi256_ps(same)) as u64;
        bits[block / 8] |= same << (block % 8 * 8);
    }
    bits
}

/// Sixteen keys of a column.
#[inline]
#[target_feature(enable = "avx512f")]
fn load16(keys: &[u32; 16]) -> __m512i {
    // SAFETY: the array is 64 bytes long, and the load asks for no alignment.
    unsafe { _mm512_loadu_si512(keys.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn equal_avx512(lanes: &[Column], len: usize, terms: &[Equal]) -> Bits {
    let mut bits = [0; VECTOR / 64];
    for block in 0..len.div_ceil(16) {
        let mut differ = _mm512_setzero_si512();
        for term in terms {
            let keys = load16(&lanes[usize::from(term.lane)].as_chunks::<16>().0[block]);
            let masked = _mm512_and_si512(keys, _mm512_set1_epi32(term.mask as i32));
            differ = _mm512_or_si512(differ, _mm512_xor_si512(masked, _mm512_set1_epi32(term.value as i32)));
        }
        let same = u64::from(_mm512_testn_epi32_mask(differ, differ));
        bits[block / 4] |= same << (block % 4 * 16);
    }
    bits
}

/// A bit for each lane that is negative, with the instructions that every processor of the architecture has: as part of a kernel it is
/// compiled with the instructions of its level.
#[inline(always)]
pub(super) fn negative_lanes(lanes: &[i32; 8]) -> u32 {
    // SAFETY: SSE2 is part of the architecture, and the loads read the two halves of the array's 32 bytes.
    unsafe {
        let low = _mm_loadu_si128(lanes.as_ptr().cast());
        let high = _mm_loadu_si128(lanes.as_ptr().add(4).cast());
        let words = _mm_packs_epi32(low, high);
        _mm_movemask_epi8(_mm_packs_epi16(words, _mm_setzero_si128())) as u32
    }
}
