//! Filling header keys from packets.
//!
//! The parts of a key are copied as whole machine words; the transport part is masked by its kind, not by branches. Only
//! where 20 bytes behind `l4` would pass the packet's end are its bytes copied one run at a time.

use crate::checksum::TCP;
use crate::key::{ETH_TYPE, FAMILY, IN_PORT, IP, Key4, Key6, L4, PAYLOAD_LEN};
use crate::parse::{Class, IP4_HEADER, IP6_HEADER, Layout};
use crate::view::{Packet, PortId};

/// Fills the key of an IPv4 packet or of a frame that is not IP. `layout` is the packet's own.
#[inline]
pub fn fill_key4(packet: &Packet<'_>, layout: &Layout, in_port: PortId, out_port: PortId, key: &mut Key4) {
    let bytes = packet.bytes();
    let family = if layout.class == Class::Ip4 { 4 } else { 0 };
    let head = head(bytes, packet, layout, family, in_port, out_port);
    put(&mut key.0, FAMILY, head);
    put(&mut key.0, L4, transport(bytes, layout));
    put(&mut key.0, PAYLOAD_LEN, payload_len(layout));
    match bytes.get(usize::from(layout.ip)..).and_then(|rest| rest.first_chunk::<IP4_HEADER>()) {
        Some(header) if family == 4 => put(&mut key.0, IP, *header),
        _ => put(&mut key.0, IP, [0; IP4_HEADER]),
    }
    put(&mut key.0, IP + IP4_HEADER, [0; 4]);
}

/// Fills the key of an IPv6 packet. `layout` is the packet's own.
#[inline]
pub fn fill_key6(packet: &Packet<'_>, layout: &Layout, in_port: PortId, out_port: PortId, key: &mut Key6) {
    let bytes = packet.bytes();
    put(&mut key.0, FAMILY, head(bytes, packet, layout, 6, in_port, out_port));
    put(&mut key.0, L4, transport(bytes, layout));
    put(&mut key.0, PAYLOAD_LEN, payload_len(layout));
    let header = bytes.get(usize::from(layout.ip)..).and_then(|rest| rest.first_chunk::<IP6_HEADER>());
    put(&mut key.0, IP, header.copied().unwrap_or([0; IP6_HEADER]));
}

/// Writes `N` bytes at a constant offset; the bounds are known when compiled.
#[inline(always)]
fn put<const K: usize, const N: usize>(key: &mut [u8; K], at: usize, bytes: [u8; N]) {
    key[at..at + N].copy_from_slice(&bytes);
}

/// The first 16 bytes.
#[inline(always)]
fn head(
    bytes: &[u8],
    packet: &Packet<'_>,
    layout: &Layout,
    family: u8,
    in_port: PortId,
    out_port: PortId,
) -> [u8; 16] {
    let mut head = [0; 16];
    let kind = u32::from_be_bytes([family, layout.l4_kind, layout.flags, 0]);
    head[..IN_PORT].copy_from_slice(&kind.to_be_bytes());
    head[IN_PORT..ETH_TYPE]
        .copy_from_slice(&((u32::from(in_port.0) << 16) | u32::from(out_port.0)).to_be_bytes());
    let vlan = if layout.vlan_tags == 0 { 0 } else { vlan_id(bytes, packet) };
    let link = (u32::from(layout.eth_type) << 16) | u32::from(vlan);
    head[8..12].copy_from_slice(&link.to_be_bytes());
    let proto = (u32::from(layout.proto) << 24) | u32::from(layout.eh);
    head[12..].copy_from_slice(&proto.to_be_bytes());
    head
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
