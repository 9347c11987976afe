//! One look at a packet: is it sound, and where do its headers lie.
//!
//! Purpose: [`parse`] is the only place that trusts nothing. What it returns is a [`Layout`] whose offsets lie inside
//! the packet; everything behind it relies on that. A packet is walked header by header. Most packets of a vector need
//! not be: [`plain`] finds the layouts of untagged Ethernet with plain IP headers and whole TCP and UDP segments many at a
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
/// What makes the packet impossible to understand. Transport checksums are not looked at, and a UDP length
/// that lies only bounds the payload.
pub fn parse(packet: &Packet<'_>, limits: &ParserLimits) -> Result<Layout, Malformed> {
    let mut layout = Layout::default();
    parse_into(packet, limits, &mut layout)?;
    Ok(layout)
}

/// The same into a place that the caller has, so that a vector's layouts are written where they stay.
///
/// # Errors
/// As [`parse`]; the layout then means nothing.
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
