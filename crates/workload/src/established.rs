//! Packets from the middle of connections.

use mmb_packet::checksum::ChecksumDelta;
use mmb_packet::proto::TCP;

const ETHERNET: usize = 14;

/// Changes a plain TCP segment to one from the middle of a connection: an acknowledgment with sequence numbers that are
/// consistent with replies. Other frames stay unchanged.
pub fn establish(frame: &mut [u8]) {
    let (l4, proto) = match frame.get(ETHERNET) {
        Some(0x45) => (ETHERNET + 20, frame.get(ETHERNET + 9)),
        Some(byte) if byte >> 4 == 6 => (ETHERNET + 40, frame.get(ETHERNET + 6)),
        _ => return,
    };
    if proto != Some(&TCP) {
        return;
    }
    let Some(header) = frame.get_mut(l4..).and_then(|header| header.first_chunk_mut::<20>()) else { return };
    let mut delta = ChecksumDelta::default();
    // Sequence and acknowledgment number; data offset and flags.
    let new = [&[0, 0, 0, 1, 0, 0, 0, 1][..], &[header[12] & 0xf0, 0x10]].concat();
    delta.bytes(false, &header[4..14], &new);
    header[4..14].copy_from_slice(&new);
    let sum = delta.apply_transport(TCP, [header[16], header[17]]);
    header[16..18].copy_from_slice(&sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Background, FlowPattern, Traffic};
    use mmb_packet::checksum::transport_sum;
    use mmb_packet::parse::parse;
    use mmb_packet::{LinkType, Packet, ParserLimits, PortId};

    #[test]
    fn segments_acknowledge_and_keep_their_checksums() {
        for background in [Background::Uniform, Background::Uniform6] {
            let traffic = Traffic { background, hit: 0.0, flows: FlowPattern::Distinct, seed: 1 };
            let mut segments = 0;
            for mut frame in traffic.frames(200, std::iter::empty(), 0).frames {
                establish(&mut frame);
                let len = frame.len();
                let packet = Packet::new(&mut frame, 0, len, PortId(0), LinkType::Ethernet).expect("it fits");
                let layout = parse(&packet, &ParserLimits::default()).expect("a sound packet");
                let sum = transport_sum(packet.bytes(), &layout).map(|sum| sum.fold());
                if layout.l4_kind == TCP {
                    segments += 1;
                    assert_eq!(packet.bytes()[usize::from(layout.l4) + 13], 0x10);
                    assert_eq!(sum, Some(0xffff));
                }
            }
            assert!(segments > 20);
        }
    }
}
