//! The straight run for what most packets are: untagged Ethernet, an IPv4 header of 20 bytes, a whole TCP or UDP segment.

use super::{Class, ETHER_IP4, IP4_HEADER, Layout, SHORT_HEADER, TCP_HEADER};
use crate::checksum::{TCP, UDP};
use crate::key::flags;

/// Offset of the IP header behind an untagged Ethernet header.
const IP: usize = 14;
const L4: usize = IP + IP4_HEADER;
/// What is read at fixed offsets. Shorter frames (no Ethernet port delivers them: it pads to 60) are walked.
const FIXED: usize = L4 + TCP_HEADER;

/// The layout of a plain packet; `None` says nothing about the packet but that it has to be walked.
///
/// All tests are made before the one branch on their conjunction, so that mixed traffic has nothing to mispredict.
#[inline(always)]
pub(super) fn parse(bytes: &[u8]) -> Option<Layout> {
    let head: &[u8; FIXED] = bytes.first_chunk()?;
    let byte = |at: usize| u32::from(head[at]);
    let word = |at: usize| u32::from(u16::from_be_bytes([head[at], head[at + 1]]));

    let plain_header = (word(12) == u32::from(ETHER_IP4)) & (byte(IP) == 0x45);
    let unfragmented = word(IP + 6) & 0x3fff == 0;
    let total = word(IP + 2);

    let proto = head[IP + 9];
    let tcp = proto == TCP;
    let known = tcp | (proto == UDP);
    let data_offset = (byte(L4 + 12) >> 4) * 4;
    let (header, least) =
        if tcp { (data_offset, TCP_HEADER as u32) } else { (SHORT_HEADER as u32, SHORT_HEADER as u32) };
    let l4_fits = (header >= least) & (IP4_HEADER as u32 + header <= total);
    let ip_fits = IP + total as usize <= bytes.len();
    if !(plain_header & unfragmented & known & l4_fits & ip_fits & header_is_sound(head)) {
        return None;
    }

    let payload = L4 as u32 + header;
    let end = IP as u32 + total;
    let udp_end = end.min((L4 as u32 + word(L4 + 4)).max(payload));
    let payload_end = if tcp { end } else { udp_end };
    let has_payload = if payload_end > payload { flags::HAS_PAYLOAD } else { 0 };
    let has_options = if tcp & (header > TCP_HEADER as u32) { flags::TCP_OPTION_AREA } else { 0 };
    Some(Layout {
        class: Class::Ip4,
        l4_kind: proto,
        proto,
        flags: flags::HAS_IP_PAYLOAD | has_payload | has_options,
        eh: 0,
        routed: false,
        vlan_tags: 0,
        eth_type: ETHER_IP4,
        ip: IP as u16,
        proto_at: IP as u16 + 9,
        l4: L4 as u16,
        payload: payload as u16,
        end,
        payload_end,
    })
}

/// Whether the 20 bytes of IPv4 header sum up to nothing (RFC 1071), in three loads.
#[inline(always)]
fn header_is_sound(head: &[u8; FIXED]) -> bool {
    let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| head[at + i]));
    let last = u32::from_ne_bytes(std::array::from_fn(|i| head[IP + 16 + i]));
    let (sum, carry) = long(IP).overflowing_add(long(IP + 8));
    let (sum, carry) = sum.overflowing_add(u64::from(last) + u64::from(carry));
    let sum = sum.wrapping_add(u64::from(carry));
    // As in `checksum::fold`: the upper half of a number plus itself with swapped halves is the halves' sum.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    sum.wrapping_add(sum.rotate_left(16)) >> 16 == 0xffff
}
