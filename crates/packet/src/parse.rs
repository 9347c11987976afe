//! One look at a packet: is it sound, and where do its headers lie.
//!
//! Purpose: [`parse`] is the only place that trusts nothing. What it returns is a [`Layout`] whose offsets lie inside
//! the packet; everything behind it relies on that. A packet is walked header by header. Most packets of a vector need
//! not be: [`plain`] finds the layouts of untagged Ethernet with plain IP headers and whole TCP and UDP segments many at a
//! time.

mod ip4;
mod ip6;
mod link;
pub mod plain;
mod transport;

pub use ip6::extension_len;

use crate::key::flags;
use crate::proto::TCP;
use crate::view::Packet;
use std::ops::Range;

/// What sort of packet it is; each sort has tables of its own.
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

/// Where a sound packet's headers lie: offsets in bytes from the packet's first byte.
///
/// Invariant, for a layout that [`parse`] returned: `ip <= l4 <= payload <= payload_end <= end <= packet.len()`; the
/// fixed part of the IP header lies between `ip` and `l4`; where `l4_kind` is not 0 the fixed part of that transport
/// header lies between `l4` and `payload`, and for TCP all of its options; `proto_at` lies between `ip` and `l4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Layout {
    /// The packet's sort.
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
    /// The destination address is not the one that the transport checksum covers: a source route (IPv4) or a
    /// routing header (IPv6) still has hops to visit (RFC 8200 section 8.1).
    pub routed: bool,
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
    /// Where the payload lies: behind the transport header, or behind the IP headers where there is none that mmb
    /// knows. Empty for later fragments and for frames that are not IP.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        usize::from(self.payload)..self.payload_end as usize
    }

    /// Where the IP payload lies: behind the IPv4 header and its options, or behind the fixed IPv6 header. Empty for
    /// frames that are not IP.
    #[inline]
    pub fn ip_payload_range(&self) -> Range<usize> {
        match self.class {
            Class::Ip4 => usize::from(self.l4)..self.end as usize,
            Class::Ip6 => usize::from(self.ip) + IP6_HEADER..self.end as usize,
            Class::Other => self.payload_range(),
        }
    }

    /// Where the TCP option area lies; empty where the packet has no TCP header.
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

/// Makes [`Malformed`] of one row for each reason: the variant, its name in counters, its meaning and remedy in the documents.
macro_rules! malformed_reasons {
    ($($reason:ident $name:literal: $meaning:literal, $remedy:literal;)+) => {
        /// Why a packet cannot be parsed. Each is a drop reason of the same name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Malformed {
            $(#[doc = $meaning] $reason,)+
        }

        impl Malformed {
            /// Every reason.
            pub const ALL: [Malformed; [$($name),+].len()] = [$(Malformed::$reason),+];

            /// The reason's name in counters: stable.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Malformed::$reason => $name,)+
                }
            }

            /// The meaning and the remedy of the reason, for documents; the remedy may be empty.
            pub const fn explanation(self) -> (&'static str, &'static str) {
                match self {
                    $(Malformed::$reason => ($meaning, $remedy),)+
                }
            }
        }
    };
}

malformed_reasons! {
    LinkTruncated "link-truncated":
        "the frame ends inside its link header or a VLAN tag",
        "broken or hostile senders; in captures: a snap length (`tcpdump -s 0`)";
    VlanStackTooDeep "vlan-stack-too-deep":
        "more than four VLAN tags",
        "";
    IpBadVersion "ip-bad-version":
        "the IP version differs from the one that the ether type (or the link type of a capture) promises",
        "broken or hostile senders";
    Ip4Truncated "ip4-truncated":
        "the IPv4 header, or the packet that it announces, is longer than the frame",
        "broken or hostile senders; in captures: a snap length (`tcpdump -s 0`)";
    Ip4BadLength "ip4-bad-length":
        "the IPv4 header length is below 20 bytes, or above the total length",
        "broken or hostile senders";
    Ip4BadChecksum "ip4-bad-checksum":
        "the IPv4 header checksum is wrong",
        "broken or hostile senders";
    Ip6Truncated "ip6-truncated":
        "the IPv6 header, or the packet that it announces, is longer than the frame",
        "broken or hostile senders; in captures: a snap length (`tcpdump -s 0`)";
    Ip6HeaderTruncated "ip6-header-truncated":
        "an IPv6 extension header runs past the end of the packet",
        "broken or hostile senders";
    Ip6ChainTooLong "ip6-chain-too-long":
        "more extension headers than `set ip6-max-headers`",
        "raise the setting if the packets are legitimate";
    L4Truncated "l4-truncated":
        "the packet ends inside its transport header",
        "broken or hostile senders; in captures: a snap length (`tcpdump -s 0`)";
    TcpBadOffset "tcp-bad-offset":
        "the TCP data offset is below 5, or above the length of the segment",
        "broken or hostile senders";
    TinyFragment "tiny-fragment":
        "a first fragment does not contain the whole transport header (RFC 1858, RFC 7112)",
        "hostile senders";
}

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

/// Checks a packet and finds its headers.
///
/// # Errors
/// What makes the packet impossible to understand. Transport checksums are not looked at, and a UDP length
/// that lies only bounds the payload.
pub fn parse(packet: &Packet<'_>, limits: &ParserLimits) -> Result<Layout, Malformed> {
    let mut layout = Layout::default();
    parse_into(packet, limits, &mut layout)?;
    Ok(layout)
}

/// The same into a place that the caller has, so that a vector's layouts are written where they stay.
///
/// # Errors
/// As [`parse`]; the layout then means nothing.
pub fn parse_into(packet: &Packet<'_>, limits: &ParserLimits, layout: &mut Layout) -> Result<(), Malformed> {
    let bytes = packet.bytes();
    *layout = Layout::default();
    link::walk(bytes, packet.link, layout)?;
    match layout.eth_type {
        ETHER_IP4 => ip4::walk(bytes, layout),
        ETHER_IP6 => ip6::walk(bytes, layout, limits),
        _ => Ok(()),
    }
}

/// The big-endian word at `at`.
fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}
