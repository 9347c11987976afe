//! The parser: checks packets and finds their headers.
//!
//! Purpose: [`parse`] is the only place that trusts nothing. What it returns is a [`Layout`] whose offsets lie inside
//! the packet; everything behind it relies on that. A packet is walked header by header. Most packets of a vector need
//! not be: `plain` finds the layouts of untagged Ethernet with plain IP headers and whole TCP and UDP segments many at a
//! time.

mod ip4;
mod ip6;
mod link;
mod plain;
mod transport;
pub mod vector;

pub use ip6::extension_len;

pub use crate::layout::{
    Class, ETHER_IP4, ETHER_IP6, IP4_HEADER, IP6_HEADER, Layout, MAX_VLAN_TAGS, ParserLimits, SHORT_HEADER,
    TCP_HEADER,
};
pub use crate::malformed::Malformed;
use crate::view::Packet;

/// Checks a packet and finds its headers.
///
/// # Errors
/// The reason that the packet cannot be parsed. Transport checksums are not checked, and a wrong UDP length only bounds the payload.
pub fn parse(packet: &Packet<'_>, limits: &ParserLimits) -> Result<Layout, Malformed> {
    let mut layout = Layout::default();
    parse_into(packet, limits, &mut layout)?;
    Ok(layout)
}

/// [`parse`] into a layout of the caller, so that a vector's layouts are written in place.
///
/// # Errors
/// As [`parse`]; the layout is undefined then.
pub fn parse_into(packet: &Packet<'_>, limits: &ParserLimits, layout: &mut Layout) -> Result<(), Malformed> {
    let bytes = packet.bytes();
    *layout = Layout::default();
    link::walk(bytes, packet.link, layout)?;
    match layout.eth_type {
        ETHER_IP4 => ip4::walk(bytes, layout),
        ETHER_IP6 => ip6::walk(bytes, layout, limits),
        _ => Ok(()),
    }
}

/// Parses the IP packet at an offset of a frame, as [`parse`] does. `eth_type` says which version. The offsets of the
/// layout are from the start of the frame.
///
/// # Errors
/// As [`parse`], and if `eth_type` is not that of IP.
pub(crate) fn parse_ip(
    bytes: &[u8],
    at: u16,
    eth_type: u16,
    limits: &ParserLimits,
) -> Result<Layout, Malformed> {
    let mut layout = Layout { eth_type, ip: at, ..Layout::default() };
    match eth_type {
        ETHER_IP4 => ip4::walk(bytes, &mut layout)?,
        ETHER_IP6 => ip6::walk(bytes, &mut layout, limits)?,
        _ => return Err(Malformed::IpBadVersion),
    }
    Ok(layout)
}
