//! Finds the inner packet of a tunnel.
//!
//! Purpose: Linux offloads the segmentation and the checksum of the packet *inside* a tunnel to the device. The device
//! learns only where the inner transport header begins (`csum_start` in the VIRTIO specification, section 5.1.6), and
//! with AF_XDP not even that. [`Tunnels::around`] finds all packets around that header. When the inner packet is segmented,
//! each of them gets lengths and checksums of its own.
//!
//! The header of IP in IP (RFC 2003, RFC 2473, RFC 4213) and GRE (RFC 2784, RFC 2890) says where the inner packet is.
//! A tunnel over UDP (VXLAN, GENEVE, GUE, …) may use any port, so only its ends know the format. Its inner packet is
//! found by the inner IP header: the first valid IP header whose packet ends exactly where the datagram ends. GRE that
//! carries Ethernet is searched in the same way.
//!
//! Life-cycle: values on the stack. Nothing is allocated, and any bytes are valid input.

use crate::layout::{Class, ETHER_IP4, ETHER_IP6, Layout, ParserLimits, SHORT_HEADER, word};
use crate::parse::parse_ip;
use crate::proto::{GRE, IP_IN_IP, IP6_IN_IP, UDP};

/// The most packets around the innermost packet.
pub(crate) const MAX_TUNNELS: usize = 4;
/// The most bytes between a UDP or GRE header and the inner IP header: a GENEVE header with all options (RFC 8926), an
/// Ethernet header and two VLAN tags.
const LONGEST_GAP: usize = 260 + 14 + 8;
/// Headers of tunnels have an even length.
const ALIGNMENT: usize = 2;

/// An inner packet and the packets around it. All offsets are from the start of the frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tunnels {
    outer: [Layout; MAX_TUNNELS],
    count: usize,
    inner: Layout,
}

impl Tunnels {
    /// Finds the packets around the transport header at offset `l4`, in a packet with this layout. Returns `None` if no
    /// chain of at most four tunnels leads to that header.
    pub fn around(bytes: &[u8], layout: &Layout, l4: usize) -> Option<Tunnels> {
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

    /// The layouts of the packets around the innermost packet, outermost first.
    pub fn outer(&self) -> &[Layout] {
        &self.outer[..self.count]
    }
}

/// The layout of the packet directly inside a packet. Its transport header must begin at offset `furthest` or before.
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

/// The layout of the IP packet from offset `at` to offset `end`; `None` if there is none.
fn packet_at(bytes: &[u8], at: usize, end: u32) -> Option<Layout> {
    let len = (end as usize).checked_sub(at)?;
    // A cheap test first: most offsets are not the start of a packet.
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

/// The length of the GRE header at an offset. `None` for versions other than 0, and for the routing field, which is
/// obsolete (RFC 2784).
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
