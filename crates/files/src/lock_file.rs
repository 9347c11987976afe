//! A lock that one process holds at a time. The kernel releases it when the process ends, also after a crash.
//!
//! The lock is that of flock(2) on a file. Any user who can open a file can lock it, so only the owner may open
//! the lock file. Earlier versions made it readable for others: such a file is replaced.

use crate::directory::Directory;
use crate::is_trusted;
use rustix::fs::{FileType, FlockOperation, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};

/// How often the file is opened again after another process has replaced it.
const ATTEMPTS: usize = 16;

/// Permissions of everybody but the owner.
const OTHERS: u32 = 0o077;

/// A lock. It is released when this value is dropped.
#[derive(Debug)]
pub struct LockFile {
    _file: File,
}

/// Why the lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds the lock. Its process id, if known.
    Held(Option<u32>),
    /// The system refused.
    System(io::Error),
}

impl LockFile {
    /// Takes the lock of this name in a directory where only trusted users write.
    ///
    /// # Errors
    /// Another process holds the lock, or the system refused.
    pub fn take(directory: &Directory, name: &str) -> Result<LockFile, LockError> {
        for _ in 0..ATTEMPTS {
            let Some(mut file) = open(directory, name).map_err(|error| LockError::System(error.into()))?
            else {
                continue;
            };
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(LockError::Held(holder(&mut file))),
                Err(error) => return Err(LockError::System(error.into())),
            }
            if !has_name(directory, name, &file).map_err(|error| LockError::System(error.into()))? {
                continue;
            }
            // Only messages use the process id.
            let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
            return Ok(LockFile { _file: file });
        }
        Err(LockError::System(Errno::AGAIN.into()))
    }
}

/// Opens the file, or creates it. Returns `None` if another process replaced it meanwhile: the caller tries again.
fn open(directory: &Directory, name: &str) -> Result<Option<File>, Errno> {
    match directory.create_file(name, OFlags::RDWR, 0o600) {
        Err(Errno::EXIST) => {}
        created => return created.map(Some),
    }
    let file = match directory.open_file(name, OFlags::RDWR) {
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return directory.remove(name).map(|()| None),
        opened => opened?,
    };
    let status = rustix::fs::fstat(&file)?;
    let is_private = status.st_mode & OTHERS == 0 && is_trusted(status.st_uid);
    if is_private && FileType::from_raw_mode(status.st_mode) == FileType::RegularFile {
        return Ok(Some(file));
    }
    // A lock on such a file proves nothing: any user may hold it.
    directory.remove(name).map(|()| None)
}

/// Whether a file is still the one of this name.
fn has_name(directory: &Directory, name: &str, file: &File) -> Result<bool, Errno> {
    let (opened, named) = (rustix::fs::fstat(file)?, directory.status(name));
    Ok(named.is_ok_and(|named| (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)))
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn take(folder: &tempfile::TempDir) -> Result<LockFile, LockError> {
        LockFile::take(&Directory::open(folder.path()).expect("opens"), "lock")
    }

    #[test]
    fn a_lock_is_held_once_and_names_its_holder() {
        let folder = tempfile::tempdir().expect("a folder");
        let lock = take(&folder).expect("is free");
        let mode = fs::metadata(folder.path().join("lock")).expect("there").permissions().mode();
        assert_eq!(mode & OTHERS, 0);
        let held = take(&folder).expect_err("is held");
        assert!(matches!(held, LockError::Held(Some(process)) if process == std::process::id()), "{held:?}");
        drop(lock);
        take(&folder).expect("is free again");
    }

    #[test]
    fn the_lock_of_a_file_that_everybody_can_open_counts_for_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        fs::write(&path, "").expect("writes");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("sets");
        // As another user may: the file is open for reading only.
        let theirs = File::open(&path).expect("opens");
        rustix::fs::flock(&theirs, FlockOperation::NonBlockingLockExclusive).expect("locks");
        let ours = take(&folder).expect("they cannot keep us from it");
        assert!(matches!(take(&folder), Err(LockError::Held(_))));
        drop(ours);
    }

    #[test]
    fn a_link_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("victim"), "precious").expect("writes");
        symlink("victim", folder.path().join("lock")).expect("links");
        let _lock = take(&folder).expect("is taken");
        assert_eq!(fs::read_to_string(folder.path().join("victim")).expect("reads"), "precious");
    }
}
