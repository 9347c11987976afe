//! Control of a running mmb: the unix socket, the answers to requests, the state of the daemon.
//!
//! [`Daemon`] owns the policy in force, the control side of the engine and the [`Host`]; [`Server`] connects clients with it, over a unix socket or given streams. The protocol and the other end of a connection are in
//! `mmb-protocol`; conversions from the engine's values to answers are here.
//!
//! The state is behind one mutex. A client's thread locks it to read the state or to commit a change, and never while it reads from the
//! client or writes to it, or has patterns compiled ([`mmb_compile`]). Packet threads do not use it. Entries of the history are written by a thread of their own.
#![forbid(unsafe_code)]

mod audit;
pub mod author;
mod change;
mod client_slots;
mod commit_queue;
mod compiling;
mod convert;
pub mod daemon;
pub mod entropy;
mod frame;
pub mod history;
pub mod host;
mod housekeeping;
mod huge_pages;
pub mod limits;
mod locate;
pub mod memory;
mod offload;
pub mod packet_line;
mod panic_guard;
mod respond;
pub mod server;
mod session;
pub mod socket;
pub mod state;
mod status;
mod stream_summary;
mod unconfirmed;

pub use change::{CommitError, CommittedChange};
pub use daemon::Daemon;
pub use history::{History, HistoryLimits, OpenHistoryError};
pub use host::{Host, PortLosses, PortOffload, PortStatus, UnsupportedRule, WorkerStatus};
pub use housekeeping::Housekeeper;
pub use limits::ServerLimits;
pub use server::{Server, ServerOptions};
pub use socket::{BindError, group_id};
