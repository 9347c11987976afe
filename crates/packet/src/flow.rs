//! The fields that distinguish flows and that rules do not match on: VLAN identifiers, and ports of some protocols.
//!
//! Ports lie first in the headers of SCTP (RFC 9260 section 3.1), DCCP (RFC 4340 section 5.1) and UDP-Lite (RFC 3828 section 3.1), as
//! in those of TCP and UDP. GRE has a key instead, if the sender gives one (RFC 2890).

use crate::Layout;
use crate::proto::{DCCP, GRE, SCTP, UDP_LITE};

/// The identifiers of the outermost two VLAN tags; a priority tag has identifier 0, like no tag (IEEE 802.1Q, table 9-2).
pub fn vlan_ids(bytes: &[u8], layout: &Layout) -> [u16; 2] {
    // Each tag's control information is followed by the EtherType of what it encapsulates; the last one's by the packet.
    let id = |tag: u8| {
        let left = layout.vlan_tags.checked_sub(tag).filter(|left| *left > 0)?;
        let at = layout.ip.checked_sub(4 * u16::from(left))?;
        Some(u16::from_be_bytes(*bytes.get(usize::from(at)..)?.first_chunk()?) & 0xfff)
    };
    [id(0).unwrap_or(0), id(1).unwrap_or(0)]
}

/// The bytes of the shortest header of SCTP (RFC 9260 section 3.1), DCCP (RFC 4340 section 5.1) or UDP-Lite (RFC 3828 section 3.1), which
/// every whole packet and every first fragment has. 0 for all other protocols.
pub fn header_len(proto: u8) -> usize {
    match proto {
        SCTP | DCCP => 12,
        UDP_LITE => 8,
        _ => 0,
    }
}

/// Source and destination port of a header of one of these protocols; of GRE both halves of its key, the upper one first. Zeros for all
/// other protocols. `None` if the header is too short to tell.
pub fn flow_ports(proto: u8, header: &[u8]) -> Option<[u16; 2]> {
    match proto {
        DCCP | SCTP | UDP_LITE => words(header, 0),
        GRE => gre_key(header),
        _ => Some([0; 2]),
    }
}

/// The key of a GRE header (RFC 2890 section 2.1), behind the checksum or the routing offset if there is one (RFC 1701). Zeros
/// where there is no key, and of enhanced GRE (RFC 2637), whose "key" is a length and a call identifier that differs in each direction.
fn gre_key(header: &[u8]) -> Option<[u16; 2]> {
    const CHECKSUM_OR_ROUTING: u8 = 0xc0;
    const KEY: u8 = 0x20;
    const VERSION: u8 = 0x07;
    let &[flags, version, ..] = header.first_chunk::<4>()?;
    if flags & KEY == 0 || version & VERSION != 0 {
        return Some([0; 2]);
    }
    words(header, if flags & CHECKSUM_OR_ROUTING != 0 { 8 } else { 4 })
}

fn words(header: &[u8], at: usize) -> Option<[u16; 2]> {
    let &[a, b, c, d] = header.get(at..)?.first_chunk()?;
    Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_lie_first() {
        for proto in [DCCP, SCTP, UDP_LITE] {
            assert_eq!(flow_ports(proto, &[1, 2, 3, 4, 9]), Some([0x0102, 0x0304]));
            assert_eq!(flow_ports(proto, &[1, 2, 3]), None);
        }
        assert_eq!(flow_ports(50, &[]), Some([0; 2]));
    }

    #[test]
    fn a_gre_key_lies_behind_what_comes_before_it() {
        let header = |flags: u8, version: u8| [flags, version, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let key = |flags, version| flow_ports(GRE, &header(flags, version));
        assert_eq!(key(0x20, 0), Some([0x0102, 0x0304]));
        assert_eq!(key(0x30, 0), Some([0x0102, 0x0304]), "the sequence number lies behind it");
        assert_eq!(key(0xa0, 0), Some([0x0506, 0x0708]), "behind a checksum");
        assert_eq!(key(0x60, 0), Some([0x0506, 0x0708]), "behind a routing offset");
        assert_eq!(key(0x80, 0), Some([0; 2]), "no key");
        assert_eq!(key(0x30, 1), Some([0; 2]), "a call identifier of PPTP");
        assert_eq!(flow_ports(GRE, &header(0xa0, 0)[..8]), None, "cut off");
        assert_eq!(flow_ports(GRE, &[0; 3]), None);
    }
}
