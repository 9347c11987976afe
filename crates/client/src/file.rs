//! Files are written so that a reader sees the old file or the new one and nothing between, and so that nobody who may write
//! to the same directory can have something else written.
//!
//! What is saved goes to a temporary file in the target's directory, whose name nobody guesses and which must not have existed;
//! it is synced and takes the target's place by a rename. The directory is opened once: nobody swaps it meanwhile. Symbolic
//! links, pipes, sockets and devices are refused as targets: whoever put one there would read or redirect what another user saves. A
//! process's own streams (`-`, `/dev/stdout`, `/dev/fd/N`) are written as it comes. The writer holds a lock on its temporary file, so that one without a lock was
//! left by a process that was killed; the next one that saves the same file removes it.
//!
//! States are read from regular files and from a process's own streams.

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The names of temporary files are `.NAME.mmb-NUMBER~`.
const MARK: &str = ".mmb-";
/// Digits of the number: 128 random bits in hexadecimal.
const DIGITS: usize = 32;

/// What a file holds, and so who may read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The permissions of the file that was there, or what the umask leaves of 0644.
    Policy,
    /// Who talks to whom: its owner may read it, whatever was there.
    State,
}

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// It is one that holds files.
    #[error("cannot write {0}: it is a directory")]
    Directory(String),
    /// It is the name of another file.
    #[error("cannot write {0}: it is a symbolic link, which is not followed; name the file itself")]
    Link(String),
    /// Whoever reads it may be anybody.
    #[error("cannot write {0}: it is {1}; name a regular file, or `-` for standard output")]
    Special(String, &'static str),
    /// The system refused.
    #[error("cannot write {name}")]
    Io {
        name: String,
        #[source]
        error: io::Error,
    },
}

/// Why a state cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// It may have no end, or nobody who writes it.
    #[error("{0}: it is {1}; a state is a regular file, or `-` for standard input")]
    Special(String, &'static str),
    /// The system refused.
    #[error("{name}")]
    Io {
        name: String,
        #[source]
        error: io::Error,
    },
}

/// Opens a state of connections; `-` is standard input. What is no regular file is refused, and not opened: to open a pipe waits for who
/// writes it, and to open a device may do something. A process's own streams are read as they come.
///
/// # Errors
/// It is none, or cannot be opened.
pub(crate) fn open_state(name: &str) -> Result<Box<dyn Read>, OpenError> {
    if name == "-" {
        return Ok(Box::new(io::stdin()));
    }
    let failed = |error: Errno| OpenError::Io { name: name.to_owned(), error: error.into() };
    let is_own = is_own_stream(name);
    let refuse_special = |there: Stat| match FileType::from_raw_mode(there.st_mode) {
        FileType::RegularFile => Ok(()),
        _ if is_own => Ok(()),
        special => Err(OpenError::Special(name.to_owned(), called(special))),
    };
    refuse_special(rustix::fs::stat(name).map_err(failed)?)?;
    // It may have been replaced by then: nobody waits.
    let wait = if is_own { OFlags::empty() } else { OFlags::NONBLOCK };
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC | wait;
    let file = rustix::fs::open(name, flags, Mode::empty()).map_err(failed)?;
    refuse_special(rustix::fs::fstat(&file).map_err(failed)?)?;
    Ok(Box::new(File::from(file)))
}

/// Whether a name is one of this process's own streams.
pub(crate) fn is_own_stream(name: &str) -> bool {
    matches!(name, "-" | "/dev/stdin" | "/dev/stdout" | "/dev/stderr") || name.starts_with("/dev/fd/")
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Saving {
    name: String,
    to: Destination,
}

#[derive(Debug)]
enum Destination {
    Standard(io::Stdout),
    /// One of this process's own: written as it comes.
    Stream(File),
    Beside(Temporary),
}

impl Saving {
    /// Begins to write a file of that name; `-` is standard output.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn begin(name: &str, content: Content) -> Result<Saving, WriteError> {
        let failed = |error: Errno| WriteError::Io { name: name.to_owned(), error: error.into() };
        let to = if name == "-" {
            Destination::Standard(io::stdout())
        } else if is_own_stream(name) {
            let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
            Destination::Stream(rustix::fs::open(name, flags, Mode::empty()).map_err(failed)?.into())
        } else {
            let path = Path::new(name);
            let target = path.file_name().ok_or_else(|| WriteError::Directory(name.to_owned()))?;
            let directory = open_directory(path).map_err(failed)?;
            let there = match rustix::fs::statat(&directory, target, AtFlags::SYMLINK_NOFOLLOW) {
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
                    let keep = (content == Content::Policy).then_some(mode);
                    Destination::Beside(Temporary::new(directory, target, content, keep).map_err(failed)?)
                }
                None => {
                    Destination::Beside(Temporary::new(directory, target, content, None).map_err(failed)?)
                }
                Some((special, _)) => return Err(WriteError::Special(name.to_owned(), called(special))),
            }
        };
        Ok(Saving { name: name.to_owned(), to })
    }

    /// Writes more.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let written = match &mut self.to {
            Destination::Standard(stream) => stream.write_all(bytes),
            Destination::Stream(stream) => stream.write_all(bytes),
            Destination::Beside(temporary) => temporary.file.write_all(bytes),
        };
        written.map_err(|error| WriteError::Io { name: self.name.clone(), error })
    }

    /// Puts what was written in place.
    ///
    /// # Errors
    /// It cannot be; what was there stays.
    pub(crate) fn finish(self) -> Result<(), WriteError> {
        let finished = match self.to {
            Destination::Standard(mut stream) => stream.flush(),
            Destination::Stream(mut stream) => stream.flush(),
            Destination::Beside(temporary) => temporary.take_place().map_err(io::Error::from),
        };
        finished.map_err(|error| WriteError::Io { name: self.name, error })
    }
}

/// The directory that a path is in; one that may not be listed will do.
fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(parent, flags | OFlags::RDONLY, Mode::empty()) {
        Err(Errno::ACCESS) => rustix::fs::open(parent, flags | OFlags::PATH, Mode::empty()),
        opened => opened,
    }
}

fn called(special: FileType) -> &'static str {
    match special {
        FileType::Directory => "a directory",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    }
}

/// A file beside the one that is to be there; removed unless it takes its place.
#[derive(Debug)]
struct Temporary {
    file: File,
    directory: OwnedFd,
    name: OsString,
    target: OsString,
    placed: bool,
}

impl Temporary {
    fn new(
        directory: OwnedFd,
        target: &OsStr,
        content: Content,
        mode: Option<Mode>,
    ) -> rustix::io::Result<Temporary> {
        remove_leftovers(&directory, target);
        let first = match content {
            Content::Policy => Mode::from_raw_mode(0o644),
            Content::State => Mode::from_raw_mode(0o600),
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
            let temporary = Temporary { file, directory, name, target, placed: false };
            // Where there are no locks, nobody removes what is left either.
            let _ = rustix::fs::flock(&temporary.file, FlockOperation::NonBlockingLockExclusive);
            if rustix::fs::fstat(&temporary.file)?.st_nlink == 0 {
                // Somebody took it for a left-over before it was locked.
                let directory = rustix::io::fcntl_dupfd_cloexec(&temporary.directory, 0)?;
                return Temporary::new(directory, &temporary.target, content, mode);
            }
            if let Some(mode) = mode {
                rustix::fs::fchmod(&temporary.file, mode & (Mode::RWXU | Mode::RWXG | Mode::RWXO))?;
            }
            return Ok(temporary);
        }
    }

    fn take_place(mut self) -> rustix::io::Result<()> {
        rustix::fs::fsync(&self.file)?;
        rustix::fs::renameat(&self.directory, &self.name, &self.directory, &self.target)?;
        self.placed = true;
        // Some file systems cannot; the file is there, and whole, either way.
        let _ = rustix::fs::fsync(&self.directory);
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.placed {
            // It is recognised as left over if this fails.
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
    let mut name = beginning(target);
    name.extend(random.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
    name.push(b'~');
    Ok(OsString::from_vec(name))
}

/// How the names of a target's temporary files begin.
fn beginning(target: &OsStr) -> Vec<u8> {
    // A name has 255 bytes at most.
    let most = 255 - 1 - MARK.len() - DIGITS - 1;
    let target = target.as_bytes();
    [b".", &target[..target.len().min(most)], MARK.as_bytes()].concat()
}

/// Removes what processes that were killed have left of this target.
fn remove_leftovers(directory: &OwnedFd, target: &OsStr) {
    let Ok(entries) = Dir::read_from(directory) else { return };
    let beginning = beginning(target);
    let is_leftover = |name: &[u8]| {
        let rest = name.strip_prefix(&*beginning).and_then(|rest| rest.strip_suffix(b"~"));
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

    fn begin(path: &Path, content: Content) -> Result<Saving, WriteError> {
        Saving::begin(path.to_str().expect("UTF-8"), content)
    }

    fn save(path: &Path, text: &str) -> Result<(), WriteError> {
        save_as(path, text, Content::Policy)
    }

    fn save_as(path: &Path, text: &str, content: Content) -> Result<(), WriteError> {
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
    fn what_is_saved_takes_the_place_of_what_was_there() {
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
    fn a_symbolic_link_is_refused_and_what_it_names_is_untouched() {
        let directory = directory();
        let (victim, link) = (directory.path().join("victim"), directory.path().join("link"));
        fs::write(&victim, "precious").expect("writes");
        for target in [&victim, &directory.path().join("nowhere"), Path::new("/dev/null")] {
            symlink(target, &link).expect("links");
            for content in [Content::Policy, Content::State] {
                let refused = save_as(&link, "two\n", content).expect_err("a link");
                assert!(matches!(refused, WriteError::Link(_)), "{refused}");
            }
            fs::remove_file(&link).expect("removes");
        }
        assert_eq!(fs::read_to_string(&victim).expect("reads"), "precious");
        assert_eq!(names(&directory), ["victim"]);
    }

    /// A link that comes after the look is replaced, and not followed.
    #[test]
    fn a_link_that_is_put_there_meanwhile_is_not_followed() {
        let directory = directory();
        let (victim, path) = (directory.path().join("victim"), directory.path().join("a.mmb"));
        fs::write(&victim, "precious").expect("writes");
        let mut saving = begin(&path, Content::State).expect("begins");
        symlink(&victim, &path).expect("links");
        saving.write(b"one\n").expect("writes");
        saving.finish().expect("saves");
        assert_eq!(fs::read_to_string(&victim).expect("reads"), "precious");
        assert!(fs::symlink_metadata(&path).expect("there").is_file());
    }

    /// The name was once the target's with the process's number and a count.
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
        let saving = begin(&path, Content::State).expect("begins");
        let [temporary] = &names(&directory)[..] else { panic!("one file") };
        assert_eq!(mode(&directory.path().join(temporary)), 0o600, "from its first moment on");
        saving.finish().expect("saves");
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("sets");
        save_as(&path, "one", Content::State).expect("saves");
        assert_eq!(mode(&path), 0o600, "whatever it was");
        save(&directory.path().join("policy"), "one").expect("saves");
        assert_eq!(mode(&directory.path().join("policy")) & !0o644, 0, "what the umask leaves");
    }

    #[test]
    fn of_two_that_are_saved_at_once_the_last_stays_whole() {
        let directory = directory();
        let path = directory.path().join("a.mmb");
        let [mut one, mut other] = [(), ()].map(|()| begin(&path, Content::Policy).expect("begins"));
        one.write(b"first, and longer\n").expect("writes");
        other.write(b"second\n").expect("writes");
        one.finish().expect("saves");
        other.finish().expect("saves");
        assert_eq!(fs::read_to_string(&path).expect("reads"), "second\n");
    }

    #[test]
    fn what_is_not_finished_leaves_no_trace() {
        let directory = directory();
        let path = directory.path().join("a.mmb");
        save(&path, "one\n").expect("saves");
        let mut saving = begin(&path, Content::Policy).expect("begins");
        saving.write(b"half").expect("writes");
        drop(saving);
        assert_eq!(fs::read_to_string(&path).expect("reads"), "one\n");
        assert_eq!(names(&directory), ["a.mmb"]);
        assert!(matches!(begin(directory.path(), Content::Policy), Err(WriteError::Directory(_))));
        assert!(begin(&directory.path().join("nowhere/a.mmb"), Content::Policy).is_err());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_by_the_next_save_and_nothing_else_is() {
        let directory = directory();
        let path = directory.path().join("a.mmb");
        let live = begin(&path, Content::Policy).expect("begins");
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

    /// A pipe in place of the file, where everybody may write, had its maker read what root saved.
    #[test]
    fn what_is_no_file_is_refused_and_gets_nothing() {
        let directory = directory();
        let (pipe, socket) = (directory.path().join("pipe"), directory.path().join("socket"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::from_raw_mode(0o666)).expect("a pipe");
        let _listening = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let mut reader = File::from(rustix::fs::open(&pipe, flags, Mode::empty()).expect("opens"));
        for content in [Content::Policy, Content::State] {
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

    /// One that is put there meanwhile is replaced, as a link is.
    #[test]
    fn a_pipe_that_is_put_there_meanwhile_gets_nothing() {
        let directory = directory();
        let path = directory.path().join("state");
        let mut saving = begin(&path, Content::State).expect("begins");
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
