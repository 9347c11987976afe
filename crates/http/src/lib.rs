//! Heads of application protocols, read from the bytes of a connection as they come.
//!
//! [`ClientHello`] finds the server name that a TLS client asks for; [`host_matches`] compares host names with the patterns of rules.
//! Parsers own their state, which has a fixed size: they do no I/O, know no clock and allocate nothing.

#![forbid(unsafe_code)]

mod host;
mod tls_sni;

pub use host::{host_matches, name_key};
pub use tls_sni::{ClientHello, HelloProgress};
