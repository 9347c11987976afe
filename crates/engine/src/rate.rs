//! Rates: how many packets or bytes may pass, by the generic cell rate algorithm (ITU-T I.371 annex A), which is a token bucket in one number.
//!
//! A [`RateCell`] holds the *theoretical arrival time*: when the units that were taken so far would be over at the rate. What is taken moves
//! it on, and is refused if it came to lie further ahead of now than the burst takes. Workers share cells and change them by compare-exchange,
//! so that a rate holds over all workers. Time is an argument.
//!
//! Times are 64ths of a nanosecond modulo 2^64, which is nine years: they are compared by their distance. The time of each packet is rounded down to one of
//! them, which lets at most two thousandths too much pass at 100 million packets a second, and less at lower rates.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks(u64);

/// Ticks of a nanosecond and of a second.
const NANOSECOND: u64 = 64;
const SECOND: u64 = NANOSECOND * 1_000_000_000;

/// How far the clocks of workers may be apart. A cell that is further ahead than the burst and this was not used for years.
const SKEW: u64 = SECOND;

impl Ticks {
    pub(crate) fn of_ns(now_ns: u64) -> Ticks {
        Ticks(now_ns.wrapping_mul(NANOSECOND))
    }
}

/// Units of time are divided into so many parts, in bits: at the greatest rates a unit takes less than a tick.
const FRACTION: u32 = 11;

/// The longest time of a burst, a quarter of all times: a cell further ahead is one of the past.
const LONGEST: u64 = 1 << 62;

/// A rate and its burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateLimit {
    /// The time that one unit takes, in fractions of ticks.
    unit: u64,
    /// The time that the burst takes.
    burst: u64,
}

impl RateLimit {
    /// So many units a second, at least 1, and so many at once.
    pub(crate) fn per_second(per_s: u32, burst: u32) -> RateLimit {
        RateLimit::new((per_s.into(), 1), burst.into())
    }

    /// The limit of the packets that answer others (`answer rate`): a twentieth of those of a second, at least 10, may come at once.
    pub(crate) fn of_answers(per_s: u32) -> RateLimit {
        const BURST_PART: u32 = 20;
        const LEAST_BURST: u32 = 10;
        RateLimit::per_second(per_s, (per_s / BURST_PART).max(LEAST_BURST))
    }

    /// So many units, at least 1, in so many seconds, at most a day, and so many at once, of which at most what takes two years counts.
    pub(crate) fn new((units, seconds): (u64, u64), burst: u64) -> RateLimit {
        let period = (u128::from(SECOND) * u128::from(seconds)) << FRACTION;
        let unit = u64::try_from(period / u128::from(units.max(1))).unwrap_or(u64::MAX);
        let mut limit = RateLimit { unit, burst: LONGEST };
        limit.burst = limit.time_of(burst.max(1)).min(LONGEST);
        limit
    }

    /// The time that units take.
    #[inline]
    fn time_of(&self, units: u64) -> u64 {
        u64::try_from((u128::from(self.unit) * u128::from(units)) >> FRACTION).unwrap_or(u64::MAX)
    }

    /// How far a theoretical arrival time is ahead of now.
    #[inline]
    fn ahead(&self, arrival: u64, Ticks(now): Ticks) -> u64 {
        let ahead = arrival.wrapping_sub(now);
        if ahead <= self.burst + SKEW { ahead } else { 0 }
    }

    /// The theoretical arrival time after more units; `None` if they do not fit.
    #[inline]
    fn after(&self, units: u64, arrival: u64, now: Ticks) -> Option<u64> {
        let ahead = self.ahead(arrival, now).checked_add(self.time_of(units))?;
        (ahead <= self.burst).then(|| now.0.wrapping_add(ahead))
    }
}

/// The units that were taken of a rate, in a word of its own or, as `RateCell<&AtomicU64>`, of a table. Any thread may take
/// some. A word of zero is like a new one.
#[derive(Debug, Default)]
pub(crate) struct RateCell<W = AtomicU64>(pub(crate) W);

impl<W: Borrow<AtomicU64>> RateCell<W> {
    /// Whether a unit fits now.
    #[inline]
    pub(crate) fn has_room(&self, limit: &RateLimit, now: Ticks) -> bool {
        limit.after(1, self.0.borrow().load(Relaxed), now).is_some()
    }

    /// Takes a unit if it fits now.
    #[inline]
    pub(crate) fn take(&self, limit: &RateLimit, now: Ticks) -> bool {
        self.take_units(limit, 1, now)
    }

    /// Takes units if all of them fit now.
    #[inline]
    pub(crate) fn take_units(&self, limit: &RateLimit, units: u64, now: Ticks) -> bool {
        self.0.borrow().fetch_update(Relaxed, Relaxed, |arrival| limit.after(units, arrival, now)).is_ok()
    }

    /// How long it takes until all that was taken is over: 0 for a cell that is like a new one.
    #[inline]
    pub(crate) fn busy(&self, limit: &RateLimit, now: Ticks) -> u64 {
        limit.ahead(self.0.borrow().load(Relaxed), now)
    }

    /// Makes it like a new one.
    pub(crate) fn restart(&self, Ticks(now): Ticks) {
        self.0.borrow().store(now, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A token bucket in exact arithmetic.
    struct Bucket {
        /// The units that there are, in parts of `unit`.
        level: i128,
        most: i128,
        unit: i128,
        at_ns: u64,
    }

    impl Bucket {
        fn full((_, seconds): (u64, u64), burst: u64) -> Bucket {
            let unit = i128::from(seconds) * 1_000_000_000;
            let most = i128::from(burst) * unit;
            Bucket { level: most, most, unit, at_ns: 0 }
        }

        fn fill(&mut self, (units, _): (u64, u64), now_ns: u64) {
            let gained = i128::from(now_ns - self.at_ns) * i128::from(units);
            self.level = (self.level + gained).min(self.most);
            self.at_ns = now_ns;
        }
    }

    proptest! {
        /// Units are taken just when a token bucket has as many, up to a rounding of one in a thousand of what was taken.
        #[test]
        fn a_cell_is_a_token_bucket(
            units in prop_oneof![1_u64..100, 1000_u64..1_000_000, Just(12_500_000_000_u64)],
            seconds in prop_oneof![Just(1_u64), Just(60), Just(3600), Just(86_400)],
            burst in prop_oneof![1_u64..20, 1500_u64..1_000_000],
            start_ns in prop_oneof![Just(0_u64), 0..u64::MAX / 128],
            packets in prop::collection::vec((0_u64..5, 0_u64..2_000_000_000, 1_u64..1500), 1..200),
        ) {
            // Longer bursts are cut.
            prop_assume!(burst * seconds / units < LONGEST / SECOND);
            let (rate, cell) = ((units, seconds), RateCell::<AtomicU64>::default());
            let limit = RateLimit::new(rate, burst);
            let mut bucket = Bucket::full(rate, burst);
            let (mut now_ns, mut taken) = (0, 0);
            for (pause, gap_ns, size) in packets {
                now_ns += if pause == 0 { gap_ns } else { gap_ns / 1_000_000 };
                let size = size.min(burst);
                bucket.fill(rate, now_ns);
                let fits = cell.take_units(&limit, size, Ticks::of_ns(start_ns + now_ns));
                let wanted = i128::from(size) * bucket.unit;
                let slack = (taken + wanted) / 1000 + bucket.unit / 100;
                if fits {
                    prop_assert!(bucket.level >= wanted - slack);
                    bucket.level -= wanted;
                    taken += wanted;
                } else {
                    prop_assert!(bucket.level < wanted + slack);
                }
            }
        }
    }

    #[test]
    fn a_cell_of_the_past_is_like_a_new_one() {
        let (limit, cell) = (RateLimit::new((1, 60), 3), RateCell::<AtomicU64>::default());
        let minute = 60 * 1_000_000_000_u64;
        for round in [1, 2, 1000, 3_000_000] {
            let now = Ticks::of_ns(round * 10 * minute);
            assert_eq!(cell.busy(&limit, now), 0);
            let taken = (0..10).filter(|_| cell.take(&limit, now)).count();
            assert_eq!(taken, 3, "{round}");
            assert!(!cell.has_room(&limit, now) && cell.busy(&limit, now) > 0);
            cell.restart(now);
            assert!(cell.has_room(&limit, now));
        }
    }
}
