//! The cycle counter of nodes.

use mmb_engine::Cycles;

/// Reads the time-stamp counter.
pub(crate) struct NodeTsc;

impl Cycles for NodeTsc {
    #[inline]
    fn now(&self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
        unsafe {
            core::arch::x86_64::_rdtsc()
        }
        #[cfg(not(target_arch = "x86_64"))]
        0
    }
}
