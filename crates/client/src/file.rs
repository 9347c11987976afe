//! Files that users save and load.
//!
//! A file is replaced atomically: a reader sees the old file or the new one. [`FileWriter`] writes to a temporary file in the target's
//! directory, with a random name, which it creates exclusively; it syncs the file and renames it to the target. It opens the directory
//! once, without following links of other users, so that another user cannot replace the directory meanwhile. It refuses symbolic links, pipes, sockets and devices as targets,
//! since another user who may write to the directory could read or redirect the data with one. It writes to the process's own streams (`-`,
//! `/dev/stdout`, `/dev/fd/N`) directly. The writer holds a lock on its temporary file: a temporary file without a lock is left over from
//! a process that was killed, and the next process that saves the same file removes it.
//!
//! [`open_state`] reads states from regular files and from the process's own streams.

use mmb_files::Directory;
pub use mmb_files::is_own_stream;
use rustix::fs::{Advice, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The disk starts to write each time that so many bytes have been written, so that the sync at the end waits for the last ones only.
const WRITE_BEHIND_BYTES: u64 = 4 << 20;

/// The mark in names of temporary files, which are `.NAME.mmb-NUMBER~`.
const MARK: &str = ".mmb-";
/// Hexadecimal digits of the number, which has 128 random bits.
const DIGITS: usize = 32;

/// The content of a file, which determines its permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileContent {
    /// A policy: the permissions of the replaced file, or 0644 less the umask.
    Policy,
    /// A state of connections, which is private: 0600, whatever the replaced file had.
    State,
}

/// The reason why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// It is a directory.
    #[error("cannot write {0}: it is a directory")]
    Directory(String),
    /// It is a symbolic link.
    #[error("cannot write {0}: it is a symbolic link, which is not followed; name the file itself")]
    Link(String),
    /// It is a pipe, a socket or a device, which anybody may read.
    #[error("cannot write {0}: it is {1}; name a regular file, or `-` for standard output")]
    Special(String, &'static str),
    /// The system refused.
    #[error("cannot write {name}")]
    Io {
        /// Its name.
        name: String,
        /// The reason.
        #[source]
        error: io::Error,
    },
}

/// The reason why a state cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It is a pipe, a socket or a device, which may have no end, or no writer.
    #[error("{0}: it is {1}; a state is a regular file, or `-` for standard input")]
    Special(String, &'static str),
    /// The system refused.
    #[error("{name}")]
    Io {
        /// Its name.
        name: String,
        /// The reason.
        #[source]
        error: io::Error,
    },
}

/// Opens a state of connections; `-` is standard input. Files that are not regular are refused before they are opened, since the opening of a
/// pipe waits for a writer, and that of a device may have an effect. The process's own streams are accepted.
///
/// # Errors
/// The file is not regular, or cannot be opened.
pub fn open_state(name: &str) -> Result<Box<dyn Read>, OpenError> {
    if name == "-" {
        return Ok(Box::new(io::stdin()));
    }
    let failed = |error: Errno| OpenError::Io { name: name.to_owned(), error: error.into() };
    let is_own = is_own_stream(name);
    let refuse_special = |there: Stat| match FileType::from_raw_mode(there.st_mode) {
        FileType::RegularFile => Ok(()),
        _ if is_own => Ok(()),
        special => Err(OpenError::Special(name.to_owned(), kind_name(special))),
    };
    refuse_special(rustix::fs::stat(name).map_err(failed)?)?;
    // The file may have been replaced by a pipe since the check: the opening must not wait.
    let wait = if is_own { OFlags::empty() } else { OFlags::NONBLOCK };
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC | wait;
    let file = rustix::fs::open(name, flags, Mode::empty()).map_err(failed)?;
    refuse_special(rustix::fs::fstat(&file).map_err(failed)?)?;
    Ok(Box::new(File::from(file)))
}

/// A file while it is written.
#[derive(Debug)]
pub struct FileWriter {
    name: String,
    to: WriteDestination,
}

#[derive(Debug)]
enum WriteDestination {
    /// Standard output.
    Standard(io::Stdout),
    /// Another stream of this process, which is written directly.
    Stream(File),
    /// A regular file, which replaces the target at the end.
    Replacement(TemporaryFile),
}

impl FileWriter {
    /// Begins to write a file; `-` is standard output.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(name: &str, content: FileContent) -> Result<FileWriter, WriteError> {
        let failed = |error: Errno| WriteError::Io { name: name.to_owned(), error: error.into() };
        let to = if name == "-" {
            WriteDestination::Standard(io::stdout())
        } else if is_own_stream(name) {
            let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
            WriteDestination::Stream(rustix::fs::open(name, flags, Mode::empty()).map_err(failed)?.into())
        } else {
            let path = Path::new(name);
            if path.file_name().is_none() {
                return Err(WriteError::Directory(name.to_owned()));
            }
            let opened = Directory::of_file(path);
            let (directory, target) =
                opened.map_err(|error| WriteError::Io { name: name.to_owned(), error: error.into() })?;
            let there = match directory.status(&target) {
                Ok(there) => {
                    Some((FileType::from_raw_mode(there.st_mode), Mode::from_raw_mode(there.st_mode)))
                }
                Err(Errno::NOENT) => None,
                Err(error) => return Err(failed(error)),
            };
            match there {
                Some((FileType::Directory, _)) => return Err(WriteError::Directory(name.to_owned())),
                Some((FileType::Symlink, _)) => return Err(WriteError::Link(name.to_owned())),
                Some((FileType::RegularFile, mode)) => {
                    let keep = (content == FileContent::Policy).then_some(mode);
                    WriteDestination::Replacement(
                        TemporaryFile::new(directory, &target, content, keep).map_err(failed)?,
                    )
                }
                None => WriteDestination::Replacement(
                    TemporaryFile::new(directory, &target, content, None).map_err(failed)?,
                ),
                Some((special, _)) => return Err(WriteError::Special(name.to_owned(), kind_name(special))),
            }
        };
        Ok(FileWriter { name: name.to_owned(), to })
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let written = match &mut self.to {
            WriteDestination::Standard(stream) => stream.write_all(bytes),
            WriteDestination::Stream(stream) => stream.write_all(bytes),
            WriteDestination::Replacement(temporary) => temporary.write(bytes),
        };
        written.map_err(|error| WriteError::Io { name: self.name.clone(), error })
    }

    /// Replaces the target with the written file.
    ///
    /// # Errors
    /// The target cannot be replaced, and stays as it was.
    pub fn finish(self) -> Result<(), WriteError> {
        let finished = match self.to {
            WriteDestination::Standard(mut stream) => stream.flush(),
            WriteDestination::Stream(mut stream) => stream.flush(),
            WriteDestination::Replacement(temporary) => temporary.replace_target().map_err(io::Error::from),
        };
        finished.map_err(|error| WriteError::Io { name: self.name, error })
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        FileWriter::write(self, bytes).map(|()| bytes.len()).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn kind_name(special: FileType) -> &'static str {
    match special {
        FileType::Directory => "a directory",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    }
}

/// A file in the directory of the target; removed on drop unless it has replaced the target.
#[derive(Debug)]
struct TemporaryFile {
    file: File,
    directory: Directory,
    name: OsString,
    target: OsString,
    /// Bytes written, and of these the ones that the kernel was asked to write to the disk.
    written: u64,
    behind: u64,
    renamed: bool,
}

impl TemporaryFile {
    fn new(
        directory: Directory,
        target: &OsStr,
        content: FileContent,
        mode: Option<Mode>,
    ) -> rustix::io::Result<TemporaryFile> {
        remove_leftovers(&directory, target);
        let first = match content {
            FileContent::Policy => Mode::from_raw_mode(0o644),
            FileContent::State => Mode::from_raw_mode(0o600),
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let name = temporary_name(target)?;
            let file = match rustix::fs::openat(&directory, &name, flags, first) {
                Ok(file) => File::from(file),
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(error),
            };
            let target = target.to_owned();
            let temporary =
                TemporaryFile { file, directory, name, target, written: 0, behind: 0, renamed: false };
            // On file systems without locks, nobody removes left-over files.
            let _ = rustix::fs::flock(&temporary.file, FlockOperation::NonBlockingLockExclusive);
            if rustix::fs::fstat(&temporary.file)?.st_nlink == 0 {
                // Another process removed it as left over before it was locked.
                let directory = temporary.directory.try_clone()?;
                return TemporaryFile::new(directory, &temporary.target, content, mode);
            }
            if let Some(mode) = mode {
                rustix::fs::fchmod(&temporary.file, mode & (Mode::RWXU | Mode::RWXG | Mode::RWXO))?;
            }
            return Ok(temporary);
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        let fresh = self.written - self.behind;
        if fresh >= WRITE_BEHIND_BYTES {
            // This advice starts the transfer and does not wait for it. The pages stay in memory, since they are in transfer.
            let _ = rustix::fs::fadvise(&self.file, self.behind, NonZeroU64::new(fresh), Advice::DontNeed);
            self.behind = self.written;
        }
        Ok(())
    }

    fn replace_target(mut self) -> rustix::io::Result<()> {
        rustix::fs::fsync(&self.file)?;
        rustix::fs::renameat(&self.directory, &self.name, &self.directory, &self.target)?;
        self.renamed = true;
        // Some file systems cannot sync directories; the file is complete either way.
        let _ = rustix::fs::fsync(&self.directory);
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.renamed {
            // If this fails, the next process removes the file as left over.
            let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

fn temporary_name(target: &OsStr) -> rustix::io::Result<OsString> {
    let mut random = [0; DIGITS / 2];
    let filled = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    if filled < random.len() {
        return Err(Errno::AGAIN);
    }
    let mut name = temporary_prefix(target);
    name.extend(random.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
    name.push(b'~');
    Ok(OsString::from_vec(name))
}

/// Returns the prefix of the names of a target's temporary files.
fn temporary_prefix(target: &OsStr) -> Vec<u8> {
    // A file name has at most 255 bytes.
    let max = 255 - 1 - MARK.len() - DIGITS - 1;
    let target = target.as_bytes();
    [b".", &target[..target.len().min(max)], MARK.as_bytes()].concat()
}

/// Removes the temporary files of this target that killed processes have left over.
fn remove_leftovers(directory: &Directory, target: &OsStr) {
    let Ok(entries) = Dir::read_from(directory) else { return };
    let prefix = temporary_prefix(target);
    let is_leftover = |name: &[u8]| {
        let rest = name.strip_prefix(&*prefix).and_then(|rest| rest.strip_suffix(b"~"));
        rest.is_some_and(|rest| rest.len() == DIGITS && rest.iter().all(u8::is_ascii_hexdigit))
    };
    for entry in entries.flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if is_leftover(name.as_bytes()) {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let Ok(file) = rustix::fs::openat(directory, name, flags, Mode::empty()) else { continue };
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;

    fn directory() -> TempDir {
        tempfile::tempdir().expect("a directory")
    }

    fn begin(path: &Path, content: FileContent) -> Result<FileWriter, WriteError> {
        FileWriter::begin(path.to_str().expect("UTF-8"), content)
    }

    fn save(path: &Path, text: &str) -> Result<(), WriteError> {
        save_as(path, text, FileContent::Policy)
    }

    fn save_as(path: &Path, text: &str, content: FileContent) -> Result<(), WriteError> {
        let mut saving = begin(path, content)?;
        saving.write(text.as_bytes())?;
        saving.finish()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o7777
    }

    fn names(directory: &TempDir) -> Vec<String> {
        let entries = fs::read_dir(directory.path()).expect("lists");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
        names.sort();
        names
    }

    #[test]
    fn a_saved_file_replaces_the_old_one() {
        let directory = directory();
        let path = directory.path().join("a.mmb");
        save(&path, "one\n").expect("saves");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("sets");
        save(&path, "two\n").expect("saves");
        assert_eq!(fs::read_to_string(&path).expect("reads"), "two\n");
        assert_eq!(mode(&path), 0o640);
        assert_eq!(names(&directory), ["a.mmb"]);
    }

    #[test]
    fn a_symbolic_link_is_refused_and_its_target_is_unchanged() {
        let directory = directory();
        let (victim, link) = (directory.path().join("victim"), directory.path().join("link"));
        fs::write(&victim, "precious").expect("writes");
        for target in [&victim, &directory.path().join("nowhere"), Path::new("/dev/null")] {
            symlink(target, &link).expect("links");
            for content in [FileContent::Policy, FileContent::State] {
                let refused = save_as(&link, "two\n", content).expect_err("a link");
                assert!(matches!(refused, WriteError::Link(_)), "{refused}");
            }
            fs::remove_file(&link).expect("removes");
        }
        assert_eq!(fs::read_to_string(&victim).expect("reads"), "precious");
        assert_eq!(names(&directory), ["victim"]);
    }

    /// A link that is created after the check is replaced, and not followed.
    #[test]
    fn a_link_that_is_created_meanwhile_is_not_followed() {
        let directory = directory();
        let (victim, path) = (directory.path().join("victim"), directory.path().join("a.mmb"));
        fs::write(&victim, "precious").expect("writes");
        let mut saving = begin(&path, FileContent::State).expect("begins");
        symlink(&victim, &path).expect("links");
        saving.write(b"one\n").expect("writes");
        saving.finish().expect("saves");
        assert_eq!(fs::read_to_string(&victim).expect("reads"), "precious");
        assert!(fs::symlink_metadata(&path).expect("there").is_file());
    }

    /// The name once consisted of the target's name, the process id and a counter.
    #[test]
    fn the_temporary_files_name_cannot_be_taken_beforehand() {
        let directory = directory();
        let (victim, path) = (directory.path().join("victim"), directory.path().join("a.mmb"));
        fs::write(&victim, "precious").expect("writes");
        for count in 0..100 {
            let guess = directory.path().join(format!("a.mmb.{}.{count}~", std::process::id()));
            symlink(&victim, guess).expect("links");
        }
        save(&path, "one\n").expect("saves");
        assert_eq!(fs::read_to_string(&victim).expect("reads"), "precious");
        let two = [(), ()].map(|()| temporary_name(OsStr::new("a.mmb")).expect("random bytes"));
        assert_ne!(two[0], two[1]);
    }

    #[test]
    fn states_are_for_their_owner_alone() {
        let directory = directory();
        let path = directory.path().join("state");
        let saving = begin(&path, FileContent::State).expect("begins");
        let [temporary] = &names(&directory)[..] else { panic!("one file") };
        assert_eq!(mode(&directory.path().join(temporary)), 0o600, "from its first moment on");
        saving.finish().expect("saves");
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("sets");
        save_as(&path, "one", FileContent::State).expect("saves");
        assert_eq!(mode(&path), 0o600, "whatever it was");
        save(&directory.path().join("policy"), "one").expect("saves");
        assert_eq!(mode(&directory.path().join("policy")) & !0o644, 0, "what the umask leaves");
    }

    #[test]
    fn of_two_files_saved_at_the_same_time_the_last_remains() {
        let directory = directory();
        let path = directory.path().join("a.mmb");
        let [mut one, mut other] = [(), ()].map(|()| begin(&path, FileContent::Policy).expect("begins"));
        one.write(b"first, and longer\n").expect("writes");
        other.write(b"second\n").expect("writes");
        one.finish().expect("saves");
        other.finish().expect("saves");
        assert_eq!(fs::read_to_string(&path).expect("reads"), "second\n");
    }

    #[test]
    fn a_file_that_is_not_finished_is_removed() {
        let directory = directory();
        let path = directory.path().join("a.mmb");
        save(&path, "one\n").expect("saves");
        let mut saving = begin(&path, FileContent::Policy).expect("begins");
        saving.write(b"half").expect("writes");
        drop(saving);
        assert_eq!(fs::read_to_string(&path).expect("reads"), "one\n");
        assert_eq!(names(&directory), ["a.mmb"]);
        assert!(matches!(begin(directory.path(), FileContent::Policy), Err(WriteError::Directory(_))));
        assert!(begin(&directory.path().join("nowhere/a.mmb"), FileContent::Policy).is_err());
    }

    #[test]
    fn the_next_save_removes_left_over_files_of_killed_processes_only() {
        let directory = directory();
        let path = directory.path().join("a.mmb");
        let live = begin(&path, FileContent::Policy).expect("begins");
        let number = "0123456789abcdef".repeat(2);
        let keep = [
            format!(".b.mmb.mmb-{number}~"),
            format!(".a.mmb.mmb-{number}"),
            ".a.mmb.mmb-1234~".to_owned(),
            "a.mmb~".to_owned(),
        ];
        let leftover = format!(".a.mmb.mmb-{number}~");
        for name in keep.iter().chain([&leftover]) {
            fs::write(directory.path().join(name), "half").expect("writes");
        }
        save(&path, "one\n").expect("saves");
        let left = names(&directory);
        assert!(!left.contains(&leftover), "{left:?}");
        assert!(keep.iter().all(|name| left.contains(name)), "{left:?}");
        live.finish().expect("one that is being written is no left-over");
        assert_eq!(names(&directory).len(), keep.len() + 1);
    }

    /// In a directory that everybody may write to, a user could read through a pipe what root saved.
    #[test]
    fn special_files_are_refused_and_get_no_data() {
        let directory = directory();
        let (pipe, socket) = (directory.path().join("pipe"), directory.path().join("socket"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::from_raw_mode(0o666)).expect("a pipe");
        let _listening = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let mut reader = File::from(rustix::fs::open(&pipe, flags, Mode::empty()).expect("opens"));
        for content in [FileContent::Policy, FileContent::State] {
            for (path, what) in
                [(&*pipe, "a pipe"), (&*socket, "a socket"), (Path::new("/dev/null"), "a device")]
            {
                let refused = save_as(path, "one\n", content).expect_err(what);
                assert!(refused.to_string().contains(what), "{refused}");
            }
        }
        assert_eq!(io::Read::read(&mut reader, &mut [0; 8]).expect("nobody writes"), 0);
        assert_eq!(names(&directory), ["pipe", "socket"]);
    }

    /// A pipe that is created after the check is replaced, as a link is.
    #[test]
    fn a_pipe_that_is_created_meanwhile_gets_no_data() {
        let directory = directory();
        let path = directory.path().join("state");
        let mut saving = begin(&path, FileContent::State).expect("begins");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::from_raw_mode(0o666)).expect("a pipe");
        saving.write(b"one\n").expect("writes");
        saving.finish().expect("saves");
        assert!(fs::symlink_metadata(&path).expect("there").is_file());
    }

    #[test]
    fn a_name_as_long_as_names_may_be_is_saved() {
        let directory = directory();
        let path = directory.path().join("x".repeat(255));
        save(&path, "one\n").expect("saves");
        assert_eq!(fs::read_to_string(&path).expect("reads"), "one\n");
    }
}
