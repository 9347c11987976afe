//! A directory that is opened once: later calls act on the open directory and never walk its path again.

use crate::error::FileError;
use crate::is_trusted;
use crate::walk::walk;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Write permission of the group and of all others.
const OTHERS_WRITE: u32 = 0o022;

/// The bit with which users rename and remove only their own files in a directory.
const STICKY: u32 = 0o1000;

/// With these flags an open follows no link and does not wait for the other end of a pipe.
const SAFELY: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// An open directory. The names that its methods take are single names, without a slash.
#[derive(Debug)]
pub struct Directory {
    directory: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens a directory. Permission to list it is not needed.
    ///
    /// # Errors
    /// It does not exist or cannot be entered, or a link of another user is on the way.
    pub fn open(path: &Path) -> Result<Directory, FileError> {
        let (parent, name) = walk(path)?;
        Directory::enter(&parent, &name, path)
    }

    /// Opens the directory of a file, and returns the name of the file in it. The file need not exist, and
    /// may be a link.
    ///
    /// # Errors
    /// As for [`Directory::open`], and if the path ends in no name.
    pub fn of_file(path: &Path) -> Result<(Directory, OsString), FileError> {
        let name = path.file_name().ok_or(Errno::ISDIR)?;
        let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        Ok((Directory::open(parent)?, name.to_owned()))
    }

    /// Follows all links of a path, the last name included. Opens the directory in which the path then ends, and
    /// returns the last name in it.
    pub(crate) fn behind_links(path: &Path) -> Result<(Directory, OsString), FileError> {
        let (parent, name) = walk(path)?;
        let shown = path.parent().unwrap_or(Path::new("."));
        Ok((Directory::enter(&parent, OsStr::new("."), shown)?, name))
    }

    fn enter(parent: &OwnedFd, name: &OsStr, path: &Path) -> Result<Directory, FileError> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::openat(parent, name, flags | OFlags::RDONLY, Mode::empty()) {
            Err(Errno::ACCESS) => rustix::fs::openat(parent, name, flags | OFlags::PATH, Mode::empty())?,
            opened => opened?,
        };
        Ok(Directory { directory, path: path.to_owned() })
    }

    /// Returns the same directory with a descriptor of its own.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn try_clone(&self) -> rustix::io::Result<Directory> {
        let directory = rustix::io::fcntl_dupfd_cloexec(&self.directory, 0)?;
        Ok(Directory { directory, path: self.path.clone() })
    }

    /// The path by which it was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses the directory unless it belongs to root or to the user that mmb runs as, and nobody else may
    /// write to it.
    ///
    /// # Errors
    /// Another user owns it or may write to it.
    pub fn refuse_others(&self) -> Result<(), FileError> {
        let status = rustix::fs::fstat(&self.directory)?;
        if !is_trusted(status.st_uid) {
            return Err(FileError::ForeignDirectory(self.path.clone(), status.st_uid));
        }
        match status.st_mode & OTHERS_WRITE {
            0 => Ok(()),
            _ => Err(FileError::SharedDirectory(self.path.clone())),
        }
    }

    /// Opens a file that exists. A link is refused (`ELOOP`).
    ///
    /// # Errors
    /// The system refused.
    pub fn open_file(&self, name: impl AsRef<OsStr>, access: OFlags) -> rustix::io::Result<File> {
        let file = rustix::fs::openat(&self.directory, name.as_ref(), access | SAFELY, Mode::empty())?;
        Ok(file.into())
    }

    /// Creates a file that does not exist yet.
    ///
    /// # Errors
    /// A file or link of this name exists, or the system refused.
    pub fn create_file(
        &self,
        name: impl AsRef<OsStr>,
        access: OFlags,
        mode: u32,
    ) -> rustix::io::Result<File> {
        let flags = access | OFlags::CREATE | OFlags::EXCL | SAFELY;
        let file = rustix::fs::openat(&self.directory, name.as_ref(), flags, Mode::from_raw_mode(mode))?;
        Ok(file.into())
    }

    /// The status of a file. For a link, it is the status of the link itself.
    ///
    /// # Errors
    /// The system refused.
    pub fn status(&self, name: impl AsRef<OsStr>) -> rustix::io::Result<Stat> {
        rustix::fs::statat(&self.directory, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Renames a file. A file that has the new name already is replaced.
    ///
    /// # Errors
    /// The system refused.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> rustix::io::Result<()> {
        rustix::fs::renameat(&self.directory, from.as_ref(), &self.directory, to.as_ref())
    }

    /// Removes a file or link.
    ///
    /// # Errors
    /// The system refused.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> rustix::io::Result<()> {
        rustix::fs::unlinkat(&self.directory, name.as_ref(), AtFlags::empty())
    }

    /// The names in the directory.
    ///
    /// # Errors
    /// The system refused.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.directory)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Refuses an open file of this directory that another user may have put here: a file that does not belong to
    /// a trusted user, or that has a second name (a hard link).
    ///
    /// # Errors
    /// Others may write to the directory, and the file belongs to another user or has a second name.
    pub fn refuse_foreign(&self, name: &OsStr, file: impl AsFd) -> Result<(), FileError> {
        let directory = rustix::fs::fstat(&self.directory)?;
        if is_trusted(directory.st_uid) && directory.st_mode & OTHERS_WRITE == 0 {
            return Ok(());
        }
        let status = rustix::fs::fstat(file)?;
        if !is_trusted(status.st_uid) {
            return Err(FileError::ForeignFile(self.path.join(name), status.st_uid));
        }
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile if status.st_nlink > 1 => Err(FileError::SecondName(self.path.join(name))),
            _ => Ok(()),
        }
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// Whether no other user can redirect the path of a directory. The directory and all directories above it belong
/// to root or to the user that mmb runs as. Others may not write to any of them, except that a directory above may
/// be sticky (as `/tmp` is): there users rename and remove only their own files.
pub fn is_ours_alone(directory: &Path) -> bool {
    let Ok(path) = directory.canonicalize() else { return false };
    let is_ours = |(depth, path): (usize, &Path)| {
        path.metadata().is_ok_and(|found| {
            let is_safe = found.mode() & OTHERS_WRITE == 0 || (depth > 0 && found.mode() & STICKY != 0);
            is_trusted(found.uid()) && is_safe
        })
    };
    path.ancestors().enumerate().all(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("sets");
    }

    #[test]
    fn links_of_our_own_are_followed_to_the_directory() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("a/b")).expect("made");
        symlink("a/../a", folder.path().join("relative")).expect("links");
        symlink(folder.path().join("relative"), folder.path().join("absolute")).expect("links");
        fs::write(folder.path().join("a/b/file"), "x").expect("writes");
        for path in ["a/b", "relative/b", "absolute/b", "absolute/b/../b/.", "a/b/.."] {
            let directory = Directory::open(&folder.path().join(path)).expect(path);
            let wanted = if path.ends_with("..") { "b" } else { "file" };
            assert_eq!(directory.names().expect("lists"), [wanted], "{path}");
        }
        symlink("loop", folder.path().join("loop")).expect("links");
        for path in ["loop", "loop/x", "none/x", "a/b/file"] {
            assert!(Directory::open(&folder.path().join(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn the_link_of_another_user_is_not_followed() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::create_dir(&target).expect("made");
        symlink(&target, &link).expect("links");
        Directory::open(&link).expect("a link of our own");
        std::os::unix::fs::lchown(&link, Some(65_534), None).expect("chowns");
        for path in [link.clone(), link.join("x/y")] {
            let error = Directory::open(&path).expect_err("a link of another user");
            assert!(matches!(error, FileError::ForeignLink(ref named, 65_534) if *named == link), "{error}");
        }
    }

    #[test]
    fn renaming_an_open_directory_redirects_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, elsewhere) = (folder.path().join("a"), folder.path().join("b"));
        fs::create_dir(&path).expect("made");
        let directory = Directory::open(&path).expect("opens");
        fs::rename(&path, &elsewhere).expect("renames");
        symlink("/", &path).expect("links");
        directory.create_file("file", OFlags::WRONLY, 0o600).expect("created");
        assert!(elsewhere.join("file").exists());
    }

    #[test]
    fn a_directory_where_others_write_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = Directory::open(folder.path()).expect("opens");
        for (mode, is_refused) in
            [(0o700, false), (0o755, false), (0o775, true), (0o757, true), (0o1777, true)]
        {
            set_mode(folder.path(), mode);
            assert_eq!(directory.refuse_others().is_err(), is_refused, "{mode:o}");
        }
        if rustix::process::geteuid().is_root() {
            set_mode(folder.path(), 0o700);
            std::os::unix::fs::chown(folder.path(), Some(65_534), None).expect("chowns");
            let error = directory.refuse_others().expect_err("another user's");
            assert!(matches!(error, FileError::ForeignDirectory(_, 65_534)), "{error}");
        }
    }

    #[test]
    fn a_path_below_a_directory_of_others_is_not_ours_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).expect("made");
        set_mode(&inner, 0o700);
        // The outer one: /tmp is another user's or sticky.
        assert!(is_ours_alone(&inner));
        set_mode(folder.path(), 0o777);
        assert!(!is_ours_alone(&inner));
        set_mode(folder.path(), 0o1777);
        assert!(is_ours_alone(&inner));
        assert!(!is_ours_alone(folder.path()), "others create files there");
        assert!(!is_ours_alone(&folder.path().join("none")));
    }
}
