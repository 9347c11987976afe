//! Random packets: valid ones of every kind, and damaged ones.

use super::pool;
use crate::frame::{
    Checksum, Extension, FragmentHeader, Frame, Icmp, Ip4, Ip6, Network, Tcp, Udp, Upper, VlanTag, tcp_option,
};
use mmb_packet::LinkType;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::fmt;

/// A packet as bytes, printed in hexadecimal.
#[derive(Clone, PartialEq, Eq)]
pub struct PacketBytes {
    /// The link type.
    pub link: LinkType,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for PacketBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ", self.link)?;
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A link type.
pub fn link() -> BoxedStrategy<LinkType> {
    prop_oneof![
        5 => Just(LinkType::Ethernet),
        1 => Just(LinkType::RawIp),
        1 => Just(LinkType::Sll),
        1 => Just(LinkType::Sll2),
    ]
    .boxed()
}

/// An input packet: mostly valid, otherwise with changed bytes, truncated, or random bytes.
pub fn wire() -> BoxedStrategy<PacketBytes> {
    let sound = frame().prop_map(|frame| PacketBytes { link: frame.link, bytes: frame.bytes() });
    prop_oneof![
        12 => sound.clone(),
        4 => (sound.clone(), vec((any::<Index>(), pool::byte()), 1..4), any::<bool>()).prop_map(damage),
        1 => (sound, any::<Index>()).prop_map(|(mut wire, len)| {
            wire.bytes.truncate(len.index(wire.bytes.len() + 1));
            wire
        }),
        1 => (link(), vec(any::<u8>(), 0..80)).prop_map(|(link, bytes)| PacketBytes { link, bytes }),
    ]
    .boxed()
}

/// Writes bytes anywhere after the link addresses, and optionally corrects the IPv4 header checksum, so that tests reach beyond
/// the check of the header checksum.
fn damage((mut wire, edits, repair): (PacketBytes, Vec<(Index, u8)>, bool)) -> PacketBytes {
    let first = if wire.link == LinkType::RawIp { 0 } else { 12 };
    for (index, byte) in edits {
        let at = first + index.index(wire.bytes.len().saturating_sub(first).max(1));
        if let Some(slot) = wire.bytes.get_mut(at) {
            *slot = byte;
        }
    }
    if repair {
        repair_ip4_checksum(wire.link, &mut wire.bytes);
    }
    wire
}

/// Corrects the header checksum of an IPv4 packet, if the header is complete.
pub fn repair_ip4_checksum(link: LinkType, bytes: &mut [u8]) {
    let (type_at, mut at) = match link {
        LinkType::Ethernet => (12, 14),
        LinkType::Sll => (14, 16),
        LinkType::Sll2 => (0, 20),
        LinkType::RawIp => (0, 0),
    };
    if link != LinkType::RawIp {
        let mut eth_type = bytes.get(type_at..type_at + 2);
        while let Some([0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00]) = eth_type {
            eth_type = bytes.get(at + 2..at + 4);
            at += 4;
        }
    }
    let len = bytes.get(at).map_or(0, |byte| usize::from(byte & 0x0f) * 4);
    if let Some(header) = bytes.get_mut(at..at + len)
        && len >= 20
    {
        header[10..12].fill(0);
        let checksum = crate::frame::internet_checksum(header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// A packet with valid headers of any content.
pub fn frame() -> BoxedStrategy<Frame> {
    let tag = (select(&[0x8100u16, 0x88a8, 0x9100][..]), select(pool::VLANS), 0u16..16)
        .prop_map(|(tpid, id, high)| VlanTag { tpid, tci: high << 12 | id });
    let tags = prop_oneof![5 => Just(Vec::new()), 4 => vec(tag.clone(), 1..3), 1 => vec(tag, 3..6)];
    let trailer = prop_oneof![3 => Just(Vec::new()), 1 => vec(pool::byte(), 1..20)];
    (link(), tags, network(), trailer)
        .prop_map(|(link, tags, network, trailer)| Frame { link, tags, network, trailer })
        .boxed()
}

fn network() -> BoxedStrategy<Network> {
    prop_oneof![
        8 => ip4().prop_map(Network::Ip4),
        6 => ip6().prop_map(Network::Ip6),
        1 => select(&[0x0806u16, 0x88cc, 0x8847, 60][..])
            .prop_flat_map(|eth_type| vec(any::<u8>(), 0..60).prop_map(move |b| Network::Other(eth_type, b))),
    ]
    .boxed()
}

fn checksum() -> BoxedStrategy<Checksum> {
    prop_oneof![
        6 => Just(Checksum::Right),
        1 => pool::word().prop_map(Checksum::Off),
        1 => select(&[0u16, 0xffff][..]).prop_map(Checksum::Is),
        // A checksum that becomes zero when one port is replaced by another.
        1 => (pool::port(), pool::port())
            .prop_map(|(old, new)| Checksum::Is(((u32::from(new) + 0xffff - u32::from(old)) % 0xffff) as u16)),
    ]
    .boxed()
}

fn payload() -> BoxedStrategy<Vec<u8>> {
    prop_oneof![
        4 => select(pool::PAYLOADS).prop_map(<[u8]>::to_vec),
        1 => vec(pool::byte(), 0..64),
    ]
    .boxed()
}

/// IPv4 options: padding; router alert; source routes with and without remaining hops; bad lengths.
const IP4_OPTIONS: &[&[u8]] = &[
    &[1, 1, 1, 0],
    &[148, 4, 0, 0],
    &[131, 7, 4, 10, 0, 0, 9, 0],
    &[1, 137, 7, 8, 10, 0, 0, 9],
    &[137, 11, 8, 10, 0, 0, 9, 10, 0, 0, 8, 0],
    &[7, 1, 131, 7, 4, 10, 0, 0],
    &[131, 3, 4, 0],
    &[131, 3, 3, 0],
    &[131, 2, 4, 0],
    &[131, 40, 4, 0],
    &[0, 131, 3, 1],
];

fn ip4() -> BoxedStrategy<Ip4> {
    let address = || select(pool::IP4).prop_map(|a| a.parse().expect("an IPv4 address"));
    let options = prop_oneof![
        10 => Just(Vec::new()),
        1 => select(IP4_OPTIONS).prop_map(<[u8]>::to_vec),
        1 => vec(pool::byte(), 1..40),
    ];
    let fragment = prop_oneof![
        8 => Just((0u8, 0u16)),
        1 => Just((1, 0)),
        1 => (0u8..2, select(&[1u16, 2, 185, 8191][..])),
    ];
    let header = (pool::byte(), pool::word(), select(&[0u8, 2, 4, 6][..]), select(&[0u8, 1, 64, 255][..]));
    (header, fragment, address(), address(), options, upper(4))
        .prop_map(|((tos, id, flags, ttl), (more, frag_offset), source, destination, options, upper)| Ip4 {
            tos,
            id,
            ttl,
            flags: flags | more,
            frag_offset,
            source,
            destination,
            options,
            ..Ip4::new(upper)
        })
        .boxed()
}

fn ip6() -> BoxedStrategy<Ip6> {
    let address = || select(pool::IP6).prop_map(|a| a.parse().expect("an IPv6 address"));
    let extensions =
        prop_oneof![3 => Just(Vec::new()), 2 => vec(extension(), 1..4), 1 => vec(extension(), 4..20)];
    let header = (pool::byte(), select(&[0u32, 1, 0xf_ffff, 0xa_aaaa][..]), select(&[0u8, 1, 64, 255][..]));
    (header, address(), address(), extensions, upper(6))
        .prop_map(|((traffic_class, flow_label, hop_limit), source, destination, extensions, upper)| Ip6 {
            traffic_class,
            flow_label,
            hop_limit,
            source,
            destination,
            extensions,
            ..Ip6::new(upper)
        })
        .boxed()
}

fn extension() -> BoxedStrategy<Extension> {
    let fragment = prop_oneof![Just((0, false)), Just((0, true)), (select(&[1u16, 185][..]), any::<bool>())];
    prop_oneof![
        4 => (select(&[0u8, 60, 135, 139, 140][..]), vec(pool::byte(), 0..30))
            .prop_map(|(number, content)| Extension::Plain(number, content)),
        2 => (pool::byte(), 0u8..3).prop_map(|(routing_type, left)| Extension::Routing(routing_type, left)),
        2 => fragment.prop_map(|(offset, more)| Extension::Fragment(FragmentHeader { offset, more })),
        1 => (0u8..8).prop_map(Extension::Authentication),
        1 => Just(Extension::EncapsulatingSecurity),
    ]
    .boxed()
}

fn upper(version: u8) -> BoxedStrategy<Upper> {
    let types = if version == 4 { &[0u8, 3, 8, 11][..] } else { &[1u8, 2, 128, 129, 135][..] };
    let icmp =
        (select(types), 0u8..4, checksum(), payload()).prop_map(|(icmp_type, code, checksum, payload)| {
            Upper::Icmp(Icmp { icmp_type, code, checksum, payload, ..Icmp::default() })
        });
    let raw = (select(&[1u8, 4, 6, 17, 47, 50, 51, 58, 59, 132, 255][..]), payload())
        .prop_map(|(proto, bytes)| Upper::Raw(proto, bytes));
    prop_oneof![5 => tcp().prop_map(Upper::Tcp), 3 => udp().prop_map(Upper::Udp), 2 => icmp, 1 => raw].boxed()
}

fn udp() -> BoxedStrategy<Udp> {
    let len = prop_oneof![6 => Just(None), 1 => (0u16..20).prop_map(Some), 1 => pool::word().prop_map(Some)];
    (pool::port(), pool::port(), len, checksum(), payload())
        .prop_map(|(sport, dport, len, checksum, payload)| Udp { sport, dport, len, checksum, payload })
        .boxed()
}

fn tcp() -> BoxedStrategy<Tcp> {
    let number = || select(&[0u32, 1, 0xffff, 0x1_0000, 0x8000_0000, 0xffff_ffff][..]);
    let flags = prop_oneof![3 => select(&[0x02u8, 0x12, 0x10, 0x18, 0x11, 0x04][..]), 1 => any::<u8>()];
    let ports = (pool::port(), pool::port());
    let small = (0u8..16, flags, pool::word(), pool::word());
    let offset = prop_oneof![19 => Just(None), 1 => (0u8..16).prop_map(Some)];
    (ports, number(), number(), small, tcp_options(), offset, checksum(), payload())
        .prop_map(
            |(
                (sport, dport),
                seq,
                ack,
                (reserved, flags, window, urgent),
                options,
                offset,
                checksum,
                payload,
            )| Tcp {
                sport,
                dport,
                seq,
                ack,
                reserved,
                flags,
                window,
                urgent,
                options,
                offset,
                checksum,
                payload,
            },
        )
        .boxed()
}

/// An options area: valid options, padding, sometimes an early end or a bad length, truncated at 40 bytes.
fn tcp_options() -> BoxedStrategy<Vec<u8>> {
    let option = select(pool::OPTION_KINDS)
        .prop_flat_map(|kind| pool::option_data(kind).prop_map(move |data| tcp_option(kind, &data)));
    let piece = prop_oneof![
        12 => option,
        4 => Just(vec![1]),
        1 => Just(vec![0]),
        1 => (select(pool::OPTION_KINDS), select(&[0u8, 1, 41, 255][..])).prop_map(|(kind, len)| vec![kind, len]),
        1 => vec(pool::byte(), 1..8),
    ];
    vec(piece, 0..6)
        .prop_map(|pieces| {
            let mut area = pieces.concat();
            area.truncate(40);
            area
        })
        .boxed()
}
