//! The header fields of packets whose connection has a state machine.

use crate::flags::{ACK, SYN};
use crate::sctp::{SctpChunks, chunk};
use crate::tcp::TcpSegment;

/// The header fields of a tracked packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackedHeader {
    /// A TCP segment.
    Tcp(TcpSegment),
    /// An SCTP packet.
    Sctp(SctpChunks),
}

impl TrackedHeader {
    /// The TCP segment, if it is one.
    #[inline]
    pub fn segment(&self) -> Option<&TcpSegment> {
        match self {
            TrackedHeader::Tcp(segment) => Some(segment),
            TrackedHeader::Sctp(_) => None,
        }
    }

    /// Whether it opens a connection: a SYN or an INIT.
    pub fn opens(&self) -> bool {
        match self {
            TrackedHeader::Tcp(segment) => segment.flags & (SYN | ACK) == SYN,
            TrackedHeader::Sctp(chunks) => chunks.has(chunk::INIT),
        }
    }
}
