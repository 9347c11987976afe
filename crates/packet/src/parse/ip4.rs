//! The IPv4 header with its options.

use super::transport;
use crate::checksum::header_is_sound;
use crate::key::flags;
use crate::layout::{Class, IP4_HEADER, Layout, word};
use crate::malformed::Malformed;

/// Loose and strict source route (RFC 791 section 3.1).
const SOURCE_ROUTES: [u8; 2] = [131, 137];

/// Checks the IPv4 header at `layout.ip` and what follows it.
pub(super) fn walk(bytes: &[u8], layout: &mut Layout) -> Result<(), Malformed> {
    let ip = usize::from(layout.ip);
    let packet = bytes.get(ip..).unwrap_or_default();
    let head: &[u8; IP4_HEADER] = packet.first_chunk().ok_or(Malformed::Ip4Truncated)?;
    if head[0] >> 4 != 4 {
        return Err(Malformed::IpBadVersion);
    }
    let header_len = usize::from(head[0] & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if header_len < IP4_HEADER || total < header_len {
        return Err(Malformed::Ip4BadLength);
    }
    let packet = packet.get(..total).ok_or(Malformed::Ip4Truncated)?;
    let header = packet.get(..header_len).ok_or(Malformed::Ip4Truncated)?;
    if !header_is_sound(header) {
        return Err(Malformed::Ip4BadChecksum);
    }

    let fragment = word(head, 6).unwrap_or_default();
    if fragment & 0x1fff != 0 {
        layout.flags |= flags::FRAGMENT | flags::LATER_FRAGMENT;
    } else if fragment & 0x2000 != 0 {
        layout.flags |= flags::FRAGMENT;
    }
    if total > header_len {
        layout.flags |= flags::HAS_IP_PAYLOAD;
    }
    layout.class = Class::Ip4;
    layout.proto = head[9];
    layout.proto_at = layout.ip + 9;
    if is_routed(header.get(IP4_HEADER..).unwrap_or_default()) {
        layout.flags |= flags::ROUTED;
    }
    layout.l4 = layout.ip + header_len as u16;
    layout.end = u32::from(layout.ip) + total as u32;
    transport::walk(bytes, layout)
}

/// Whether a source route among the options has hops left: its pointer is not past its end.
fn is_routed(options: &[u8]) -> bool {
    let mut rest = options;
    loop {
        rest = match rest {
            [] | [0, ..] => return false,
            [1, behind @ ..] => behind,
            [kind, length, ..] => {
                let Some((option, behind)) = rest.split_at_checked(usize::from(*length).max(2)) else {
                    return false;
                };
                if *length < 2 {
                    return false;
                }
                if SOURCE_ROUTES.contains(kind) && option.get(2).is_some_and(|pointer| pointer <= length) {
                    return true;
                }
                behind
            }
            [_] => return false,
        }
    }
}
