//! The straight run for what most packets are: untagged Ethernet, an IPv4 header of 20 bytes or an IPv6 header without
//! extensions, a whole TCP or UDP segment.
//!
//! The branches go one way for every plain packet of an IP version. What differs between TCP and UDP is looked up, so
//! that mixed traffic has nothing to mispredict.

use super::{Class, ETHER_IP4, ETHER_IP6, IP4_HEADER, IP6_HEADER, Layout, SHORT_HEADER, TCP_HEADER};
use crate::checksum::{TCP, UDP};
use crate::key::flags;

/// Offset of the IP header behind an untagged Ethernet header.
const IP: usize = 14;
const L4_IP4: usize = IP + IP4_HEADER;
const L4_IP6: usize = IP + IP6_HEADER;
/// What is read at fixed offsets. Shorter frames (no Ethernet port delivers IPv4 in them: it pads to 60) are walked.
const FIXED_IP4: usize = L4_IP4 + TCP_HEADER;
const FIXED_IP6: usize = L4_IP6 + TCP_HEADER;

/// In the first 8 bytes of the IPv4 header, as a little-endian number: version and header length, MF and fragment offset.
const PLAIN_MASK: u64 = 0xff3f_0000_0000_00ff;
const PLAIN: u64 = 0x45;

/// How to find a transport header's length: what differs between TCP and UDP, as numbers.
#[derive(Clone, Copy)]
struct Shape {
    /// All ones if there is no UDP length to bound the payload.
    no_udp_length: u32,
    /// The data offset's bits in the byte that holds it, shifted to count bytes.
    offset_mask: u8,
    /// The length, where no data offset tells it.
    len: u8,
    /// A header that is shorter is none.
    least: u8,
}

/// By IP protocol. Those that are walked have no header that is long enough.
static SHAPES: [Shape; 256] = {
    let mut shapes = [Shape { no_udp_length: 0, offset_mask: 0, len: 0, least: u8::MAX }; 256];
    shapes[TCP as usize] =
        Shape { no_udp_length: u32::MAX, offset_mask: 0x3c, len: 0, least: TCP_HEADER as u8 };
    shapes[UDP as usize] =
        Shape { no_udp_length: 0, offset_mask: 0, len: SHORT_HEADER as u8, least: SHORT_HEADER as u8 };
    shapes
};

/// Whether this is a plain packet, whose layout is then written; if not, nothing is known but that it has to be walked.
#[inline(always)]
pub(super) fn parse(bytes: &[u8], layout: &mut Layout) -> bool {
    let Some(head) = bytes.first_chunk::<FIXED_IP4>() else { return false };
    match u16::from_be_bytes([head[12], head[13]]) {
        ETHER_IP4 => ip4(head, bytes.len(), layout),
        ETHER_IP6 => bytes.first_chunk().is_some_and(|head| ip6(head, bytes.len(), layout)),
        _ => false,
    }
}

/// The header is loaded once, in three words that both the fields and the checksum are taken from.
#[inline(always)]
fn ip4(head: &[u8; FIXED_IP4], len: usize, layout: &mut Layout) -> bool {
    let first = u64::from_le_bytes(std::array::from_fn(|i| head[IP + i]));
    let second = u64::from_le_bytes(std::array::from_fn(|i| head[IP + 8 + i]));
    let third = u32::from_le_bytes(std::array::from_fn(|i| head[IP + 16 + i]));
    if first & PLAIN_MASK != PLAIN || !sums_up(first, second, third) {
        return false;
    }
    let end = IP as u32 + u32::from(((first >> 16) as u16).swap_bytes());
    let proto = (second >> 8) as u8;
    let segment = Segment { l4: L4_IP4, proto, data_offset: head[L4_IP4 + 12], end };
    let udp_length = u16::from_be_bytes([head[L4_IP4 + 4], head[L4_IP4 + 5]]);
    let ip = Layout { class: Class::Ip4, eth_type: ETHER_IP4, proto_at: IP as u16 + 9, ..PLAIN_LAYOUT };
    segment.fill(udp_length, len, ip, layout)
}

/// Out of line, so that the caller's loop stays small.
#[inline(never)]
fn ip6(head: &[u8; FIXED_IP6], len: usize, layout: &mut Layout) -> bool {
    if head[IP] >> 4 != 6 {
        return false;
    }
    let end = L4_IP6 as u32 + u32::from(u16::from_be_bytes([head[IP + 4], head[IP + 5]]));
    let segment = Segment { l4: L4_IP6, proto: head[IP + 6], data_offset: head[L4_IP6 + 12], end };
    let udp_length = u16::from_be_bytes([head[L4_IP6 + 4], head[L4_IP6 + 5]]);
    let ip = Layout { class: Class::Ip6, eth_type: ETHER_IP6, proto_at: IP as u16 + 6, ..PLAIN_LAYOUT };
    segment.fill(udp_length, len, ip, layout)
}

/// What all plain packets have in common.
const PLAIN_LAYOUT: Layout = Layout {
    class: Class::Other,
    l4_kind: 0,
    proto: 0,
    flags: 0,
    eh: 0,
    routed: false,
    vlan_tags: 0,
    eth_type: 0,
    ip: IP as u16,
    proto_at: 0,
    l4: 0,
    payload: 0,
    end: 0,
    payload_end: 0,
};

/// A transport header that may be one of TCP or UDP.
struct Segment {
    l4: usize,
    proto: u8,
    /// The byte that holds the data offset, if it is TCP.
    data_offset: u8,
    /// Offset of the first byte behind the IP packet.
    end: u32,
}

impl Segment {
    /// Writes the layout if the segment is whole.
    #[inline(always)]
    fn fill(self, udp_length: u16, len: usize, ip: Layout, layout: &mut Layout) -> bool {
        let Segment { l4, proto, data_offset, end } = self;
        let shape = &SHAPES[usize::from(proto)];
        let header = u32::from((data_offset >> 2) & shape.offset_mask | shape.len);
        let payload = l4 as u32 + header;
        if header < u32::from(shape.least) || payload > end || end as usize > len {
            return false;
        }
        let udp_end = l4 as u32 + u32::from(udp_length);
        let payload_end = end.min(udp_end.max(payload) | shape.no_udp_length);
        let has_payload = u8::from(payload_end > payload) * flags::HAS_PAYLOAD;
        let has_options = u8::from(header > TCP_HEADER as u32) * flags::TCP_OPTION_AREA;
        *layout = Layout {
            l4_kind: proto,
            proto,
            flags: flags::HAS_IP_PAYLOAD | has_payload | has_options,
            l4: l4 as u16,
            payload: payload as u16,
            end,
            payload_end,
            ..ip
        };
        true
    }
}

/// Whether the IPv4 header in three words sums up to nothing (RFC 1071).
#[inline(always)]
fn sums_up(first: u64, second: u64, third: u32) -> bool {
    let (sum, carry) = first.overflowing_add(second);
    let (sum, carry) = sum.overflowing_add(u64::from(third) + u64::from(carry));
    let sum = sum.wrapping_add(u64::from(carry));
    // As in `checksum::fold`: the upper half of a number plus itself with swapped halves is the halves' sum.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    sum.wrapping_add(sum.rotate_left(16)) >> 16 == 0xffff
}
