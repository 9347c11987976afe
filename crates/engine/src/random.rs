//! Random numbers for drop percentages. Nobody can predict them by observing which packets pass.

use mmb_policy::rule::DropRate;
use mmb_random::{Generator, Seed};

/// A random generator. Each worker has its own.
#[derive(Debug)]
pub struct DropRandom(Generator);

impl DropRandom {
    /// Creates a generator from a worker's seed.
    pub fn new(seed: Seed) -> DropRandom {
        DropRandom(Generator::new(seed))
    }

    /// Mixes fresh entropy into the generator.
    pub(crate) fn reseed(&mut self, fresh: Seed) {
        self.0.reseed(fresh);
    }

    /// Draws a number below [`DropRate::ALL`], in thousandths of a percent. A packet is dropped if the number
    /// is below the rule's rate.
    #[inline]
    pub fn draw(&mut self) -> u32 {
        self.0.below(u64::from(DropRate::ALL.0)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_random::{Purpose, SeedTree};

    #[test]
    fn a_seed_and_a_worker_make_a_sequence() {
        let draws = |seed, worker| {
            let mut random =
                DropRandom::new(SeedTree::repeatable(seed).of_worker(Purpose::DropShares, worker));
            [random.draw(), random.draw(), random.draw()]
        };
        assert_eq!(draws(1, 0), draws(1, 0));
        assert_ne!(draws(1, 0), draws(2, 0));
        assert_ne!(draws(1, 0), draws(1, 1));
    }

    #[test]
    fn draws_are_uniform_enough() {
        let mut random = DropRandom::new(Seed::repeatable(7));
        let below = (0..100_000).filter(|_| random.draw() < 12_500).count();
        assert!((12_000..13_000).contains(&below), "{below} of 100,000 below 12.5 %");
    }
}
