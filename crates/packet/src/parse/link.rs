//! Link headers and VLAN tags.

use crate::key::flags;
use crate::layout::{Class, ETHER_IP4, ETHER_IP6, Layout, MAX_VLAN_TAGS, word};
use crate::malformed::Malformed;
use crate::view::LinkType;

/// Ether types that announce a VLAN tag: 802.1Q, 802.1ad, and what was used before 802.1ad.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// Finds the ether type behind all tags. The layout is that of a frame which is not IP; the IP walkers go on from it.
pub(super) fn walk(bytes: &[u8], link: LinkType, layout: &mut Layout) -> Result<(), Malformed> {
    let mut vlan_tags = 0;
    let mut at = link.header_len();
    let mut eth_type = match link {
        LinkType::RawIp => raw_ether_type(bytes)?,
        LinkType::Ethernet | LinkType::Sll | LinkType::Sll2 => {
            let type_at = if link == LinkType::Sll2 { 0 } else { at - 2 };
            if bytes.len() < at {
                return Err(Malformed::LinkTruncated);
            }
            word(bytes, type_at).ok_or(Malformed::LinkTruncated)?
        }
    };
    while TAGS.contains(&eth_type) {
        if vlan_tags == MAX_VLAN_TAGS {
            return Err(Malformed::VlanStackTooDeep);
        }
        eth_type = word(bytes, at + 2).ok_or(Malformed::LinkTruncated)?;
        at += 4;
        vlan_tags += 1;
    }
    // At most 20 bytes of link header and 4 tags: far below 2^16.
    let start = at as u16;
    layout.class = Class::Other;
    layout.flags = if vlan_tags > 0 { flags::VLAN_TAGGED } else { 0 };
    layout.vlan_tags = vlan_tags;
    layout.eth_type = eth_type;
    layout.ip = start;
    layout.proto_at = start;
    layout.l4 = start;
    layout.payload = start;
    layout.end = bytes.len() as u32;
    layout.payload_end = u32::from(start);
    Ok(())
}

/// The ether type of a packet that has no link header, by its IP version.
fn raw_ether_type(bytes: &[u8]) -> Result<u16, Malformed> {
    match bytes.first().ok_or(Malformed::LinkTruncated)? >> 4 {
        4 => Ok(ETHER_IP4),
        6 => Ok(ETHER_IP6),
        _ => Err(Malformed::IpBadVersion),
    }
}
