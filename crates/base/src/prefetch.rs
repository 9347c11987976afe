//! Prefetching.

/// Fetches the cache line of a value that is about to be read.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of the architecture; a prefetch reads nothing that the program could see.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
            std::ptr::from_ref(value).cast(),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Fetches all cache lines of a value that is about to be read and written.
#[inline(always)]
pub fn prefetch_all<T>(value: &T) {
    const LINE: usize = 64;
    let first = std::ptr::from_ref(value).cast::<u8>();
    for at in (0..size_of::<T>()).step_by(LINE) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above; the address lies in the value.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(first.add(at).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (first, at);
    }
}
