//! Bytes as numbers.

use crate::filter::{FOLD, MULTIPLIER};

/// The first 8 bytes, the first one lowest; of fewer bytes these, with zeros above.
#[inline]
pub(super) fn first_8(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(first) => u64::from_le_bytes(*first),
        None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// The number of a text, by which it is found as a whole: the same for letters of either case, and mostly others for other bytes. Never zero.
#[inline]
pub(super) fn number_of(text: &[u8]) -> u64 {
    let mixed = text.chunks(8).fold(text.len() as u64, |mixed, eight| {
        ((mixed ^ (first_8(eight) | FOLD)).wrapping_mul(MULTIPLIER)).rotate_left(29)
    });
    mixed | 1
}
