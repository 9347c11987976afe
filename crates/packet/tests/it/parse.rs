//! The parser against packets of every kind, sound and damaged.

use mmb_packet::key::{eh, flags};
use mmb_packet::parse::parse;
use mmb_packet::{Class, Layout, LinkType, Malformed, Packet, ParserLimits, PortId};
use mmb_testkit::strategy::{frame, repair_ip4_checksum, wire};
use mmb_testkit::{Checksum, Extension, FragmentHeader, Frame, Icmp, Ip4, Ip6, Network, Tcp, Udp, Upper};
use proptest::collection::vec;
use proptest::prelude::*;

fn layout_of(link: LinkType, bytes: &[u8]) -> Result<Layout, Malformed> {
    layout_within(link, bytes, &ParserLimits::default())
}

fn layout_within(link: LinkType, bytes: &[u8], limits: &ParserLimits) -> Result<Layout, Malformed> {
    let mut buffer = bytes.to_vec();
    let packet = Packet::new(&mut buffer, 0, bytes.len(), PortId(0), link).expect("a packet in its buffer");
    parse(&packet, limits)
}

fn layout(frame: &Frame) -> Result<Layout, Malformed> {
    layout_of(frame.link, &frame.bytes())
}

fn sound(frame: &Frame) -> Layout {
    layout(frame).expect("a sound packet")
}

/// What the documentation of `Layout` promises.
fn assert_invariants(layout: &Layout, len: usize) {
    let (ip, l4, payload) = (u32::from(layout.ip), u32::from(layout.l4), u32::from(layout.payload));
    assert!(ip <= l4 && l4 <= payload && payload <= layout.payload_end, "{layout:?}");
    assert!(layout.payload_end <= layout.end && layout.end as usize <= len, "{layout:?}");
    let (ip_header, kinds): (u32, &[u8]) = match layout.class {
        Class::Ip4 => (20, &[0, 1, 6, 17]),
        Class::Ip6 => (40, &[0, 6, 17, 58]),
        Class::Other => (0, &[0]),
    };
    assert!(ip + ip_header <= l4 && kinds.contains(&layout.l4_kind), "{layout:?}");
    let header = match layout.l4_kind {
        0 => 0,
        6 => 20,
        _ => 8,
    };
    assert!(l4 + header <= payload, "{layout:?}");
    assert!(layout.l4_kind == 0 || layout.l4_kind == layout.proto);
    let proto_at = u32::from(layout.proto_at);
    assert!(layout.class == Class::Other || (ip..l4).contains(&proto_at), "{layout:?}");
    let has = |flag| layout.flags & flag != 0;
    assert_eq!(has(flags::HAS_PAYLOAD), !layout.payload_range().is_empty());
    assert_eq!(has(flags::HAS_IP_PAYLOAD), !layout.ip_payload_range().is_empty());
    assert_eq!(has(flags::VLAN_TAGGED), layout.vlan_tags > 0);
    assert_eq!(has(flags::TCP_OPTION_AREA), !layout.tcp_options().is_empty());
    assert!(!layout.is_later_fragment() || layout.is_fragment() && layout.l4_kind == 0);
}

proptest! {
    #[test]
    fn a_layout_lies_inside_its_packet(wire in wire(), headers in 0u8..20) {
        if let Ok(layout) = layout_within(wire.link, &wire.bytes, &ParserLimits { ip6_headers: headers }) {
            assert_invariants(&layout, wire.bytes.len());
        }
    }

    #[test]
    fn noise_behind_an_ether_type_never_panics(
        eth_type in prop::sample::select(&[[0x08u8, 0x00], [0x86, 0xdd], [0x81, 0x00]][..]),
        first in any::<u8>(),
        noise in vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = vec![0; 12];
        bytes.extend(eth_type);
        bytes.push(first & 0x2f | 0x40);
        bytes.extend(noise);
        for repair in [false, true] {
            if repair {
                repair_ip4_checksum(LinkType::Ethernet, &mut bytes);
            }
            if let Ok(layout) = layout_of(LinkType::Ethernet, &bytes) {
                assert_invariants(&layout, bytes.len());
            }
        }
    }

    /// The straight run for plain packets and the walk agree: raw IP is always walked.
    #[test]
    fn plain_packets_are_read_like_all_others(wire in wire()) {
        let start = if wire.link == LinkType::RawIp { 0 } else { 14 };
        let ip = wire.bytes.get(start..).unwrap_or_default();
        let eth_type = match ip.first().map(|byte| byte >> 4) {
            Some(4) => [0x08, 0x00],
            Some(6) => [0x86, 0xdd],
            _ => return Ok(()),
        };
        let framed = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], &eth_type[..], ip].concat();
        let walked = layout_of(LinkType::RawIp, ip).map(|mut layout| {
            layout.ip += 14;
            layout.proto_at += 14;
            layout.l4 += 14;
            layout.payload += 14;
            layout.end += 14;
            layout.payload_end += 14;
            layout
        });
        prop_assert_eq!(layout_of(LinkType::Ethernet, &framed), walked);
    }

    /// Wherever a packet is cut off inside its IP part, it is not taken for a whole one.
    #[test]
    fn a_cut_packet_is_malformed(frame in frame(), cut in any::<prop::sample::Index>()) {
        let bytes = frame.bytes();
        if let Ok(layout) = layout_of(frame.link, &bytes)
            && layout.class != Class::Other
        {
            let len = cut.index(layout.end as usize);
            prop_assert!(layout_of(frame.link, &bytes[..len]).is_err());
            prop_assert_eq!(layout_of(frame.link, &bytes[..layout.end as usize]), Ok(layout));
        }
    }
}

#[test]
fn plain_tcp_has_the_expected_layout() {
    let frame = Tcp::default().option(2, &[5, 180]).payload(b"hello").over_ip4().trailer(&[0; 9]);
    let layout = sound(&frame);
    assert_eq!((layout.ip, layout.proto_at, layout.l4, layout.payload), (14, 23, 34, 58));
    assert_eq!((layout.payload_end, layout.end), (63, 63));
    assert_eq!(layout.tcp_options(), 54..58);
    assert_eq!((layout.l4_kind, layout.proto, layout.eth_type), (6, 6, 0x0800));
    assert_eq!(layout.flags, flags::HAS_PAYLOAD | flags::HAS_IP_PAYLOAD | flags::TCP_OPTION_AREA);
}

#[test]
fn tags_are_counted_to_four() {
    let frame = |tags| (0..tags).fold(Udp::default().over_ip6(), |frame, tag| frame.service_vlan(tag));
    let layout = sound(&frame(4));
    assert_eq!((layout.vlan_tags, layout.ip, layout.eth_type), (4, 30, 0x86dd));
    assert_eq!(self::layout(&frame(5)), Err(Malformed::VlanStackTooDeep));
    let bytes = frame(2).bytes();
    assert_eq!(layout_of(LinkType::Ethernet, &bytes[..21]), Err(Malformed::LinkTruncated));
}

#[test]
fn other_frames_begin_behind_their_ether_type() {
    let layout = sound(&Frame::arp().vlan(7));
    assert_eq!((layout.class, layout.ip, layout.l4, layout.payload), (Class::Other, 18, 18, 18));
    assert_eq!((layout.end, layout.payload_end, layout.flags), (46, 18, flags::VLAN_TAGGED));
    assert_eq!(layout_of(LinkType::Ethernet, &[0; 13]), Err(Malformed::LinkTruncated));
    assert_eq!(layout_of(LinkType::Sll2, &[0; 19]), Err(Malformed::LinkTruncated));
    assert_eq!(layout_of(LinkType::RawIp, &[]), Err(Malformed::LinkTruncated));
    assert_eq!(layout_of(LinkType::RawIp, &[0x50]), Err(Malformed::IpBadVersion));
}

#[test]
fn each_damage_of_an_ip4_packet_has_its_name() {
    let ip = || Ip4::new(Upper::Udp(Udp::default()));
    let reason = |ip: Ip4| layout(&ip.frame());
    assert_eq!(reason(Ip4 { version: 6, ..ip() }), Err(Malformed::IpBadVersion));
    assert_eq!(reason(Ip4 { ihl: Some(4), ..ip() }), Err(Malformed::Ip4BadLength));
    assert_eq!(reason(Ip4 { total_len: Some(19), ..ip() }), Err(Malformed::Ip4BadLength));
    assert_eq!(reason(Ip4 { total_len: Some(29), ..ip() }), Err(Malformed::Ip4Truncated));
    assert_eq!(reason(Ip4 { total_len: Some(27), ..ip() }), Err(Malformed::L4Truncated));
    assert_eq!(reason(Ip4 { checksum: Checksum::Off(1), ..ip() }), Err(Malformed::Ip4BadChecksum));
    assert!(reason(ip()).is_ok());
}

#[test]
fn each_damage_of_a_transport_header_has_its_name() {
    let tcp = |offset, options: &[u8]| {
        layout(&Tcp { offset: Some(offset), ..Tcp::default() }.raw_options(options).over_ip4())
    };
    assert_eq!(tcp(4, &[]), Err(Malformed::TcpBadOffset));
    assert_eq!(tcp(6, &[]), Err(Malformed::TcpBadOffset));
    assert_eq!(tcp(6, &[1; 4]).map(|layout| layout.payload), Ok(58));
    let short = |proto, len| layout(&Ip6::new(Upper::Raw(proto, vec![0x50; len])).frame()).err();
    assert_eq!(short(6, 19), Some(Malformed::L4Truncated));
    assert_eq!(short(17, 7), Some(Malformed::L4Truncated));
    assert_eq!(short(58, 7), Some(Malformed::L4Truncated));
    assert_eq!(short(1, 7), None, "ICMP is nothing that IPv6 carries");
}

#[test]
fn a_lying_udp_length_only_bounds_the_payload() {
    let payload = |len| {
        let layout = sound(&Udp { len: Some(len), ..Udp::default() }.payload(b"payload").over_ip4());
        layout.payload_range().len()
    };
    assert_eq!([0, 7, 8, 9, 15, 16, 0xffff].map(payload), [0, 0, 0, 1, 7, 7, 7]);
}

#[test]
fn a_first_fragment_holds_its_transport_header() {
    let first = |upper| Ip4 { flags: 1, ..Ip4::new(upper) }.frame();
    let whole = Tcp::default().option(2, &[5, 180]);
    let layout = sound(&first(Upper::Tcp(whole)));
    assert_eq!((layout.l4_kind, layout.is_fragment(), layout.is_later_fragment()), (6, true, false));
    for upper in [
        Upper::Raw(6, vec![0x50; 19]),
        Upper::Raw(17, vec![0; 7]),
        Upper::Raw(1, vec![0; 7]),
        Upper::Tcp(Tcp { offset: Some(6), ..Tcp::default() }),
    ] {
        assert_eq!(self::layout(&first(upper)), Err(Malformed::TinyFragment));
    }
}

#[test]
fn a_later_fragment_has_no_transport_header() {
    let ip4 = Ip4 { frag_offset: 1, ..Ip4::new(Upper::Raw(6, vec![0; 3])) };
    let layout = sound(&ip4.frame());
    assert_eq!((layout.l4_kind, layout.proto, layout.payload_range()), (0, 6, 34..34));
    assert_eq!(layout.ip_payload_range(), 34..37);

    let later = Extension::Fragment(FragmentHeader { offset: 1, more: true });
    let behind = Extension::Plain(60, vec![]);
    let layout = sound(&Ip6::new(Upper::Udp(Udp::default())).extension(later).extension(behind).frame());
    assert_eq!((layout.l4_kind, layout.proto, layout.l4, layout.proto_at), (0, 60, 62, 54));
    assert_eq!(layout.eh, eh::ANY | eh::FRAGMENT);
}

#[test]
fn an_atomic_fragment_is_a_whole_packet() {
    let atomic = Extension::Fragment(FragmentHeader { offset: 0, more: false });
    let layout = sound(&Ip6::new(Upper::Udp(Udp::default())).extension(atomic).frame());
    assert_eq!((layout.l4_kind, layout.is_fragment(), layout.eh), (17, false, eh::ANY | eh::FRAGMENT));
}

#[test]
fn a_chain_is_walked_to_its_end() {
    let chain = [
        Extension::Plain(0, vec![0; 6]),
        Extension::Routing(2, 0),
        Extension::Authentication(3),
        Extension::Plain(60, vec![0; 14]),
        Extension::Plain(135, vec![0; 6]),
        Extension::Plain(139, vec![0; 6]),
        Extension::Plain(140, vec![0; 6]),
    ];
    let frame = chain.into_iter().fold(Ip6::new(Upper::Tcp(Tcp::default())), Ip6::extension).frame();
    let layout = sound(&frame);
    assert_eq!((layout.l4_kind, layout.is_routed()), (6, false));
    assert_eq!(layout.l4, 54 + 8 + 24 + 24 + 16 + 8 + 8 + 8);
    assert_eq!(layout.proto_at, layout.l4 - 8);
    let all = eh::HOP_BY_HOP | eh::ROUTING | eh::AH | eh::DEST_OPT | eh::MOBILITY | eh::HIP | eh::SHIM6;
    assert_eq!(layout.eh, eh::ANY | all);

    let within = |n| layout_within(LinkType::Ethernet, &frame.bytes(), &ParserLimits { ip6_headers: n });
    assert_eq!(within(7), Ok(layout));
    assert_eq!(within(6), Err(Malformed::Ip6ChainTooLong));
}

#[test]
fn encryption_and_no_next_header_end_a_chain() {
    let esp = Extension::EncapsulatingSecurity;
    let layout = sound(&Ip6::new(Upper::Tcp(Tcp::default())).extension(esp).frame());
    assert_eq!((layout.l4_kind, layout.proto, layout.l4, layout.eh), (0, 50, 54, eh::ANY | eh::ESP));
    let layout = sound(&Ip6::new(Upper::Raw(59, vec![1, 2, 3])).frame());
    assert_eq!((layout.l4_kind, layout.proto, layout.payload_range()), (0, 59, 54..57));
    // Over IPv4 an authentication header is a protocol like any other.
    let layout = sound(&Ip4::new(Upper::Raw(51, vec![6, 1, 0, 0, 0, 0, 0, 0])).frame());
    assert_eq!((layout.l4_kind, layout.proto, layout.l4), (0, 51, 34));
}

#[test]
fn a_header_past_the_end_is_truncated() {
    let ip = || Ip6::new(Upper::Raw(0, vec![6, 1, 0, 0, 0, 0, 0, 0]));
    assert_eq!(layout(&ip().frame()), Err(Malformed::Ip6HeaderTruncated));
    let long = Ip6 { payload_len: Some(9), ..ip() };
    assert_eq!(layout(&long.frame()), Err(Malformed::Ip6Truncated));
    let version = Ip6 { version: 4, ..ip() };
    assert_eq!(layout(&version.frame()), Err(Malformed::IpBadVersion));
}

/// Offsets are 16 bits wide; a hostile chain of the longest headers must not wrap them.
#[test]
fn a_chain_of_64_kib_is_refused() {
    let longest = || Extension::Plain(60, vec![0; 2046]);
    let chain =
        |headers| (0..headers).fold(Ip6::new(Upper::Raw(253, vec![0; 8])), |ip, _| ip.extension(longest()));
    let within = |headers| {
        let frame = chain(headers).frame().service_vlan(1).vlan(2).vlan(3).vlan(4);
        layout_within(LinkType::Ethernet, &frame.bytes(), &ParserLimits { ip6_headers: 255 })
    };
    assert_eq!(within(31).map(|layout| layout.l4), Ok(30 + 40 + 31 * 2048));
    let filled = chain(31).extension(Extension::Plain(60, vec![0; 2030])).frame();
    let all = layout_within(
        LinkType::Sll2,
        &filled.clone().link(LinkType::Sll2).bytes(),
        &ParserLimits { ip6_headers: 255 },
    );
    assert_eq!(all, Err(Malformed::Ip6ChainTooLong));
}

#[test]
fn a_source_route_with_hops_left_is_noticed() {
    let routed = |options: &[u8]| {
        let ip = Ip4 { options: options.to_vec(), ..Ip4::new(Upper::Tcp(Tcp::default())) };
        sound(&ip.frame()).is_routed()
    };
    assert!(routed(&[131, 7, 4, 10, 0, 0, 9]));
    assert!(routed(&[1, 137, 7, 4, 10, 0, 0, 9]));
    assert!(!routed(&[131, 7, 8, 10, 0, 0, 9]), "all hops visited");
    assert!(!routed(&[0, 131, 7, 4, 10, 0, 0, 9]), "behind end-of-list");
    assert!(!routed(&[7, 1, 131, 7, 4, 10, 0, 0, 9]), "behind a malformed option");
    assert!(!routed(&[131, 12, 4, 10, 0, 0, 9]), "past the header");
    let routing =
        |left| sound(&Ip6::new(Upper::Icmp(Icmp::default())).extension(Extension::Routing(0, left)).frame());
    assert!(routing(1).is_routed() && !routing(0).is_routed());
}

#[test]
fn cooked_captures_are_read_behind_their_headers() {
    let frame = || Udp::default().over_ip4();
    for (link, ip) in [(LinkType::RawIp, 0), (LinkType::Sll, 16), (LinkType::Sll2, 20)] {
        let layout = sound(&frame().link(link));
        assert_eq!((layout.ip, layout.eth_type, layout.class), (ip, 0x0800, Class::Ip4));
    }
    // libpcap puts tags that the kernel took off back in.
    let layout = sound(&frame().link(LinkType::Sll).vlan(9));
    assert_eq!((layout.ip, layout.vlan_tags), (20, 1));
    let other = Frame::new(Network::Other(0x88cc, vec![1])).link(LinkType::Sll2);
    assert_eq!((sound(&other).ip, sound(&other).eth_type), (20, 0x88cc));
}
