//! Captures as a whole: what is read, what is written again, and what is refused.

mod build;
mod hostile;

use build::{
    Order, block, data, enhanced, every_block, interface, obsolete, option, pcap_header, record, section,
    simple,
};
use mmb_io::pcap::{CaptureError, CaptureItem, CaptureReader, CaptureWriter, Format, Meta};
use mmb_packet::LinkType;

const MICRO: u32 = 0xa1b2_c3d4;
const NANO: u32 = 0xa1b2_3c4d;

/// Every packet of a capture, and the error at its end.
fn read(bytes: &[u8]) -> (Vec<(Meta, Vec<u8>)>, Option<CaptureError>) {
    let mut packets = Vec::new();
    let mut reader = match CaptureReader::open(bytes) {
        Ok(reader) => reader,
        Err(error) => return (packets, Some(error)),
    };
    loop {
        match reader.next_item() {
            Ok(Some(CaptureItem::Packet(packet))) => packets.push((packet.meta, packet.data.to_vec())),
            Ok(Some(CaptureItem::Block(_))) => {}
            Ok(None) => return (packets, None),
            Err(error) => {
                assert!(matches!(reader.next_item(), Ok(None)), "a reader goes on after an error");
                return (packets, Some(error));
            }
        }
    }
}

/// The capture written again, each packet made into another.
fn rewrite(bytes: &[u8], changes: bool, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut reader = CaptureReader::open(bytes).expect("a capture");
    let mut writer = CaptureWriter::new(Vec::new(), reader.format(), changes);
    while let Ok(Some(item)) = reader.next_item() {
        match item {
            CaptureItem::Block(block) => writer.block(block).expect("memory"),
            CaptureItem::Packet(packet) => {
                let mut data = packet.data.to_vec();
                change(&mut data);
                writer.packet(&packet.meta, &data, packet.options).expect("memory");
            }
        }
    }
    writer.finish().expect("memory")
}

fn error_of(bytes: &[u8]) -> String {
    read(bytes).1.expect("an error").to_string()
}

#[test]
fn pcap_of_each_precision_and_order_is_read_and_written_the_same() {
    for order in Order::BOTH {
        for (magic, unit_ns) in [(MICRO, 1000), (NANO, 1)] {
            let capture = [
                pcap_header(order, magic, 65535, 1),
                record(order, 5, 7, &data(60), 60),
                record(order, 4, 8, &data(0), 0),
                record(order, 6, 9, &data(96), 1500),
            ]
            .concat();
            let (packets, error) = read(&capture);
            assert!(error.is_none());
            let times: Vec<u64> = packets.iter().map(|(meta, _)| meta.time_ns).collect();
            assert_eq!(
                times,
                [5_000_000_000 + 7 * unit_ns, 4_000_000_000 + 8 * unit_ns, 6_000_000_000 + 9 * unit_ns]
            );
            assert_eq!(packets[0].1, data(60));
            assert_eq!(packets[2].0.number, 3);
            assert!(!packets[0].0.is_cut() && packets[2].0.is_cut());
            assert_eq!(rewrite(&capture, false, |_| ()), capture);
            assert_eq!(CaptureReader::open(&capture[..]).unwrap().format(), Format::Pcap);
        }
    }
}

#[test]
fn pcapng_with_every_kind_of_block_is_read_and_written_the_same() {
    for order in Order::BOTH {
        let capture = every_block(order);
        let (packets, error) = read(&capture);
        assert!(error.is_none(), "{error:?}");
        let seen: Vec<(u64, LinkType, usize)> =
            packets.iter().map(|(meta, data)| (meta.time_ns, meta.link, data.len())).collect();
        assert_eq!(
            seen,
            [
                (1_000_000_000, LinkType::Ethernet, 60),
                (2_000_000_001, LinkType::RawIp, 21),
                (2_500_000_000, LinkType::RawIp, 33),
                (2_500_000_000, LinkType::Ethernet, 30),
                (5_000_000_000, LinkType::Sll2, 64),
            ]
        );
        assert!(packets[1].0.is_cut());
        assert_eq!(rewrite(&capture, false, |_| ()), capture);
        assert_eq!(CaptureReader::open(&capture[..]).unwrap().format(), Format::PcapNg);
    }
}

#[test]
fn sections_of_different_byte_order_stand_in_one_file() {
    let capture = [every_block(Order::Little), every_block(Order::Big), every_block(Order::Little)].concat();
    assert_eq!(read(&capture).0.len(), 15);
    assert_eq!(rewrite(&capture, false, |_| ()), capture);
}

#[test]
fn link_types_have_their_numbers() {
    for (number, link) in [
        (1, LinkType::Ethernet),
        (12, LinkType::RawIp),
        (14, LinkType::RawIp),
        (101, LinkType::RawIp),
        (228, LinkType::RawIp),
        (229, LinkType::RawIp),
        (113, LinkType::Sll),
        (276, LinkType::Sll2),
        // Ethernet, with the length of a frame check sequence in the upper bits.
        (0x2400_0001, LinkType::Ethernet),
    ] {
        let capture =
            [pcap_header(Order::Little, MICRO, 0, number), record(Order::Little, 0, 0, &data(20), 20)]
                .concat();
        assert_eq!(read(&capture).0[0].0.link, link);
    }
}

#[test]
fn lengths_follow_a_packet_that_changes() {
    let order = Order::Little;
    let grow = |data: &mut Vec<u8>| data.extend([1, 2, 3, 4]);
    let capture = [
        pcap_header(order, MICRO, 96, 1),
        record(order, 0, 0, &data(96), 1500),
        record(order, 0, 0, &data(60), 60),
    ]
    .concat();
    let expected = [
        pcap_header(order, MICRO, 136, 1),
        record(order, 0, 0, &[data(96), vec![1, 2, 3, 4]].concat(), 1504),
        record(order, 0, 0, &[data(60), vec![1, 2, 3, 4]].concat(), 64),
    ]
    .concat();
    assert_eq!(rewrite(&capture, true, grow), expected);

    let comment = option(order, 1, b"kept");
    let hash = option(order, 3, &[2, 0xde, 0xad, 0xbe, 0xef]);
    let end = option(order, 0, &[]);
    let shrink = |data: &mut Vec<u8>| data.truncate(data.len() - 3);
    let capture = [
        section(order, 1000),
        interface(order, 1, 96, &[]),
        enhanced(order, 0, 1, &data(60), 60, &[hash.clone(), comment.clone(), end.clone()].concat()),
        enhanced(order, 0, 1, &data(60), 60, &[hash.clone(), end.clone()].concat()),
        obsolete(order, 0, 1, 9, &data(44), &[]),
        simple(order, &data(96), 1500),
    ]
    .concat();
    let expected = [
        section(order, u64::MAX),
        interface(order, 1, 136, &[]),
        enhanced(order, 0, 1, &data(60)[..57], 57, &[comment, end].concat()),
        enhanced(order, 0, 1, &data(60)[..57], 57, &[]),
        obsolete(order, 0, 1, 9, &data(44)[..41], &[]),
        simple(order, &data(96)[..93], 93),
    ]
    .concat();
    assert_eq!(rewrite(&capture, true, shrink), expected);
    let (packets, error) = read(&expected);
    assert!(error.is_none());
    assert_eq!(packets[3].1, data(96)[..93]);
}

#[test]
fn what_is_no_capture_is_named() {
    assert_eq!(error_of(&[]), "it is empty, not a capture");
    for (magic, program) in [
        (&[0x1f, 0x8b, 8, 0][..], "zcat"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstdcat"),
        (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xzcat"),
        (b"BZh9", "bzcat"),
        (&[4, 0x22, 0x4d, 0x18], "lz4cat"),
    ] {
        assert!(error_of(magic).contains(program), "{}", error_of(magic));
    }
    assert!(error_of(b"snoop\0\0\0").contains("snoop"));
    assert!(error_of(b"add all drop").contains("61 64 64"));
    assert!(error_of(&[0xd4]).contains("neither"));
    assert!(error_of(&pcap_header(Order::Little, 0xa1b2_cd34, 0, 1)).contains("modified"));
    let mut old = pcap_header(Order::Little, MICRO, 0, 1);
    old[4] = 1;
    assert!(error_of(&old).contains("version 1.4"));
    assert!(error_of(&pcap_header(Order::Big, MICRO, 0, 105)).contains("the pcap header has link type 105"));
}

#[test]
fn a_capture_that_ends_inside_a_packet_gives_what_is_before() {
    for order in Order::BOTH {
        let whole = [pcap_header(order, MICRO, 0, 1), record(order, 0, 0, &data(60), 60)].concat();
        let capture = [whole.clone(), record(order, 1, 0, &data(60), 60)].concat();
        for len in whole.len() + 1..capture.len() {
            let (packets, error) = read(&capture[..len]);
            assert_eq!(packets.len(), 1);
            let error = error.expect("an error").to_string();
            assert!(error.starts_with("packet 2 at byte 100 is cut off"), "{error}");
        }
        for len in 1..24 {
            assert!(matches!(
                read(&capture[..len]).1,
                Some(CaptureError::Truncated { .. } | CaptureError::NotACapture(_))
            ));
        }
        let capture = every_block(order);
        let ends: Vec<usize> = read(&capture).0.iter().map(|(meta, _)| meta.number as usize).collect();
        assert_eq!(ends.len(), 5);
        for len in 4..capture.len() {
            let (packets, error) = read(&capture[..len]);
            assert!(packets.len() < 5);
            assert!(matches!(error, None | Some(CaptureError::Truncated { .. })), "{error:?}");
        }
    }
}

#[test]
fn lengths_that_lie_are_refused_with_their_place() {
    let order = Order::Little;
    let mut lie = [pcap_header(order, MICRO, 0, 1), record(order, 0, 0, &data(60), 60)].concat();
    lie[24 + 8..24 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(
        error_of(&lie),
        "packet 1 at byte 24 is broken: it claims 4294967295 captured bytes, the most is 262144"
    );
    let start = [section(order, u64::MAX), interface(order, 1, 0, &[])].concat();
    let with = |at: usize, value: u32| {
        let mut packet = enhanced(order, 0, 1, &data(60), 60, &[]);
        packet[at..at + 4].copy_from_slice(&order.u32(value));
        error_of(&[start.clone(), packet].concat())
    };
    for (at, value, part) in [
        (4, 0, "cannot be 0 bytes"),
        (4, 8, "cannot be 8 bytes"),
        (4, 93, "cannot be 93 bytes"),
        (4, 1 << 31, "cannot be 2147483648 bytes"),
        (4, 16 << 20, "is cut off: 92 of its 16777216"),
        (4, 88, "88 bytes long by its head"),
        (88, 96, "92 bytes long by its head and 96 by its end"),
        (8, 1, "it is of interface 1, and the section has described 1"),
        (20, 61, "claims 61 captured bytes, its block holds 60"),
        (20, u32::MAX, "claims 4294967295"),
    ] {
        let error = with(at, value);
        assert!(error.contains(part) && error.starts_with("packet 1 at byte 48"), "{at} {value}: {error}");
    }
    assert!(
        error_of(&[start.clone(), block(order, 6, &[0; 8])].concat()).contains("needs 20 bytes, here are 8")
    );
    assert!(error_of(&[start.clone(), block(order, 3, &[])].concat()).contains("needs 4 bytes, here are 0"));
    assert!(
        error_of(&[start.clone(), block(order, 1, &[0; 4])].concat()).contains("interface needs 8 bytes")
    );
    assert!(error_of(&block(order, 0x0a0d_0d0a, &order.u32(0x1a2b_3c4d))).contains("needs 16 bytes"));
    assert!(error_of(&[section(order, 0), simple(order, &data(4), 4)].concat()).contains("described 0"));
    let mut next = section(order, u64::MAX);
    next[12] = 2;
    assert!(error_of(&next).contains("pcapng version 2.0"));
    next[8] = 0;
    assert!(error_of(&next).contains("byte-order magic"));
    let wifi = [section(order, 0), interface(order, 105, 0, &[]), simple(order, &data(4), 4)].concat();
    assert!(error_of(&wifi).contains("packet 1 has link type 105"));
}

#[test]
fn an_interface_of_an_unknown_link_type_without_packets_does_no_harm() {
    let order = Order::Little;
    let start =
        [section(order, u64::MAX), interface(order, 1, 0, &[]), interface(order, 105, 0, &[])].concat();
    let capture = [start, enhanced(order, 0, 1, &data(60), 60, &[])].concat();
    assert_eq!(read(&capture).0.len(), 1);
    assert!(read(&capture).1.is_none());
}

#[test]
fn interfaces_are_bounded() {
    let order = Order::Little;
    let mut capture = section(order, u64::MAX);
    for _ in 0..=mmb_io::pcap::MAX_INTERFACES {
        capture.extend(interface(order, 1, 0, &[]));
    }
    assert!(error_of(&capture).contains("an interface too many"));
}
