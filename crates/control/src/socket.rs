//! The socket in the file system: made with its mode and group before anyone can see it, put in the place of
//! a dead daemon's, never in that of a live one's, and removed at the end if it is still ours.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Owner and group may talk to the daemon.
const MODE: u32 = 0o660;

/// Why the daemon cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another daemon answers there.
    #[error("{}: another mmb listens here; stop it, or give this one a socket of its own (--socket)", .0.display())]
    InUse(PathBuf),
    /// Something else lies there.
    #[error("{}: there is something, and it is no socket; remove it, or give another path (--socket)", .0.display())]
    NoSocket(PathBuf),
    /// No such group.
    #[error("no group is called '{0}'; a number works too")]
    UnknownGroup(String),
    /// The system refused.
    #[error("{}: cannot {what}", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        #[source]
        error: io::Error,
    },
}

/// A listening socket and its name.
#[derive(Debug)]
pub(crate) struct ListeningSocket {
    pub(crate) listener: UnixListener,
    pub(crate) path: PathBuf,
    /// Device and inode: by these we know whether the name is still ours.
    identity: (u64, u64),
}

impl ListeningSocket {
    /// Listens at `path`, for the owner and `group`. Makes the directory.
    pub(crate) fn bind(path: &Path, group: Option<&str>) -> Result<ListeningSocket, BindError> {
        let failed = |what| move |error| BindError::Io { path: path.to_owned(), what, error };
        let group = group.map(group_id).transpose()?;
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(directory).map_err(failed("make its directory"))?;
        make_way(path)?;

        // Under another name until mode and group are right; the rename then replaces a dead socket at once.
        let mut hidden = path.as_os_str().to_owned();
        hidden.push(format!(".{}", std::process::id()));
        let hidden = PathBuf::from(hidden);
        let _ = fs::remove_file(&hidden);
        let listener = UnixListener::bind(&hidden).map_err(failed("listen there"))?;
        let published = chown(&hidden, None, group)
            .map_err(failed("give the socket to the group"))
            .and_then(|()| {
                fs::set_permissions(&hidden, fs::Permissions::from_mode(MODE)).map_err(failed("set the mode"))
            })
            .and_then(|()| identity(&hidden).map_err(failed("look at the socket")))
            .and_then(|identity| {
                fs::rename(&hidden, path).map_err(failed("put the socket there"))?;
                Ok(identity)
            });
        match published {
            Ok(identity) => Ok(ListeningSocket { listener, path: path.to_owned(), identity }),
            Err(error) => {
                let _ = fs::remove_file(&hidden);
                Err(error)
            }
        }
    }

    /// Removes the name unless it is another daemon's by now.
    pub(crate) fn remove(&self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // Nobody is left to tell: the daemon is going down, and a dead socket hurts nobody.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Looks whether the path may be taken.
fn make_way(path: &Path) -> Result<(), BindError> {
    let there = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(BindError::Io { path: path.to_owned(), what: "look there", error }),
    };
    if !there.file_type().is_socket() {
        return Err(BindError::NoSocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(BindError::InUse(path.to_owned())),
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
            Ok(())
        }
        // Its queue is full: somebody listens, however slowly.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(BindError::InUse(path.to_owned())),
        Err(error) => Err(BindError::Io { path: path.to_owned(), what: "see who listens there", error }),
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// The number of a group of /etc/group, or a number.
fn group_id(group: &str) -> Result<u32, BindError> {
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

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    #[test]
    fn the_directory_is_made_and_the_mode_set() {
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
        assert!(matches!(refused, BindError::InUse(_)), "{refused}");
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
    fn a_name_that_another_daemon_took_over_is_not_removed() {
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
