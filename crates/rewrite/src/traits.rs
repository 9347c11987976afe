//! What a packet is, as far as edits ask: one bit a question, so that a step's condition is one AND.

use mmb_packet::checksum::{ICMP, ICMP6, TCP, UDP};
use mmb_packet::{Class, Layout};
use mmb_policy::field::Implies;

/// Questions about a packet, one bit each.
pub(crate) mod is {
    pub(crate) const IP: u16 = 1 << 0;
    pub(crate) const IP4: u16 = 1 << 1;
    pub(crate) const IP6: u16 = 1 << 2;
    pub(crate) const ICMP: u16 = 1 << 3;
    pub(crate) const ICMP6: u16 = 1 << 4;
    pub(crate) const UDP: u16 = 1 << 5;
    pub(crate) const TCP: u16 = 1 << 6;
    /// IP, and not a later fragment.
    pub(crate) const TRANSPORT: u16 = 1 << 7;
    /// A frame with a VLAN tag.
    pub(crate) const TAGGED: u16 = 1 << 8;
}

/// Parts of a packet that a checksum covers, one bit each. A step names the parts that it writes; what a packet
/// [has](Traits::covered) of them decides which checksums follow.
pub(crate) mod part {
    /// The IPv4 header checksum covers it.
    pub(crate) const IP4_HEADER: u8 = 1 << 0;
    /// The transport header or payload.
    pub(crate) const TRANSPORT: u8 = 1 << 1;
    /// The source address in the pseudo header.
    pub(crate) const SOURCE: u8 = 1 << 2;
    /// The destination address in the pseudo header.
    pub(crate) const DESTINATION: u8 = 1 << 3;
    /// The protocol in the pseudo header.
    pub(crate) const PROTO: u8 = 1 << 4;
    /// The next header of the fixed IPv6 header, where it is the protocol in the pseudo header.
    pub(crate) const NEXT: u8 = 1 << 5;
    /// The UDP length, which the pseudo header repeats (RFC 768, RFC 8200 section 8.1).
    pub(crate) const UDP_LENGTH: u8 = 1 << 6;
    /// All that the transport checksum covers.
    pub(crate) const ANY_TRANSPORT: u8 = TRANSPORT | SOURCE | DESTINATION | PROTO | NEXT;
}

/// The answers for one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// [`is`] bits that hold.
    pub(crate) holds: u16,
    /// [`part`] bits that a checksum of this packet covers.
    pub(crate) covered: u8,
}

impl Traits {
    #[inline]
    pub(crate) fn of(layout: &Layout) -> Traits {
        let (mut holds, mut covered) = match layout.class {
            Class::Ip4 => (is::IP | is::IP4, part::IP4_HEADER),
            Class::Ip6 => (is::IP | is::IP6, 0),
            Class::Other => (0, 0),
        };
        if holds != 0 && !layout.is_later_fragment() {
            holds |= is::TRANSPORT;
        }
        if layout.vlan_tags > 0 {
            holds |= is::TAGGED;
        }
        let (kind, pseudo) = match layout.l4_kind {
            TCP => (is::TCP, true),
            UDP => (is::UDP, true),
            ICMP => (is::ICMP, false),
            ICMP6 => (is::ICMP6, true),
            _ => return Traits { holds, covered },
        };
        covered |= part::TRANSPORT | part::UDP_LENGTH;
        if pseudo {
            covered |= part::SOURCE | part::PROTO;
            if !layout.routed {
                covered |= part::DESTINATION;
            }
            if layout.class == Class::Ip6 && layout.proto_at == layout.ip + NEXT_HEADER {
                covered |= part::NEXT;
            }
        }
        Traits { holds: holds | kind, covered }
    }

    /// Whether a step that asks for `needs` (one [`is`] bit) is about this packet.
    #[inline]
    pub(crate) fn meets(self, needs: u16) -> bool {
        self.holds & needs != 0
    }
}

/// Offset of the next header in the fixed IPv6 header.
pub(crate) const NEXT_HEADER: u16 = 6;

/// The packets that have a field which implies this. (Of the fields that imply any frame only the VLAN id is written.)
pub(crate) fn needs(implies: Implies) -> u16 {
    match implies {
        Implies::Frame => is::TAGGED,
        Implies::Ip => is::IP,
        Implies::Ip4 => is::IP4,
        Implies::Ip6 => is::IP6,
        Implies::Icmp => is::ICMP,
        Implies::Icmp6 => is::ICMP6,
        Implies::Udp => is::UDP,
        Implies::Tcp => is::TCP,
        Implies::Transport => is::TRANSPORT,
    }
}
