//! Translations: the values that a connection writes into its packets, in each direction.
//!
//! A [`Translation`] is made for each packet from the state of its connection. Lengths do not change, and checksums are updated
//! incrementally (RFC 1624), so it applies to fragments and corrupt packets too. ICMP errors quote a packet of the other
//! direction: [`Translation::apply_to_quoted`] restores the original values in it.

use mmb_packet::checksum::{self, ChecksumDelta};
use mmb_packet::options::{self, walk};
use mmb_packet::proto::{DCCP, UDP_LITE};
use mmb_packet::proto::{ICMP, ICMP6, TCP, UDP};
use mmb_packet::{Class, Layout, Packet};

/// The TCP option of selective acknowledgments (RFC 2018).
const SACK: u8 = 5;
/// Offsets in headers: IPv4 identification, addresses; IPv6 addresses.
const IP4_ID: usize = 4;
const IP4_FLAGS: usize = 6;
const DONT_FRAGMENT: u8 = 0x40;
const IP4_CHECKSUM: usize = 10;
const IP4_ADDRESSES: usize = 12;
const IP6_ADDRESSES: usize = 8;
/// Offset of the checksum in a TCP header (RFC 9293).
const TCP_CHECKSUM: usize = 16;
/// Offset of the identifier of an ICMP query (RFC 792, RFC 4443).
const ICMP_ID: usize = 4;

/// The new values of packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// Source and destination address, those of IPv4 below 2^32.
    pub addresses: [Option<u128>; 2],
    /// Source and destination port; for ICMP queries the first one that is present is the identifier.
    pub ports: [Option<u16>; 2],
    /// The offset that is added to the sequence number of a TCP header.
    pub seq: u32,
    /// The offset that is added to its acknowledgment number and to its SACK blocks.
    pub ack: u32,
    /// The IPv4 identification of packets that must not be fragmented: only those may share one (RFC 6864 section 4.1).
    pub ip_id: Option<u16>,
    /// The IPv6 flow label.
    pub flow_label: Option<u32>,
}

/// The changes for the two checksums.
#[derive(Default)]
struct Deltas {
    header: ChecksumDelta,
    transport: ChecksumDelta,
}

/// The new addresses and ports of an unfragmented TCP or UDP packet of IPv4, as they are in the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip4Translation {
    /// Source and destination address.
    pub addresses: [u8; 8],
    /// Source and destination port.
    pub ports: [u8; 4],
}

impl Ip4Translation {
    /// Translates a packet whose layout is `layout`: as [`Translation::apply`], with fewer steps.
    #[inline(always)]
    pub fn apply(&self, packet: &mut Packet<'_>, layout: &Layout) {
        let (ip, l4) = (usize::from(layout.ip), usize::from(layout.l4));
        let Some((header, rest)) =
            packet.bytes_mut().get_mut(ip..).and_then(<[u8]>::split_first_chunk_mut::<20>)
        else {
            return;
        };
        // The fixed part of a UDP header.
        let transport =
            l4.checked_sub(ip + 20).and_then(|at| rest.get_mut(at..)?.split_first_chunk_mut::<8>());
        let Some((start, behind)) = transport else { return };
        let mut delta = ChecksumDelta::default();
        if let Some(addresses) = header.last_chunk_mut::<8>() {
            let [old, new] = [*addresses, self.addresses].map(u64::from_ne_bytes);
            delta.long(old as u32, new as u32);
            delta.long((old >> 32) as u32, (new >> 32) as u32);
            *addresses = self.addresses;
        }
        if let Some(field) = header[IP4_CHECKSUM..].first_chunk_mut::<2>() {
            *field = delta.apply(*field);
        }
        if let Some(ports) = start.first_chunk_mut::<4>() {
            delta.long(u32::from_ne_bytes(*ports), u32::from_ne_bytes(self.ports));
            *ports = self.ports;
        }
        let field = match layout.l4_kind {
            TCP => behind[..].get_mut(TCP_CHECKSUM - 8..).and_then(<[u8]>::first_chunk_mut::<2>),
            _ => start.last_chunk_mut::<2>(),
        };
        if let Some(field) = field {
            *field = delta.apply_transport(layout.l4_kind, *field);
        }
    }
}

impl Translation {
    /// Whether it changes nothing.
    pub fn is_none(&self) -> bool {
        *self == Translation::default()
    }

    /// Translates a packet whose layout is `layout`.
    pub fn apply(&self, packet: &mut Packet<'_>, layout: &Layout) {
        let bytes = packet.bytes_mut();
        let mut deltas = Deltas::default();
        self.ip_header(bytes, layout, &mut deltas);
        let l4 = usize::from(layout.l4);
        match layout.l4_kind {
            TCP => {
                self.write_ports(bytes, l4, &mut deltas.transport);
                if self.seq != 0 || self.ack != 0 {
                    self.numbers(bytes, layout, &mut deltas.transport);
                }
            }
            UDP => self.write_ports(bytes, l4, &mut deltas.transport),
            ICMP | ICMP6 => {
                if let Some(id) = self.ports[0].or(self.ports[1]) {
                    put(bytes, l4 + ICMP_ID, id.to_be_bytes(), &mut deltas.transport);
                }
            }
            _ if maps_ports(layout.proto) && !layout.is_later_fragment() => {
                self.write_ports(bytes, l4, &mut deltas.transport);
                let transport = deltas.transport;
                follow_in(bytes, l4, layout.proto, transport);
            }
            _ => {}
        }
        finish(bytes, layout, &deltas);
    }

    /// Translates an ICMP error whose quoted packet begins at `quoted` and has its transport header at `quoted_l4`: the outer
    /// packet as one of this direction, the inner one as one of the other direction, with source and destination exchanged. Ports
    /// of the quoted packet are written if they are quoted.
    pub fn apply_to_quoted(
        &self,
        packet: &mut Packet<'_>,
        layout: &Layout,
        proto: u8,
        quoted: usize,
        quoted_l4: usize,
    ) {
        let bytes = packet.bytes_mut();
        let mut deltas = Deltas::default();
        self.ip_header(bytes, layout, &mut deltas);
        // Inner packet: every change also counts for the outer checksum, including the changes of the inner checksums.
        let mut inner = Deltas::default();
        let outer = &mut deltas.transport;
        let [source, destination] = self.addresses;
        match layout.class {
            Class::Ip4 => {
                for (at, address) in [(IP4_ADDRESSES, destination), (IP4_ADDRESSES + 4, source)] {
                    let Some(address) = address else { continue };
                    let new = (address as u32).to_be_bytes();
                    put_both(bytes, quoted + at, new, outer, &mut [&mut inner.header, &mut inner.transport]);
                }
            }
            Class::Ip6 => {
                for (at, address) in [(IP6_ADDRESSES, destination), (IP6_ADDRESSES + 16, source)] {
                    let Some(address) = address else { continue };
                    for (word, new) in (0..).step_by(4).zip(address.to_be_bytes().as_chunks::<4>().0) {
                        put_both(bytes, quoted + at + word, *new, outer, &mut [&mut inner.transport]);
                    }
                }
            }
            Class::Other => return,
        }
        let [sport, dport] = self.ports;
        if proto == ICMP {
            // Its checksum covers no addresses.
            inner.transport = ChecksumDelta::default();
        }
        if matches!(proto, ICMP | ICMP6) {
            if let Some(id) = dport.or(sport) {
                put_both(bytes, quoted_l4 + ICMP_ID, id.to_be_bytes(), outer, &mut [&mut inner.transport]);
            }
        } else if matches!(proto, TCP | UDP) || maps_ports(proto) {
            for (at, port) in [(0, dport), (2, sport)] {
                let Some(port) = port else { continue };
                put_both(bytes, quoted_l4 + at, port.to_be_bytes(), outer, &mut [&mut inner.transport]);
            }
            if proto == TCP && self.ack != 0 {
                // The quoted sequence number is one that this direction acknowledges.
                let mut delta = ChecksumDelta::default();
                add(bytes, quoted_l4 + 4, self.ack, &mut delta);
                *outer = outer.and(delta);
                inner.transport = inner.transport.and(delta);
            }
        }
        if layout.class == Class::Ip4 && !inner.header.is_empty() {
            follow(bytes, quoted + IP4_CHECKSUM, outer, |field| inner.header.apply(field));
        }
        if let Some(at) = checksum::field_offset(proto)
            && !inner.transport.is_empty()
        {
            follow(bytes, quoted_l4 + at, outer, |field| {
                inner.transport.apply_transport(alike(proto), field)
            });
        }
        finish(bytes, layout, &deltas);
    }

    /// Addresses, identification and flow label.
    fn ip_header(&self, bytes: &mut [u8], layout: &Layout, deltas: &mut Deltas) {
        let ip = usize::from(layout.ip);
        let covered = |side: usize| !(side == 1 && layout.is_routed());
        match layout.class {
            Class::Ip4 => {
                for (side, address) in self.addresses.iter().enumerate() {
                    let Some(address) = address else { continue };
                    let new = (*address as u32).to_be_bytes();
                    let mut delta = ChecksumDelta::default();
                    put(bytes, ip + IP4_ADDRESSES + 4 * side, new, &mut delta);
                    deltas.header = deltas.header.and(delta);
                    // The checksum of ICMP covers no addresses.
                    if covered(side) && layout.l4_kind != ICMP {
                        deltas.transport = deltas.transport.and(delta);
                    }
                }
                let whole = bytes.get(ip + IP4_FLAGS).is_some_and(|flags| flags & DONT_FRAGMENT != 0);
                if let Some(id) = self.ip_id
                    && whole
                    && !layout.is_fragment()
                {
                    put(bytes, ip + IP4_ID, id.to_be_bytes(), &mut deltas.header);
                }
            }
            Class::Ip6 => {
                for (side, address) in self.addresses.iter().enumerate() {
                    let Some(address) = address else { continue };
                    let mut delta = ChecksumDelta::default();
                    put(bytes, ip + IP6_ADDRESSES + 16 * side, address.to_be_bytes(), &mut delta);
                    if covered(side) {
                        deltas.transport = deltas.transport.and(delta);
                    }
                }
                if let (Some(label), Some(first)) =
                    (self.flow_label, bytes.get_mut(ip..).and_then(|header| header.first_chunk_mut::<4>()))
                {
                    let kept = u32::from_be_bytes(*first) & !0xf_ffff;
                    *first = (kept | label & 0xf_ffff).to_be_bytes();
                }
            }
            Class::Other => {}
        }
    }

    fn write_ports(&self, bytes: &mut [u8], l4: usize, delta: &mut ChecksumDelta) {
        for (side, port) in self.ports.iter().enumerate() {
            if let Some(port) = port {
                put(bytes, l4 + 2 * side, port.to_be_bytes(), delta);
            }
        }
    }

    /// Sequence and acknowledgment number, and SACK blocks.
    fn numbers(&self, bytes: &mut [u8], layout: &Layout, delta: &mut ChecksumDelta) {
        let l4 = usize::from(layout.l4);
        add(bytes, l4 + 4, self.seq, delta);
        let acknowledges = bytes.get(l4 + 13).is_some_and(|flags| flags & 0x10 != 0);
        if !acknowledges || self.ack == 0 {
            return;
        }
        add(bytes, l4 + 8, self.ack, delta);
        let Some(area) = bytes.get_mut(layout.tcp_options()) else { return };
        let mut copy = [0; options::MAX_AREA];
        let Some(copy) = copy.get_mut(..area.len()) else { return };
        copy.copy_from_slice(area);
        for option in walk(copy).filter(|option| option.kind == SACK) {
            let first = option.offset + 2;
            for at in (first..first + option.data.len() / 4 * 4).step_by(4) {
                let Some(edge) = area.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) else {
                    break;
                };
                let new = u32::from_be_bytes(*edge).wrapping_add(self.ack).to_be_bytes();
                delta.bytes(at % 2 == 1, edge, &new);
                *edge = new;
            }
        }
    }
}

/// Whether translations write ports of a protocol that rules cannot match. SCTP ports stay unchanged, and its checksum covers no
/// addresses.
fn maps_ports(proto: u8) -> bool {
    matches!(proto, UDP_LITE | DCCP)
}

/// The protocol whose checksum field has the same rules: zero means no checksum in UDP, and is invalid in UDP-Lite (RFC 3828).
fn alike(proto: u8) -> u8 {
    if proto == UDP_LITE { UDP } else { proto }
}

/// Updates the checksum of a header at `l4` that rules cannot match. It covers the ports and a pseudo header, whatever part of
/// the payload it covers.
fn follow_in(bytes: &mut [u8], l4: usize, proto: u8, delta: ChecksumDelta) {
    let field = checksum::field_offset(proto).and_then(|at| bytes.get_mut(l4 + at..)?.first_chunk_mut::<2>());
    if let Some(field) = field
        && !delta.is_empty()
    {
        *field = delta.apply_transport(alike(proto), *field);
    }
}

/// Writes bytes at an even offset and records the change; bytes that do not fit are not written.
fn put<const N: usize>(bytes: &mut [u8], at: usize, new: [u8; N], delta: &mut ChecksumDelta) {
    if let Some(old) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) {
        delta.bytes(false, old, &new);
        *old = new;
    }
}

/// [`put`], recorded in several places.
fn put_both<const N: usize>(
    bytes: &mut [u8],
    at: usize,
    new: [u8; N],
    outer: &mut ChecksumDelta,
    inner: &mut [&mut ChecksumDelta],
) {
    let mut delta = ChecksumDelta::default();
    put(bytes, at, new, &mut delta);
    *outer = outer.and(delta);
    inner.iter_mut().for_each(|inner| **inner = inner.and(delta));
}

/// Adds to a number at an even offset.
fn add(bytes: &mut [u8], at: usize, more: u32, delta: &mut ChecksumDelta) {
    if let Some(old) = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        put(bytes, at, u32::from_be_bytes(*old).wrapping_add(more).to_be_bytes(), delta);
    }
}

/// Updates an inner checksum, and the outer one for that change.
fn follow(bytes: &mut [u8], at: usize, outer: &mut ChecksumDelta, new: impl Fn([u8; 2]) -> [u8; 2]) {
    if let Some(old) = bytes.get(at..).and_then(|rest| rest.first_chunk::<2>()) {
        put(bytes, at, new(*old), outer);
    }
}

/// Updates the packet's own checksums.
fn finish(bytes: &mut [u8], layout: &Layout, deltas: &Deltas) {
    let field = |bytes: &mut [u8], at: usize, new: &dyn Fn([u8; 2]) -> [u8; 2]| {
        if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
            *field = new(*field);
        }
    };
    if layout.class == Class::Ip4 && !deltas.header.is_empty() {
        field(bytes, usize::from(layout.ip) + IP4_CHECKSUM, &|old| deltas.header.apply(old));
    }
    if !deltas.transport.is_empty()
        && let Some(at) = checksum::field_offset(layout.l4_kind)
    {
        field(bytes, usize::from(layout.l4) + at, &|old| {
            deltas.transport.apply_transport(layout.l4_kind, old)
        });
    }
}
