//! Random numbers for percentages of drops: seeded, so that the same packets meet the same fate on every run.

use mmb_policy::rule::DropRate;

/// A generator (splitmix64: Steele, Lea and Flood, OOPSLA 2014). Each worker has its own.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a worker.
    pub fn new(seed: u64, worker: usize) -> Random {
        let mut random = Random(seed ^ (worker as u64).rotate_left(32));
        Random(random.word())
    }

    /// The next 64 random bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// The next number below [`DropRate::ALL`], in thousandths of a per cent: a packet is dropped at a rate if its
    /// number is below the rate.
    #[inline]
    pub fn draw(&mut self) -> u32 {
        // The high half of a product: uniform but for 2^-47.
        ((u128::from(self.word()) * u128::from(DropRate::ALL.0)) >> 64) as u32
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
