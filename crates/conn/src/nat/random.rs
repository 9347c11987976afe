//! The random choices of translations.
//!
//! Which port comes next must not be guessed by someone who saw the last ones (RFC 6056): hence a cipher's stream. Addresses that stay the
//! same for the same host are chosen by keyed functions, which tell nothing about others' or about the keys of an index.

use mmb_random::{Generator, Seed};

pub(super) use mmb_random::scale;

/// Random numbers.
pub(super) struct NatRandom(Generator);

impl NatRandom {
    pub(super) fn new(seed: Seed) -> NatRandom {
        NatRandom(Generator::new(seed))
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// Goes on with fresh entropy.
    pub(super) fn reseed(&mut self, fresh: Seed) {
        self.0.reseed(fresh);
    }
}
