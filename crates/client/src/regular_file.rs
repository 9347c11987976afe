//! Files of patterns, which policies and commands name.

use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a regular file of at most so many bytes. Pipes and devices are refused, and opening one never waits.
///
/// # Errors
/// The file cannot be read, is not regular, or has more bytes.
pub(crate) fn read_regular(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    file.take(max as u64 + 1).read_to_end(&mut content)?;
    if content.len() > max {
        return Err(io::Error::other(format!(
            "it has more than {} MiB; split it into several lists",
            max >> 20
        )));
    }
    Ok(content)
}
