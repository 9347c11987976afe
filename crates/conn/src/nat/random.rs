//! Secrets: a stream of random numbers, and a keyed hash.
//!
//! Which port comes next must not be guessed by someone who saw the last ones (RFC 6056): hence a cipher's stream.

use crate::hash::Hasher;
use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};

/// Random numbers.
pub(super) struct Secrets(ChaCha12Rng);

impl Secrets {
    pub(super) fn new(seed: u64) -> Secrets {
        Secrets(ChaCha12Rng::seed_from_u64(seed))
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        scale(self.0.next_u64(), bound)
    }

    /// A hash that nobody else can compute.
    pub(super) fn hasher(&mut self) -> Hasher {
        Hasher::new(self.0.next_u64())
    }
}

/// A hash brought below `bound`: the high half of the product.
pub(super) fn scale(hash: u64, bound: u64) -> u64 {
    ((u128::from(hash) * u128::from(bound)) >> 64) as u64
}
