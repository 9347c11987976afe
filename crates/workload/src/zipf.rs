//! Ranks by Zipf's law with any exponent.

use mmb_random::RepeatableRandom;

/// The ranks 0 to `count` - 1, where rank r has a probability in proportion to 1 / (r + 1)^`skew`.
///
/// It stores the cumulative weights, 8 bytes a rank, and finds a rank by binary search, so that it is exact for any exponent.
pub(crate) struct ZipfRanks {
    cumulative: Vec<f64>,
}

impl ZipfRanks {
    /// There must be at least one rank. With a `skew` of 0 all ranks are equally probable.
    pub(crate) fn new(count: usize, skew: f64) -> ZipfRanks {
        let mut sum = 0.0;
        let weights = (1..=count).map(|rank| {
            sum += (rank as f64).powf(-skew);
            sum
        });
        ZipfRanks { cumulative: weights.collect() }
    }

    /// A random rank.
    pub(crate) fn draw(&self, random: &mut RepeatableRandom) -> usize {
        let last = self.cumulative.len() - 1;
        let wanted = random.unit() * self.cumulative[last];
        self.cumulative.partition_point(|&sum| sum <= wanted).min(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn shares(count: usize, skew: f64) -> Vec<f64> {
        let ranks = ZipfRanks::new(count, skew);
        let mut random = RepeatableRandom::for_purpose(1, "ranks");
        let mut drawn = vec![0; count];
        (0..DRAWS).for_each(|_| drawn[ranks.draw(&mut random)] += 1);
        drawn.into_iter().map(|drawn| f64::from(drawn) / DRAWS as f64).collect()
    }

    #[test]
    fn ranks_have_the_shares_of_their_law() {
        for skew in [0.0, 0.5, 1.0, 1.5] {
            let sum: f64 = (1..=50).map(|rank| f64::from(rank).powf(-skew)).sum();
            for (rank, share) in (1..).zip(shares(50, skew)) {
                let law = f64::from(rank).powf(-skew) / sum;
                // Five standard deviations.
                let scatter = 5.0 * (law / DRAWS as f64).sqrt();
                assert!((share - law).abs() < scatter, "{skew}: rank {rank} has {share}, not {law}");
            }
        }
    }

    #[test]
    fn one_rank_is_always_drawn() {
        assert_eq!(shares(1, 1.0), [1.0]);
    }
}
