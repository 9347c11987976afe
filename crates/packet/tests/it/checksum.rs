//! Checksums: the RFCs' examples, a plain sum as the oracle, and changes against sums taken anew.

use mmb_packet::checksum::{
    ChecksumDelta, ChecksumSum, Soundness, pseudo4, pseudo6, transport_soundness, transport_sum,
};
use mmb_packet::parse::parse;
use mmb_packet::proto::{TCP, UDP};
use mmb_packet::{Packet, ParserLimits, PortId};
use mmb_testkit::strategy::frame;
use mmb_testkit::{Checksum, Frame, Ip4, Tcp, Udp, Upper};
use proptest::collection::vec;
use proptest::prelude::*;

/// RFC 1071 section 1, word by word.
fn plain_sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn sum(bytes: &[u8]) -> u16 {
    ChecksumSum::default().bytes(bytes).fold()
}

#[test]
fn the_example_of_rfc_1071_sums_up() {
    assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
}

#[test]
fn the_example_of_rfc_1624_keeps_its_zero() {
    // Section 4: the checksum 0xdd2f, a word that goes from 0x5555 to 0x3285.
    let mut delta = ChecksumDelta::default();
    delta.word([0x55, 0x55], [0x32, 0x85]);
    assert_eq!(delta.apply([0xdd, 0x2f]), [0x00, 0x00]);
}

#[test]
fn what_ends_inside_its_header_is_not_sound() {
    for (proto, header) in [(132, 12), (33, 12), (136, 8)] {
        for len in 0..header {
            let mut bytes = Ip4::new(Upper::Raw(proto, vec![0; len])).frame().bytes();
            let len = bytes.len();
            let packet = Packet::new(&mut bytes, 0, len, PortId(0), mmb_packet::LinkType::Ethernet);
            let packet = packet.expect("a packet in its buffer");
            let layout = parse(&packet, &ParserLimits::default()).expect("a whole IP header");
            assert_eq!(
                transport_soundness(packet.bytes(), &layout),
                Soundness::Wrong,
                "{proto}, {len} bytes"
            );
        }
    }
}

#[test]
fn no_change_leaves_both_zeros() {
    let mut delta = ChecksumDelta::default();
    delta.word([1, 2], [1, 2]);
    delta.bytes(true, &[7; 9], &[7; 9]);
    assert_eq!(delta.apply([0xff, 0xff]), [0xff, 0xff]);
    assert_eq!(delta.apply([0, 0]), [0, 0]);
}

#[test]
fn a_udp_checksum_of_zero_means_none() {
    let mut delta = ChecksumDelta::default();
    delta.word([0x55, 0x55], [0x32, 0x85]);
    assert_eq!(delta.apply_transport(UDP, [0, 0]), [0, 0]);
    assert_eq!(delta.apply_transport(UDP, [0xdd, 0x2f]), [0xff, 0xff]);
    assert_eq!(delta.apply_transport(TCP, [0xdd, 0x2f]), [0, 0]);
}

#[test]
fn pseudo_headers_are_sums_of_their_parts() {
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    assert_eq!(pseudo4(a, b, 6, 20).fold(), 0x0a00 + 1 + 0x0a00 + 2 + 6 + 20);
    let six = |last| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let words = 2 * (0x2001 + 0x0db8) + 1 + 2 + 17 + 1 + 8;
    assert_eq!(pseudo6(six(1), six(2), 17, 0x1_0008).fold(), words);
}

/// Whether the transport checksum of a frame is right; `None` if it has none, or only a part of what it covers.
fn transport_is_right(frame: &Frame) -> Option<bool> {
    let mut bytes = frame.bytes();
    let len = bytes.len();
    let packet = Packet::new(&mut bytes, 0, len, PortId(0), frame.link)?;
    let layout = parse(&packet, &ParserLimits::default()).ok()?;
    if layout.is_fragment() || layout.is_routed() {
        return None;
    }
    Some(transport_sum(packet.bytes(), &layout)?.fold() == 0xffff)
}

#[test]
fn a_transport_checksum_covers_what_it_should() {
    let tcp = Tcp::default().option(3, &[7]).payload(b"odd");
    let udp = Udp::default().payload(b"even");
    for frame in [tcp.clone().over_ip4(), tcp.over_ip6(), udp.clone().over_ip4(), udp.clone().over_ip6()] {
        assert_eq!(transport_is_right(&frame), Some(true));
        assert_eq!(transport_is_right(&frame.vlan(1).trailer(b"trailer")), Some(true));
    }
    assert_eq!(transport_is_right(&udp.checksum(Checksum::Off(1)).over_ip4()), Some(false));
    assert_eq!(transport_is_right(&Frame::arp()), None);
}

proptest! {
    #[test]
    fn sums_are_plain_sums(bytes in vec(any::<u8>(), 0..200), cut in any::<prop::sample::Index>()) {
        prop_assert_eq!(sum(&bytes), plain_sum(&bytes));
        let at = cut.index(bytes.len() + 1) & !1;
        let (first, second) = bytes.split_at(at);
        prop_assert_eq!(ChecksumSum::default().bytes(first).bytes(second).fold(), plain_sum(&bytes));
    }

    #[test]
    fn numbers_count_like_their_bytes(word in any::<u16>(), long in any::<u32>()) {
        let bytes = [&word.to_be_bytes()[..], &long.to_be_bytes()].concat();
        prop_assert_eq!(ChecksumSum::default().word(word).long(long), ChecksumSum::default().bytes(&bytes[..2]).bytes(&bytes[2..]));
        prop_assert_eq!(ChecksumSum::default().word(word).long(long).checksum(), !plain_sum(&bytes));
    }

    /// A checksum after any change of bytes anywhere is the one that a sum taken anew gives; a wrong one stays wrong by
    /// the same difference.
    #[test]
    fn a_change_is_followed(
        old in vec(any::<u8>(), 1..100),
        new in vec(any::<u8>(), 1..100),
        at in any::<prop::sample::Index>(),
        error in any::<u16>(),
    ) {
        let at = at.index(old.len());
        let len = new.len().min(old.len() - at);
        let mut changed = old.clone();
        changed[at..at + len].copy_from_slice(&new[..len]);
        let mut delta = ChecksumDelta::default();
        delta.bytes(at % 2 != 0, &old[at..at + len], &new[..len]);

        let field = ChecksumSum::default().bytes(&old).word(error).checksum();
        let followed = u16::from_be_bytes(delta.apply(field.to_be_bytes()));
        let anew = ChecksumSum::default().bytes(&changed).word(error).checksum();
        // The two zeros of ones' complement are one number.
        prop_assert_eq!(followed % 0xffff, anew % 0xffff);
    }

    #[test]
    fn bytes_may_be_replaced_by_more_or_fewer(
        old in vec(any::<u8>(), 0..50), new in vec(any::<u8>(), 0..50), behind in vec(any::<u8>(), 0..50),
    ) {
        // What is behind keeps its parity.
        let (old, new) = (&old[..old.len() & !1], &new[..new.len() & !1]);
        let mut delta = ChecksumDelta::default();
        delta.bytes(false, old, new);
        let field = ChecksumSum::default().bytes(old).bytes(&behind).checksum();
        let followed = u16::from_be_bytes(delta.apply(field.to_be_bytes()));
        prop_assert_eq!(followed % 0xffff, ChecksumSum::default().bytes(new).bytes(&behind).checksum() % 0xffff);
    }

    #[test]
    fn sound_packets_sum_up(frame in frame()) {
        // Some generated checksums are wrong; then both implementations must report it.
        if let Some(right) = transport_is_right(&frame) {
            let mut other = frame.clone();
            other.trailer = b"x".to_vec();
            prop_assert_eq!(transport_is_right(&other), Some(right));
        }
    }
}
