//! The state of a packet relative to connections, as conntrack's `ctinfo`, and what follows from it for the packet.

use super::stream_ref::StreamRef;
use crate::drop::DropReason;
use mmb_conn::fragment::Complete;
use mmb_conn::{CloseReason, ConnId, Direction, Invalid};
use mmb_rewrite::Translation;

/// The connection that ends when the packet's connection is created, and why.
pub(crate) type Replaced = Option<(ConnId, CloseReason)>;

/// The state of a packet relative to the connection table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlowState {
    /// Of no connection, and creates none.
    Untracked,
    /// Of no connection, but may create one.
    New,
    /// Of no connection, and creates one that a helper expects.
    Expected,
    /// Of no connection, and unable to create one.
    Invalid(Invalid),
    /// A packet of this connection.
    Existing(ConnId, Direction),
    /// A fragment without a transport header of this connection; the last field is that of
    /// [`PacketKind::Fragment`](super::key::PacketKind::Fragment).
    Fragment(ConnId, Direction, Option<Complete>),
    /// An ICMP error about a packet of this connection that went the other way.
    Error(ConnId, Direction, QuotedOffsets),
    /// A packet for another worker, by number.
    OtherWorker(usize),
    /// Must be dropped.
    Refused(DropReason),
    /// Held until the first fragment of its datagram arrives; the number is its slot.
    Held(u16),
}

/// Offsets of the packet that an ICMP error quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotedOffsets {
    pub(crate) proto: u8,
    pub(crate) ip: u16,
    pub(crate) l4: u16,
}

/// What a connection does with a packet: the changes of NAT, and the stream that it belongs to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NatTransform {
    pub(crate) translation: Translation,
    /// The packet leaves by the port that it came in by, for this destination MAC address.
    pub(crate) hairpin: Option<[u8; 6]>,
    /// The stream that the packet belongs to.
    pub(crate) stream: Option<StreamRef>,
}

impl NatTransform {
    /// Whether it changes the packet.
    #[inline]
    pub(crate) fn changes(&self) -> bool {
        self.hairpin.is_some() || self.translation != Translation::default()
    }
}
