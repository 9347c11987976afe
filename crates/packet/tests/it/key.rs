//! Header keys against a plain reading of their documentation.

use mmb_packet::key::{HeaderKey, flags};
use mmb_packet::parse::parse;
use mmb_packet::{Class, Key4, Key6, Layout, LinkType, Packet, ParserLimits, PortId, fill_key4, fill_key6};
use mmb_testkit::strategy::{PacketBytes, wire};
use mmb_testkit::{Tcp, Udp};
use proptest::prelude::*;

const IN: PortId = PortId(0x0102);
const OUT: PortId = PortId(0xfffe);

/// The table of `mmb_packet::key`, line by line.
fn expected(wire: &PacketBytes, layout: &Layout) -> Vec<u8> {
    let bytes = &wire.bytes;
    let (family, ip_len, key_len) = match layout.class {
        Class::Ip4 => (4, 20, 64),
        Class::Ip6 => (6, 40, 80),
        Class::Other => (0, 0, 64),
    };
    let mut key = vec![family, layout.l4_kind, layout.flags, 0];
    key.extend(IN.0.to_be_bytes());
    key.extend(OUT.0.to_be_bytes());
    key.extend(layout.eth_type.to_be_bytes());
    let tag_at = match wire.link {
        LinkType::Ethernet => 14,
        LinkType::Sll => 16,
        LinkType::Sll2 => 20,
        LinkType::RawIp => 0,
    };
    match layout.vlan_tags {
        0 => key.extend([0, 0]),
        _ => key.extend([bytes[tag_at] & 0x0f, bytes[tag_at + 1]]),
    }
    key.extend([layout.proto, 0]);
    key.extend(layout.eh.to_be_bytes());
    let l4 = usize::from(layout.l4);
    let header = match layout.l4_kind {
        0 => 0,
        6 => 20,
        _ => 8,
    };
    key.extend(&bytes[l4..l4 + header]);
    key.resize(36, 0);
    key.extend((layout.payload_range().len() as u16).to_be_bytes());
    key.extend([0, 0]);
    key.extend(&bytes[usize::from(layout.ip)..usize::from(layout.ip) + ip_len]);
    key.resize(key_len, 0);
    key
}

/// The key of a packet that parses; it is filled over old noise, as a worker's are.
fn key_of(wire: &PacketBytes) -> Option<(Layout, Vec<u8>)> {
    let mut buffer = wire.bytes.clone();
    let len = buffer.len();
    let packet = Packet::new(&mut buffer, 0, len, PortId(0), wire.link)?;
    let layout = parse(&packet, &ParserLimits::default()).ok()?;
    let key = if layout.class == Class::Ip6 {
        let mut key: Key6 = HeaderKey([0xa5; 80]);
        fill_key6(&packet, &layout, IN, OUT, &mut key);
        key.0.to_vec()
    } else {
        let mut key: Key4 = HeaderKey([0xa5; 64]);
        fill_key4(&packet, &layout, IN, OUT, &mut key);
        key.0.to_vec()
    };
    Some((layout, key))
}

proptest! {
    #[test]
    fn keys_are_as_documented(wire in wire()) {
        if let Some((layout, key)) = key_of(&wire) {
            prop_assert_eq!(key, expected(&wire, &layout));
        }
    }
}

#[test]
fn a_vlan_id_leaves_out_priority() {
    let mut frame = Tcp::default().over_ip4().vlan(0x123);
    frame.tags[0].tci |= 0xe000;
    let wire = PacketBytes { link: frame.link, bytes: frame.bytes() };
    let (_, key) = key_of(&wire).expect("a sound packet");
    assert_eq!(key[10..12], [0x01, 0x23]);
}

#[test]
fn what_follows_a_short_header_stays_out_of_the_key() {
    let frame = Udp::default().payload(b"behind the header").over_ip4();
    let wire = PacketBytes { link: frame.link, bytes: frame.bytes() };
    let (layout, key) = key_of(&wire).expect("a sound packet");
    assert_eq!(key[24..36], [0; 12]);
    assert_eq!(key[36..40], [0, 17, 0, 0]);
    assert_ne!(layout.flags & flags::HAS_PAYLOAD, 0);
}
