//! Control of a running mmb: requests and answers, the unix socket, the state of the daemon.
//!
//! [`Daemon`] owns the policy in force, the control side of the engine and the [`Host`]; [`Server`] lets
//! clients talk to it, over a unix socket or streams that it is given; [`Client`] is the other end. What they say to each other is in
//! `docs/protocol.md` and, for programs in Rust, in [`protocol`] and [`answer`].
//!
//! The state is behind one mutex. A client's thread holds it while it looks at something or makes a change,
//! and never while it reads from the client or writes to it. The packet threads do not know it.
#![forbid(unsafe_code)]

pub mod answer;
pub mod client;
mod client_slots;
mod commit_queue;
pub mod daemon;
pub mod entropy;
mod frame;
pub mod host;
mod language;
pub mod limits;
mod locate;
pub mod memory;
pub mod protocol;
mod respond;
pub mod server;
mod session;
pub mod socket;
mod status;

pub use client::{Client, ClientError};
pub use daemon::{CommitError, Committed, Daemon};
pub use host::{Host, PortStatus, UnsupportedRule, WorkerStatus};
pub use limits::ServerLimits;
pub use server::{Server, ServerOptions};
pub use socket::{BindError, DEFAULT_SOCKET};
