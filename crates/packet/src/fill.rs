//! Filling header keys from packets.
//!
//! The classifier wants a vector's keys as columns of 32-bit lanes, and only those lanes that some rule asks for:
//! [`fill_lanes`] hands them out one by one. The transport part is masked by its kind, not by
//! branches. Only where 20 bytes behind `l4` would pass the packet's end are its bytes copied one run at a time.

use crate::key::{HeaderKey, IP, Key4, Key6, L4, LANE, Lanes, PAYLOAD_LEN};
use crate::layout::{Class, IP4_HEADER, IP6_HEADER, Layout};
use crate::proto::TCP;
use crate::view::{Packet, PortId};

/// The lanes that begin a key, its transport header, its payload's length and its IP header.
const HEAD: usize = 0;
const TRANSPORT: usize = L4 / LANE;
const PAYLOAD: usize = PAYLOAD_LEN / LANE;
const HEADER: usize = IP / LANE;

/// Hands `put` the wanted lanes of a packet's key: number and value, the four bytes as they stand in the key. `layout`
/// is the packet's own.
#[inline(always)]
pub fn fill_lanes(
    packet: &Packet<'_>,
    layout: &Layout,
    ports: [PortId; 2],
    wanted: Lanes,
    mut put: impl FnMut(usize, u32),
) {
    let bytes = packet.bytes();
    common(bytes, packet, layout, ports, wanted, &mut put);
    match layout.class {
        Class::Ip4 => header::<IP4_HEADER>(bytes, layout, wanted, &mut put),
        Class::Ip6 => return header::<IP6_HEADER>(bytes, layout, wanted, &mut put),
        Class::Other => put_all(HEADER, &[0; IP4_HEADER], wanted, &mut put),
    }
    // The shorter keys end with four bytes of zeros.
    put_all(HEADER + IP4_HEADER / LANE, &[0; LANE], wanted, &mut put);
}

/// Fills the key of an IPv4 packet or of a frame that is not IP. `layout` is the packet's own.
pub fn fill_key4(packet: &Packet<'_>, layout: &Layout, in_port: PortId, out_port: PortId, key: &mut Key4) {
    fill_lanes(packet, layout, [in_port, out_port], Lanes::ALL, |lane, value| write(key, lane, value));
}

/// Fills the key of an IPv6 packet. `layout` is the packet's own.
pub fn fill_key6(packet: &Packet<'_>, layout: &Layout, in_port: PortId, out_port: PortId, key: &mut Key6) {
    fill_lanes(packet, layout, [in_port, out_port], Lanes::ALL, |lane, value| write(key, lane, value));
}

fn write<const N: usize>(key: &mut HeaderKey<N>, lane: usize, value: u32) {
    if let Some(to) = key.0.as_chunks_mut::<LANE>().0.get_mut(lane) {
        *to = value.to_ne_bytes();
    }
}

/// The fixed part of an IP header.
#[inline(always)]
fn header<const N: usize>(bytes: &[u8], layout: &Layout, wanted: Lanes, put: &mut impl FnMut(usize, u32)) {
    if wanted.any_of(Lanes::range(HEADER, HEADER + N / LANE)) {
        let header = bytes.get(usize::from(layout.ip)..).and_then(|rest| rest.first_chunk::<N>());
        put_all(HEADER, header.unwrap_or(&[0; N]), wanted, put);
    }
}

/// The first 40 bytes, which all keys have in common.
#[inline(always)]
fn common(
    bytes: &[u8],
    packet: &Packet<'_>,
    layout: &Layout,
    [in_port, out_port]: [PortId; 2],
    wanted: Lanes,
    put: &mut impl FnMut(usize, u32),
) {
    if wanted.has(HEAD) {
        let family = match layout.class {
            Class::Ip4 => 4,
            Class::Ip6 => 6,
            Class::Other => 0,
        };
        put(HEAD, u32::from_be_bytes([family, layout.l4_kind, layout.flags, 0]).to_be());
    }
    if wanted.any_of(Lanes::range(HEAD + 1, TRANSPORT)) {
        let vlan = if layout.vlan_tags == 0 { 0 } else { vlan_id(bytes, packet) };
        let rest = [
            (u32::from(in_port.0) << 16) | u32::from(out_port.0),
            (u32::from(layout.eth_type) << 16) | u32::from(vlan),
            (u32::from(layout.proto) << 24) | u32::from(layout.eh),
        ];
        for (lane, value) in (HEAD + 1..TRANSPORT).zip(rest) {
            if wanted.has(lane) {
                put(lane, value.to_be());
            }
        }
    }
    if wanted.any_of(Lanes::range(TRANSPORT, PAYLOAD)) {
        put_all(TRANSPORT, &transport(bytes, layout), wanted, put);
    }
    if wanted.has(PAYLOAD) {
        put(PAYLOAD, u32::from_ne_bytes(payload_len(layout)));
    }
}

/// Puts the wanted ones of lanes that follow each other from `first` on.
#[inline(always)]
fn put_all<const N: usize>(first: usize, bytes: &[u8; N], wanted: Lanes, put: &mut impl FnMut(usize, u32)) {
    for (lane, value) in (first..).zip(bytes.as_chunks::<LANE>().0) {
        if wanted.has(lane) {
            put(lane, u32::from_ne_bytes(*value));
        }
    }
}

/// The outermost tag's VLAN id; its control word lies right behind the link header.
#[inline(never)]
fn vlan_id(bytes: &[u8], packet: &Packet<'_>) -> u16 {
    let control = bytes.get(packet.link.header_len()..).and_then(|rest| rest.first_chunk());
    control.map_or(0, |control| u16::from_be_bytes(*control) & 0x0fff)
}

/// The transport header's fixed part, zero behind it and where there is none.
#[inline(always)]
fn transport(bytes: &[u8], layout: &Layout) -> [u8; 20] {
    let rest = bytes.get(usize::from(layout.l4)..).unwrap_or_default();
    let wire = match rest.first_chunk::<20>() {
        Some(wire) => *wire,
        None => short(rest),
    };
    // The first 8 bytes stay for every kind, the rest for TCP.
    let (any, tcp) = (mask(layout.l4_kind != 0), mask(layout.l4_kind == TCP));
    let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| wire[at + i]));
    let last = u32::from_ne_bytes(std::array::from_fn(|i| wire[16 + i]));
    let mut masked = [0; 20];
    masked[..8].copy_from_slice(&(long(0) & any).to_ne_bytes());
    masked[8..16].copy_from_slice(&(long(8) & tcp).to_ne_bytes());
    masked[16..].copy_from_slice(&(last & tcp as u32).to_ne_bytes());
    masked
}

#[inline(always)]
fn mask(keep: bool) -> u64 {
    u64::from(keep).wrapping_neg()
}

/// Fewer than 20 bytes, with zeros behind them.
#[cold]
fn short(rest: &[u8]) -> [u8; 20] {
    let mut wire = [0; 20];
    for (to, from) in wire.iter_mut().zip(rest) {
        *to = *from;
    }
    wire
}

/// The payload's length, at most 65,535 as it lies in an IP packet, and two zero bytes.
#[inline(always)]
fn payload_len(layout: &Layout) -> [u8; 4] {
    let length = layout.payload_end.wrapping_sub(u32::from(layout.payload));
    (length << 16).to_be_bytes()
}
