//! The plugin's memory: the C library's, not VPP's.
//!
//! VPP puts its heap behind `malloc`. That heap has one fixed size, one lock that all threads spin on, and gets walked from end to end
//! now and then; a policy of a million rules takes more than VPP gives it by default. So what mmb allocates comes from where it would
//! without VPP, and VPP's heap is left to VPP. Memory that one side allocates is never freed by the other.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

/// What `malloc` aligns to without being asked.
const ALIGNED: usize = 16;

// The C library's own names for its functions, behind those that VPP puts others in place of.
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
        // SAFETY: the caller's layout; what is written is what was given.
        unsafe {
            let new = self.alloc(layout);
            if !new.is_null() {
                new.write_bytes(0, layout.size());
            }
            new
        }
    }

    unsafe fn dealloc(&self, old: *mut u8, _layout: Layout) {
        // SAFETY: the caller has it from here.
        unsafe { __libc_free(old.cast()) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGNED {
            // SAFETY: the caller has `old` from here.
            return unsafe { __libc_realloc(old.cast(), size) }.cast();
        }
        // SAFETY: the caller says that the new layout is one; both pieces have at least the smaller size, and are not the same.
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

/// Gives memory that was freed back to the system.
pub(crate) fn trim() {
    // SAFETY: touches nothing that is in use.
    unsafe { malloc_trim(0) };
}
