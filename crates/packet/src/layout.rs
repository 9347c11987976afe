//! The layout of a sound packet: where its headers lie and of what kind they are.

use crate::key::flags;
use crate::proto::TCP;
use std::ops::Range;

/// The class of a packet; each class has tables of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Class {
    /// An IPv4 packet.
    Ip4,
    /// An IPv6 packet.
    Ip6,
    /// A frame that is not IP: ARP, LLDP, …
    #[default]
    Other,
}

impl Class {
    /// Its name: `ip4`, `ip6`, `other`.
    pub fn name(self) -> &'static str {
        match self {
            Class::Ip4 => "ip4",
            Class::Ip6 => "ip6",
            Class::Other => "other",
        }
    }
}

/// The offsets of a sound packet's headers, in bytes from the packet's first byte.
///
/// Invariant, for a layout that [`parse`](crate::parse::parse) returned: `ip <= l4 <= payload <= payload_end <= end <= packet.len()`; the
/// fixed part of the IP header lies between `ip` and `l4`; where `l4_kind` is not 0 the fixed part of that transport
/// header lies between `l4` and `payload`, and for TCP all of its options; `proto_at` lies between `ip` and `l4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Layout {
    /// The packet's class.
    pub class: Class,
    /// The kind of transport header at `l4`: 6, 17, 1 (only over IPv4), 58 (only over IPv6), or 0 if there is none
    /// that mmb knows (another protocol, or a later fragment).
    pub l4_kind: u8,
    /// The upper-layer protocol (IPv4: the protocol field).
    pub proto: u8,
    /// The [`crate::key::flags`] of the packet.
    pub flags: u8,
    /// The [`crate::key::eh`] bits of the packet.
    pub eh: u16,
    /// The number of VLAN tags.
    pub vlan_tags: u8,
    /// The ether type behind all tags.
    pub eth_type: u16,
    /// Offset of the IP header (frames that are not IP: of the first byte behind the ether type).
    pub ip: u16,
    /// Offset of the byte that names the upper-layer protocol.
    pub proto_at: u16,
    /// Offset of the transport header, or of what follows the IP headers where there is none.
    pub l4: u16,
    /// Offset of the payload: behind the transport header.
    pub payload: u16,
    /// Offset of the first byte behind the IP packet: the frame may have a trailer behind it. (Frames that are not IP:
    /// of the frame's end.)
    pub end: u32,
    /// Offset of the first byte behind the payload: `end`, or less where a UDP length says so.
    pub payload_end: u32,
}

impl Layout {
    /// The range of the payload: behind the transport header, or behind the IP headers where there is none that mmb
    /// knows. Empty for later fragments and for frames that are not IP.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        usize::from(self.payload)..self.payload_end as usize
    }

    /// The range of the IP payload: behind the IPv4 header and its options, or behind the fixed IPv6 header. Empty for
    /// frames that are not IP.
    #[inline]
    pub fn ip_payload_range(&self) -> Range<usize> {
        match self.class {
            Class::Ip4 => usize::from(self.l4)..self.end as usize,
            Class::Ip6 => usize::from(self.ip) + IP6_HEADER..self.end as usize,
            Class::Other => self.payload_range(),
        }
    }

    /// The range of the TCP option area; empty where the packet has no TCP header.
    #[inline]
    pub fn tcp_options(&self) -> Range<usize> {
        let start = if self.l4_kind == TCP { self.l4 + TCP_HEADER as u16 } else { self.payload };
        usize::from(start)..usize::from(self.payload)
    }

    /// Whether the packet is a fragment, first or later.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.flags & flags::FRAGMENT != 0
    }

    /// Whether a source route or a routing header still has hops to visit ([`flags::ROUTED`]).
    #[inline]
    pub fn is_routed(&self) -> bool {
        self.flags & flags::ROUTED != 0
    }

    /// Whether the packet is a fragment that is not the first one.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.flags & flags::LATER_FRAGMENT != 0
    }
}

/// Bounds of the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParserLimits {
    /// The most IPv6 extension headers that are walked in one packet.
    pub ip6_headers: u8,
}

impl Default for ParserLimits {
    fn default() -> Self {
        ParserLimits { ip6_headers: 16 }
    }
}

/// The most VLAN tags of one frame.
pub const MAX_VLAN_TAGS: u8 = 4;

/// Bytes of the fixed IPv4 header.
pub const IP4_HEADER: usize = 20;
/// Bytes of the fixed IPv6 header.
pub const IP6_HEADER: usize = 40;
/// Bytes of the fixed TCP header.
pub const TCP_HEADER: usize = 20;
/// Bytes of the UDP header, and of what counts as the header of ICMP and ICMPv6.
pub const SHORT_HEADER: usize = 8;
/// Ether type of IPv4.
pub const ETHER_IP4: u16 = 0x0800;
/// Ether type of IPv6.
pub const ETHER_IP6: u16 = 0x86dd;

/// The big-endian word at `at`.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}
