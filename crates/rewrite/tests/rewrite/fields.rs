//! Fields at fixed places, for every writable row of the table, on packets of every kind.

use crate::common::{Edited, HEADROOM, edit, edit_wire};
use mmb_packet::{Class, Layout, LinkType, key};
use mmb_policy::field::ones;
use mmb_policy::field::{FIELDS, FieldId, FieldInfo, FieldPlace, Implies, Writable};
use mmb_policy::rule::Write;
use mmb_policy::{Field, Target};
use mmb_testkit::frame::tcp_option;
use mmb_testkit::strategy::wire;
use mmb_testkit::{Checksum, Extension, FragmentHeader, Icmp, Ip4, Ip6, Tcp, Udp, Upper};
use proptest::prelude::*;

fn write(id: FieldId, number: u128) -> Target {
    Target::Mod(Field::new(id), Write::Number(number))
}

/// Rows that are written at a fixed place of a packet.
fn written() -> Vec<&'static FieldInfo> {
    let rows = FIELDS.iter().filter(|row| matches!(row.place, FieldPlace::Key { .. }));
    rows.filter(|row| matches!(row.writable, Writable::InPlace | Writable::Raw)).collect()
}

/// The place of a field in a packet that has it: the first bit, counted from the frame's first byte.
fn bit_in(row: &FieldInfo, link: LinkType, layout: &Layout) -> Option<usize> {
    let kind = |class, kind| layout.l4_kind == kind && (class == Class::Other || layout.class == class);
    let has = match row.implies {
        Implies::Frame => layout.vlan_tags > 0,
        Implies::Ip => layout.class != Class::Other,
        Implies::Ip4 => layout.class == Class::Ip4,
        Implies::Ip6 => layout.class == Class::Ip6,
        Implies::Icmp => kind(Class::Ip4, 1),
        Implies::Icmp6 => kind(Class::Ip6, 58),
        Implies::Udp => kind(Class::Other, 17),
        Implies::Tcp => kind(Class::Other, 6),
        Implies::TcpOrUdp => kind(Class::Other, 6) || kind(Class::Other, 17),
        Implies::Transport => layout.class != Class::Other && !layout.is_later_fragment(),
    };
    let FieldPlace::Key { bit, .. } = row.place else { return None };
    let bit = usize::from(bit);
    let moved = |from: usize, to: usize| to * 8 + bit - from * 8;
    has.then(|| match bit / 8 {
        key::IP.. => moved(key::IP, layout.ip.into()),
        key::L4.. => moved(key::L4, layout.l4.into()),
        key::PROTO => moved(key::PROTO, layout.proto_at.into()),
        _ => moved(key::VLAN, link.header_len()),
    })
}

fn set_bits(bytes: &mut [u8], bit: usize, width: u8, number: u128) {
    for i in 0..usize::from(width) {
        let (at, mask) = ((bit + i) / 8, 0x80 >> ((bit + i) % 8));
        let set = number >> (usize::from(width) - 1 - i) & 1 != 0;
        bytes[at] = if set { bytes[at] | mask } else { bytes[at] & !mask };
    }
}

/// Offsets of both checksum fields.
fn checksums(layout: &Layout) -> Vec<usize> {
    let l4 = usize::from(layout.l4);
    let mut fields = match layout.l4_kind {
        6 => vec![l4 + 16],
        17 => vec![l4 + 6],
        1 | 58 => vec![l4 + 2],
        _ => vec![],
    };
    if layout.class == Class::Ip4 {
        fields.push(usize::from(layout.ip) + 10);
    }
    fields
}

fn is_checksum(row: &FieldInfo) -> bool {
    row.name.ends_with("checksum")
}

/// The expected packet; its checksum fields are unchanged unless written.
fn expected(edited: &Edited, link: LinkType, writes: &[(&FieldInfo, u128)]) -> Vec<u8> {
    let mut bytes = edited.before.bytes.clone();
    for raw in [Writable::InPlace, Writable::Raw] {
        for (row, number) in writes.iter().filter(|(row, _)| row.writable == raw && !is_checksum(row)) {
            let FieldPlace::Key { width, .. } = row.place else { continue };
            if let Some(bit) = bit_in(row, link, &edited.before.layout) {
                set_bits(&mut bytes, bit, width, *number);
            }
        }
    }
    bytes
}

fn without_checksums(mut bytes: Vec<u8>, layout: &Layout) -> Vec<u8> {
    for at in checksums(layout) {
        bytes[at..at + 2].fill(0);
    }
    bytes
}

/// The writes of up to three rules; numbers fit their fields.
fn writes() -> impl Strategy<Value = Vec<(&'static FieldInfo, u128)>> {
    let number = prop_oneof![Just(0), Just(u128::MAX), any::<u128>()];
    let one = (prop::sample::select(written()), number).prop_map(|(row, number)| match row.place {
        FieldPlace::Key { width, .. } => (row, number & ones(width)),
        _ => (row, number),
    });
    prop::collection::vec(one, 1..6)
}

proptest! {
    #[test]
    fn fields_get_their_values_and_checksums_follow(wire in wire(), writes in writes(), cut in 0usize..6) {
        let targets: Vec<Target> = writes.iter().map(|(row, number)| write(row.id, *number)).collect();
        let (first, second) = targets.split_at(cut.min(targets.len()));
        let rules = [first.to_vec(), second.to_vec()];
        let Some(edited) = edit_wire(wire.link, &wire.bytes, HEADROOM, &rules) else { return Ok(()) };
        let layout = edited.before.layout;
        prop_assert_eq!(edited.after.layout, layout);
        let expected = expected(&edited, wire.link, &writes);
        prop_assert_eq!(
            without_checksums(edited.after.bytes.clone(), &layout),
            without_checksums(expected, &layout)
        );

        for at in checksums(&layout) {
            let last = writes.iter().rev().find(|(row, _)| {
                is_checksum(row) && bit_in(row, wire.link, &layout) == Some(at * 8)
            });
            if let Some((_, number)) = last {
                // Written without correction.
                prop_assert_eq!(&edited.after.bytes[at..at + 2], &(*number as u16).to_be_bytes());
            } else if at == usize::from(layout.ip) + 10 {
                prop_assert!(edited.after.header_is_sound());
            } else if !layout.is_routed() {
                prop_assert_eq!(edited.after.error(), edited.before.error());
            }
        }
    }
}

#[test]
fn later_writes_win_over_earlier_ones() {
    let rules = [
        vec![write(FieldId::TcpDport, 1), write(FieldId::TcpDport, 2), write(FieldId::TcpSyn, 0)],
        vec![write(FieldId::TcpDport, 443), write(FieldId::TcpFlags, 0x10), write(FieldId::TcpSyn, 1)],
    ];
    let frame = Tcp::default().over_ip4();
    let edited = edit_wire(frame.link, &frame.bytes(), 0, &rules).expect("a sound packet");
    assert_eq!(edited.after.bytes, Tcp::default().dport(443).flags(0x12).over_ip4().bytes());
}

#[test]
fn a_target_about_another_protocol_does_nothing() {
    let targets = [
        write(FieldId::TcpDport, 1),
        write(FieldId::Ip6HopLimit, 1),
        write(FieldId::IcmpType, 1),
        write(FieldId::Icmp6Code, 1),
        write(FieldId::VlanId, 1),
        write(FieldId::TcpChecksum, 1),
    ];
    let frame = Udp::default().over_ip4();
    assert_eq!(edit(&frame, &targets).after.bytes, frame.bytes());
    let arp = mmb_testkit::Frame::arp();
    assert_eq!(edit(&arp, &[write(FieldId::IpProto, 6), write(FieldId::IpTtl, 6)]).after.bytes, arp.bytes());
}

#[test]
fn the_outermost_tag_keeps_its_priority() {
    let mut frame = Udp::default().over_ip4().vlan(5).service_vlan(7);
    frame.tags[0].tci |= 0xa000;
    let edited = edit(&frame, &[write(FieldId::VlanId, 0xfff)]);
    frame.tags[0].tci = 0xafff;
    assert_eq!(edited.after.bytes, frame.bytes());
    let cooked = Udp::default().over_ip4().link(LinkType::Sll).vlan(5);
    let written = Udp::default().over_ip4().link(LinkType::Sll).vlan(1);
    assert_eq!(edit(&cooked, &[write(FieldId::VlanId, 1)]).after.bytes, written.bytes());
}

#[test]
fn a_udp_checksum_of_zero_stays_and_none_becomes_zero() {
    let none = Udp::default().checksum(Checksum::Is(0)).over_ip4();
    let edited = edit(&none, &[write(FieldId::UdpDport, 54)]);
    assert_eq!(edited.after.bytes, Udp::default().dport(54).checksum(Checksum::Is(0)).over_ip4().bytes());
    // One of all ports makes the checksum 0, which is sent as 0xffff.
    let all_ones = (0..=u16::MAX).filter(|port| {
        let edited = edit(&Udp::default().over_ip6(), &[write(FieldId::UdpDport, u128::from(*port))]);
        let checksum = &edited.after.bytes[60..62];
        assert_ne!(checksum, [0, 0]);
        checksum == [0xff, 0xff]
    });
    assert_eq!(all_ones.count(), 1);
}

#[test]
fn raw_fields_are_written_as_they_are() {
    let frame = Udp::default().payload(b"payload").over_ip4();
    let targets = [
        write(FieldId::UdpChecksum, 0),
        write(FieldId::IpChecksum, 0x1234),
        write(FieldId::UdpLen, 9),
        write(FieldId::IpLen, 30),
        write(FieldId::IpIhl, 15),
        write(FieldId::UdpDport, 1),
    ];
    let edited = edit(&frame, &targets);
    let bytes = &edited.after.bytes;
    assert_eq!((bytes[14], &bytes[16..18], &bytes[24..26]), (0x4f, &[0, 30][..], &[0x12, 0x34][..]));
    // Headers stay at their places, whatever the new lengths say.
    assert_eq!(bytes[36..42], [0, 1, 0, 9, 0, 0]);
}

#[test]
fn the_pseudo_header_follows_protocol_and_addresses() {
    let proto = edit(&Tcp::default().over_ip4(), &[write(FieldId::IpProto, 253)]);
    let (before, after) = (proto.before.error(), proto.after.error());
    assert_eq!((before, after, proto.after.header_is_sound()), (Some(0), Some(0), true));
    assert_ne!(proto.after.bytes[50..52], proto.before.bytes[50..52]);

    let next = [write(FieldId::Ip6Next, 253)];
    let plain = edit(&Tcp::default().over_ip6(), &next);
    assert_eq!((plain.after.error(), plain.after.bytes[20]), (Some(0), 253));
    let behind = Ip6::new(Upper::Tcp(Tcp::default())).extension(Extension::Plain(60, vec![])).frame();
    let chained = edit(&behind, &next);
    assert_eq!(chained.after.bytes[78..80], chained.before.bytes[78..80], "no part of the pseudo header");
}

#[test]
fn a_destination_on_the_way_is_not_in_the_checksum() {
    let route = vec![131, 7, 4, 10, 0, 0, 9];
    let frame = Ip4 { options: route, ..Ip4::new(Upper::Tcp(Tcp::default())) }.frame();
    let edited = edit(&frame, &[write(FieldId::IpDaddr, 0x0102_0304)]);
    assert_eq!(edited.after.bytes[42..], edited.before.bytes[42..]);
    assert!(edited.after.header_is_sound());

    let frame = Ip6::new(Upper::Udp(Udp::default())).extension(Extension::Routing(2, 1)).frame();
    let edited = edit(&frame, &[write(FieldId::Ip6Daddr, 1)]);
    assert_eq!(edited.after.bytes[54..], edited.before.bytes[54..]);
    let edited = edit(&frame, &[write(FieldId::Ip6Saddr, 1)]);
    assert_ne!(edited.after.bytes[84..86], edited.before.bytes[84..86], "the source always is");
}

#[test]
fn later_fragments_have_only_an_ip_header() {
    let targets = [write(FieldId::IpSaddr, 1), write(FieldId::TcpDport, 1), write(FieldId::IpProto, 17)];
    let frame = Ip4 { frag_offset: 1, ..Ip4::new(Upper::Raw(6, vec![7; 40])) }.frame();
    let edited = edit(&frame, &targets);
    assert_eq!(edited.after.bytes[34..], frame.bytes()[34..]);
    assert!(edited.after.header_is_sound());

    let fragment = Extension::Fragment(FragmentHeader { offset: 1, more: false });
    let frame = Ip6::new(Upper::Icmp(Icmp::default())).extension(fragment).frame();
    let edited = edit(&frame, &[write(FieldId::IpProto, 6), write(FieldId::Icmp6Type, 1)]);
    assert_eq!((edited.after.bytes[54], &edited.after.bytes[55..]), (6, &frame.bytes()[55..]));
}

#[test]
fn icmp_has_no_pseudo_header_over_ip4() {
    let edited =
        edit(&Icmp::default().over_ip4(), &[write(FieldId::IpSaddr, 1), write(FieldId::IcmpType, 0)]);
    assert_eq!(edited.after.error(), Some(0));
    let edited =
        edit(&Icmp::default().over_ip6(), &[write(FieldId::Ip6Saddr, 1), write(FieldId::Icmp6Type, 0)]);
    assert_eq!(edited.after.error(), Some(0));
}

#[test]
fn nothing_to_write_compiles_to_nothing() {
    use mmb_policy::rule::DropRate;
    use mmb_rewrite::Edit;
    assert!(Edit::compile(&[Target::Accept, Target::Drop(DropRate::ALL)]).is_none());
    assert!(Edit::compile(&[Target::Accept, write(FieldId::IpTtl, 1)]).is_some());
}

#[test]
fn a_written_tcp_offset_moves_nothing() {
    let frame = Tcp::default().raw_options(&tcp_option(2, &[5, 180])).over_ip4();
    let edited = edit(&frame, &[write(FieldId::TcpOffset, 15), Target::Strip(2)]);
    assert_eq!((edited.after.bytes.len(), edited.after.bytes[46] >> 4), (54, 15));
    assert_eq!(edited.after.error(), Some(0));
}
