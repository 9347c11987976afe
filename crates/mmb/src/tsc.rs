//! The machine's cycle counter as the engine reads it.

use mmb_engine::Cycles;

/// Counts cycles of the time-stamp counter, or of the machine's equivalent.
pub(crate) struct Tsc;

impl Cycles for Tsc {
    #[inline]
    fn now(&self) -> u64 {
        mmb_io::cycles::now()
    }
}
