//! The reasons for which mmb refuses a file or directory.

use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file or directory is not used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file is a symbolic link, and mmb does not follow links here.
    #[error("{}: it is a symbolic link, which is not followed; name the file itself", .0.display())]
    Link(PathBuf),
    /// A symbolic link on the path belongs to another user.
    #[error("{}: this symbolic link belongs to another user ({}) and is not followed", .0.display(), .1)]
    ForeignLink(PathBuf, u32),
    /// The file belongs to another user, and others may write to its directory.
    #[error("{}: this file belongs to another user ({}), in a directory where others may write", .0.display(), .1)]
    ForeignFile(PathBuf, u32),
    /// The file has another name, and others may write to its directory.
    #[error("{}: this file has a second name (a hard link), in a directory where others may write", .0.display())]
    SecondName(PathBuf),
    /// The directory belongs to another user.
    #[error("{}: this directory belongs to another user ({}); name another one, or chown it", .0.display(), .1)]
    ForeignDirectory(PathBuf, u32),
    /// Others may write to the directory.
    #[error("{}: others may write to this directory; chmod go-w it, or name another one", .0.display())]
    SharedDirectory(PathBuf),
    /// The file is a directory, a pipe, a socket or a device.
    #[error("{}: this is not a regular file", .0.display())]
    Special(PathBuf),
    /// The system refused.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl FileError {
    /// The error without the path, for a message that has the path already.
    #[must_use]
    pub fn without_path(self, path: &Path) -> io::Error {
        let text = self.to_string();
        match text.strip_prefix(&format!("{}: ", path.display())) {
            Some(reason) => io::Error::other(reason.to_owned()),
            None => self.into(),
        }
    }
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> FileError {
        FileError::System(error.into())
    }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> io::Error {
        match error {
            FileError::System(error) => error,
            FileError::Link(_)
            | FileError::ForeignLink(..)
            | FileError::ForeignFile(..)
            | FileError::SecondName(_)
            | FileError::ForeignDirectory(..)
            | FileError::SharedDirectory(_)
            | FileError::Special(_) => io::Error::other(error),
        }
    }
}
