//! Which connection a packet could be of: its five-tuple, or what it reports an error about.

use super::QuotedAt;
use mmb_conn::fragment::{Complete, FragmentKey};
use mmb_conn::icmp_query;
use mmb_conn::quoted::quoted;
use mmb_conn::sctp::chunk;
use mmb_conn::{Chunks, Segment, Side, Signal, Tuple, Vlans, Wire, flags, proto};
use mmb_packet::checksum::{ICMP, ICMP6, TCP, UDP};
use mmb_packet::flow::{flow_ports, header_len};
use mmb_packet::parse::extension_len;
use mmb_packet::{Class, Layout, Malformed, Packet, options};
use mmb_policy::CtState;

/// What a packet is looked up by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sought {
    /// The key of its connection.
    pub(crate) tuple: Tuple,
    pub(crate) sort: Sort,
}

/// What a packet is to the connection that it may be of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sort {
    /// One of its packets, and no fragment or TCP segment that may begin a connection. Where rules ask for nothing but ends, it
    /// matches the ones that others match which go its way.
    Steady,
    /// Another one of its packets.
    Packet,
    /// An ICMP query.
    Request,
    /// What answers one.
    Answer,
    /// A fragment without a transport header, which may complete its datagram.
    Fragment(Option<Complete>),
    /// An ICMP error about a packet that went the other way.
    Error(QuotedAt),
}

impl Sort {
    /// Whether what was decided for a packet of its connection that went its way holds for it too.
    #[inline]
    pub(crate) fn is_steady(self) -> bool {
        matches!(self, Sort::Steady)
    }
}

/// Where a packet came in, as far as its connection asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) wire: Wire,
    pub(crate) side: Side,
    /// Its VLAN tags are still to be read.
    pub(crate) tagged: bool,
}

impl Place {
    /// Where a packet came in that is looked up by a tuple.
    pub(super) fn of(tuple: &Tuple) -> Place {
        Place { wire: tuple.wire, side: tuple.side, tagged: false }
    }
}

/// What can be said of a packet from its own bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Relation {
    /// It is of no connection, and makes none.
    None,
    /// It may be of one.
    Sought(Sought),
    /// It is a later fragment, which has no ports of its own.
    Fragment(FragmentKey),
    /// It must not pass, since nobody can say of which one it is, or its receiver takes it for none of it.
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
/// The TCP option of timestamps (RFC 7323).
const TIMESTAMPS: u8 = 8;

/// What a whole packet of TCP or UDP is looked up by: nearly all packets are such ones. For others [`relation`] tells.
#[inline(always)]
pub(crate) fn plain(packet: &Packet<'_>, layout: &Layout, place: Place) -> Option<Sought> {
    if layout.is_fragment() || !matches!(layout.l4_kind, TCP | UDP) {
        return None;
    }
    let bytes = packet.bytes();
    let ports = ports(bytes, layout)?;
    let flags = || bytes.get(usize::from(layout.l4) + 13);
    let begins = layout.l4_kind == TCP && flags().is_none_or(|flags| flags & flags::SYN != 0);
    let sort = if begins { Sort::Packet } else { Sort::Steady };
    Some(Sought { tuple: Tuple { ports, ..addresses(bytes, layout, place)? }, sort })
}

/// What can be said of a packet that is not [`plain`].
pub(crate) fn relation(packet: &Packet<'_>, layout: &Layout, place: Place) -> Relation {
    let bytes = packet.bytes();
    let Some(tuple) = addresses(bytes, layout, place) else { return Relation::None };
    if layout.is_later_fragment() {
        let unknown = Relation::Malformed(Malformed::Ip6HeaderTruncated);
        return fragment_key(bytes, layout, place).map_or(unknown, Relation::Fragment);
    }
    let (tuple, sort) = match layout.l4_kind {
        TCP | UDP => match ports(bytes, layout) {
            Some(ports) => (Tuple { ports, ..tuple }, Sort::Packet),
            None => return Relation::None,
        },
        ICMP | ICMP6 => match icmp(bytes, layout, &tuple) {
            Some(asked) => asked,
            None => return Relation::None,
        },
        _ if is_cut(layout) => return Relation::Malformed(cut(layout)),
        _ => match other_ports(bytes, layout) {
            Some(ports) => {
                let may_begin = || chunks(bytes, layout).is_some_and(|chunks| chunks.has(chunk::INIT));
                let is_steady = !layout.is_fragment() && !may_begin();
                (Tuple { ports, ..tuple }, if is_steady { Sort::Steady } else { Sort::Packet })
            }
            None => return Relation::None,
        },
    };
    Relation::Sought(Sought { tuple, sort })
}

/// The ports of TCP or UDP.
#[inline]
fn ports(bytes: &[u8], layout: &Layout) -> Option<[u16; 2]> {
    let &[a, b, c, d] = bytes.get(usize::from(layout.l4)..)?.first_chunk()?;
    Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
}

/// Whether a packet ends before its header of SCTP, DCCP or UDP-Lite does, which its receiver drops.
fn is_cut(layout: &Layout) -> bool {
    (layout.end.saturating_sub(u32::from(layout.l4)) as usize) < header_len(layout.proto)
}

fn cut(layout: &Layout) -> Malformed {
    if layout.is_fragment() { Malformed::TinyFragment } else { Malformed::L4Truncated }
}

/// What stands for ports in other protocols' headers.
fn other_ports(bytes: &[u8], layout: &Layout) -> Option<[u16; 2]> {
    flow_ports(layout.proto, bytes.get(usize::from(layout.l4)..layout.end as usize)?)
}

/// The key and the sort of an ICMP message with these addresses; `None` for one that is of no connection.
fn icmp(bytes: &[u8], layout: &Layout, addresses: &Tuple) -> Option<(Tuple, Sort)> {
    let at = usize::from(layout.l4);
    let &[number, _, _, _, a, b, ..] = bytes.get(at..)?.first_chunk::<ICMP_HEADER>()?;
    if errors(layout.l4_kind).contains(&number) {
        let at = at + ICMP_HEADER;
        let quoted = quoted(bytes.get(at..layout.payload_end as usize)?, addresses.family)?;
        let place = |offset: usize| u16::try_from(at + offset).ok();
        let place =
            QuotedAt { proto: quoted.tuple.proto, ip: place(quoted.ip_at)?, l4: place(quoted.l4_at)? };
        return Some((quoted.tuple.turned_back().beside(addresses), Sort::Error(place)));
    }
    let (request, asks) = icmp_query(layout.l4_kind, number)?;
    let ports = [u16::from_be_bytes([a, b]), request.into()];
    Some((Tuple { ports, ..*addresses }, if asks { Sort::Request } else { Sort::Answer }))
}

fn errors(proto: u8) -> [u8; 4] {
    if proto == ICMP { ERRORS } else { ERRORS6 }
}

/// Whether a packet is an ICMPv6 message for its link, which no router passes on: neighbour and router discovery and redirects
/// (RFC 4861, RFC 3122, RFC 3971; their receivers want the hop limit 255, which no router leaves), and multicast listener and router
/// discovery (RFC 2710, RFC 3810, RFC 4286; from or to an address that means nothing beyond the link).
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

/// How rules see a packet that is of no connection and begins none.
pub(crate) fn state_apart(bytes: &[u8], layout: &Layout) -> CtState {
    match layout.l4_kind {
        _ if layout.class == Class::Other => return CtState::Untracked,
        // Its datagram's first one passed and made no connection.
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

/// The tuple without ports.
#[inline]
pub(super) fn addresses(bytes: &[u8], layout: &Layout, place: Place) -> Option<Tuple> {
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
    let Place { mut wire, side, tagged } = place;
    if tagged && layout.vlan_tags > 0 {
        wire.vlans = vlans(bytes, layout);
    }
    Some(Tuple { addresses, ports: [0; 2], wire, side, proto: layout.proto, family })
}

/// The identifiers of the outermost two VLAN tags; a tag of priority alone has 0, as if there were none (IEEE 802.1Q, table 9-2).
fn vlans(bytes: &[u8], layout: &Layout) -> Vlans {
    // Each tag's control information is followed by the type of what comes behind it, and the last one's by the packet.
    let id = |tag: u8| {
        let left = layout.vlan_tags.checked_sub(tag).filter(|left| *left > 0)?;
        let at = layout.ip.checked_sub(4 * u16::from(left))?;
        Some(u16::from_be_bytes(*bytes.get(usize::from(at)..)?.first_chunk()?) & 0xfff)
    };
    Vlans { outer: id(0).unwrap_or(0), inner: id(1).unwrap_or(0) }
}

/// What a fragment's datagram is known by (RFC 791 section 3.2, RFC 8200 section 4.5).
pub(crate) fn fragment_key(bytes: &[u8], layout: &Layout, place: Place) -> Option<FragmentKey> {
    // Its own ends: those of an ICMP error are not the ones that it is looked up by.
    let tuple = addresses(bytes, layout, place)?;
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

/// Where a fragment lies in its datagram: first byte, bytes, whether it is the last one.
pub(crate) fn fragment_place(bytes: &[u8], layout: &Layout) -> Option<(u32, u32, bool)> {
    match layout.class {
        Class::Ip4 => {
            let header = bytes.get(usize::from(layout.ip)..)?;
            let word = u16::from_be_bytes(*header.get(6..)?.first_chunk()?);
            let len = layout.end.saturating_sub(u32::from(layout.l4));
            Some((u32::from(word & 0x1fff) * 8, len, word & 0x2000 == 0))
        }
        Class::Ip6 => {
            let at = fragment_header(bytes, layout)?;
            let word = u16::from_be_bytes(*bytes.get(at + 2..)?.first_chunk()?);
            let len = layout.end.saturating_sub(at as u32 + 8);
            Some((u32::from(word & 0xfff8), len, word & 1 == 0))
        }
        Class::Other => None,
    }
}

/// The offset of an IPv6 fragment header.
fn fragment_header(bytes: &[u8], layout: &Layout) -> Option<usize> {
    const FRAGMENT: u8 = 44;
    let mut next = *bytes.get(usize::from(layout.ip) + 6)?;
    let mut at = usize::from(layout.ip) + IP6_HEADER;
    // No more headers than the parser walked.
    while at < usize::from(layout.l4) {
        if next == FRAGMENT {
            return Some(at);
        }
        let (following, length) = (*bytes.get(at)?, *bytes.get(at + 1)?);
        (next, at) = (following, at + extension_len(next, length));
    }
    None
}

/// What tracking looks at; `None` for protocols that are not tracked.
#[inline]
pub(crate) fn signal(packet: &Packet<'_>, layout: &Layout) -> Option<Signal> {
    match layout.l4_kind {
        0 => chunks(packet.bytes(), layout).map(Signal::Sctp),
        _ => segment(packet, layout).map(Signal::Tcp),
    }
}

/// What tracking looks at in SCTP; `None` for other protocols.
#[cold]
fn chunks(bytes: &[u8], layout: &Layout) -> Option<Chunks> {
    if layout.proto != proto::SCTP || layout.is_later_fragment() {
        return None;
    }
    Chunks::read(bytes.get(usize::from(layout.l4)..layout.end as usize)?)
}

/// What tracking looks at in TCP; `None` for other protocols.
#[inline(always)]
pub(crate) fn segment(packet: &Packet<'_>, layout: &Layout) -> Option<Segment> {
    if layout.l4_kind != TCP {
        return None;
    }
    let header = packet.bytes().get(usize::from(layout.l4)..)?.first_chunk::<20>()?;
    let long = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let flags = header[13];
    Some(Segment {
        flags,
        seq: long(4),
        ack: long(8),
        window: u16::from_be_bytes([header[14], header[15]]),
        payload: layout.payload_range().len() as u32,
        ..if flags & flags::SYN != 0 { options_of_syn(packet, layout) } else { Segment::default() }
    })
}

/// What the options of a SYN say.
#[cold]
fn options_of_syn(packet: &Packet<'_>, layout: &Layout) -> Segment {
    let mut said = Segment::default();
    for option in options::walk(options::area(packet, layout)) {
        match option.kind {
            WINDOW_SCALE if said.window_scale.is_none() => said.window_scale = option.data.first().copied(),
            TIMESTAMPS => said.timestamps = true,
            _ => {}
        }
    }
    said
}
