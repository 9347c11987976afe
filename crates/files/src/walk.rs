//! Walks a path from directory to directory, and follows the symbolic links of trusted users only.
//!
//! The kernel enforces this rule in world-writable directories with the sticky bit (`fs.protected_symlinks`), but
//! not in the directory of another user.

use crate::error::FileError;
use crate::is_trusted;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// The most links on one path, as in the kernel (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Follows all links of a path, the last name included. Returns the directory in which the path then ends, opened
/// without permission to list it, and the last name in that directory, which need not exist.
///
/// # Errors
/// A directory of the path does not exist or cannot be entered, or a link of another user is on the path.
pub(crate) fn walk(path: &Path) -> Result<(OwnedFd, OsString), FileError> {
    let mut directory = open_directory(if path.is_absolute() { "/" } else { "." })?;
    let mut pending = Vec::new();
    push(&mut pending, path);
    let mut links = 0;
    while let Some(name) = pending.pop() {
        let is_last = pending.is_empty();
        let found = match rustix::fs::openat(&directory, &name, OFlags::PATH | FOUND, Mode::empty()) {
            Err(Errno::NOENT) if is_last => return Ok((directory, name)),
            found => found?,
        };
        let status = rustix::fs::fstat(&found)?;
        if FileType::from_raw_mode(status.st_mode) == FileType::Symlink {
            if !is_trusted(status.st_uid) {
                return Err(FileError::ForeignLink(named(path, &name), status.st_uid));
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::LOOP.into());
            }
            let target = rustix::fs::readlinkat(&found, "", Vec::new())?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            if target.is_absolute() {
                directory = open_directory("/")?;
            }
            push(&mut pending, &target);
        } else if is_last && name != ".." {
            return Ok((directory, name));
        } else {
            directory = found;
        }
    }
    Ok((directory, OsString::from(".")))
}

const FOUND: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

fn open_directory(path: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Pushes the names of a path on a stack, so that the first name is on top.
fn push(pending: &mut Vec<OsString>, path: &Path) {
    let name = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    pending.extend(path.components().rev().filter_map(name));
}

/// The part of a path up to a name, for messages. The name alone if it came from the target of a link.
fn named(path: &Path, name: &OsStr) -> PathBuf {
    let up_to = path.ancestors().find(|ancestor| ancestor.file_name() == Some(name));
    up_to.unwrap_or(Path::new(name)).to_owned()
}
