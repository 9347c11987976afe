//! Rate limits for packets or bytes, by the generic cell rate algorithm (ITU-T I.371 annex A). The algorithm
//! is a token bucket whose state is one number.
//!
//! A [`RateCell`] stores the *theoretical arrival time*: the time at which all units taken so far would have
//! arrived if they had come at exactly the configured rate. Taking units moves this time forward. Units are
//! refused if the time would then be ahead of now by more than the duration of the burst. Workers share cells
//! and update them by compare-exchange, so a limit applies to all workers together. Time is an argument.
//!
//! Times are in ticks of 1/64 ns, modulo 2^64 ticks, which is nine years. They are compared by their
//! distance. The time of each packet is rounded down to a tick. At 100 million packets per second, this lets
//! at most two thousandths too much pass; at lower rates, less.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A point in time, in ticks of 1/64 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks(u64);

/// Ticks per nanosecond and per second.
const TICKS_PER_NS: u64 = 64;
const TICKS_PER_S: u64 = TICKS_PER_NS * 1_000_000_000;

/// The largest difference between the clocks of two workers. If a cell is ahead of now by more than the burst
/// plus this difference, it was last used years ago and its time has wrapped around.
const MAX_SKEW_TICKS: u64 = TICKS_PER_S;

impl Ticks {
    pub(crate) fn from_ns(now_ns: u64) -> Ticks {
        Ticks(now_ns.wrapping_mul(TICKS_PER_NS))
    }
}

/// The duration of a unit has this many fractional bits: at the highest rates, a unit takes less than a tick.
const FRACTION_BITS: u32 = 11;

/// The longest duration of a burst: a quarter of the range of times. A cell that is further ahead counts as
/// in the past.
const MAX_BURST_TICKS: u64 = 1 << 62;

/// A rate and its burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateLimit {
    /// The duration of one unit, in ticks with [`FRACTION_BITS`] fractional bits.
    unit: u64,
    /// The duration of the burst, in ticks.
    burst: u64,
}

impl RateLimit {
    /// A limit of `per_s` units per second, at least 1, with a burst of `burst` units.
    pub(crate) fn per_second(per_s: u32, burst: u32) -> RateLimit {
        RateLimit::new((per_s.into(), 1), burst.into())
    }

    /// The limit for answers (`answer rate`). The burst is a twentieth of `per_s`, at least 10.
    pub(crate) fn for_answers(per_s: u32) -> RateLimit {
        const BURST_PART: u32 = 20;
        const MIN_BURST: u32 = 10;
        RateLimit::per_second(per_s, (per_s / BURST_PART).max(MIN_BURST))
    }

    /// A limit of `units`, at least 1, per `seconds`, at most a day. The burst is `burst` units, cut to what
    /// takes two years.
    pub(crate) fn new((units, seconds): (u64, u64), burst: u64) -> RateLimit {
        let period = (u128::from(TICKS_PER_S) * u128::from(seconds)) << FRACTION_BITS;
        let unit = u64::try_from(period / u128::from(units.max(1))).unwrap_or(u64::MAX);
        let mut limit = RateLimit { unit, burst: MAX_BURST_TICKS };
        limit.burst = limit.time_of(burst.max(1)).min(MAX_BURST_TICKS);
        limit
    }

    /// The duration of some units, in ticks.
    #[inline]
    fn time_of(&self, units: u64) -> u64 {
        u64::try_from((u128::from(self.unit) * u128::from(units)) >> FRACTION_BITS).unwrap_or(u64::MAX)
    }

    /// How far a theoretical arrival time is ahead of now, in ticks; 0 if it is in the past.
    #[inline]
    fn ahead(&self, arrival: u64, Ticks(now): Ticks) -> u64 {
        let ahead = arrival.wrapping_sub(now);
        if ahead <= self.burst + MAX_SKEW_TICKS { ahead } else { 0 }
    }

    /// The theoretical arrival time after taking `units`; `None` if they exceed the limit.
    #[inline]
    fn after(&self, units: u64, arrival: u64, now: Ticks) -> Option<u64> {
        let ahead = self.ahead(arrival, now).checked_add(self.time_of(units))?;
        (ahead <= self.burst).then(|| now.0.wrapping_add(ahead))
    }
}

/// The state of a rate limit, in a separate word or, as `RateCell<&AtomicU64>`, in a word of a table. Any
/// thread may take units. A cell with the value zero acts like an unused one.
#[derive(Debug, Default)]
pub(crate) struct RateCell<W = AtomicU64>(pub(crate) W);

impl<W: Borrow<AtomicU64>> RateCell<W> {
    /// Whether one unit is within the limit now.
    #[inline]
    pub(crate) fn has_room(&self, limit: &RateLimit, now: Ticks) -> bool {
        limit.after(1, self.0.borrow().load(Relaxed), now).is_some()
    }

    /// Takes one unit if it is within the limit now.
    #[inline]
    pub(crate) fn take(&self, limit: &RateLimit, now: Ticks) -> bool {
        self.take_units(limit, 1, now)
    }

    /// Takes `units` if all of them are within the limit now.
    #[inline]
    pub(crate) fn take_units(&self, limit: &RateLimit, units: u64, now: Ticks) -> bool {
        self.0.borrow().fetch_update(Relaxed, Relaxed, |arrival| limit.after(units, arrival, now)).is_ok()
    }

    /// How far the cell is ahead of now, in ticks: 0 if the whole burst is available, as in an unused cell.
    #[inline]
    pub(crate) fn ahead(&self, limit: &RateLimit, now: Ticks) -> u64 {
        limit.ahead(self.0.borrow().load(Relaxed), now)
    }

    /// Resets the cell to an unused one.
    pub(crate) fn reset(&self, Ticks(now): Ticks) {
        self.0.borrow().store(now, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A token bucket in exact arithmetic.
    struct Bucket {
        /// The available units, times `unit`.
        level: i128,
        max: i128,
        unit: i128,
        at_ns: u64,
    }

    impl Bucket {
        fn full((_, seconds): (u64, u64), burst: u64) -> Bucket {
            let unit = i128::from(seconds) * 1_000_000_000;
            let max = i128::from(burst) * unit;
            Bucket { level: max, max, unit, at_ns: 0 }
        }

        fn fill(&mut self, (units, _): (u64, u64), now_ns: u64) {
            let gained = i128::from(now_ns - self.at_ns) * i128::from(units);
            self.level = (self.level + gained).min(self.max);
            self.at_ns = now_ns;
        }
    }

    proptest! {
        /// Units are taken if and only if a token bucket contains as many. The tolerance for rounding is a
        /// thousandth of the units taken.
        #[test]
        fn a_cell_is_a_token_bucket(
            units in prop_oneof![1_u64..100, 1000_u64..1_000_000, Just(12_500_000_000_u64)],
            seconds in prop_oneof![Just(1_u64), Just(60), Just(3600), Just(86_400)],
            burst in prop_oneof![1_u64..20, 1500_u64..1_000_000],
            start_ns in prop_oneof![Just(0_u64), 0..u64::MAX / 128],
            packets in prop::collection::vec((0_u64..5, 0_u64..2_000_000_000, 1_u64..1500), 1..200),
        ) {
            // `RateLimit::new` cuts longer bursts.
            prop_assume!(burst * seconds / units < MAX_BURST_TICKS / TICKS_PER_S);
            let (rate, cell) = ((units, seconds), RateCell::<AtomicU64>::default());
            let limit = RateLimit::new(rate, burst);
            let mut bucket = Bucket::full(rate, burst);
            let (mut now_ns, mut taken) = (0, 0);
            for (pause, gap_ns, size) in packets {
                now_ns += if pause == 0 { gap_ns } else { gap_ns / 1_000_000 };
                let size = size.min(burst);
                bucket.fill(rate, now_ns);
                let fits = cell.take_units(&limit, size, Ticks::from_ns(start_ns + now_ns));
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
            let now = Ticks::from_ns(round * 10 * minute);
            assert_eq!(cell.ahead(&limit, now), 0);
            let taken = (0..10).filter(|_| cell.take(&limit, now)).count();
            assert_eq!(taken, 3, "{round}");
            assert!(!cell.has_room(&limit, now) && cell.ahead(&limit, now) > 0);
            cell.reset(now);
            assert!(cell.has_room(&limit, now));
        }
    }
}
