//! The random choices of NAT.
//!
//! The next port must not be predictable from earlier ones (RFC 6056), so it comes from a cipher's stream.
//! Keyed functions select the addresses that must stay the same for the same host. They reveal nothing about
//! the addresses of others, or about the keys of an index.

use mmb_random::{Generator, Seed};

pub(super) use mmb_random::scale;

/// A random number generator.
pub(super) struct NatRandom(Generator);

impl NatRandom {
    pub(super) fn new(seed: Seed) -> NatRandom {
        NatRandom(Generator::new(seed))
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// Mixes fresh entropy into the generator.
    pub(super) fn reseed(&mut self, fresh: Seed) {
        self.0.reseed(fresh);
    }
}
