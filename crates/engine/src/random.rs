//! Random numbers for percentages of drops: seeded, so that the same packets meet the same fate on every run.

use mmb_policy::rule::DropRate;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A generator (Steele, Lea and Flood, OOPSLA 2014). Each worker has its own.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// The generator of a worker.
    pub fn new(seed: u64, worker: usize) -> Random {
        let mut of_worker = SplitMix64::seed_from_u64(seed ^ (worker as u64).rotate_left(32));
        Random(SplitMix64::seed_from_u64(of_worker.next_u64()))
    }

    /// The next number below [`DropRate::ALL`], in thousandths of a per cent: a packet is dropped at a rate if its
    /// number is below the rate.
    #[inline]
    pub fn draw(&mut self) -> u32 {
        // The high half of a product: uniform but for 2^-47.
        ((u128::from(self.0.next_u64()) * u128::from(DropRate::ALL.0)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_worker_make_a_sequence() {
        let draws = |seed, worker| {
            let mut random = Random::new(seed, worker);
            [random.draw(), random.draw(), random.draw()]
        };
        assert_eq!(draws(1, 0), draws(1, 0));
        assert_ne!(draws(1, 0), draws(2, 0));
        assert_ne!(draws(1, 0), draws(1, 1));
    }

    #[test]
    fn draws_are_uniform_enough() {
        let mut random = Random::new(7, 0);
        let below = (0..100_000).filter(|_| random.draw() < 12_500).count();
        assert!((12_000..13_000).contains(&below), "{below} of 100,000 below 12.5 %");
    }
}
