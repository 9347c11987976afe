//! Sockets that clients connect to.

use crate::options::Listen;
use mmb_files::{SocketError, SocketId};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// The reason why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be used.
    #[error("cannot listen on {0}")]
    Address(SocketAddr, #[source] io::Error),
    /// The path is in use.
    #[error("{}: something listens here, or it is no socket; remove it, or give another path", .0.display())]
    Taken(PathBuf),
    /// The path cannot be used.
    #[error("{}: cannot {what}", .path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The action that failed.
        what: &'static str,
        /// The system's error.
        #[source]
        error: io::Error,
    },
}

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    /// On an address.
    Tcp(TcpListener),
    /// In the file system, with device and inode, which tell whether the path is still this socket.
    Unix(UnixListener, PathBuf, SocketId),
}

/// A connection to a client.
#[derive(Debug)]
pub(crate) enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Listener {
    /// Listens. A unix socket is for its owner, and for `group`.
    ///
    /// # Errors
    /// The address or path cannot be used.
    pub(crate) async fn bind(listen: &Listen, group: Option<u32>) -> Result<Listener, ListenError> {
        match listen {
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address).await;
                listener.map(Listener::Tcp).map_err(|error| ListenError::Address(*address, error))
            }
            Listen::Unix(path) => bind_unix(path, group),
        }
    }

    /// Where clients connect: `127.0.0.1:8090` or `unix:PATH`.
    pub(crate) fn name(&self) -> String {
        match self {
            Listener::Tcp(listener) => {
                listener.local_addr().map(|address| address.to_string()).unwrap_or_default()
            }
            Listener::Unix(_, path, _) => format!("unix:{}", path.display()),
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Accepted::Tcp(stream, peer))
            }
            Listener::Unix(listener, ..) => listener.accept().await.map(|(stream, _)| Accepted::Unix(stream)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path, identity) = self
            && self::identity(path).is_ok_and(|found| found == *identity)
        {
            // A dead socket does no harm.
            let _ = fs::remove_file(path);
        }
    }
}

/// Replaces a dead socket.
fn bind_unix(path: &Path, group: Option<u32>) -> Result<Listener, ListenError> {
    let failed = |what| move |error| ListenError::Path { path: path.to_owned(), what, error };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("look there")(error)),
        Ok(metadata) => {
            let is_dead = StdUnixStream::connect(path)
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            if !metadata.file_type().is_socket() || !is_dead {
                return Err(ListenError::Taken(path.to_owned()));
            }
        }
    }
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    let listening = mmb_files::listen(path, mode, group);
    let (listener, identity) = listening.map_err(|SocketError { what, error }| failed(what)(error))?;
    listener.set_nonblocking(true).map_err(failed("listen there"))?;
    let listener = UnixListener::from_std(listener).map_err(failed("listen there"))?;
    Ok(Listener::Unix(listener, path.to_owned(), identity))
}

fn identity(path: &Path) -> io::Result<SocketId> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn bind(path: &Path, group: Option<u32>) -> Result<Listener, ListenError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let _guard = runtime.enter();
        bind_unix(path, group)
    }

    #[test]
    fn a_socket_is_for_its_owner_or_a_group_and_goes_with_the_server() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("web.sock");
        let mode = || fs::metadata(&path).expect("there").permissions().mode() & 0o777;
        let listener = bind(&path, None).expect("listens");
        assert_eq!(mode(), 0o600);
        assert!(matches!(bind(&path, None), Err(ListenError::Taken(_))), "in use");
        drop(listener);
        assert_eq!(fs::read_dir(directory.path()).expect("lists").count(), 0);
        let own = fs::metadata(directory.path()).expect("there").gid();
        let listener = bind(&path, Some(own)).expect("listens");
        assert_eq!(mode(), 0o660);
        std::mem::forget(listener);
    }

    #[test]
    fn files_and_live_sockets_stay() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("precious");
        fs::write(&path, "data").expect("writes");
        assert!(matches!(bind(&path, None), Err(ListenError::Taken(_))));
        let socket = directory.path().join("web.sock");
        drop(std::os::unix::net::UnixListener::bind(&socket).expect("binds"));
        assert!(bind(&socket, None).is_ok(), "a dead one is replaced");
    }
}
