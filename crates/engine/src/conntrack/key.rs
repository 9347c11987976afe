//! Lookup keys: the five-tuple of a packet, or of the packet that an ICMP error quotes.

use super::flow_state::QuotedOffsets;
use mmb_conn::fragment::{Complete, FragmentKey};
use mmb_conn::icmp_query;
use mmb_conn::quoted::quoted;
use mmb_conn::sctp::chunk;
use mmb_conn::{SctpChunks, Side, TcpSegment, TrackedHeader, Tuple, Vlans, Wire, flags, proto};
use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_packet::flow::{flow_ports, header_len, vlan_ids};
use mmb_packet::parse::extension_len;
use mmb_packet::proto::{ICMP, ICMP6, TCP, UDP};
use mmb_packet::{Class, Layout, Malformed, Packet, options};
use mmb_policy::CtState;

/// The key by which a packet is looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookupKey {
    /// The tuple as it is in the connection table.
    pub(crate) tuple: Tuple,
    pub(crate) kind: PacketKind,
}

/// The role of a packet in the connection that it may belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PacketKind {
    /// A packet that is neither a fragment nor a TCP or SCTP packet that may begin a connection. As long as
    /// rules match only on the tuple and ports, it matches the same rules as all such packets of its
    /// direction.
    MidFlow,
    /// Any other packet of a connection.
    Packet,
    /// An ICMP query.
    IcmpRequest,
    /// An ICMP reply.
    IcmpReply,
    /// A fragment without a transport header, which may complete its datagram.
    Fragment(Option<Complete>),
    /// An ICMP error about a packet that went the other way.
    IcmpError(QuotedOffsets),
}

impl PacketKind {
    /// Whether a verdict for another such packet of its connection and direction also applies to this packet.
    #[inline]
    pub(crate) fn is_mid_flow(self) -> bool {
        matches!(self, PacketKind::MidFlow)
    }
}

/// The ingress of a packet, as far as it is part of the tuple.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ingress {
    pub(crate) wire: Wire,
    pub(crate) side: Side,
    /// VLAN tags are part of the tuple and must be read from the packet.
    pub(crate) tagged: bool,
}

impl Ingress {
    /// The same ingress for all packets.
    pub(crate) const ANYWHERE: Ingress = Ingress { wire: Wire::ROUTED, side: Side::Any, tagged: false };

    /// The ingress of a packet with this tuple.
    pub(super) fn from_tuple(tuple: &Tuple) -> Ingress {
        Ingress { wire: tuple.wire, side: tuple.side, tagged: false }
    }
}

/// The result of extracting a key from a packet's own bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExtractedKey {
    /// Belongs to no connection and creates none.
    None,
    /// May belong to a connection.
    Key(LookupKey),
    /// A later fragment, which has no ports of its own.
    Fragment(FragmentKey),
    /// Must be dropped: its connection cannot be determined, or its receiver would drop it.
    Malformed(Malformed),
}

/// ICMP types of errors (RFC 792), and of ICMPv6 (RFC 4443).
const ERRORS: [u8; 4] = [3, 4, 11, 12];
const ERRORS6: [u8; 4] = [1, 2, 3, 4];
/// Bytes of an IPv4 header without options, and of an IPv6 header; addresses come last.
const IP4_HEADER: usize = 20;
const IP6_HEADER: usize = 40;
/// Bytes of an ICMP header.
const ICMP_HEADER: usize = 8;
/// The TCP option of the window scale (RFC 7323).
const WINDOW_SCALE: u8 = 3;

/// The key of an unfragmented TCP or UDP packet, the common case. `None` for others, which [`extract`]
/// handles.
#[inline(always)]
pub(crate) fn extract_plain(packet: &Packet<'_>, layout: &Layout, ingress: Ingress) -> Option<LookupKey> {
    if layout.is_fragment() || !matches!(layout.l4_kind, TCP | UDP) {
        return None;
    }
    let bytes = packet.bytes();
    let ports = ports(bytes, layout)?;
    let flags = || bytes.get(usize::from(layout.l4) + 13);
    let begins = layout.l4_kind == TCP && flags().is_none_or(|flags| flags & flags::SYN != 0);
    let kind = if begins { PacketKind::Packet } else { PacketKind::MidFlow };
    Some(LookupKey { tuple: Tuple { ports, ..addresses(bytes, layout, ingress)? }, kind })
}

/// The key of a packet for which [`extract_plain`] returns `None`.
pub(crate) fn extract(packet: &Packet<'_>, layout: &Layout, ingress: Ingress) -> ExtractedKey {
    let bytes = packet.bytes();
    let Some(tuple) = addresses(bytes, layout, ingress) else { return ExtractedKey::None };
    if layout.is_later_fragment() {
        let unknown = ExtractedKey::Malformed(Malformed::Ip6HeaderTruncated);
        return fragment_key(bytes, layout, ingress).map_or(unknown, ExtractedKey::Fragment);
    }
    let (tuple, kind) = match layout.l4_kind {
        TCP | UDP => match ports(bytes, layout) {
            Some(ports) => (Tuple { ports, ..tuple }, PacketKind::Packet),
            None => return ExtractedKey::None,
        },
        ICMP | ICMP6 => match icmp(bytes, layout, &tuple) {
            Some(asked) => asked,
            None => return ExtractedKey::None,
        },
        _ if is_cut(layout) => return ExtractedKey::Malformed(cut(layout)),
        _ => match other_ports(bytes, layout) {
            Some(ports) => {
                let may_begin = || chunks(bytes, layout).is_some_and(|chunks| chunks.has(chunk::INIT));
                let is_steady = !layout.is_fragment() && !may_begin();
                (Tuple { ports, ..tuple }, if is_steady { PacketKind::MidFlow } else { PacketKind::Packet })
            }
            None => return ExtractedKey::None,
        },
    };
    ExtractedKey::Key(LookupKey { tuple, kind })
}

/// The ports of TCP or UDP.
#[inline]
pub(crate) fn ports(bytes: &[u8], layout: &Layout) -> Option<[u16; 2]> {
    let &[a, b, c, d] = bytes.get(usize::from(layout.l4)..)?.first_chunk()?;
    Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
}

/// Whether a packet ends within its SCTP, DCCP or UDP-Lite header. Its receiver drops it.
fn is_cut(layout: &Layout) -> bool {
    (layout.end.saturating_sub(u32::from(layout.l4)) as usize) < header_len(layout.proto)
}

fn cut(layout: &Layout) -> Malformed {
    if layout.is_fragment() { Malformed::TinyFragment } else { Malformed::L4Truncated }
}

/// The values that stand for ports in other protocols' headers.
fn other_ports(bytes: &[u8], layout: &Layout) -> Option<[u16; 2]> {
    flow_ports(layout.proto, bytes.get(usize::from(layout.l4)..layout.end as usize)?)
}

/// The tuple and the kind of an ICMP message with these addresses; `None` if it belongs to no connection.
fn icmp(bytes: &[u8], layout: &Layout, addresses: &Tuple) -> Option<(Tuple, PacketKind)> {
    let start = usize::from(layout.l4);
    let &[number, _, _, _, a, b, ..] = bytes.get(start..)?.first_chunk::<ICMP_HEADER>()?;
    if errors(layout.l4_kind).contains(&number) {
        let start = start + ICMP_HEADER;
        let quoted = quoted(bytes.get(start..layout.payload_end as usize)?, addresses.family)?;
        let place = |offset: usize| u16::try_from(start + offset).ok();
        let place =
            QuotedOffsets { proto: quoted.tuple.proto, ip: place(quoted.ip_at)?, l4: place(quoted.l4_at)? };
        return Some((quoted.tuple.hairpinned().with_ingress(addresses), PacketKind::IcmpError(place)));
    }
    let (request, asks) = icmp_query(layout.l4_kind, number)?;
    let ports = [u16::from_be_bytes([a, b]), request.into()];
    Some((Tuple { ports, ..*addresses }, if asks { PacketKind::IcmpRequest } else { PacketKind::IcmpReply }))
}

fn errors(proto: u8) -> [u8; 4] {
    if proto == ICMP { ERRORS } else { ERRORS6 }
}

/// Whether a packet is a link-scope ICMPv6 message, which no router forwards:
///
/// - Neighbour and router discovery and redirects (RFC 4861, RFC 3122, RFC 3971). Their receivers require hop
///   limit 255, which no router preserves.
/// - Multicast listener and router discovery (RFC 2710, RFC 3810, RFC 4286), from or to an address that is
///   valid only on the link.
pub(crate) fn is_link_scope(bytes: &[u8], layout: &Layout) -> bool {
    const HOP_LIMIT: usize = 7;
    let header: Option<&[u8; IP6_HEADER]> = bytes.get(usize::from(layout.ip)..).and_then(<[u8]>::first_chunk);
    let number = bytes.get(usize::from(layout.l4));
    let (ICMP6, false, Some(header), Some(number)) = (layout.l4_kind, layout.is_fragment(), header, number)
    else {
        return false;
    };
    match number {
        133..=137 | 141 | 142 | 148 | 149 => header[HOP_LIMIT] == 255,
        130..=132 | 143 | 151..=153 => {
            let is_of_link = |a: u8, b: u8| a == 0xfe && b & 0xc0 == 0x80;
            let is_to_link = header[24] == 0xff && header[25] & 0x0f <= 2;
            is_of_link(header[8], header[9]) || is_of_link(header[24], header[25]) || is_to_link
        }
        _ => false,
    }
}

/// The `ct` state of a packet that belongs to no connection and creates none.
pub(crate) fn untracked_ct_state(bytes: &[u8], layout: &Layout) -> CtState {
    match layout.l4_kind {
        _ if layout.class == Class::Other => return CtState::Untracked,
        // The first fragment of its datagram passed and created no connection.
        _ if layout.is_later_fragment() => return CtState::New,
        ICMP | ICMP6 => {}
        _ => return CtState::Untracked,
    }
    let is_answer = |number| icmp_query(layout.l4_kind, number).is_some_and(|(_, asks)| !asks);
    match bytes.get(usize::from(layout.l4)) {
        Some(number) if errors(layout.l4_kind).contains(number) || is_answer(*number) => CtState::Invalid,
        _ => CtState::Untracked,
    }
}

/// The tuple of a packet, without ports.
#[inline]
pub(crate) fn addresses(bytes: &[u8], layout: &Layout, ingress: Ingress) -> Option<Tuple> {
    let header = bytes.get(usize::from(layout.ip)..)?;
    let (addresses, family) = match layout.class {
        Class::Ip4 => {
            let [.., a, b, c, d, e, f, g, h] = *header.first_chunk::<IP4_HEADER>()?;
            ([[a, b, c, d], [e, f, g, h]].map(|address| u128::from(u32::from_be_bytes(address))), 4)
        }
        Class::Ip6 => {
            let ends: &[u8; IP6_HEADER] = header.first_chunk()?;
            let (from, to) = ends.last_chunk::<32>()?.split_at(16);
            ([u128::from_be_bytes(*from.first_chunk()?), u128::from_be_bytes(*to.first_chunk()?)], 6)
        }
        Class::Other => return None,
    };
    let Ingress { mut wire, side, tagged } = ingress;
    if tagged && layout.vlan_tags > 0 {
        let [outer, inner] = vlan_ids(bytes, layout);
        wire.vlans = Vlans { outer, inner };
    }
    Some(Tuple { addresses, ports: [0; 2], wire, side, proto: layout.proto, family })
}

/// The key that identifies a fragment's datagram (RFC 791 section 3.2, RFC 8200 section 4.5).
pub(crate) fn fragment_key(bytes: &[u8], layout: &Layout, ingress: Ingress) -> Option<FragmentKey> {
    // The packet's own addresses. An ICMP error is looked up by the addresses that it quotes instead.
    let tuple = addresses(bytes, layout, ingress)?;
    let id = match layout.class {
        Class::Ip4 => {
            let header = bytes.get(usize::from(layout.ip)..)?;
            u32::from(u16::from_be_bytes(*header.get(4..)?.first_chunk()?))
        }
        _ => u32::from_be_bytes(*bytes.get(fragment_header(bytes, layout)? + 4..)?.first_chunk()?),
    };
    Some(FragmentKey {
        addresses: tuple.addresses,
        id,
        proto: tuple.proto,
        family: tuple.family,
        wire: tuple.wire,
        side: tuple.side,
    })
}

/// The position of a fragment in its datagram: offset and length in bytes, and whether it is the last one.
pub(crate) fn fragment_place(bytes: &[u8], layout: &Layout) -> Option<(u32, u32, bool)> {
    match layout.class {
        Class::Ip4 => {
            let header = bytes.get(usize::from(layout.ip)..)?;
            let word = u16::from_be_bytes(*header.get(6..)?.first_chunk()?);
            let len = layout.end.saturating_sub(u32::from(layout.l4));
            Some((u32::from(word & 0x1fff) * 8, len, word & 0x2000 == 0))
        }
        Class::Ip6 => {
            let start = fragment_header(bytes, layout)?;
            let word = u16::from_be_bytes(*bytes.get(start + 2..)?.first_chunk()?);
            let len = layout.end.saturating_sub(start as u32 + 8);
            Some((u32::from(word & 0xfff8), len, word & 1 == 0))
        }
        Class::Other => None,
    }
}

/// The offset of an IPv6 fragment header.
fn fragment_header(bytes: &[u8], layout: &Layout) -> Option<usize> {
    const FRAGMENT: u8 = 44;
    let mut next = *bytes.get(usize::from(layout.ip) + 6)?;
    let mut offset = usize::from(layout.ip) + IP6_HEADER;
    // The parser has walked all headers before `l4`.
    while offset < usize::from(layout.l4) {
        if next == FRAGMENT {
            return Some(offset);
        }
        let (following, length) = (*bytes.get(offset)?, *bytes.get(offset + 1)?);
        (next, offset) = (following, offset + extension_len(next, length));
    }
    None
}

/// Whether a packet begins a connection: it is a SYN or an INIT, and its checksum is not wrong.
pub(super) fn begins_connection(packet: &Packet<'_>, layout: &Layout) -> bool {
    signal(packet, layout).is_some_and(|signal| signal.opens())
        && transport_soundness(packet.bytes(), layout) != Soundness::Wrong
}

/// The header that tracking inspects; `None` for protocols that are not tracked.
#[inline]
pub(crate) fn signal(packet: &Packet<'_>, layout: &Layout) -> Option<TrackedHeader> {
    match layout.l4_kind {
        0 => chunks(packet.bytes(), layout).map(TrackedHeader::Sctp),
        _ => segment(packet, layout).map(TrackedHeader::Tcp),
    }
}

/// The chunks of an SCTP packet; `None` for other protocols.
#[cold]
fn chunks(bytes: &[u8], layout: &Layout) -> Option<SctpChunks> {
    if layout.proto != proto::SCTP || layout.is_later_fragment() {
        return None;
    }
    SctpChunks::read(bytes.get(usize::from(layout.l4)..layout.end as usize)?)
}

/// The header fields of a TCP segment; `None` for other protocols.
#[inline(always)]
pub(crate) fn segment(packet: &Packet<'_>, layout: &Layout) -> Option<TcpSegment> {
    if layout.l4_kind != TCP {
        return None;
    }
    let header = packet.bytes().get(usize::from(layout.l4)..)?.first_chunk::<20>()?;
    let long = |offset: usize| {
        u32::from_be_bytes([header[offset], header[offset + 1], header[offset + 2], header[offset + 3]])
    };
    let flags = header[13];
    Some(TcpSegment {
        flags,
        seq: long(4),
        ack: long(8),
        window: u16::from_be_bytes([header[14], header[15]]),
        payload: layout.payload_range().len() as u32,
        ..if flags & flags::SYN != 0 { options_of_syn(packet, layout) } else { TcpSegment::default() }
    })
}

/// The options of a SYN that tracking uses.
#[cold]
fn options_of_syn(packet: &Packet<'_>, layout: &Layout) -> TcpSegment {
    let mut found = TcpSegment::default();
    for option in options::walk(options::area(packet, layout)) {
        if option.kind == WINDOW_SCALE && found.window_scale.is_none() {
            found.window_scale = option.data.first().copied();
        }
    }
    found
}
