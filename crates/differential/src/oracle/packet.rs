//! A packet as the oracle takes it.

use mmb_packet::{LinkType, PortId};

/// A packet as it came in.
#[derive(Clone, Copy, Debug)]
pub struct OraclePacket<'a> {
    /// Its bytes, link header first.
    pub bytes: &'a [u8],
    /// Free bytes in front of it, into which it may grow.
    pub headroom: usize,
    /// The port that it came in by.
    pub port: PortId,
    /// Its link header type.
    pub link: LinkType,
}
