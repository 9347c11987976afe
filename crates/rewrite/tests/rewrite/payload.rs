//! Payload bytes.

use crate::common::{HEADROOM, edit, edit_wire};
use mmb_policy::field::FieldId;
use mmb_policy::rule::Write;
use mmb_policy::{Field, Target};
use mmb_rewrite::NotApplied;
use mmb_testkit::strategy::wire;
use mmb_testkit::{Checksum, Frame, Icmp, Ip4, Tcp, Udp, Upper};
use proptest::collection::vec;
use proptest::prelude::*;

fn write(id: FieldId, bytes: &[u8]) -> Target {
    Target::Mod(Field::new(id), Write::Bytes(bytes.to_vec()))
}

const FIELDS: [FieldId; 7] = [
    FieldId::Payload,
    FieldId::TcpPayload,
    FieldId::UdpPayload,
    FieldId::IcmpPayload,
    FieldId::Icmp6Payload,
    FieldId::IpPayload,
    FieldId::Ip6Payload,
];

#[test]
fn the_first_bytes_are_overwritten() {
    let text =
        |payload: &[u8]| Tcp::default().option(3, &[7]).payload(payload).over_ip6().trailer(b"trailer");
    let edited = edit(&text(b"GET / HTTP/1.1"), &[write(FieldId::TcpPayload, b"PUT")]);
    assert_eq!(edited.after.bytes, text(b"PUT / HTTP/1.1").bytes());
    let edited = edit(&text(b"GET"), &[write(FieldId::Payload, b"PUT /")]);
    assert_eq!((edited.only(NotApplied::PayloadShort), &edited.after.bytes), (1, &text(b"GET").bytes()));
}

#[test]
fn the_udp_length_bounds_the_payload() {
    let frame = |payload: &[u8]| Udp { len: Some(10), ..Udp::default() }.payload(payload).over_ip4();
    let edited = edit(&frame(b"abcd"), &[write(FieldId::UdpPayload, b"xy")]);
    assert_eq!(edited.after.bytes, frame(b"xycd").bytes());
    let edited = edit(&frame(b"abcd"), &[write(FieldId::UdpPayload, b"xyz")]);
    assert_eq!(edited.only(NotApplied::PayloadShort), 1);
}

#[test]
fn a_payload_of_another_protocol_is_not_short() {
    let frame = Icmp { payload: b"ping".to_vec(), ..Icmp::default() }.over_ip4();
    let edited =
        edit(&frame, &[write(FieldId::TcpPayload, b"long enough"), write(FieldId::Icmp6Payload, b"long")]);
    assert_eq!((edited.only(NotApplied::PayloadShort), &edited.after.bytes), (0, &frame.bytes()));
    let edited = edit(&Frame::arp(), &[write(FieldId::Payload, b"x")]);
    assert_eq!((edited.only(NotApplied::PayloadShort), &edited.after.bytes), (0, &Frame::arp().bytes()));
}

#[test]
fn a_later_fragment_has_an_ip_payload_only() {
    let frame = |bytes: &[u8]| Ip4 { frag_offset: 5, ..Ip4::new(Upper::Raw(6, bytes.to_vec())) }.frame();
    let targets =
        [write(FieldId::IpPayload, b"12"), write(FieldId::Payload, b"x"), write(FieldId::TcpPayload, b"x")];
    let edited = edit(&frame(b"abcd"), &targets);
    assert_eq!((edited.only(NotApplied::PayloadShort), &edited.after.bytes), (0, &frame(b"12cd").bytes()));
}

#[test]
fn a_checksum_under_an_ip_payload_is_kept_right() {
    let udp = Udp { sport: 0x3131, dport: 0x3232, ..Udp::default() };
    let edited = edit(
        &Udp::default().payload(b"abcd").over_ip4(),
        &[write(FieldId::IpPayload, b"1122\x00\x0c\xff\xffwxyz")],
    );
    assert_eq!(edited.after.bytes, udp.payload(b"wxyz").over_ip4().bytes());
    let none = Udp::default().checksum(Checksum::Is(0)).payload(b"abcd").over_ip4();
    let edited = edit(&none, &[write(FieldId::IpPayload, &[7; 12])]);
    assert_eq!(edited.after.bytes[40..42], [0, 0]);
}

proptest! {
    #[test]
    fn checksums_follow_payloads(wire in wire(), writes in vec((prop::sample::select(&FIELDS[..]), vec(any::<u8>(), 1..30)), 1..4)) {
        let targets: Vec<Target> = writes.iter().map(|(id, bytes)| write(*id, bytes)).collect();
        let Some(edited) = edit_wire(wire.link, &wire.bytes, HEADROOM, &[targets]) else { return Ok(()) };
        let layout = edited.before.layout;
        prop_assert_eq!(edited.after.layout, layout);
        prop_assert_eq!(edited.after.bytes.len(), edited.before.bytes.len());
        prop_assert!(edited.after.header_is_sound());
        let (start, end) = (layout.ip_payload_range().start, layout.end as usize);
        prop_assert_eq!(&edited.after.bytes[..start], &edited.before.bytes[..start]);
        prop_assert_eq!(&edited.after.bytes[end..], &edited.before.bytes[end..]);
        prop_assert_eq!(edited.after.error(), edited.before.error());
    }
}
