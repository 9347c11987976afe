//! Types that both fragment tables use: the key of a datagram, and the reasons to drop a fragment.

use crate::{Side, Tuple, Wire, proto};
use mmb_packet::flow::header_len;

/// The fields that identify the fragments of one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    /// Source and destination address, as they arrived.
    pub addresses: [u128; 2],
    /// The identification of the IPv4 header or of the IPv6 fragment header.
    pub id: u32,
    /// The upper-layer protocol. It does not distinguish datagrams of IPv6 (RFC 8200, section 4.5).
    pub proto: u8,
    /// 4 or 6.
    pub family: u8,
    /// The wire, as in [`Tuple`].
    pub wire: Wire,
    /// The side of the wire, as in [`Tuple`].
    pub side: Side,
}

impl FragmentKey {
    /// The key in the form that is hashed and compared.
    pub fn packed(&self) -> Tuple {
        let proto = if self.family == 6 { 0 } else { self.proto };
        let ports = [(self.id >> 16) as u16, self.id as u16];
        let FragmentKey { addresses, family, wire, side, .. } = *self;
        Tuple { addresses, ports, wire, side, proto, family }
    }

    /// The number of transport header bytes that a first fragment must contain, since rules match on them.
    pub(super) fn header(&self) -> u32 {
        match self.proto {
            proto::TCP => 20,
            proto::UDP | proto::ICMP | proto::ICMP6 => 8,
            // Up to the end of the key, which an optional checksum may precede.
            proto::GRE => 12,
            other => header_len(other).max(1) as u32,
        }
    }
}

/// Why a fragment is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentDrop {
    /// It overlaps another fragment, or contradicts the known end of the datagram. Further fragments of the
    /// datagram are dropped as well.
    Overlap,
    /// The same bytes were seen before. The datagram is not affected.
    Duplicate,
    /// A first fragment is too short for the transport header, or a later fragment starts within the TCP
    /// header.
    Tiny,
    /// It is empty, it extends beyond the maximum datagram, or its length is not a multiple of 8 although
    /// more fragments follow.
    BadLength,
    /// The datagram has more fragments than are tracked.
    TooMany,
    /// It arrived before the first fragment, and there is no room to hold it.
    NoRoom,
    /// The datagram's first fragment was refused.
    Refused,
}

/// The maximum number of fragments of one datagram. A datagram of 64 KiB takes only 120 fragments of 576
/// bytes, which every host accepts. In the smallest fragments that an IPv4 link must carry, it would take
/// 1,400.
pub(super) const MAX_FRAGMENTS: usize = 128;
