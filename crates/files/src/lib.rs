//! Files, locks and sockets in directories where other users may write.
//!
//! mmb often runs as root, and a path that it is given may lead through a directory of another user. That
//! user must not be able to redirect what mmb reads or writes, nor to keep mmb from starting. Five rules
//! follow:
//!
//! - A path is walked once, from directory to directory ([`Directory`]). A symbolic link on the path is
//!   followed only if it belongs to root or to the user that mmb runs as. Later calls act on the open
//!   directory, so that renaming it redirects nothing.
//! - A file that mmb appends to is never a symbolic link. If others may write to its directory, an existing
//!   file must belong to root or to the user that mmb runs as, and must have no second name
//!   ([`open_to_append`]).
//! - The path of a file that mmb overwrites may end in a link of a trusted user. An existing file must fulfil the
//!   same conditions as one that mmb appends to ([`open_output`]).
//! - A file whose content mmb trusts ([`open_trusted`]) is a regular file that no other user could put there.
//! - Only a file that no other user can open serves as a lock ([`LockFile`]): any user who can read a file can
//!   lock it.

#![forbid(unsafe_code)]

mod directory;
mod error;
mod lock_file;
mod open;
mod socket;
mod walk;

pub use directory::{Directory, is_ours_alone};
pub use error::FileError;
pub use lock_file::{LockError, LockFile};
pub use open::{is_own_stream, open_output, open_to_append, open_trusted};
pub use socket::{SocketError, SocketId, listen};

/// Whether a user is trusted: root, and the user that this process runs as.
fn is_trusted(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}
