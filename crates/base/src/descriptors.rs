//! File descriptors that child processes inherit.

use std::io;

/// Sets close-on-exec on all open descriptors of this process but 0, 1 and 2. This affects every program that the
/// process starts later. The standard library sets it on what it opens; libraries in C do not.
///
/// # Errors
/// The kernel is older than Linux 5.11.
pub fn set_close_on_exec() -> io::Result<()> {
    // SAFETY: it takes no memory, and closes no descriptor of this process.
    match unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC.cast_signed()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
