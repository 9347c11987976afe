//! The values of random packets and random rules.

use proptest::prelude::*;
use proptest::sample::select;

/// IPv4 addresses; several share prefixes.
pub const IP4: &[&str] = &["10.0.0.1", "10.0.0.2", "10.0.1.7", "10.9.9.9", "192.168.1.1", "0.0.0.0"];
/// IPv4 prefixes that contain some of them.
pub const IP4_PREFIXES: &[&str] =
    &["10.0.0.0/8", "10.0.0.0/24", "10.0.0.2/31", "192.168.1.0/30", "0.0.0.0/0"];
/// IPv6 addresses.
pub const IP6: &[&str] = &["2001:db8::1", "2001:db8::2", "2001:db8:1::1", "fe80::1", "::"];
/// IPv6 prefixes that contain some of them.
pub const IP6_PREFIXES: &[&str] = &["2001:db8::/32", "2001:db8::/64", "2001:db8::/127", "fe80::/10", "::/0"];
/// Transport ports.
pub const PORTS: &[u16] = &[53, 80, 443, 1000, 8080, 0, 0xffff];
/// VLAN ids.
pub const VLANS: &[u16] = &[0, 1, 5, 100, 4095];
/// Maximum segment sizes.
pub const MSS: &[u16] = &[536, 1400, 1460, 9000];
/// Kinds of TCP options: those with names, some without, and padding.
pub const OPTION_KINDS: &[u8] = &[2, 3, 4, 5, 8, 22, 30, 34, 253];
/// Payloads; they are prefixes of one another.
pub const PAYLOADS: &[&[u8]] =
    &[b"", b"G", b"GET", b"GET / HTTP/1.1", b"hello", b"\x00", b"\xff\xff\xff\xff", b"\xff\xff\x00"];

/// Data of options without a fixed form.
const OTHER_DATA: &[&[u8]] =
    &[&[], &[5], &[0, 5], &[0xaa, 0xbb], &[0, 0, 0, 0, 0, 0, 0, 5], &[5; 9], &[1; 20]];

/// A number of at most 16 bits; values near the ends are more likely, because carries and special cases occur there.
pub fn word() -> BoxedStrategy<u16> {
    prop_oneof![
        4 => select(&[0u16, 1, 2, 0x7fff, 0x8000, 0xfffe, 0xffff][..]),
        2 => 0u16..8,
        2 => any::<u16>(),
    ]
    .boxed()
}

/// A byte, likewise.
pub fn byte() -> BoxedStrategy<u8> {
    prop_oneof![
        3 => select(&[0u8, 1, 2, 0x7f, 0x80, 0xfe, 0xff][..]),
        1 => any::<u8>(),
    ]
    .boxed()
}

/// A transport port.
pub fn port() -> BoxedStrategy<u16> {
    prop_oneof![9 => select(PORTS), 1 => any::<u16>()].boxed()
}

/// The data of a TCP option, usually in the form of its kind.
pub fn option_data(kind: u8) -> BoxedStrategy<Vec<u8>> {
    let usual = match kind {
        2 => select(MSS).prop_map(|mss| mss.to_be_bytes().to_vec()).boxed(),
        3 => (0u8..15).prop_map(|shift| vec![shift]).boxed(),
        4 => Just(Vec::new()).boxed(),
        5 => select(&[8usize, 16][..]).prop_map(|len| (1..=len as u8).collect()).boxed(),
        8 => select(&[1u64, 2, 0xffff_ffff, u64::MAX][..]).prop_map(|n| n.to_be_bytes().to_vec()).boxed(),
        _ => select(OTHER_DATA).prop_map(<[u8]>::to_vec).boxed(),
    };
    prop_oneof![9 => usual, 1 => proptest::collection::vec(byte(), 0..12)].boxed()
}
