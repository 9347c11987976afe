//! The machine's cycle counter, for measurement only: `show runtime` and `mmb bench`.
//!
//! On x86-64 this is the time-stamp counter, on AArch64 the virtual counter; elsewhere it counts nanoseconds of the
//! monotonic clock. All tick at a constant rate whatever the core's frequency, so they are time in finer steps, not
//! instructions. The rate is measured once against the monotonic clock where the hardware does not tell it.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The duration of a measurement by [`hz`], for an error of about 10 ppm.
const MEASURE: Duration = Duration::from_millis(20);

/// The counter now. Not ordered with the instructions around it: good for stretches of hundreds of cycles and more.
#[inline]
#[cfg(target_arch = "x86_64")]
pub fn now() -> u64 {
    // SAFETY: RDTSC exists on every x86-64 processor, reads no memory and changes only its result registers. Linux
    // leaves it enabled for programs (a program would have to forbid it to itself with PR_SET_TSC).
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The counter now. Not ordered with the instructions around it: good for stretches of hundreds of cycles and more.
#[inline]
#[cfg(target_arch = "aarch64")]
pub fn now() -> u64 {
    let count: u64;
    // SAFETY: Linux lets programs read CNTVCT_EL0; the instruction touches no memory, flags or stack.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags))
    };
    count
}

/// The counter now: nanoseconds since the first call.
#[inline]
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn now() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Ticks of [`now`] in a second. The first call measures, and takes 20 ms.
pub fn hz() -> u64 {
    static HZ: OnceLock<u64> = OnceLock::new();
    *HZ.get_or_init(|| measure_hz(MEASURE))
}

fn measure_hz(over: Duration) -> u64 {
    let (count, time) = reading();
    std::thread::sleep(over);
    let (later_count, later_time) = reading();
    let ticks = u128::from(later_count.wrapping_sub(count));
    (ticks * 1_000_000_000 / (later_time - time).as_nanos().max(1)) as u64
}

/// Counter and clock at the same moment: the closest of a few pairs, since the thread may be interrupted between the
/// two.
fn reading() -> (u64, Instant) {
    let pair = || {
        let before = now();
        let time = Instant::now();
        let after = now();
        (after.wrapping_sub(before), before, time)
    };
    let (_, count, time) = (0..8).map(|_| pair()).min_by_key(|&(gap, ..)| gap).unwrap_or_else(pair);
    (count, time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_goes_forward_at_its_rate() {
        let (count, time) = reading();
        let mut later = reading();
        while (later.1 - time).as_millis() < 5 {
            later = reading();
        }
        let seconds = (later.0 - count) as f64 / hz() as f64;
        let clock = (later.1 - time).as_secs_f64();
        assert!((seconds / clock - 1.0).abs() < 0.05, "{seconds} s by the counter, {clock} s by the clock");
    }
}
