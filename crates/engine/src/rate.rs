//! Rates: how many packets or bytes may pass, by the generic cell rate algorithm (ITU-T I.371 annex A), which is a token bucket in one number.
//!
//! A [`RateCell`] holds the *theoretical arrival time*: when the units that were taken so far would be over at the rate. What is taken moves
//! it on, and is refused if it came to lie further ahead of now than the burst takes. Workers share cells and change them by compare-exchange,
//! so that a rate holds over all workers, exactly. Time is an argument.
//!
//! Times are 64ths of a nanosecond modulo 2^64, which is nine years: they are compared by their distance.

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

/// A rate and its burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateLimit {
    /// The time that one unit takes.
    unit: u64,
    /// The time that the burst takes.
    burst: u64,
}

impl RateLimit {
    /// So many units a second, at least 1, and so many at once.
    pub(crate) fn per_second(per_s: u32, burst: u32) -> RateLimit {
        let unit = SECOND / u64::from(per_s.max(1));
        RateLimit { unit, burst: unit.saturating_mul(burst.max(1).into()) }
    }

    /// The theoretical arrival time after one more unit; `None` if it does not fit.
    #[inline]
    fn after(&self, arrival: u64, Ticks(now): Ticks) -> Option<u64> {
        let ahead = arrival.wrapping_sub(now);
        let ahead = if ahead <= self.burst.saturating_add(SKEW) { ahead } else { 0 };
        let ahead = ahead.checked_add(self.unit)?;
        (ahead <= self.burst).then(|| now.wrapping_add(ahead))
    }
}

/// The units that were taken of a rate. Any thread may take some.
#[derive(Debug, Default)]
pub(crate) struct RateCell(AtomicU64);

impl RateCell {
    /// Whether a unit fits now.
    #[inline]
    pub(crate) fn has_room(&self, limit: &RateLimit, now: Ticks) -> bool {
        limit.after(self.0.load(Relaxed), now).is_some()
    }

    /// Takes a unit if it fits now.
    #[inline]
    pub(crate) fn take(&self, limit: &RateLimit, now: Ticks) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |arrival| limit.after(arrival, now)).is_ok()
    }
}
