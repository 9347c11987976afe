//! Quotations: complete, truncated, nested and forged.

use super::*;
use proptest::prelude::*;

/// An IPv4 header with `options` bytes of options, and its payload `l4`.
fn ip4(proto: u8, options: usize, l4: &[u8]) -> Vec<u8> {
    let len = (IP4_HEADER + options + l4.len()) as u16;
    let mut packet =
        vec![0x45 + (options / 4) as u8, 0, 0, 0, 0, 9, 0, 0, 1, proto, 0, 0, 10, 0, 0, 1, 192, 0, 2, 7];
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet.extend(vec![1; options]);
    packet.extend(l4);
    packet
}

fn ip6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, 1];
    packet[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
    packet.extend(1_u128.to_be_bytes());
    packet.extend(2_u128.to_be_bytes());
    packet.extend(rest);
    packet
}

/// Ports 1000 and 53.
const UDP: [u8; 8] = [3, 232, 0, 53, 0, 108, 0, 0];
/// An echo request with identifier 0x0102.
const ECHO: [u8; 8] = [8, 0, 0, 0, 1, 2, 0, 1];

#[test]
fn eight_bytes_of_transport_are_enough() {
    let found = quoted(&ip4(17, 0, &UDP), 4).expect("whole");
    let tuple = Tuple {
        addresses: [0x0a00_0001, 0xc000_0207],
        ports: [1000, 53],
        proto: 17,
        family: 4,
        ..Tuple::default()
    };
    assert_eq!(found, QuotedPacket { tuple, proto: 17, ip_at: 0, l4_at: 20, l4_len: 8 });
    assert_eq!(quoted(&ip4(17, 0, &UDP[..7]), 4), None);
    for cut in 0..28 {
        assert_eq!(quoted(&ip4(17, 0, &UDP)[..cut], 4), None);
    }
}

#[test]
fn options_and_extension_headers_are_stepped_over() {
    let found = quoted(&ip4(6, 40, &UDP), 4).expect("options");
    assert_eq!((found.l4_at, found.tuple.ports), (60, [1000, 53]));
    // Hop-by-hop, routing, fragment (the first), destination options, authentication.
    let mut chain = vec![43, 0, 0, 0, 0, 0, 0, 0, 44, 1];
    chain.extend([0; 14]);
    chain.extend([60, 0, 0, 1, 0, 0, 0, 9, 51, 0, 0, 0, 0, 0, 0, 0, 17, 2]);
    chain.extend([0; 14]);
    let at = 40 + chain.len();
    chain.extend(UDP);
    let packet = ip6(0, &chain);
    let found = quoted(&packet, 6).expect("chain");
    assert_eq!(
        (found.l4_at, found.proto, found.tuple.ports, found.tuple.addresses),
        (at, 17, [1000, 53], [1, 2])
    );
    for cut in 0..packet.len() {
        assert_eq!(quoted(&packet[..cut], 6), None);
    }
}

#[test]
fn an_endless_chain_ends() {
    let chain: Vec<u8> = [60, 0, 0, 0, 0, 0, 0, 0].repeat(200);
    assert_eq!(quoted(&ip6(60, &chain), 6), None);
    let max = usize::from(ParserLimits::default().ip6_headers);
    let mut chain: Vec<u8> = [60, 0, 0, 0, 0, 0, 0, 0].repeat(max);
    chain[(max - 1) * 8] = 17;
    chain.extend(UDP);
    assert!(quoted(&ip6(60, &chain), 6).is_some());
}

#[test]
fn later_fragments_and_errors_about_errors_are_nothing() {
    let mut packet = ip4(17, 0, &UDP);
    packet[6] = 0x20;
    assert!(quoted(&packet, 4).is_some());
    packet[7] = 1;
    assert_eq!(quoted(&packet, 4), None);
    assert_eq!(quoted(&ip6(44, &[[17, 0, 0, 8, 0, 0, 0, 9], UDP].concat()), 6), None);
    assert_eq!(quoted(&ip4(1, 0, &[3, 1, 0, 0, 0, 0, 0, 0]), 4), None);
    assert_eq!(quoted(&ip6(58, &[1, 0, 0, 0, 0, 0, 0, 0]), 6), None);
}

#[test]
fn queries_have_their_identifier_and_what_they_ask_as_ports() {
    assert_eq!(quoted(&ip4(1, 0, &ECHO), 4).map(|found| found.tuple.ports), Some([0x0102, 8]));
    assert_eq!(
        quoted(&ip6(58, &[128, 0, 0, 0, 1, 2, 0, 1]), 6).map(|found| found.tuple.ports),
        Some([0x0102, 128])
    );
    // ICMP in IPv6, and ICMPv6 in IPv4, count as protocols without ports.
    assert_eq!(quoted(&ip6(1, &ECHO), 6).map(|found| found.tuple.ports), Some([0; 2]));
    assert_eq!(quoted(&ip4(47, 0, &ECHO), 4).map(|found| found.tuple.ports), Some([0; 2]));
}

#[test]
fn wrong_lengths_are_not_used() {
    let mut packet = ip4(17, 0, &[UDP, [7; 8]].concat());
    for (length, l4_len) in [(28_u16, 8), (32, 12), (36, 16), (1500, 16), (u16::MAX, 16), (0, 16), (27, 16)] {
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        assert_eq!(quoted(&packet, 4).map(|found| found.l4_len), Some(l4_len), "{length}");
    }
    packet[0] = 0x44;
    assert_eq!(quoted(&packet, 4), None);
    packet[0] = 0x65;
    assert_eq!(quoted(&packet, 4), None);
    assert_eq!(quoted(&ip4(17, 0, &UDP), 6), None);
    assert_eq!(quoted(&ip4(17, 0, &UDP), 5), None);
}

/// Plausible header chains, with any lengths and next headers.
fn chain() -> impl Strategy<Value = Vec<u8>> {
    let next =
        prop_oneof![Just(0_u8), Just(43), Just(44), Just(51), Just(60), Just(135), Just(17), any::<u8>()];
    proptest::collection::vec((next, 0_u8..6, any::<u16>()), 0..20).prop_map(|headers| {
        let one = |(next, len, word): (u8, u8, u16)| {
            let mut header = vec![next, len];
            header.extend(word.to_be_bytes());
            header.resize(8 + usize::from(len % 3) * 8, 0);
            header
        };
        headers.into_iter().flat_map(one).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_are_read_within_bounds(bytes in proptest::collection::vec(any::<u8>(), 0..120), family: u8, version in 4_u8..=6) {
        let mut bytes = bytes;
        let _ = quoted(&bytes, family);
        if let Some(first) = bytes.first_mut() {
            *first = version << 4 | *first & 15;
        }
        if let Some(found) = quoted(&bytes, version) {
            prop_assert!(found.l4_len >= 8 && found.l4_at + found.l4_len <= bytes.len());
        }
    }

    #[test]
    fn any_chain_is_read_within_bounds(next in prop_oneof![Just(0_u8), Just(44), Just(60)], chain in chain(), cut in 0_usize..300) {
        let packet = ip6(next, &chain);
        let cut = &packet[..cut.min(packet.len())];
        if let Some(found) = quoted(cut, 6) {
            prop_assert!(found.l4_len >= 8 && found.l4_at + found.l4_len <= cut.len());
        }
    }
}
