//! The headers of a packet, parsed from its bytes by the RFCs.
//!
//! One function per header, from the outside in. A [`Dissection`] holds offsets into the packet; nothing is copied or precomputed.

use super::bytes::{u8_at, u16_at};
use mmb_packet::{LinkType, Malformed};

/// Ether types of VLAN tags: 802.1Q, 802.1ad and the older QinQ.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// The most VLAN tags of one frame.
const MAX_TAGS: usize = 4;
const ETHER_IP4: u16 = 0x0800;
const ETHER_IP6: u16 = 0x86dd;

/// IPv6 extension headers, by the number that announces them (RFC 8200 section 4, RFC 6275, 7401, 5533).
pub(super) mod extension {
    pub(in super::super) const HOP_BY_HOP: u8 = 0;
    pub(in super::super) const ROUTING: u8 = 43;
    pub(in super::super) const FRAGMENT: u8 = 44;
    pub(in super::super) const ESP: u8 = 50;
    pub(in super::super) const AH: u8 = 51;
    pub(in super::super) const DEST_OPT: u8 = 60;
    pub(in super::super) const MOBILITY: u8 = 135;
    pub(in super::super) const HIP: u8 = 139;
    pub(in super::super) const SHIM6: u8 = 140;
}

/// The positions of a packet's headers, as offsets from its first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dissection {
    /// The EtherType after all VLAN tags.
    pub(super) eth_type: u16,
    /// The outermost VLAN tag's control information.
    pub(super) vlan: Option<usize>,
    /// The first byte after the link header.
    pub(super) l3: usize,
    /// The IP packet; `None` for frames that are not IP.
    pub(super) ip: Option<Ip>,
}

/// An IP packet; its header starts at [`Dissection::l3`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ip {
    /// 4 or 6.
    pub(super) version: u8,
    /// Length of the IPv4 header with its options, or of the fixed IPv6 header.
    pub(super) header_len: usize,
    /// The IPv6 extension headers, by their numbers, in order.
    pub(super) extensions: Vec<u8>,
    /// The offset of the byte that names the upper-layer protocol.
    pub(super) proto_at: usize,
    /// Whether it is a fragment.
    pub(super) fragment: Fragment,
    /// The destination address is only the next hop of a source route. The transport checksum covers the final one (RFC 8200 section 8.1).
    pub(super) source_routed: bool,
    /// The first byte after the IP headers.
    pub(super) upper: usize,
    /// The first byte after the packet; the frame may continue (a trailer).
    pub(super) end: usize,
    /// The transport header, if there is one that mmb parses.
    pub(super) transport: Option<Transport>,
}

/// The part of a datagram that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment {
    Whole,
    First,
    Later,
}

/// A transport header; it starts at [`Ip::upper`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transport {
    pub(super) kind: TransportKind,
    /// Length in bytes, TCP options included.
    pub(super) len: usize,
    /// The first byte after the payload: the packet's end, or less if a UDP length says so.
    pub(super) payload_end: usize,
}

/// The transport protocols that mmb parses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransportKind {
    Tcp,
    Udp,
    Icmp,
    Icmp6,
}

/// Parses a whole packet.
pub(super) fn dissect(bytes: &[u8], link: LinkType, ip6_max_headers: u8) -> Result<Dissection, Malformed> {
    let (eth_type, vlan, l3) = link_header(bytes, link)?;
    let ip = match eth_type {
        ETHER_IP4 => Some(ip4(bytes, l3)?),
        ETHER_IP6 => Some(ip6(bytes, l3, ip6_max_headers as usize)?),
        _ => None,
    };
    Ok(Dissection { eth_type, vlan, l3, ip })
}

/// The EtherType after all tags, the offset of the outermost tag, and the first byte after the link header.
fn link_header(bytes: &[u8], link: LinkType) -> Result<(u16, Option<usize>, usize), Malformed> {
    let (type_at, len) = match link {
        LinkType::Ethernet => (12, 14),
        LinkType::Sll => (14, 16),
        LinkType::Sll2 => (0, 20),
        LinkType::RawIp => return raw_ip(bytes),
    };
    if bytes.len() < len {
        return Err(Malformed::LinkTruncated);
    }
    let mut eth_type = u16_at(bytes, type_at);
    let mut l3 = len;
    let mut tags = Vec::new();
    while TAGS.contains(&eth_type) {
        if tags.len() == MAX_TAGS {
            return Err(Malformed::VlanStackTooDeep);
        }
        if bytes.len() < l3 + 4 {
            return Err(Malformed::LinkTruncated);
        }
        tags.push(l3);
        eth_type = u16_at(bytes, l3 + 2);
        l3 += 4;
    }
    Ok((eth_type, tags.first().copied(), l3))
}

/// Without a link header the IP version tells the class of the packet.
fn raw_ip(bytes: &[u8]) -> Result<(u16, Option<usize>, usize), Malformed> {
    if bytes.is_empty() {
        return Err(Malformed::LinkTruncated);
    }
    match u8_at(bytes, 0) >> 4 {
        4 => Ok((ETHER_IP4, None, 0)),
        6 => Ok((ETHER_IP6, None, 0)),
        _ => Err(Malformed::IpBadVersion),
    }
}

/// RFC 791 section 3.1.
fn ip4(bytes: &[u8], at: usize) -> Result<Ip, Malformed> {
    let available = bytes.len() - at;
    if available < 20 {
        return Err(Malformed::Ip4Truncated);
    }
    if u8_at(bytes, at) >> 4 != 4 {
        return Err(Malformed::IpBadVersion);
    }
    let header_len = usize::from(u8_at(bytes, at) & 0x0f) * 4;
    let total_len = usize::from(u16_at(bytes, at + 2));
    if header_len < 20 || header_len > total_len {
        return Err(Malformed::Ip4BadLength);
    }
    if total_len > available {
        return Err(Malformed::Ip4Truncated);
    }
    let header = &bytes[at..at + header_len];
    if super::bytes::sum(header) != 0 {
        return Err(Malformed::Ip4BadChecksum);
    }

    let offset = u16_at(bytes, at + 6) & 0x1fff;
    let more = u16_at(bytes, at + 6) & 0x2000 != 0;
    let fragment = match (offset, more) {
        (0, false) => Fragment::Whole,
        (0, true) => Fragment::First,
        _ => Fragment::Later,
    };
    let upper = at + header_len;
    let end = at + total_len;
    let transport = transport(bytes, 4, u8_at(bytes, at + 9), fragment, upper, end)?;
    Ok(Ip {
        version: 4,
        header_len,
        extensions: Vec::new(),
        proto_at: at + 9,
        fragment,
        source_routed: has_open_source_route(&header[20..]),
        upper,
        end,
        transport,
    })
}

/// Whether IPv4 options hold a loose (131) or strict (137) source route with hops left: its pointer is not past
/// its length. An option with a bad length ends the walk.
fn has_open_source_route(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        match kind {
            0 => return false,
            1 => options = rest,
            _ => {
                let len = usize::from(u8_at(options, 1));
                if len < 2 || len > options.len() {
                    return false;
                }
                if matches!(kind, 131 | 137) && len >= 3 && usize::from(options[2]) <= len {
                    return true;
                }
                options = &options[len..];
            }
        }
    }
    false
}

/// RFC 8200 sections 3 and 4.
fn ip6(bytes: &[u8], at: usize, max_headers: usize) -> Result<Ip, Malformed> {
    let available = bytes.len() - at;
    if available < 40 {
        return Err(Malformed::Ip6Truncated);
    }
    if u8_at(bytes, at) >> 4 != 6 {
        return Err(Malformed::IpBadVersion);
    }
    let total_len = 40 + usize::from(u16_at(bytes, at + 4));
    if total_len > available {
        return Err(Malformed::Ip6Truncated);
    }
    let end = at + total_len;

    let mut extensions = Vec::new();
    let mut fragment = Fragment::Whole;
    let mut source_routed = false;
    let mut next_at = at + 6;
    let mut upper = at + 40;
    while fragment != Fragment::Later {
        let next = u8_at(bytes, next_at);
        if next == extension::ESP {
            // The rest is encrypted.
            extensions.push(next);
            break;
        }
        if !is_walked(next) {
            break;
        }
        if extensions.len() == max_headers {
            return Err(Malformed::Ip6ChainTooLong);
        }
        let len = extension_len(next, u8_at(bytes, upper + 1));
        if upper + 8 > end || upper + len > end {
            return Err(Malformed::Ip6HeaderTruncated);
        }
        if next == extension::FRAGMENT {
            let word = u16_at(bytes, upper + 2);
            match (word >> 3, word & 1 != 0) {
                // Atomic: a whole packet (RFC 6946).
                (0, false) => {}
                (0, true) => fragment = Fragment::First,
                _ => fragment = Fragment::Later,
            }
        }
        if next == extension::ROUTING && u8_at(bytes, upper + 3) > 0 {
            source_routed = true;
        }
        extensions.push(next);
        next_at = upper;
        upper += len;
    }
    let transport = transport(bytes, 6, u8_at(bytes, next_at), fragment, upper, end)?;
    Ok(Ip {
        version: 6,
        header_len: 40,
        extensions,
        proto_at: next_at,
        fragment,
        source_routed,
        upper,
        end,
        transport,
    })
}

/// Whether a next-header value announces an extension header that has a length and a next header of its own.
fn is_walked(next: u8) -> bool {
    use extension::*;
    matches!(next, HOP_BY_HOP | ROUTING | FRAGMENT | AH | DEST_OPT | MOBILITY | HIP | SHIM6)
}

/// The length of an extension header whose length field is `field`.
fn extension_len(next: u8, field: u8) -> usize {
    match next {
        extension::FRAGMENT => 8,
        // In 4-byte units, not counting the first two (RFC 4302 section 2.2).
        extension::AH => (usize::from(field) + 2) * 4,
        // In 8-byte units, not counting the first.
        _ => (usize::from(field) + 1) * 8,
    }
}

/// The transport header at `upper`, if it is one that mmb parses. A later fragment has none.
fn transport(
    bytes: &[u8],
    version: u8,
    proto: u8,
    fragment: Fragment,
    upper: usize,
    end: usize,
) -> Result<Option<Transport>, Malformed> {
    let (kind, fixed) = match (proto, version) {
        _ if fragment == Fragment::Later => return Ok(None),
        (6, _) => (TransportKind::Tcp, 20),
        (17, _) => (TransportKind::Udp, 8),
        (1, 4) => (TransportKind::Icmp, 8),
        (58, 6) => (TransportKind::Icmp6, 8),
        _ => return Ok(None),
    };
    let in_fragment = fragment == Fragment::First;
    if upper + fixed > end {
        return Err(if in_fragment { Malformed::TinyFragment } else { Malformed::L4Truncated });
    }
    let mut len = fixed;
    let mut payload_end = end;
    if kind == TransportKind::Tcp {
        len = usize::from(u8_at(bytes, upper + 12) >> 4) * 4;
        if len < 20 {
            return Err(Malformed::TcpBadOffset);
        }
        if upper + len > end {
            return Err(if in_fragment { Malformed::TinyFragment } else { Malformed::TcpBadOffset });
        }
    }
    if kind == TransportKind::Udp {
        // A wrong length is no reason to drop; it is only limited to the packet.
        let udp_len = usize::from(u16_at(bytes, upper + 4)).max(8);
        payload_end = end.min(upper + udp_len);
    }
    Ok(Some(Transport { kind, len, payload_end }))
}

impl Dissection {
    /// The transport header, if there is one.
    pub(super) fn transport(&self) -> Option<(&Ip, &Transport)> {
        let ip = self.ip.as_ref()?;
        Some((ip, ip.transport.as_ref()?))
    }

    /// The TCP options area, as a range.
    pub(super) fn tcp_options(&self) -> Option<std::ops::Range<usize>> {
        let (ip, transport) = self.transport()?;
        (transport.kind == TransportKind::Tcp).then(|| ip.upper + 20..ip.upper + transport.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_packet::parse::parse;
    use mmb_packet::{Class, Layout, Packet, ParserLimits, PortId, key};
    use mmb_testkit::strategy;
    use proptest::prelude::*;

    /// The dissection as a layout of the parser.
    fn layout(bytes: &[u8], packet: &Dissection, tags: u8) -> Layout {
        let mut layout = Layout {
            eth_type: packet.eth_type,
            vlan_tags: tags,
            ip: packet.l3 as u16,
            proto_at: packet.l3 as u16,
            l4: packet.l3 as u16,
            payload: packet.l3 as u16,
            end: bytes.len() as u32,
            payload_end: packet.l3 as u32,
            ..Layout::default()
        };
        layout.flags |= if packet.vlan.is_some() { key::flags::VLAN_TAGGED } else { 0 };
        let Some(ip) = &packet.ip else { return layout };
        layout.class = if ip.version == 4 { Class::Ip4 } else { Class::Ip6 };
        layout.proto = u8_at(bytes, ip.proto_at);
        layout.proto_at = ip.proto_at as u16;
        layout.l4 = ip.upper as u16;
        layout.end = ip.end as u32;
        layout.flags |= if ip.source_routed { key::flags::ROUTED } else { 0 };
        layout.payload = ip.upper as u16;
        layout.payload_end = if ip.fragment == Fragment::Later { ip.upper } else { ip.end } as u32;
        layout.flags |= match ip.fragment {
            Fragment::Whole => 0,
            Fragment::First => key::flags::FRAGMENT,
            Fragment::Later => key::flags::FRAGMENT | key::flags::LATER_FRAGMENT,
        };
        layout.eh = ip.extensions.iter().fold(0, |bits, number| bits | key::eh::ANY | extension_bit(*number));
        if packet.l3 + ip.header_len < ip.end {
            layout.flags |= key::flags::HAS_IP_PAYLOAD;
        }
        if let Some(transport) = ip.transport {
            layout.l4_kind = layout.proto;
            layout.payload = (ip.upper + transport.len) as u16;
            layout.payload_end = transport.payload_end as u32;
            if transport.kind == TransportKind::Tcp && transport.len > 20 {
                layout.flags |= key::flags::TCP_OPTION_AREA;
            }
        }
        if layout.payload_end > u32::from(layout.payload) {
            layout.flags |= key::flags::HAS_PAYLOAD;
        }
        layout
    }

    fn extension_bit(number: u8) -> u16 {
        match number {
            extension::HOP_BY_HOP => key::eh::HOP_BY_HOP,
            extension::ROUTING => key::eh::ROUTING,
            extension::FRAGMENT => key::eh::FRAGMENT,
            extension::ESP => key::eh::ESP,
            extension::AH => key::eh::AH,
            extension::DEST_OPT => key::eh::DEST_OPT,
            extension::MOBILITY => key::eh::MOBILITY,
            extension::HIP => key::eh::HIP,
            extension::SHIM6 => key::eh::SHIM6,
            _ => 0,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_parser_sees_what_the_oracle_sees(wire in strategy::wire(), limit in 0u8..20) {
            let oracle = dissect(&wire.bytes, wire.link, limit);
            let mut buffer = wire.bytes.clone();
            let packet = Packet::new(&mut buffer, 0, wire.bytes.len(), PortId(0), wire.link).expect("it is all of it");
            let parsed = parse(&packet, &ParserLimits { ip6_headers: limit });
            let expected = oracle.map(|seen| {
                let tags = parsed.map_or(0, |layout| layout.vlan_tags);
                layout(&wire.bytes, &seen, tags)
            });
            prop_assert_eq!(parsed, expected);
        }
    }
}
