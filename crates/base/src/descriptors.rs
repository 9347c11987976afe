//! File descriptors that child processes inherit.

use std::io;

/// Marks all descriptors of this process, except standard input, output and error, so that no program that it starts
/// inherits them. The standard library opens its own in this way; libraries in C do not.
///
/// # Errors
/// The kernel is older than Linux 5.11.
pub fn keep_descriptors_from_children() -> io::Result<()> {
    // SAFETY: it takes no memory, and closes no descriptor of this process.
    match unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC.cast_signed()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
