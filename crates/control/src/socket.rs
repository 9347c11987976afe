//! The socket in the file system. It gets its mode and group before it is visible, replaces the socket of a dead daemon and never that of a
//! live one, and is removed at the end unless another daemon has replaced it.

use mmb_files::{SocketError, SocketId};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The mode of the socket: owner and group may connect.
const MODE: u32 = 0o660;

/// The reason why the daemon cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another daemon listens at the path, whose process id this is, if it is known.
    #[error(
        "{}: another mmb{} listens here; stop it, or give this one a socket of its own (--socket)",
        .0.display(),
        process_name(*.1)
    )]
    InUse(PathBuf, Option<u32>),
    /// The path is a file other than a socket.
    #[error("{}: this exists, and is no socket; remove it, or give another path (--socket)", .0.display())]
    NoSocket(PathBuf),
    /// The group does not exist.
    #[error("there is no group '{0}'; a number is accepted too")]
    UnknownGroup(String),
    /// The system refused.
    #[error("{}: cannot {what}", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The action that failed.
        what: &'static str,
        /// The system's error.
        #[source]
        error: io::Error,
    },
}

impl BindError {
    /// The socket, and the process if it is known, if another daemon listens there.
    pub fn held_resource(&self) -> Option<(String, Option<u32>)> {
        let BindError::InUse(path, process) = self else { return None };
        Some((format!("socket {}", path.display()), *process))
    }
}

/// A listening socket and its path.
#[derive(Debug)]
pub(crate) struct ListeningSocket {
    pub(crate) listener: UnixListener,
    pub(crate) path: PathBuf,
    /// Device and inode, which tell whether the path is still this socket.
    identity: SocketId,
}

impl ListeningSocket {
    /// Listens at `path`, for the owner and `group`. Creates the directory.
    pub(crate) fn bind(path: &Path, group: Option<&str>) -> Result<ListeningSocket, BindError> {
        let failed = |what| move |error| BindError::Io { path: path.to_owned(), what, error };
        let group = group.map(group_id).transpose()?;
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(directory).map_err(failed("make its directory"))?;
        check_path(path)?;

        let listening = mmb_files::listen(path, MODE, group);
        let (listener, identity) = listening.map_err(|SocketError { what, error }| failed(what)(error))?;
        Ok(ListeningSocket { listener, path: path.to_owned(), identity })
    }

    /// Removes the socket unless another daemon has replaced it.
    pub(crate) fn remove(&self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // The daemon is about to end, and a dead socket does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Checks that the path does not exist, or is the socket of a dead daemon.
fn check_path(path: &Path) -> Result<(), BindError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(BindError::Io { path: path.to_owned(), what: "look there", error }),
    };
    if !metadata.file_type().is_socket() {
        return Err(BindError::NoSocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Ok(other) => Err(BindError::InUse(path.to_owned(), listener_process(&other))),
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
            Ok(())
        }
        // Its queue is full, so a daemon listens.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(BindError::InUse(path.to_owned(), None))
        }
        Err(error) => Err(BindError::Io { path: path.to_owned(), what: "see who listens there", error }),
    }
}

/// The process that listens at the other end, if it is one of this process namespace.
fn listener_process(stream: &UnixStream) -> Option<u32> {
    let listener = rustix::net::sockopt::socket_peercred(stream).ok()?;
    u32::try_from(listener.pid.as_raw_nonzero().get()).ok()
}

/// ` (process 7)` for messages; nothing for a process that is not known.
pub(crate) fn process_name(process: Option<u32>) -> String {
    process.map(|id| format!(" (process {id})")).unwrap_or_default()
}

fn identity(path: &Path) -> io::Result<SocketId> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Returns the id of a group, given as a name in /etc/group or as a number.
///
/// # Errors
/// There is no group of this name.
pub fn group_id(group: &str) -> Result<u32, BindError> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    groups
        .lines()
        .filter_map(|line| {
            let mut parts = line.split(':');
            let (name, _, number) = (parts.next()?, parts.next()?, parts.next()?);
            (name == group).then(|| number.parse().ok())?
        })
        .next()
        .ok_or_else(|| BindError::UnknownGroup(group.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    #[test]
    fn the_directory_is_created_and_the_mode_set() {
        let directory = directory();
        let path = directory.path().join("run/mmb.sock");
        let socket = ListeningSocket::bind(&path, None).expect("binds");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        UnixStream::connect(&path).expect("connects under its final name");
        socket.remove();
        assert!(!path.exists());
        assert_eq!(fs::read_dir(path.parent().expect("a parent")).expect("lists").count(), 0);
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let directory = directory();
        let path = directory.path().join("mmb.sock");
        drop(ListeningSocket::bind(&path, None).expect("binds"));
        assert!(path.exists(), "the dead daemon left it");
        let alive = ListeningSocket::bind(&path, None).expect("replaces");
        let refused = ListeningSocket::bind(&path, None).expect_err("a live one");
        assert!(matches!(refused, BindError::InUse(_, Some(id)) if id == std::process::id()), "{refused}");
        drop(alive);
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let directory = directory();
        let path = directory.path().join("precious");
        fs::write(&path, "data").expect("writes");
        assert!(matches!(ListeningSocket::bind(&path, None), Err(BindError::NoSocket(_))));
        assert_eq!(fs::read_to_string(&path).expect("reads"), "data");
    }

    #[test]
    fn a_path_that_another_daemon_took_over_is_not_removed() {
        let directory = directory();
        let path = directory.path().join("mmb.sock");
        let first = ListeningSocket::bind(&path, None).expect("binds");
        fs::remove_file(&path).expect("someone removes it");
        let second = ListeningSocket::bind(&path, None).expect("binds");
        first.remove();
        assert!(path.exists());
        second.remove();
        assert!(!path.exists());
    }

    #[test]
    fn groups_are_found_by_name_and_number() {
        assert_eq!(group_id("0").expect("a number"), 0);
        assert_eq!(group_id("root").expect("a name"), 0);
        assert!(matches!(group_id("no-such-group-here"), Err(BindError::UnknownGroup(_))));
    }
}
