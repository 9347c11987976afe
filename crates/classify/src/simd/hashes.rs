//! The seeds of a keyed hash, and the hashes of a vector's keys.

use crate::VECTOR;

/// The random words of a keyed hash: one a term, and those that the sum is folded with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seeds {
    pub(crate) terms: [u32; Seeds::TERMS],
    /// Odd.
    pub(crate) fold: [u32; 2],
}

impl Seeds {
    /// One for each lane of the longer key.
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
