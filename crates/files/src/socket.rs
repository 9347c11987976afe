//! A listening socket in the file system, which gets its mode and group before it appears under its name.
//!
//! The socket is bound under a random name and then renamed. Mode and group are set on the open node and not by
//! path: another user could have replaced the path by a link to a file of root.

use crate::directory::Directory;
use crate::error::FileError;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::OsString;
use std::fs::{Permissions, set_permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// How many random names are tried.
const ATTEMPTS: usize = 16;

/// Device and inode of a socket's node. A caller compares them to see whether a path still is this socket.
pub type SocketId = (u64, u64);

/// Why the socket was not made.
#[derive(Debug)]
pub struct SocketError {
    /// The action that failed.
    pub what: &'static str,
    /// The reason.
    pub error: io::Error,
}

/// Listens at a path. The new node gets this mode and group, and replaces the node that has this path.
///
/// # Errors
/// A link of another user is on the path, or the system refused.
pub fn listen(path: &Path, mode: u32, group: Option<u32>) -> Result<(UnixListener, SocketId), SocketError> {
    let (directory, name) = Directory::of_file(path).map_err(failed("open its directory"))?;
    for _ in 0..ATTEMPTS {
        let mut hidden = name.clone();
        hidden.push(suffix().map_err(failed("make a name"))?);
        let listener = match UnixListener::bind(path.with_file_name(&hidden)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => continue,
            bound => bound.map_err(failed("listen there"))?,
        };
        let published = publish(&directory, &hidden, &name, mode, group);
        if published.is_err() {
            let _ = directory.remove(&hidden);
        }
        return published.map(|id| (listener, id));
    }
    Err(failed("listen there")(Errno::ADDRINUSE))
}

fn failed<E: Into<FileError>>(what: &'static str) -> impl Fn(E) -> SocketError {
    move |error| SocketError { what, error: error.into().into() }
}

/// Sets mode and group of the node that was bound, and gives it its name.
fn publish(
    directory: &Directory,
    hidden: &OsString,
    name: &OsString,
    mode: u32,
    group: Option<u32>,
) -> Result<SocketId, SocketError> {
    let look = failed("look at the socket");
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let node = rustix::fs::openat(directory, hidden, flags, Mode::empty()).map_err(&look)?;
    let status = rustix::fs::fstat(&node).map_err(&look)?;
    let is_ours = FileType::from_raw_mode(status.st_mode) == FileType::Socket
        && status.st_uid == rustix::process::geteuid().as_raw()
        && status.st_nlink == 1;
    if !is_ours {
        return Err(look(Errno::PERM));
    }
    if let Some(group) = group {
        let group = Some(Gid::from_raw(group));
        rustix::fs::chownat(node.as_fd(), "", None, group, AtFlags::EMPTY_PATH)
            .map_err(failed("give the socket to the group"))?;
    }
    // An `O_PATH` descriptor has no fchmod(2); this path reaches its node.
    let path = format!("/proc/self/fd/{}", node.as_raw_fd());
    set_permissions(path, Permissions::from_mode(mode)).map_err(failed("set the mode"))?;
    directory.rename(hidden, name).map_err(failed("put the socket there"))?;
    Ok((status.st_dev, status.st_ino))
}

/// A random suffix. It is short, since the path of a socket has at most 107 bytes.
fn suffix() -> Result<String, Errno> {
    let mut random = [0; 4];
    match getrandom(&mut random, GetRandomFlags::empty())? {
        4 => Ok(format!(".{:08x}", u32::from_ne_bytes(random))),
        _ => Err(Errno::AGAIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_has_its_mode_and_replaces_what_was_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mmb.sock");
        for mode in [0o600, 0o660] {
            let (_listener, id) = listen(&path, mode, None).expect("listens");
            let found = fs::symlink_metadata(&path).expect("there");
            assert_eq!((found.mode() & 0o777, (found.dev(), found.ino())), (mode, id));
            UnixStream::connect(&path).expect("connects");
            assert_eq!(fs::read_dir(folder.path()).expect("lists").count(), 1);
        }
    }

    #[test]
    fn a_node_that_was_replaced_keeps_its_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").expect("writes");
        fs::set_permissions(&victim, Permissions::from_mode(0o600)).expect("sets");
        let directory = Directory::open(folder.path()).expect("opens");
        symlink(&victim, folder.path().join("link")).expect("links");
        let _listener = UnixListener::bind(folder.path().join("socket")).expect("binds");
        fs::hard_link(folder.path().join("socket"), folder.path().join("second")).expect("links");
        for hidden in ["link", "victim", "second"] {
            let (hidden, name) = (OsString::from(hidden), OsString::from("mmb.sock"));
            assert!(publish(&directory, &hidden, &name, 0o666, None).is_err(), "{hidden:?}");
        }
        assert_eq!(fs::metadata(&victim).expect("there").mode() & 0o777, 0o600);
        assert!(!folder.path().join("mmb.sock").exists());
    }
}
