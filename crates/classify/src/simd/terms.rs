//! The terms that kernels hash or compare, and the result of a comparison.

use crate::VECTOR;

/// A lane of the key and the bits of it to compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) lane: u8,
    pub(crate) mask: u32,
}

/// A lane, the bits of it to compare, and their required value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Equal {
    pub(crate) lane: u8,
    pub(crate) mask: u32,
    pub(crate) value: u32,
}

/// A bit for each key of a vector.
pub(crate) type Bits = [u64; VECTOR / 64];
