//! Memory that this process shares with the kernel.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A mapping of what a descriptor shares: the values of a map of BPF programs, or the ring of a socket. It lasts as long as this value.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, and this value only tells where it is.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first bytes of a descriptor, to be read and written. They are aligned to pages.
    pub(crate) fn new(of: BorrowedFd<'_>, len: usize) -> std::io::Result<Mapping> {
        // SAFETY: a new mapping at a place that the kernel chooses.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, of.as_raw_fd(), 0)
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(place) if start != libc::MAP_FAILED => Ok(Mapping { start: place, len }),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Its first byte.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`. Those who use its place own this value, and end before it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
