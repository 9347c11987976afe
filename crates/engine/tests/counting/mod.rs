//! An allocator that counts bytes, for tests of what memory is in use.
//!
//! The only unsafe code of these tests: a global allocator cannot be written without it. This one hands every call to the system's.

#![allow(dead_code, reason = "each test program uses a part")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

/// Bytes in use.
pub(crate) static LIVE: AtomicUsize = AtomicUsize::new(0);
/// The most that were.
pub(crate) static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every method hands its arguments to the system's allocator as they came, and returns what that returned.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: the caller's promises are the system allocator's terms.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promises are the system allocator's terms; the pointer came from it.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
