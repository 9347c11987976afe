//! Bytes as numbers.

use crate::filter::{FOLD, MULTIPLIER};

/// The first 8 bytes as a little-endian number; missing bytes are zero.
#[inline]
pub(super) fn first_8(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(first) => u64::from_le_bytes(*first),
        None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// A hash of a whole text. It ignores the case of letters and is never zero.
#[inline]
pub(super) fn number_of(text: &[u8]) -> u64 {
    let mixed = text.chunks(8).fold(text.len() as u64, |mixed, eight| {
        ((mixed ^ (first_8(eight) | FOLD)).wrapping_mul(MULTIPLIER)).rotate_left(29)
    });
    mixed | 1
}
