//! Secrets: a stream of random numbers, and a keyed hash.
//!
//! Which port comes next must not be guessed by someone who saw the last ones (RFC 6056), and nobody may aim at one
//! slot of a table: hence a cipher's stream and a hash with a secret in front, both from one seed.

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Random numbers, and a keyed hash.
pub(super) struct Secrets {
    stream: ChaCha12Rng,
    key: Key,
}

/// A hash that nobody else can compute.
#[derive(Clone)]
pub(super) struct Key(DefaultHasher);

impl Secrets {
    pub(super) fn new(seed: u64) -> Secrets {
        let mut stream = ChaCha12Rng::seed_from_u64(seed);
        let mut primed = DefaultHasher::new();
        primed.write_u64(stream.next_u64());
        primed.write_u64(stream.next_u64());
        Secrets { stream, key: Key(primed) }
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        scale(self.stream.next_u64(), bound)
    }

    pub(super) fn key(&self) -> Key {
        self.key.clone()
    }
}

impl Key {
    pub(super) fn of(&self, value: &impl Hash) -> u64 {
        let mut hasher = self.0.clone();
        value.hash(&mut hasher);
        hasher.finish()
    }
}

/// A hash brought below `bound`: the high half of the product.
pub(super) fn scale(hash: u64, bound: u64) -> u64 {
    ((u128::from(hash) * u128::from(bound)) >> 64) as u64
}
