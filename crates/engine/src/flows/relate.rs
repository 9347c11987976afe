//! Which connection a packet could be of: its five-tuple, or what it reports an error about.

use mmb_conn::fragment::FragmentKey;
use mmb_conn::quoted::{Quoted, quoted};
use mmb_conn::{Segment, Tuple};
use mmb_packet::checksum::{ICMP, ICMP6, TCP, UDP};
use mmb_packet::{Class, Layout, Packet, options};

/// How a packet stands to connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Relation {
    /// It is of no connection, and makes none.
    None,
    /// It is of the connection with this key, or may make one.
    Flow(Tuple),
    /// It is a later fragment, which has no ports of its own.
    Fragment(FragmentKey),
    /// It is an ICMP error about a packet with this tuple, quoted at this offset.
    Error(Quoted, usize),
}

/// ICMP types: errors (RFC 792), queries and their replies.
const ERRORS: [u8; 4] = [3, 4, 11, 12];
const QUERIES: [u8; 8] = [0, 8, 13, 14, 15, 16, 17, 18];
/// The same of ICMPv6 (RFC 4443).
const ERRORS6: [u8; 4] = [1, 2, 3, 4];
const QUERIES6: [u8; 2] = [128, 129];
/// Of these, the ones that ask.
const REQUESTS: [u8; 4] = [8, 13, 15, 17];
const REQUESTS6: [u8; 1] = [128];
/// Bytes of an ICMP header.
const ICMP_HEADER: usize = 8;
/// The TCP option of the window scale (RFC 7323).
const WINDOW_SCALE: u8 = 3;

/// How a packet stands to connections. `wire` is the one that it came by.
#[inline]
pub(crate) fn relation(packet: &Packet<'_>, layout: &Layout, wire: u16) -> Relation {
    let bytes = packet.bytes();
    let Some(mut tuple) = addresses(bytes, layout, wire) else { return Relation::None };
    if layout.is_later_fragment() {
        return fragment_key(bytes, layout, &tuple).map_or(Relation::None, Relation::Fragment);
    }
    let Some(header) = bytes.get(usize::from(layout.l4)..) else { return Relation::None };
    match layout.l4_kind {
        TCP | UDP => {
            let Some(&[a, b, c, d]) = header.first_chunk() else { return Relation::None };
            tuple.ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
        }
        kind @ (ICMP | ICMP6) => {
            let Some(&[number, _, _, _, a, b, ..]) = header.first_chunk::<ICMP_HEADER>() else {
                return Relation::None;
            };
            let (errors, queries) =
                if kind == ICMP { (&ERRORS[..], &QUERIES[..]) } else { (&ERRORS6[..], &QUERIES6[..]) };
            if errors.contains(&number) {
                let at = usize::from(layout.l4) + ICMP_HEADER;
                let inside = bytes.get(at..layout.payload_end as usize).unwrap_or_default();
                return quoted(inside, tuple.family)
                    .map_or(Relation::None, |quoted| Relation::Error(quoted, at));
            }
            if !queries.contains(&number) {
                return Relation::None;
            }
            tuple.ports = [u16::from_be_bytes([a, b]); 2];
        }
        _ => {}
    }
    Relation::Flow(tuple)
}

/// The tuple without ports.
#[inline]
fn addresses(bytes: &[u8], layout: &Layout, wire: u16) -> Option<Tuple> {
    let header = bytes.get(usize::from(layout.ip)..)?;
    let of4 = |at: usize| Some(u128::from(u32::from_be_bytes(*header.get(at..)?.first_chunk()?)));
    let of6 = |at: usize| Some(u128::from_be_bytes(*header.get(at..)?.first_chunk()?));
    let (addresses, family) = match layout.class {
        Class::Ip4 => ([of4(12)?, of4(16)?], 4),
        Class::Ip6 => ([of6(8)?, of6(24)?], 6),
        Class::Other => return None,
    };
    Some(Tuple { addresses, ports: [0; 2], wire, proto: layout.proto, family })
}

/// What a fragment's datagram is known by (RFC 791 section 3.2, RFC 8200 section 4.5).
pub(crate) fn fragment_key(bytes: &[u8], layout: &Layout, tuple: &Tuple) -> Option<FragmentKey> {
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
    const IP6_HEADER: usize = 40;
    const FRAGMENT: u8 = 44;
    let mut next = *bytes.get(usize::from(layout.ip) + 6)?;
    let mut at = usize::from(layout.ip) + IP6_HEADER;
    // No more headers than the parser walked.
    while at < usize::from(layout.l4) {
        if next == FRAGMENT {
            return Some(at);
        }
        let (following, length) = (*bytes.get(at)?, usize::from(*bytes.get(at + 1)?));
        (next, at) = (following, at + 8 + 8 * length);
    }
    None
}

/// Whether an ICMP query asks, and does not answer.
pub(crate) fn asks(packet: &Packet<'_>, layout: &Layout) -> bool {
    let requests = if layout.l4_kind == ICMP { &REQUESTS[..] } else { &REQUESTS6[..] };
    packet.bytes().get(usize::from(layout.l4)).is_some_and(|number| requests.contains(number))
}

/// The flag of a TCP segment that begins a connection.
const SYN: u8 = 2;

/// Whether a packet is a TCP segment that begins a connection.
#[inline]
pub(crate) fn begins(packet: &Packet<'_>, layout: &Layout) -> bool {
    layout.l4_kind == TCP
        && packet.bytes().get(usize::from(layout.l4) + 13).is_some_and(|flags| flags & SYN != 0)
}

/// What TCP tracking looks at; `None` for other protocols.
#[inline]
pub(crate) fn segment(packet: &Packet<'_>, layout: &Layout) -> Option<Segment> {
    if layout.l4_kind != TCP {
        return None;
    }
    let header = packet.bytes().get(usize::from(layout.l4)..)?.first_chunk::<20>()?;
    let long = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let flags = header[13];
    let scale = || {
        let mut found =
            options::walk(options::area(packet, layout)).filter(|option| option.kind == WINDOW_SCALE);
        found.next().and_then(|option| option.data.first().copied())
    };
    Some(Segment {
        flags,
        seq: long(4),
        ack: long(8),
        window: u16::from_be_bytes([header[14], header[15]]),
        payload: layout.payload_range().len() as u32,
        window_scale: if flags & SYN != 0 { scale() } else { None },
    })
}
