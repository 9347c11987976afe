//! Files are written so that a reader sees the old file or the new one and nothing between.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Tells files apart that this process writes at the same time.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// It is one that holds files.
    #[error("cannot write {0}: it is a directory")]
    Directory(String),
    /// The system refused.
    #[error("cannot write {name}")]
    Io {
        name: String,
        #[source]
        error: io::Error,
    },
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Saving {
    name: String,
    to: Destination,
}

#[derive(Debug)]
enum Destination {
    /// Standard output, a pipe, a device: written as it comes.
    Stream(Box<dyn WriteDebug>),
    /// A file beside the one that is to be there; removed unless it takes its place.
    Beside { file: File, beside: PathBuf, target: PathBuf, done: bool },
}

trait WriteDebug: Write + std::fmt::Debug {}
impl<T: Write + std::fmt::Debug> WriteDebug for T {}

impl Saving {
    /// Begins to write a file of that name; `-` is standard output.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn begin(name: &str) -> Result<Saving, WriteError> {
        let failed = |error| WriteError::Io { name: name.to_owned(), error };
        let to = if name == "-" {
            Destination::Stream(Box::new(io::stdout()))
        } else {
            // Through symbolic links, so that they stay what they are.
            let target = fs::canonicalize(name).unwrap_or_else(|_| PathBuf::from(name));
            match fs::metadata(&target) {
                Ok(there) if there.is_dir() => return Err(WriteError::Directory(name.to_owned())),
                Ok(there) if !there.is_file() => {
                    let file = fs::OpenOptions::new().write(true).open(&target).map_err(failed)?;
                    Destination::Stream(Box::new(file))
                }
                there => {
                    Saving::beside(&target, there.ok().map(|there| there.permissions())).map_err(failed)?
                }
            }
        };
        Ok(Saving { name: name.to_owned(), to })
    }

    fn beside(target: &Path, permissions: Option<fs::Permissions>) -> io::Result<Destination> {
        let mut beside = target.as_os_str().to_owned();
        beside.push(format!(".{}.{}~", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let beside = PathBuf::from(beside);
        let file = File::create(&beside)?;
        let destination = Destination::Beside { file, beside, target: target.to_owned(), done: false };
        if let (Destination::Beside { file, .. }, Some(permissions)) = (&destination, permissions) {
            file.set_permissions(permissions)?;
        }
        Ok(destination)
    }

    /// Writes more.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let written = match &mut self.to {
            Destination::Stream(stream) => stream.write_all(bytes),
            Destination::Beside { file, .. } => file.write_all(bytes),
        };
        written.map_err(|error| WriteError::Io { name: self.name.clone(), error })
    }

    /// Puts what was written in place.
    ///
    /// # Errors
    /// It cannot be; what was there stays.
    pub(crate) fn finish(mut self) -> Result<(), WriteError> {
        let finished = match &mut self.to {
            Destination::Stream(stream) => stream.flush(),
            Destination::Beside { file, beside, target, done } => {
                let moved = file.sync_all().and_then(|()| fs::rename(&*beside, &*target));
                *done = moved.is_ok();
                moved
            }
        };
        finished.map_err(|error| WriteError::Io { name: self.name, error })
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        if let Destination::Beside { beside, done: false, .. } = self {
            let _ = fs::remove_file(beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn save(path: &Path, text: &str) -> Result<(), WriteError> {
        let mut saving = Saving::begin(path.to_str().expect("UTF-8"))?;
        saving.write(text.as_bytes())?;
        saving.finish()
    }

    #[test]
    fn what_is_saved_takes_the_place_of_what_was_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, link) = (directory.path().join("a.mmb"), directory.path().join("link"));
        save(&path, "one\n").expect("saves");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("sets");
        symlink(&path, &link).expect("links");
        save(&link, "two\n").expect("saves");
        assert_eq!(fs::read_to_string(&path).expect("reads"), "two\n");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).expect("lists").count(), 2);
    }

    #[test]
    fn of_two_that_are_saved_at_once_the_last_stays_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.mmb");
        let name = path.to_str().expect("UTF-8");
        let [mut one, mut other] = ["one", "other"].map(|_| Saving::begin(name).expect("begins"));
        one.write(b"first, and longer\n").expect("writes");
        other.write(b"second\n").expect("writes");
        one.finish().expect("saves");
        other.finish().expect("saves");
        assert_eq!(fs::read_to_string(&path).expect("reads"), "second\n");
    }

    #[test]
    fn what_is_not_finished_leaves_no_trace() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.mmb");
        save(&path, "one\n").expect("saves");
        let mut saving = Saving::begin(path.to_str().expect("UTF-8")).expect("begins");
        saving.write(b"half").expect("writes");
        drop(saving);
        assert_eq!(fs::read_to_string(&path).expect("reads"), "one\n");
        assert_eq!(fs::read_dir(directory.path()).expect("lists").count(), 1);
        assert!(Saving::begin(directory.path().to_str().expect("UTF-8")).is_err(), "a directory");
    }
}
