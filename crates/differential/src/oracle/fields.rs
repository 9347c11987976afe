//! The position of each field in a packet, and bitwise reads and writes.

use super::bytes::u8_at;
use super::dissect::{Dissection, Fragment, TransportKind, extension};
use mmb_policy::{Field, FieldId};

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

/// The place of a field in packets, as the RFCs have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OraclePlace {
    /// The name of the port that the packet came in by.
    InPort,
    /// The name of the port at the other end of the wire.
    OutPort,
    /// In no packet: the oracle knows no connections.
    Connection,
    /// The ether type behind all tags.
    EtherType,
    /// The IP version, as a number.
    IpVersion,
    /// A run of bits of a header.
    Bits {
        /// The header.
        start: Start,
        /// The run's first bit in the header.
        first: usize,
        /// The number of bits.
        width: usize,
        /// The pass that writes it.
        pass: Pass,
    },
    /// The ECN bits of IPv4, compared with a codepoint (RFC 3168 section 5).
    Codepoint(u128),
    /// An IPv6 extension header of this number; `None`: of any.
    Extension(Option<u8>),
    /// A TCP option of this kind; `None`: of any kind but padding.
    Option(Option<u8>),
    /// The bytes behind a header.
    Payload(Behind),
}

/// The header that a run of bits is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The tag control information of the outermost VLAN tag.
    Tag,
    /// The byte that names the upper-layer protocol.
    Protocol,
    /// The IPv4 header.
    Ip4,
    /// The IPv6 header.
    Ip6,
    /// The transport header of this kind.
    Over(TransportKind),
}

/// The header that a payload follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// The IPv4 header.
    Ip4,
    /// The fixed IPv6 header.
    Ip6,
    /// The transport header of this kind.
    Over(TransportKind),
    /// Whatever transport header there is; the IP headers where there is none that mmb knows.
    Transport,
}

/// The pass in which a field is written. Within one pass targets are applied in order, so that later ones win.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Fields at fixed positions of a header.
    Field,
    /// TCP options; the packet may change its length.
    Option,
    /// The first bytes of a payload.
    Payload,
    /// Lengths, versions, offsets: written after mmb has set them itself.
    Length,
    /// Checksums: written after mmb has set them itself.
    Checksum,
}

fn number(start: Start, first: usize, width: usize) -> OraclePlace {
    OraclePlace::Bits { start, first, width, pass: Pass::Field }
}

fn length(start: Start, first: usize, width: usize) -> OraclePlace {
    OraclePlace::Bits { start, first, width, pass: Pass::Length }
}

fn checksum(start: Start, first: usize, width: usize) -> OraclePlace {
    OraclePlace::Bits { start, first, width, pass: Pass::Checksum }
}

/// The place of each field. Written beside the table of fields and not from it, so that a mistake in one of them shows.
pub(super) fn place(field: Field) -> OraclePlace {
    use FieldId::*;
    use TransportKind::{Icmp, Icmp6, Tcp, Udp};
    match field.id {
        In => OraclePlace::InPort,
        Out => OraclePlace::OutPort,
        Ct | Stream | StreamForward | StreamReply | TlsSni => OraclePlace::Connection,
        Http | HttpMethod | HttpHost | HttpUri | HttpStatus | HttpHeader | HttpBody => {
            OraclePlace::Connection
        }
        EthType => OraclePlace::EtherType,
        // IEEE 802.1Q section 9.6.
        VlanId => number(Start::Tag, 4, 12),
        NetProto => OraclePlace::IpVersion,
        IpProto => number(Start::Protocol, 0, 8),

        // RFC 791 section 3.1, RFC 2474, RFC 3168.
        IpVer => length(Start::Ip4, 0, 4),
        IpIhl => length(Start::Ip4, 4, 4),
        IpDscp => number(Start::Ip4, 8, 6),
        IpEcn => number(Start::Ip4, 14, 2),
        IpNonEct => OraclePlace::Codepoint(0),
        IpEct1 => OraclePlace::Codepoint(1),
        IpEct0 => OraclePlace::Codepoint(2),
        IpCe => OraclePlace::Codepoint(3),
        IpLen => length(Start::Ip4, 16, 16),
        IpId => number(Start::Ip4, 32, 16),
        IpFlags => number(Start::Ip4, 48, 3),
        IpRes => number(Start::Ip4, 48, 1),
        IpDf => number(Start::Ip4, 49, 1),
        IpMf => number(Start::Ip4, 50, 1),
        IpFragOffset => number(Start::Ip4, 51, 13),
        IpTtl => number(Start::Ip4, 64, 8),
        IpChecksum => checksum(Start::Ip4, 80, 16),
        IpSaddr => number(Start::Ip4, 96, 32),
        IpDaddr => number(Start::Ip4, 128, 32),

        // RFC 8200 section 3.
        Ip6Ver => length(Start::Ip6, 0, 4),
        Ip6TrafficClass => number(Start::Ip6, 4, 8),
        Ip6FlowLabel => number(Start::Ip6, 12, 20),
        Ip6Len => length(Start::Ip6, 32, 16),
        Ip6Next => number(Start::Ip6, 48, 8),
        Ip6HopLimit => number(Start::Ip6, 56, 8),
        Ip6Saddr => number(Start::Ip6, 64, 128),
        Ip6Daddr => number(Start::Ip6, 192, 128),

        // RFC 792, RFC 4443.
        IcmpType => number(Start::Over(Icmp), 0, 8),
        IcmpCode => number(Start::Over(Icmp), 8, 8),
        IcmpChecksum => checksum(Start::Over(Icmp), 16, 16),
        Icmp6Type => number(Start::Over(Icmp6), 0, 8),
        Icmp6Code => number(Start::Over(Icmp6), 8, 8),
        Icmp6Checksum => checksum(Start::Over(Icmp6), 16, 16),

        // RFC 768.
        UdpSport => number(Start::Over(Udp), 0, 16),
        UdpDport => number(Start::Over(Udp), 16, 16),
        UdpLen => length(Start::Over(Udp), 32, 16),
        UdpChecksum => checksum(Start::Over(Udp), 48, 16),

        // RFC 9293 section 3.1.
        TcpSport => number(Start::Over(Tcp), 0, 16),
        TcpDport => number(Start::Over(Tcp), 16, 16),
        TcpSeqNum => number(Start::Over(Tcp), 32, 32),
        TcpAckNum => number(Start::Over(Tcp), 64, 32),
        TcpOffset => length(Start::Over(Tcp), 96, 4),
        TcpReserved => number(Start::Over(Tcp), 100, 4),
        TcpFlags => number(Start::Over(Tcp), 104, 8),
        TcpCwr => number(Start::Over(Tcp), 104, 1),
        TcpEce => number(Start::Over(Tcp), 105, 1),
        TcpUrg => number(Start::Over(Tcp), 106, 1),
        TcpAck => number(Start::Over(Tcp), 107, 1),
        TcpPush => number(Start::Over(Tcp), 108, 1),
        TcpRst => number(Start::Over(Tcp), 109, 1),
        TcpSyn => number(Start::Over(Tcp), 110, 1),
        TcpFin => number(Start::Over(Tcp), 111, 1),
        TcpWin => number(Start::Over(Tcp), 112, 16),
        TcpChecksum => checksum(Start::Over(Tcp), 128, 16),
        TcpUrgPtr => number(Start::Over(Tcp), 144, 16),

        // RFC 8200 section 4.
        Ip6Eh => OraclePlace::Extension(None),
        Ip6EhHopByHop => OraclePlace::Extension(Some(extension::HOP_BY_HOP)),
        Ip6EhRouting => OraclePlace::Extension(Some(extension::ROUTING)),
        Ip6EhFragment => OraclePlace::Extension(Some(extension::FRAGMENT)),
        Ip6EhEsp => OraclePlace::Extension(Some(extension::ESP)),
        Ip6EhAh => OraclePlace::Extension(Some(extension::AH)),
        Ip6EhDestOpt => OraclePlace::Extension(Some(extension::DEST_OPT)),
        Ip6EhMobility => OraclePlace::Extension(Some(extension::MOBILITY)),
        Ip6EhHip => OraclePlace::Extension(Some(extension::HIP)),
        Ip6EhShim6 => OraclePlace::Extension(Some(extension::SHIM6)),

        // IANA's registry of TCP option kinds.
        TcpOpt => OraclePlace::Option(None),
        TcpOptMss => OraclePlace::Option(Some(2)),
        TcpOptWscale => OraclePlace::Option(Some(3)),
        TcpOptSackp => OraclePlace::Option(Some(4)),
        TcpOptSack => OraclePlace::Option(Some(5)),
        TcpOptTimestamp => OraclePlace::Option(Some(8)),
        TcpOptMptcp => OraclePlace::Option(Some(30)),
        TcpOptFastOpen => OraclePlace::Option(Some(34)),
        TcpOptKind => OraclePlace::Option(Some(field.kind)),

        IpPayload => OraclePlace::Payload(Behind::Ip4),
        Ip6Payload => OraclePlace::Payload(Behind::Ip6),
        IcmpPayload => OraclePlace::Payload(Behind::Over(Icmp)),
        Icmp6Payload => OraclePlace::Payload(Behind::Over(Icmp6)),
        UdpPayload => OraclePlace::Payload(Behind::Over(Udp)),
        TcpPayload => OraclePlace::Payload(Behind::Over(Tcp)),
        Payload => OraclePlace::Payload(Behind::Transport),
    }
}

impl OraclePlace {
    /// The kind of option that a target may write.
    pub(super) fn option_kind(self) -> Option<u8> {
        if let OraclePlace::Option(kind) = self { kind } else { None }
    }
}

/// A run of bits behind the start of a header; `None` if the packet has no such header.
pub(super) fn bits(start: Start, first: usize, width: usize, packet: &Dissection) -> Option<OracleBits> {
    let start = match start {
        Start::Tag => packet.vlan?,
        Start::Protocol => packet.ip.as_ref()?.proto_at,
        Start::Ip4 => ip4(packet)?,
        Start::Ip6 => ip6(packet)?,
        Start::Over(kind) => over(packet, kind)?,
    };
    Some(OracleBits { first: start * 8 + first, width })
}

/// The ECN bits of an IPv4 packet.
pub(super) fn ecn(packet: &Dissection) -> Option<OracleBits> {
    bits(Start::Ip4, 14, 2, packet)
}

/// The bytes behind a header, as a range; `None` if the packet has no such payload.
pub(super) fn payload(behind: Behind, packet: &Dissection) -> Option<std::ops::Range<usize>> {
    let ip = packet.ip.as_ref()?;
    let start = match behind {
        Behind::Ip4 => return Some(ip4(packet)? + ip.header_len..ip.end),
        Behind::Ip6 => return Some(ip6(packet)? + ip.header_len..ip.end),
        Behind::Transport if ip.fragment == Fragment::Later => return None,
        Behind::Transport if ip.transport.is_none() => return Some(ip.upper..ip.end),
        Behind::Transport => ip.upper,
        Behind::Over(kind) => over(packet, kind)?,
    };
    ip.transport.map(|transport| start + transport.len..transport.payload_end)
}

/// Whether an IPv6 packet has an extension header of this number, or any; `None` for other packets.
pub(super) fn extension_header(number: Option<u8>, packet: &Dissection) -> Option<bool> {
    let present = &packet.ip.as_ref().filter(|ip| ip.version == 6)?.extensions;
    Some(number.map_or(!present.is_empty(), |number| present.contains(&number)))
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
