//! Random numbers for workloads and tests: the same for the same seed, on every machine, and not secret.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A generator (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct RepeatableRandom(SplitMix64);

impl RepeatableRandom {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> RepeatableRandom {
        RepeatableRandom(SplitMix64::seed_from_u64(seed))
    }

    /// The sequence of a seed for a purpose. Sequences of different purposes are independent.
    pub fn for_purpose(seed: u64, purpose: &str) -> RepeatableRandom {
        // FNV-1a, so that a name can serve as a number.
        let name = purpose.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let mut of_purpose = SplitMix64::seed_from_u64(seed ^ name);
        RepeatableRandom(SplitMix64::seed_from_u64(of_purpose.next_u64()))
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// The next 128 bits.
    pub fn wide(&mut self) -> u128 {
        u128::from(self.word()) << 64 | u128::from(self.word())
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `first` to `last`, both included.
    pub fn within(&mut self, first: u128, last: u128) -> u128 {
        match (last - first).checked_add(1) {
            Some(count) => first + self.wide() % count,
            None => self.wide(),
        }
    }

    /// A number from 0 to 1, 1 not included.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// One of several values.
    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// One of several values, with probabilities in proportion to their weights.
    pub fn weighted<T: Copy>(&mut self, choices: &[(T, u32)]) -> T {
        let total: u32 = choices.iter().map(|(_, weight)| weight).sum();
        let mut left = self.below(u64::from(total)) as u32;
        for &(choice, weight) in choices {
            match left.checked_sub(weight) {
                Some(rest) => left = rest,
                None => return choice,
            }
        }
        choices[choices.len() - 1].0
    }

    /// A rank below `count`, approximately by Zipf's law with exponent 1: rank r with a probability in proportion to 1 / (r + 1).
    pub fn zipf(&mut self, count: u64) -> u64 {
        // The inverse of the integral of 1/x, which approximates the harmonic sum.
        let rank = ((count as f64 + 1.0).ln() * self.unit()).exp() - 1.0;
        (rank as u64).min(count - 1)
    }

    /// A number from `first` to `last`, with equal probability for all orders of magnitude.
    pub fn log_uniform(&mut self, first: u64, last: u64) -> u64 {
        let (low, high) = ((first as f64).ln(), (last as f64 + 1.0).ln());
        ((low + (high - low) * self.unit()).exp() as u64).clamp(first, last)
    }

    /// Puts a list into random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_and_purpose_make_a_sequence() {
        let first = |seed, purpose| RepeatableRandom::for_purpose(seed, purpose).word();
        assert_eq!(first(1, "rules"), first(1, "rules"));
        assert_ne!(first(1, "rules"), first(2, "rules"));
        assert_ne!(first(1, "rules"), first(1, "packets"));
        // Figures are comparable only with those of the same sets.
        assert_eq!(first(1, "rules"), 0xbd43_9842_4d1a_e00c);
    }

    #[test]
    fn draws_stay_in_their_bounds() {
        let mut random = RepeatableRandom::for_purpose(1, "test");
        for _ in 0..10_000 {
            assert!(random.below(7) < 7);
            assert!((5..=9).contains(&random.within(5, 9)));
            assert!((0.0..1.0).contains(&random.unit()));
            assert!(random.zipf(10) < 10);
            assert!((16..=4096).contains(&random.log_uniform(16, 4096)));
            assert!([1, 3].contains(&random.weighted(&[(1, 1), (2, 0), (3, 5)])));
        }
        assert_eq!(random.within(3, 3), 3);
        random.within(0, u128::MAX);
    }

    #[test]
    fn the_first_ranks_are_the_popular_ones() {
        let mut random = RepeatableRandom::for_purpose(1, "test");
        let mut counts = [0; 8];
        (0..80_000).for_each(|_| counts[random.zipf(8) as usize] += 1);
        assert!(counts.is_sorted_by(|a, b| a > b), "{counts:?}");
        assert!(counts[0] > 5 * counts[7], "{counts:?}");
    }
}
