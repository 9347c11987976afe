//! The plugin's allocator: the C library's, not VPP's.
//!
//! VPP puts its heap behind `malloc`. That heap has one fixed size, one lock that all threads spin on, and gets walked from end to end
//! now and then; a policy of a million rules takes more than VPP gives it by default. So mmb allocates as it would
//! without VPP, and VPP's heap is left to VPP. Memory that one side allocates is never freed by the other.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

/// The alignment that `malloc` guarantees.
const ALIGNED: usize = 16;

// The C library's own names of its functions, since VPP replaces the usual ones.
unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_free(old: *mut c_void);
    fn malloc_trim(keep: usize) -> i32;
}

struct LibcAllocator;

#[global_allocator]
static MEMORY: LibcAllocator = LibcAllocator;

// SAFETY: the functions below keep the promises of the C library's allocator, which are those of this trait where no alignment
// beyond its own is asked for; otherwise `memalign` makes it.
unsafe impl GlobalAlloc for LibcAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size will do; the alignment is a power of two.
        let new = unsafe {
            if layout.align() <= ALIGNED {
                __libc_malloc(layout.size())
            } else {
                __libc_memalign(layout.align(), layout.size())
            }
        };
        new.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNED {
            // SAFETY: as in `alloc`.
            return unsafe { __libc_calloc(1, layout.size()) }.cast();
        }
        // SAFETY: the caller's layout; the bytes written are those allocated.
        unsafe {
            let new = self.alloc(layout);
            if !new.is_null() {
                new.write_bytes(0, layout.size());
            }
            new
        }
    }

    unsafe fn dealloc(&self, old: *mut u8, _layout: Layout) {
        // SAFETY: it was allocated here, says the caller.
        unsafe { __libc_free(old.cast()) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGNED {
            // SAFETY: `old` was allocated here, says the caller.
            return unsafe { __libc_realloc(old.cast(), size) }.cast();
        }
        // SAFETY: the new layout is valid, says the caller; both pieces have at least the smaller size and do not overlap.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                old.copy_to_nonoverlapping(new, layout.size().min(size));
                self.dealloc(old, layout);
            }
            new
        }
    }
}

/// Returns freed memory to the system.
pub(crate) fn trim() {
    // SAFETY: touches no memory in use.
    unsafe { malloc_trim(0) };
}
