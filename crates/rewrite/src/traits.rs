//! Traits of a packet: one bit per condition, so that the condition of a step is one AND.

use mmb_packet::proto::{ICMP, ICMP6, TCP, UDP};
use mmb_packet::{Class, Layout};
use mmb_policy::field::Implies;

/// Conditions on a packet, one bit each.
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

/// Parts of a packet that a checksum covers, one bit each. A step names the parts that it writes; the parts that a packet
/// [has](Traits::covered) determine the checksums that are updated.
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
    /// Everything that the transport checksum covers.
    pub(crate) const ANY_TRANSPORT: u8 = TRANSPORT | SOURCE | DESTINATION | PROTO | NEXT;
}

/// The traits of one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// The [`is`] bits that hold.
    holds: u16,
    /// [`part`] bits that a checksum of this packet covers.
    pub(crate) covered: u8,
}

/// The bits that follow from the kind of transport header, by kind; no kind is above 58.
const KINDS: [Traits; 64] = {
    const SUMMED: u8 = part::TRANSPORT | part::UDP_LENGTH;
    const PSEUDO: u8 = SUMMED | part::SOURCE | part::DESTINATION | part::PROTO | part::NEXT;
    let mut kinds = [Traits { holds: 0, covered: 0 }; 64];
    kinds[TCP as usize] = Traits { holds: is::TCP, covered: PSEUDO };
    kinds[UDP as usize] = Traits { holds: is::UDP, covered: PSEUDO };
    kinds[ICMP as usize] = Traits { holds: is::ICMP, covered: SUMMED };
    kinds[ICMP6 as usize] = Traits { holds: is::ICMP6, covered: PSEUDO };
    kinds
};

/// The traits of packets without tags, fragments, routes and extension headers, by class and kind.
static SIMPLE: [[Traits; 64]; 3] = {
    let mut simple = [KINDS; 3];
    let mut kind = 0;
    while kind < 64 {
        simple[Class::Ip4 as usize][kind].holds |= is::IP | is::IP4 | is::TRANSPORT;
        simple[Class::Ip4 as usize][kind].covered &= !part::NEXT;
        simple[Class::Ip4 as usize][kind].covered |= part::IP4_HEADER;
        simple[Class::Ip6 as usize][kind].holds |= is::IP | is::IP6 | is::TRANSPORT;
        kind += 1;
    }
    simple
};

impl Traits {
    #[inline]
    pub(crate) fn of(layout: &Layout) -> Traits {
        let simple = SIMPLE[layout.class as usize][usize::from(layout.l4_kind & 63)];
        let special = u16::from(layout.vlan_tags) | u16::from(layout.is_routed()) | layout.eh;
        if special == 0 && !layout.is_later_fragment() {
            return simple;
        }
        simple.special(layout)
    }

    /// The changes by tags, fragments, routes and extension headers.
    #[cold]
    fn special(mut self, layout: &Layout) -> Traits {
        if layout.vlan_tags > 0 {
            self.holds |= is::TAGGED;
        }
        if layout.is_later_fragment() {
            self.holds &= !is::TRANSPORT;
        }
        if layout.is_routed() {
            self.covered &= !part::DESTINATION;
        }
        if layout.proto_at != layout.ip + NEXT_HEADER {
            self.covered &= !part::NEXT;
        }
        self
    }

    /// Whether a step that requires one [`is`] bit applies to this packet.
    #[inline]
    pub(crate) fn meets(self, needs: u16) -> bool {
        self.holds & needs != 0
    }
}

/// Offset of the next header in the fixed IPv6 header.
pub(crate) const NEXT_HEADER: u16 = 6;

/// The [`is`] bit of packets with a field that has this implication. (Of the fields that imply any frame, only the VLAN id is
/// writable.)
pub(crate) fn required(implies: Implies) -> u16 {
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
        Implies::TcpOrUdp => is::TCP | is::UDP,
    }
}
