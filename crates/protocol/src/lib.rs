//! The protocol of the control socket: requests, answers, and their form on the wire.
//!
//! A client sends a [`Request`] as one line of JSON. The daemon answers it with any number of lines ([`answer`]), the last of
//! which is [`Answer::End`](answer::Answer::End). An answer is made of small lines, so that neither side buffers a long one as a
//! whole. `docs/protocol.md` describes the wire for programs in other languages; this crate is the only other place that knows
//! it, and it depends on no other crate of mmb.
//!
//! [`Client`] is the client's end of a connection. The daemon's end, with its limits on time and memory, is in `mmb-control`.
#![forbid(unsafe_code)]

pub mod answer;
pub mod client;
mod framing;
pub mod hex;
pub mod request;

pub use client::{Client, ClientError};
pub use framing::{push_state, write_line};
pub use request::Request;

/// The version of the protocol. It changes when an old client would misunderstand a new daemon.
pub const VERSION: u32 = 1;

/// The path of the daemon's socket, unless a user names another one.
pub const DEFAULT_SOCKET: &str = "/run/mmb/mmb.sock";
