//! How places of texts are sampled.

use super::number::first_8;
use crate::filter::StringKey;
use std::ops::Range;

/// The distance and the length of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sampling {
    /// Bytes from one sample to the next: 1, 2, 4 or 8.
    pub(super) step: usize,
    /// Bytes of a sample.
    pub(super) len: usize,
    /// Of 8 bytes, those of a sample.
    pub(super) mask: u64,
}

impl Sampling {
    /// For texts of at least `shortest` bytes, which is 4 at least.
    pub(super) fn of(shortest: usize) -> Sampling {
        let step = match shortest {
            0..=4 => 1,
            5..=6 => 2,
            7..=11 => 4,
            _ => 8,
        };
        let len = (shortest + 1 - step).min(8);
        Sampling { step, len, mask: u64::MAX >> (64 - 8 * len) }
    }

    #[inline]
    pub(super) fn key(self, first_8: u64) -> StringKey {
        StringKey::masked(first_8, self.mask)
    }

    /// The samples that begin at `step` places from `window` on.
    pub(super) fn keys(self, text: &[u8], window: usize) -> impl Iterator<Item = StringKey> + '_ {
        text[window..].windows(self.len).take(self.step).map(move |sample| self.key(first_8(sample)))
    }

    /// The places at which a window can begin in a text of that many bytes.
    pub(super) fn windows(self, len: usize) -> Range<usize> {
        0..len + 2 - self.step - self.len
    }
}
