//! Connections: who talks to whom through mmb, in which state, and under which translation.
//!
//! Purpose: a worker's [`ConnectionTable`] finds the connection of a packet from either direction, tracks TCP and SCTP, lets idle entries
//! go, and bounds how many there are. [`nat`] picks addresses and ports that no other connection's replies use,
//! [`fragment`] lends later fragments their first one's ports, [`quoted`] reads what an ICMP error is about.
//!
//! Life-cycle: all of it belongs to one worker, which alone reads and writes it; whoever else wants to know asks the worker.
//! There is no clock in here: the time comes with every call, in milliseconds that only grow.
#![forbid(unsafe_code)]

mod connection;
pub mod fragment;
mod ghosts;
mod hash;
mod index;
pub mod nat;
pub mod quoted;
pub mod sctp;
mod slab;
mod state;
mod table;
pub mod tcp;
mod timeouts;
mod tuple;
mod wheel;

pub use connection::{ConnId, Connection, ConnectionSnapshot, IngressPorts};
pub use hash::TupleHasher;
pub use mmb_packet::proto;
pub use sctp::SctpChunks;
pub use state::{CloseReason, ConnState, Direction, Invalid};
pub use table::{ConnectionTable, InsertError, ReclaimCursor};
pub use tcp::{TcpOutcome, TcpSegment, TcpTracker, TrackedHeader, flags};
pub use timeouts::LONGEST_S;
pub use tuple::{DESTINATION, SOURCE, Side, Tuple, Vlans, Wire, icmp_query};
pub use wheel::SLOT_MS;
