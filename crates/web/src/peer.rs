//! The other end of a connection, for the record of changes.

use std::fmt;
use std::net::SocketAddr;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    Address(SocketAddr),
    /// A process of this machine, with its user.
    Process {
        pid: Option<i32>,
        uid: u32,
    },
    Unknown,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Address(address) => address.fmt(f),
            Peer::Process { pid: Some(pid), uid } => write!(f, "process {pid} of user {uid}"),
            Peer::Process { pid: None, uid } => write!(f, "user {uid}"),
            Peer::Unknown => f.write_str("unknown"),
        }
    }
}
