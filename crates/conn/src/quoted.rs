//! Parses the packet that an ICMP error quotes.
//!
//! A quotation may be truncated anywhere after the first 8 bytes of the transport header (RFC 792, RFC 1812
//! section 4.3.2.3, RFC 4443 section 2.4). Its length fields may then exceed it. It may also be forged. It is
//! therefore only used to look up a connection, whose state must confirm it.

use crate::tuple::icmp_query;
use crate::{Tuple, proto};
use mmb_packet::flow::flow_ports;
use mmb_packet::parse::{IP4_HEADER, IP6_HEADER, ParserLimits, extension_len};

/// The quoted packet. Offsets are in bytes from the first byte of the quoted IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotedPacket {
    /// The tuple of the quoted packet, as quoted; its `wire` is 0.
    pub tuple: Tuple,
    /// The upper-layer protocol.
    pub proto: u8,
    /// The offset of the IP header: 0, since the quotation begins with it.
    pub ip_at: usize,
    /// The offset of the transport header.
    pub l4_at: usize,
    /// Quoted bytes of the transport header and its payload: at least 8.
    pub l4_len: usize,
}

/// The number of transport header bytes that distinguish connections.
const PORTS: usize = 8;

/// Parses the quotation of an ICMP error. `icmp_payload` begins after the error's own 8 bytes; `family` is 4
/// for ICMP and 6 for ICMPv6.
///
/// Returns `None` if the quotation identifies no connection:
///
/// - It is too short, or ends before a GRE key.
/// - It is not an IP packet, or it is a later fragment.
/// - It is an ICMP message that is neither a query nor a reply to one.
///
/// Quotations of protocols without ports have a tuple without ports. Data after the quotation in an extended
/// error (RFC 4884) counts towards `l4_len` only within the quoted packet's own length.
pub fn quoted(icmp_payload: &[u8], family: u8) -> Option<QuotedPacket> {
    match family {
        4 => quoted4(icmp_payload),
        6 => quoted6(icmp_payload),
        _ => None,
    }
}

fn quoted4(bytes: &[u8]) -> Option<QuotedPacket> {
    let head: &[u8; IP4_HEADER] = bytes.first_chunk()?;
    let header_len = usize::from(head[0] & 15) * 4;
    let fragment_offset = u16::from_be_bytes([head[6], head[7]]) & 0x1fff;
    if head[0] >> 4 != 4 || header_len < IP4_HEADER || fragment_offset != 0 {
        return None;
    }
    let address = |offset: usize| {
        u128::from(u32::from_be_bytes([head[offset], head[offset + 1], head[offset + 2], head[offset + 3]]))
    };
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    parse_transport(bytes, total, 4, (head[9], header_len), [address(12), address(16)])
}

fn quoted6(bytes: &[u8]) -> Option<QuotedPacket> {
    let head: &[u8; IP6_HEADER] = bytes.first_chunk()?;
    if head[0] >> 4 != 6 {
        return None;
    }
    let (_, from) = head.split_at(8);
    let source = u128::from_be_bytes(*from.first_chunk()?);
    let destination = u128::from_be_bytes(*from.last_chunk()?);
    let total = IP6_HEADER + usize::from(u16::from_be_bytes([head[4], head[5]]));
    parse_transport(bytes, total, 6, chain_end(bytes, head[6])?, [source, destination])
}

/// The upper-layer protocol after all extension headers, and its offset.
fn chain_end(bytes: &[u8], first: u8) -> Option<(u8, usize)> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const AH: u8 = 51;
    const DESTINATION_OPTIONS: u8 = 60;
    const MOBILITY: u8 = 135;
    const HIP: u8 = 139;
    const SHIM6: u8 = 140;
    let is_later = |head: &[u8; 8]| u16::from_be_bytes([head[2], head[3]]) >> 3 != 0;
    let (mut next, mut offset) = (first, IP6_HEADER);
    for _ in 0..=ParserLimits::default().ip6_headers {
        let head: Option<&[u8; 8]> = bytes.get(offset..).and_then(<[u8]>::first_chunk);
        match next {
            FRAGMENT if is_later(head?) => return None,
            FRAGMENT | AH | HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY | HIP | SHIM6 => {}
            _ => return Some((next, offset)),
        }
        offset += extension_len(next, head?[1]);
        next = head?[0];
    }
    None
}

fn parse_transport(
    bytes: &[u8],
    total: usize,
    family: u8,
    (proto, l4_at): (u8, usize),
    addresses: [u128; 2],
) -> Option<QuotedPacket> {
    let l4 = bytes.get(l4_at..)?;
    let head: &[u8; PORTS] = l4.first_chunk()?;
    // Some hosts quote the header in host byte order, which swaps the bytes of the length. A length that
    // leaves no room for the ports is ignored.
    let l4_len = total.checked_sub(l4_at).filter(|len| *len >= PORTS);
    let word = |offset: usize| u16::from_be_bytes([head[offset], head[offset + 1]]);
    let ports = match (family, proto) {
        (_, proto::TCP | proto::UDP) => [word(0), word(2)],
        (4, proto::ICMP) | (6, proto::ICMP6) => {
            let (request, _) = icmp_query(proto, head[0])?;
            [word(4), request.into()]
        }
        _ => flow_ports(proto, l4)?,
    };
    let tuple = Tuple { addresses, ports, proto, family, ..Tuple::default() };
    Some(QuotedPacket {
        tuple,
        proto,
        ip_at: 0,
        l4_at,
        l4_len: l4_len.map_or(l4.len(), |len| len.min(l4.len())),
    })
}

#[cfg(test)]
mod tests;
