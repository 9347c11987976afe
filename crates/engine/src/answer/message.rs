//! The messages of ICMP and ICMPv6 errors: type, code and the four bytes after the checksum.

use mmb_packet::{Class, Layout, Packet};
use mmb_policy::rule::Reject;

/// Types (RFC 792, RFC 4443).
const UNREACHABLE: u8 = 3;
const UNREACHABLE6: u8 = 1;
const TOO_BIG6: u8 = 2;
const PARAMETER_PROBLEM6: u8 = 4;
/// Codes of destination unreachable.
const PORT: u8 = 3;
const PORT6: u8 = 4;
/// The smallest MTU of an IPv6 link (RFC 8200 section 5). Hosts ignore smaller ones.
const MIN_MTU6: u32 = 1280;
/// The code of a parameter problem: unrecognized next header.
const NEXT_HEADER: u8 = 1;

/// An ICMP or ICMPv6 error, by the class of the packet that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IcmpMessage {
    pub(super) kind: u8,
    pub(super) code: u8,
    /// The bytes after the checksum.
    pub(super) rest: [u8; 4],
}

impl IcmpMessage {
    pub(super) fn port_unreachable(layout: &Layout) -> IcmpMessage {
        IcmpMessage::unreachable(PORT, layout)
    }

    /// Destination unreachable with an ICMP code. For IPv6, the error to which RFC 7915 section 4.2
    /// translates it.
    pub(super) fn unreachable(code: u8, layout: &Layout) -> IcmpMessage {
        let code6 = match code {
            PORT => PORT6,
            // The RFC has no translation for code 14 (host precedence violation). It is a prohibition too.
            9 | 10 | 13..=Reject::MAX_ICMP => 1,
            2 if layout.class == Class::Ip6 => return IcmpMessage::unknown_next_header(layout),
            _ => 0,
        };
        match layout.class {
            Class::Ip6 => IcmpMessage { kind: UNREACHABLE6, code: code6, rest: [0; 4] },
            Class::Ip4 | Class::Other => IcmpMessage { kind: UNREACHABLE, code, rest: [0; 4] },
        }
    }

    /// Destination unreachable with an ICMPv6 code. For IPv4, the error to which RFC 7915 section 5.2
    /// translates it.
    pub(super) fn unreachable6(code: u8, layout: &Layout) -> IcmpMessage {
        let code4 = match code {
            0 | 2 | 3 => 1,
            1 => 10,
            PORT6 => PORT,
            // The RFC has no translation for the other codes. They report policies, as code 13 (prohibited)
            // does.
            _ => 13,
        };
        match layout.class {
            Class::Ip6 => IcmpMessage { kind: UNREACHABLE6, code, rest: [0; 4] },
            Class::Ip4 | Class::Other => IcmpMessage { kind: UNREACHABLE, code: code4, rest: [0; 4] },
        }
    }

    /// Fragmentation needed, with the MTU (RFC 1191 section 4), or packet too big (RFC 4443 section 3.2).
    /// `None` for an IPv4 packet that may be fragmented, and for IPv6 if the MTU is below the minimum.
    pub(super) fn too_large(mtu: u32, packet: &Packet<'_>, layout: &Layout) -> Option<IcmpMessage> {
        const FLAGS: usize = 6;
        const DO_NOT_FRAGMENT: u8 = 0x40;
        match layout.class {
            Class::Ip4 => {
                let flags = packet.bytes().get(usize::from(layout.ip) + FLAGS)?;
                let [high, low] = (mtu.min(u16::MAX.into()) as u16).to_be_bytes();
                let code = Reject::FRAGMENTATION_NEEDED;
                let message = IcmpMessage { kind: UNREACHABLE, code, rest: [0, 0, high, low] };
                (flags & DO_NOT_FRAGMENT != 0).then_some(message)
            }
            Class::Ip6 => {
                let message = IcmpMessage { kind: TOO_BIG6, code: 0, rest: mtu.to_be_bytes() };
                (mtu >= MIN_MTU6).then_some(message)
            }
            Class::Other => None,
        }
    }

    /// Parameter problem: points to the byte that names the upper-layer protocol (RFC 4443 section 3.4).
    fn unknown_next_header(layout: &Layout) -> IcmpMessage {
        let pointer = u32::from(layout.proto_at.saturating_sub(layout.ip));
        IcmpMessage { kind: PARAMETER_PROBLEM6, code: NEXT_HEADER, rest: pointer.to_be_bytes() }
    }
}
