//! Gives a packet a payload of another length.

use crate::checksum::ChecksumDelta;
use crate::key::flags;
use crate::layout::IP6_HEADER;
use crate::layout::{Class, Layout};
use crate::proto::UDP;
use crate::view::Packet;

/// Offset of the length field in a UDP header.
const UDP_LENGTH: usize = 4;

/// Changes the length of the payload of a TCP segment or a UDP datagram that is no fragment: the headers before it move, or, without room
/// in front, what lies behind it. The lengths in the headers and the checksum of the IPv4 header are right then; bytes of the payload and the transport checksum are the caller's to
/// write. Returns false, with nothing changed, if there is no room in front or behind, or a length exceeds its field.
pub fn resize_payload(packet: &mut Packet<'_>, layout: &mut Layout, len: usize) -> bool {
    let (headers, old) = (usize::from(layout.payload), layout.payload_range().len());
    let end = |end: u32| u32::try_from(end as usize + len).ok().map(|end| end - old as u32);
    let (Some(new_end), Some(new_payload_end)) = (end(layout.end), end(layout.payload_end)) else {
        return false;
    };
    let ip = usize::from(layout.ip);
    let (from, field) = match layout.class {
        Class::Ip4 => (ip, ip + 2),
        Class::Ip6 => (ip + IP6_HEADER, ip + 4),
        Class::Other => return false,
    };
    let Ok(length) = u16::try_from(new_end as usize - from) else { return false };
    if len > old {
        let by = len - old;
        if packet.grow_front(by) {
            packet.bytes_mut().copy_within(by..by + headers, 0);
        } else {
            let trailer = layout.end as usize..packet.len();
            if !packet.grow_back(by) {
                return false;
            }
            packet.bytes_mut().copy_within(trailer, layout.end as usize + by);
        }
    } else {
        packet.bytes_mut().copy_within(..headers, old - len);
        packet.shrink_front(old - len);
    }
    (layout.end, layout.payload_end) = (new_end, new_payload_end);
    layout.flags &= !flags::HAS_PAYLOAD;
    if len > 0 {
        layout.flags |= flags::HAS_PAYLOAD;
    }
    let bytes = packet.bytes_mut();
    let Some(place) = bytes.get_mut(field..).and_then(|rest| rest.first_chunk_mut::<2>()) else {
        return true;
    };
    let before = std::mem::replace(place, length.to_be_bytes());
    if layout.class == Class::Ip4
        && let Some(checksum) = bytes.get_mut(ip + 10..).and_then(|rest| rest.first_chunk_mut::<2>())
    {
        let mut delta = ChecksumDelta::default();
        delta.word(before, length.to_be_bytes());
        *checksum = delta.apply(*checksum);
    }
    if layout.l4_kind == UDP {
        let l4 = usize::from(layout.l4);
        let udp = (new_payload_end as usize - l4) as u16;
        if let Some(place) = bytes.get_mut(l4 + UDP_LENGTH..).and_then(|rest| rest.first_chunk_mut::<2>()) {
            *place = udp.to_be_bytes();
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::resize_payload;
    use crate::parse::parse;
    use crate::{LinkType, Packet, ParserLimits, PortId, checksum};

    /// A raw IPv4 packet with UDP and this payload.
    fn datagram(payload: &[u8]) -> Vec<u8> {
        let mut bytes =
            vec![0x45, 0, 0, (28 + payload.len()) as u8, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let sum = checksum::ChecksumSum::default().bytes(&bytes).checksum();
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend([0, 7, 0, 8, 0, (8 + payload.len()) as u8, 0, 0]);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn a_payload_gets_longer_and_shorter() {
        // Behind it lie four bytes that are not the packet's, and room.
        for (len, headroom) in [(0, 16), (3, 16), (8, 16), (20, 16), (20, 11), (20, 0)] {
            let packet = datagram(b"abcdefgh");
            let mut buffer = vec![0xee; headroom + packet.len() + 4 + 12];
            buffer[headroom..headroom + packet.len()].copy_from_slice(&packet);
            let count = packet.len() + 4;
            let mut view = Packet::new(&mut buffer, headroom, count, PortId(0), LinkType::RawIp).unwrap();
            let mut layout = parse(&view, &ParserLimits::default()).unwrap();
            assert!(resize_payload(&mut view, &mut layout, len));
            let end = layout.end as usize;
            assert_eq!((end, layout.payload_range().len()), (28 + len, len));
            assert_eq!(&view.bytes()[end..], [0xee; 4], "what lies behind the packet stays");
            let mut expected = datagram(&vec![0; len]);
            expected.truncate(28);
            assert_eq!(view.bytes()[..28], expected);
            assert_eq!(parse(&view, &ParserLimits::default()).unwrap(), layout);
        }
    }

    #[test]
    fn without_room_nothing_changes() {
        let packet = datagram(b"abc");
        let mut buffer = packet.clone();
        let mut view = Packet::new(&mut buffer, 0, packet.len(), PortId(0), LinkType::RawIp).unwrap();
        let mut layout = parse(&view, &ParserLimits::default()).unwrap();
        let before = layout;
        assert!(!resize_payload(&mut view, &mut layout, 4));
        assert!(!resize_payload(&mut view, &mut layout, 70_000));
        assert_eq!((view.bytes(), layout), (&packet[..], before));
    }
}
