//! Packets in tunnels: where the inner packet lies.
//!
//! Purpose: Linux leaves to a device the checksum of the packet *inside* a tunnel, and the cutting of it. The device learns only where the
//! inner transport header begins (`csum_start` in the VIRTIO specification, section 5.1.6), and of AF_XDP not even that. [`Tunnels::to`] finds
//! the packets on the way to that header. Each of them gets lengths and checksums of its own when the inner packet is cut.
//!
//! IP in IP (RFC 2003, RFC 2473, RFC 4213) and GRE (RFC 2784, RFC 2890) say what they carry. Of a tunnel over UDP (VXLAN, GENEVE, GUE, …) only
//! its ends know the format, since any port may be used. The inner packet is found there by its own header: it is the first one with a sound
//! header that ends exactly where the datagram ends.
//!
//! Life-cycle: values on the stack. Nothing is allocated, and no bytes are impossible.

use crate::layout::{Class, ETHER_IP4, ETHER_IP6, Layout, ParserLimits, SHORT_HEADER, word};
use crate::parse::parse_ip;
use crate::proto::{GRE, IP_IN_IP, IP6_IN_IP, UDP};

/// The most packets around the innermost one.
pub(crate) const MOST_TUNNELS: usize = 4;
/// The most bytes between a header of UDP or GRE and the packet inside: a GENEVE header with all options (RFC 8926), an Ethernet header and two
/// VLAN tags.
const LONGEST_GAP: usize = 260 + 14 + 8;
/// Headers of tunnels have an even length.
const ALIGNMENT: usize = 2;

/// The packets around an inner packet, and the inner packet. All offsets are of the whole frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tunnels {
    outer: [Layout; MOST_TUNNELS],
    count: usize,
    inner: Layout,
}

impl Tunnels {
    /// The way through a packet, whose layout `layout` is, to the transport header at `l4`. `None` if no packets in each other lead
    /// there.
    pub fn to(bytes: &[u8], layout: &Layout, l4: usize) -> Option<Tunnels> {
        let mut tunnels = Tunnels { inner: *layout, ..Tunnels::default() };
        while usize::from(tunnels.inner.l4) != l4 {
            *tunnels.outer.get_mut(tunnels.count)? = tunnels.inner;
            tunnels.count += 1;
            tunnels.inner = inner(bytes, &tunnels.inner, l4)?;
        }
        Some(tunnels)
    }

    /// The layout of the innermost packet.
    pub fn inner(&self) -> &Layout {
        &self.inner
    }

    /// The layouts of the packets around it, from the outermost on.
    pub fn outer(&self) -> &[Layout] {
        &self.outer[..self.count]
    }
}

/// The layout of the packet that a packet carries, whose transport header lies at `furthest` at most.
pub(crate) fn inner(bytes: &[u8], outer: &Layout, furthest: usize) -> Option<Layout> {
    if outer.is_fragment() || outer.class == Class::Other {
        return None;
    }
    let l4 = usize::from(outer.l4);
    let (first, gap) = match outer.proto {
        IP_IN_IP | IP6_IN_IP => (l4, 0),
        GRE => (l4 + gre_header_len(bytes, l4)?, LONGEST_GAP),
        UDP if outer.payload_end == outer.end => (l4 + SHORT_HEADER, LONGEST_GAP),
        _ => return None,
    };
    let last = (first + gap).min(furthest);
    (first..=last).step_by(ALIGNMENT).find_map(|at| {
        let layout = packet_at(bytes, at, outer.end)?;
        (usize::from(layout.l4) <= furthest).then_some(layout)
    })
}

/// The layout of the IP packet that begins at `at`, if one does that ends at `end`.
fn packet_at(bytes: &[u8], at: usize, end: u32) -> Option<Layout> {
    let len = (end as usize).checked_sub(at)?;
    // Most bytes are not the first one of such a packet.
    let eth_type = match bytes.get(at)? >> 4 {
        4 if usize::from(word(bytes, at + 2)?) == len => ETHER_IP4,
        6 if usize::from(word(bytes, at + 4)?) + 40 == len => ETHER_IP6,
        _ => return None,
    };
    let layout = parse_ip(bytes, u16::try_from(at).ok()?, eth_type, &ParserLimits::default()).ok()?;
    (layout.end == end).then_some(layout)
}

/// Whether the GRE header at an offset has a checksum.
pub(crate) fn has_gre_checksum(bytes: &[u8], l4: usize) -> bool {
    bytes.get(l4).is_some_and(|flags| flags & gre::CHECKSUM != 0)
}

/// The length of the GRE header at an offset; `None` for other versions than 0, and for routing, which nothing uses any more.
fn gre_header_len(bytes: &[u8], l4: usize) -> Option<usize> {
    let [flags, version]: [u8; 2] = *bytes.get(l4..)?.first_chunk()?;
    let options = [gre::CHECKSUM, gre::KEY, gre::SEQUENCE].iter().filter(|&flag| flags & flag != 0).count();
    (flags & gre::ROUTING == 0 && version & gre::VERSION == 0).then_some(4 + 4 * options)
}

/// Bits of the first two bytes of a GRE header.
mod gre {
    pub(super) const CHECKSUM: u8 = 0x80;
    pub(super) const ROUTING: u8 = 0x40;
    pub(super) const KEY: u8 = 0x20;
    pub(super) const SEQUENCE: u8 = 0x10;
    pub(super) const VERSION: u8 = 0x07;
}
