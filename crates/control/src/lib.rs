//! Control of a running mmb: requests and answers, the unix socket, the state of the daemon.
//!
//! [`Daemon`] owns the policy in force, the control side of the engine and the [`Host`]; [`Server`] lets clients
//! talk to it over a unix socket. What they say to each other is in `docs/protocol.md` and, for programs in Rust,
//! in `protocol`.
#![forbid(unsafe_code)]

pub mod daemon;
pub mod host;
pub mod server;

pub use daemon::Daemon;
pub use host::{Host, PortStatus, WorkerStatus};
pub use server::Server;
