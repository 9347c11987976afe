//! The state of a packet relative to connections, like conntrack's `ctinfo`, and the transform that follows
//! from it.

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
    /// Belongs to no connection and creates none.
    Untracked,
    /// Belongs to no connection, but may create one.
    New,
    /// Belongs to no connection, and creates one that a helper expects.
    Expected,
    /// Belongs to no connection, and cannot create one.
    Invalid(Invalid),
    /// A packet of this connection.
    Existing(ConnId, Direction),
    /// A fragment of this connection without a transport header. The last field is that of
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

/// What a connection does to a packet: the translation, and the stream to which the packet belongs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NatTransform {
    pub(crate) translation: Translation,
    /// The packet hairpins: it leaves by its ingress port, to this destination MAC address.
    pub(crate) hairpin: Option<[u8; 6]>,
    /// The stream to which the packet belongs.
    pub(crate) stream: Option<StreamRef>,
}

impl NatTransform {
    /// Whether the translation or the hairpin changes the packet. The stream may also change it.
    #[inline]
    pub(crate) fn changes(&self) -> bool {
        self.hairpin.is_some() || self.translation != Translation::default()
    }
}
