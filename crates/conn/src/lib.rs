//! Connection tracking: connections and their states.
//!
//! Purpose: a worker's [`ConnectionTable`] finds the connection of a packet in either direction, tracks TCP
//! and SCTP, times out idle connections, and limits their number. [`fragment`] gives later fragments the
//! ports of their datagram's first fragment. [`quoted`] parses the packet that an ICMP error quotes.
//! [`index`] is the index of the table, and of the tables of NAT (crate `mmb-nat`), which chooses the reply
//! tuple of a translated connection.
//!
//! Life-cycle: a worker owns its tables, and only that worker reads and writes them. Other threads send
//! requests to the worker. This crate reads no clock: each call receives the time, in milliseconds that never
//! decrease.
#![forbid(unsafe_code)]

mod alloc_error;
mod connection;
mod ends;
pub mod fragment;
mod ghosts;
mod hash;
mod ids;
pub mod index;
mod links;
mod offloaded;
mod owner;
mod queue;
mod quick;
pub mod quoted;
mod record;
pub mod sctp;
mod slab;
mod state;
mod table;
pub mod tcp;
mod timeouts;
mod tracked;
mod tuple;
mod wheel;
mod wide;

pub use connection::{Connection, ConnectionSnapshot, IngressPorts, Unfolded};
pub use hash::TupleHasher;
pub use ids::{ConnId, ExtensionId, LeaseId, ResourceIds, RuleSetId};
pub use mmb_packet::proto;
pub use offloaded::{EndNumbers, OffloadedPackets};
pub use owner::{CLOSE_BATCH, TableOwner};
pub use queue::FOLD_BATCH;
pub use quick::{QuickLookup, QuickPort, QuickResult, QuickTranslation, QuickVector};
pub use sctp::SctpChunks;
pub use state::{CloseReason, ConnState, Direction, Invalid};
pub use table::{ConnectionTable, InsertError};
pub use tcp::{ConnTracker, TcpSegment, TrackOutcome, flags};
pub use timeouts::LONGEST_S;
pub use tracked::TrackedHeader;
pub use tuple::{DESTINATION, SOURCE, Side, Tuple, Vlans, Wire, icmp_query};
pub use wheel::{ReclaimCursor, SLOT_MS};
