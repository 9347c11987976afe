//! The position of each field in a packet, and bitwise reads and writes.

use super::dissect::{Dissection, TransportKind, extension, u8_at};
use mmb_policy::FieldId;

/// A run of bits; bit 0 is the most significant bit of the packet's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OracleBits {
    first: usize,
    pub(super) width: usize,
}

impl OracleBits {
    /// The bits as a big-endian number.
    pub(super) fn read(self, bytes: &[u8]) -> u128 {
        (self.first..self.first + self.width)
            .fold(0, |number, bit| number << 1 | u128::from(u8_at(bytes, bit / 8) >> (7 - bit % 8) & 1))
    }

    /// Writes the low bits of `number`.
    pub(super) fn write(self, bytes: &mut [u8], number: u128) {
        for i in 0..self.width {
            let bit = self.first + i;
            let mask = 1 << (7 - bit % 8);
            if number >> (self.width - 1 - i) & 1 == 1 {
                bytes[bit / 8] |= mask;
            } else {
                bytes[bit / 8] &= !mask;
            }
        }
    }
}

/// The bits of a field that is part of a header; `None` if the packet has no such header, or the field is not in a header.
pub(super) fn bits(id: FieldId, packet: &Dissection) -> Option<OracleBits> {
    use FieldId::*;
    let (start, first, width) = match id {
        VlanId => (packet.vlan?, 4, 12),
        IpProto => (packet.ip.as_ref()?.proto_at, 0, 8),

        // RFC 791 section 3.1, RFC 2474, RFC 3168.
        IpVer => (ip4(packet)?, 0, 4),
        IpIhl => (ip4(packet)?, 4, 4),
        IpDscp => (ip4(packet)?, 8, 6),
        IpEcn | IpNonEct | IpEct0 | IpEct1 | IpCe => (ip4(packet)?, 14, 2),
        IpLen => (ip4(packet)?, 16, 16),
        IpId => (ip4(packet)?, 32, 16),
        IpFlags => (ip4(packet)?, 48, 3),
        IpRes => (ip4(packet)?, 48, 1),
        IpDf => (ip4(packet)?, 49, 1),
        IpMf => (ip4(packet)?, 50, 1),
        IpFragOffset => (ip4(packet)?, 51, 13),
        IpTtl => (ip4(packet)?, 64, 8),
        IpChecksum => (ip4(packet)?, 80, 16),
        IpSaddr => (ip4(packet)?, 96, 32),
        IpDaddr => (ip4(packet)?, 128, 32),

        // RFC 8200 section 3.
        Ip6Ver => (ip6(packet)?, 0, 4),
        Ip6TrafficClass => (ip6(packet)?, 4, 8),
        Ip6FlowLabel => (ip6(packet)?, 12, 20),
        Ip6Len => (ip6(packet)?, 32, 16),
        Ip6Next => (ip6(packet)?, 48, 8),
        Ip6HopLimit => (ip6(packet)?, 56, 8),
        Ip6Saddr => (ip6(packet)?, 64, 128),
        Ip6Daddr => (ip6(packet)?, 192, 128),

        // RFC 792, RFC 4443.
        IcmpType => (over(packet, TransportKind::Icmp)?, 0, 8),
        IcmpCode => (over(packet, TransportKind::Icmp)?, 8, 8),
        IcmpChecksum => (over(packet, TransportKind::Icmp)?, 16, 16),
        Icmp6Type => (over(packet, TransportKind::Icmp6)?, 0, 8),
        Icmp6Code => (over(packet, TransportKind::Icmp6)?, 8, 8),
        Icmp6Checksum => (over(packet, TransportKind::Icmp6)?, 16, 16),

        // RFC 768.
        UdpSport => (over(packet, TransportKind::Udp)?, 0, 16),
        UdpDport => (over(packet, TransportKind::Udp)?, 16, 16),
        UdpLen => (over(packet, TransportKind::Udp)?, 32, 16),
        UdpChecksum => (over(packet, TransportKind::Udp)?, 48, 16),

        // RFC 9293 section 3.1.
        TcpSport => (over(packet, TransportKind::Tcp)?, 0, 16),
        TcpDport => (over(packet, TransportKind::Tcp)?, 16, 16),
        TcpSeqNum => (over(packet, TransportKind::Tcp)?, 32, 32),
        TcpAckNum => (over(packet, TransportKind::Tcp)?, 64, 32),
        TcpOffset => (over(packet, TransportKind::Tcp)?, 96, 4),
        TcpReserved => (over(packet, TransportKind::Tcp)?, 100, 4),
        TcpFlags => (over(packet, TransportKind::Tcp)?, 104, 8),
        TcpCwr => (over(packet, TransportKind::Tcp)?, 104, 1),
        TcpEce => (over(packet, TransportKind::Tcp)?, 105, 1),
        TcpUrg => (over(packet, TransportKind::Tcp)?, 106, 1),
        TcpAck => (over(packet, TransportKind::Tcp)?, 107, 1),
        TcpPush => (over(packet, TransportKind::Tcp)?, 108, 1),
        TcpRst => (over(packet, TransportKind::Tcp)?, 109, 1),
        TcpSyn => (over(packet, TransportKind::Tcp)?, 110, 1),
        TcpFin => (over(packet, TransportKind::Tcp)?, 111, 1),
        TcpWin => (over(packet, TransportKind::Tcp)?, 112, 16),
        TcpChecksum => (over(packet, TransportKind::Tcp)?, 128, 16),
        TcpUrgPtr => (over(packet, TransportKind::Tcp)?, 144, 16),
        _ => return None,
    };
    Some(OracleBits { first: start * 8 + first, width })
}

/// The bytes of a payload field, as a range; `None` if the packet has no such payload.
pub(super) fn payload(id: FieldId, packet: &Dissection) -> Option<std::ops::Range<usize>> {
    use FieldId::*;
    let ip = packet.ip.as_ref()?;
    match id {
        IpPayload | Ip6Payload => {
            let start = if id == IpPayload { ip4(packet)? } else { ip6(packet)? };
            Some(start + ip.header_len..ip.end)
        }
        Payload if ip.fragment == super::dissect::Fragment::Later => None,
        Payload => Some(match ip.transport {
            Some(transport) => ip.upper + transport.len..transport.payload_end,
            None => ip.upper..ip.end,
        }),
        _ => {
            let kind = match id {
                TcpPayload => TransportKind::Tcp,
                UdpPayload => TransportKind::Udp,
                IcmpPayload => TransportKind::Icmp,
                Icmp6Payload => TransportKind::Icmp6,
                _ => return None,
            };
            let start = over(packet, kind)?;
            ip.transport.map(|transport| start + transport.len..transport.payload_end)
        }
    }
}

/// Whether an IPv6 packet has the extension header that a field names; `None` for other packets and fields.
pub(super) fn extension_header(id: FieldId, packet: &Dissection) -> Option<bool> {
    use FieldId::*;
    let present = &packet.ip.as_ref().filter(|ip| ip.version == 6)?.extensions;
    let number = match id {
        Ip6Eh => return Some(!present.is_empty()),
        Ip6EhHopByHop => extension::HOP_BY_HOP,
        Ip6EhRouting => extension::ROUTING,
        Ip6EhFragment => extension::FRAGMENT,
        Ip6EhEsp => extension::ESP,
        Ip6EhAh => extension::AH,
        Ip6EhDestOpt => extension::DEST_OPT,
        Ip6EhMobility => extension::MOBILITY,
        Ip6EhHip => extension::HIP,
        Ip6EhShim6 => extension::SHIM6,
        _ => return None,
    };
    Some(present.contains(&number))
}

fn ip4(packet: &Dissection) -> Option<usize> {
    packet.ip.as_ref().filter(|ip| ip.version == 4).map(|_| packet.l3)
}

fn ip6(packet: &Dissection) -> Option<usize> {
    packet.ip.as_ref().filter(|ip| ip.version == 6).map(|_| packet.l3)
}

fn over(packet: &Dissection, kind: TransportKind) -> Option<usize> {
    packet.transport().filter(|(_, transport)| transport.kind == kind).map(|(ip, _)| ip.upper)
}
