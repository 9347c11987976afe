//! The IPv6 header and its chain of extension headers.

use super::transport;
use crate::key::{eh, flags};
use crate::layout::{Class, IP6_HEADER, Layout, ParserLimits};
use crate::malformed::Malformed;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const ESP: u8 = 50;
const AH: u8 = 51;
const DEST_OPT: u8 = 60;
const MOBILITY: u8 = 135;
const HIP: u8 = 139;
const SHIM6: u8 = 140;

/// Checks the IPv6 header at `layout.ip` and what follows it.
pub(super) fn walk(bytes: &[u8], layout: &mut Layout, limits: &ParserLimits) -> Result<(), Malformed> {
    let ip = usize::from(layout.ip);
    let packet = bytes.get(ip..).unwrap_or_default();
    let head: &[u8; IP6_HEADER] = packet.first_chunk().ok_or(Malformed::Ip6Truncated)?;
    if head[0] >> 4 != 6 {
        return Err(Malformed::IpBadVersion);
    }
    let payload_len = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let packet = packet.get(..IP6_HEADER + payload_len).ok_or(Malformed::Ip6Truncated)?;
    if payload_len > 0 {
        layout.flags |= flags::HAS_IP_PAYLOAD;
    }
    layout.class = Class::Ip6;
    layout.end = u32::from(layout.ip) + packet.len() as u32;

    let chain = ExtensionChain::walk(packet, limits)?;
    layout.flags |= chain.flags;
    layout.eh = chain.eh;
    layout.proto = chain.proto;
    // A chain that ends past 2^16 is longer than any that is sent: so offsets keep to 16 bits.
    layout.proto_at = u16::try_from(ip + chain.proto_at).map_err(|_| Malformed::Ip6ChainTooLong)?;
    layout.l4 = u16::try_from(ip + chain.at).map_err(|_| Malformed::Ip6ChainTooLong)?;
    transport::walk(bytes, layout)
}

/// The state of a walk along the chain; offsets from the IPv6 header.
struct ExtensionChain {
    proto: u8,
    proto_at: usize,
    at: usize,
    flags: u8,
    eh: u16,
}

impl ExtensionChain {
    fn walk(packet: &[u8], limits: &ParserLimits) -> Result<ExtensionChain, Malformed> {
        let proto = packet.get(6).copied().unwrap_or_default();
        let mut chain = ExtensionChain { proto, proto_at: 6, at: IP6_HEADER, flags: 0, eh: 0 };
        let mut headers = 0;
        while let Some(bit) = extension(chain.proto) {
            if chain.proto == ESP {
                // What follows is encrypted: the chain ends here, for us.
                chain.eh |= bit | eh::ANY;
                break;
            }
            if headers == limits.ip6_headers {
                return Err(Malformed::Ip6ChainTooLong);
            }
            headers += 1;
            chain.eh |= bit | eh::ANY;
            if chain.step(packet)? {
                break;
            }
        }
        Ok(chain)
    }

    /// Goes over the extension header at `at`; true if the chain ends behind it.
    fn step(&mut self, packet: &[u8]) -> Result<bool, Malformed> {
        let rest = packet.get(self.at..).unwrap_or_default();
        let head: &[u8; 8] = rest.first_chunk().ok_or(Malformed::Ip6HeaderTruncated)?;
        let length = extension_len(self.proto, head[1]);
        if length > rest.len() {
            return Err(Malformed::Ip6HeaderTruncated);
        }
        match self.proto {
            ROUTING if head[3] != 0 => self.flags |= flags::ROUTED,
            FRAGMENT => self.flags |= fragment_flags(u16::from_be_bytes([head[2], head[3]])),
            _ => {}
        }
        self.proto = head[0];
        self.proto_at = self.at;
        self.at += length;
        Ok(self.flags & flags::LATER_FRAGMENT != 0)
    }
}

/// Flags by the fragment header's word of offset, reserved bits and M. An atomic fragment (RFC 6946) is a whole packet.
fn fragment_flags(word: u16) -> u8 {
    match (word >> 3, word & 1) {
        (0, 0) => 0,
        (0, _) => flags::FRAGMENT,
        _ => flags::FRAGMENT | flags::LATER_FRAGMENT,
    }
}

/// The bytes of an IPv6 extension header of this number, given its length field: of an authentication header in units of 4 bytes (RFC 4302
/// section 2.2), of a fragment header without meaning, else in units of 8 bytes behind the first ones (RFC 8200 section 4.3). Meaningless
/// for ESP.
#[inline]
pub fn extension_len(number: u8, length: u8) -> usize {
    match number {
        FRAGMENT => 8,
        AH => (usize::from(length) + 2) * 4,
        _ => (usize::from(length) + 1) * 8,
    }
}

/// The bit of an extension header, `None` for an upper-layer protocol (and for "no next header").
fn extension(next: u8) -> Option<u16> {
    match next {
        HOP_BY_HOP => Some(eh::HOP_BY_HOP),
        ROUTING => Some(eh::ROUTING),
        FRAGMENT => Some(eh::FRAGMENT),
        ESP => Some(eh::ESP),
        AH => Some(eh::AH),
        DEST_OPT => Some(eh::DEST_OPT),
        MOBILITY => Some(eh::MOBILITY),
        HIP => Some(eh::HIP),
        SHIM6 => Some(eh::SHIM6),
        _ => None,
    }
}
