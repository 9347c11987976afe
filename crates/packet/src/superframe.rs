//! Joining frames that were cut from one, so that a device, or the kernel in its place, cuts them again.
//!
//! Purpose: a superframe costs its sender and its receiver on the same machine as much as a single frame. [`Superframe::join`] finds how many frames of a
//! vector make one up, and writes its headers. It joins only what a device that cuts TCP segments or trains of UDP datagrams
//! (`virtio_net_hdr` in the VIRTIO specification, section 5.1.6.2) makes again, byte for byte: equal headers, with sequence numbers and IPv4
//! identifications that count on, equal lengths but for the last, and correct checksums, since the device computes them anew.
//!
//! TCP segments in a tunnel are joined too ([`TunnelHeaders`]). A device that cuts such a superframe writes lengths and IPv4 identifications of both
//! packets, and copies what is between them. The outer UDP checksum can be copied: a segment with its checksum adds up to the complement of its pseudo
//! header, which depends only on addresses, protocol and length (local checksum offload, as Linux calls it). So segments of one length have one
//! outer checksum. Linux relies on the same for devices that copy headers (`NETIF_F_GSO_PARTIAL`). GRE with a checksum is not joined.
//!
//! Life-cycle: a value on the stack of the sender, who sends its headers and then the payload of each frame. Nothing is allocated or changed.

use crate::checksum::{ChecksumSum, header_is_sound};
use crate::layout::{ETHER_IP4, ETHER_IP6, IP4_HEADER, IP6_HEADER, ParserLimits, TCP_HEADER};
use crate::parse::parse_ip;
use crate::proto::{GRE, IP_IN_IP, IP6_IN_IP, TCP, UDP};
use crate::seq::Seq;
use crate::tunnel;

const ETHERNET_HEADER: usize = 14;
const UDP_HEADER: usize = 8;
/// GRE without options.
const GRE_HEADER: usize = 4;
/// The most bytes of headers: Ethernet, a tunnel, IPv6, TCP with all its options.
const MAX_HEADER_BYTES: usize = ETHERNET_HEADER + TunnelHeaders::LONGEST as usize + IP6_HEADER + 60;
/// The most bytes of an IP packet.
const LONGEST: usize = u16::MAX as usize;
/// The most datagrams of a train: Linux's UDP_MAX_SEGMENTS before 6.10.
const MAX_DATAGRAMS: usize = 64;

/// TCP flags that only the last segment may have: FIN, PSH.
const LAST: u8 = 0x09;
/// The flag that every joined segment has.
const ACK: u8 = 0x10;
/// Flags of segments that are never joined: SYN, RST, URG, CWR.
const NEVER_JOINED: u8 = 0x02 | 0x04 | 0x20 | 0x80;
/// The other zero of one's complement, which devices write only in UDP (RFC 768).
const OTHER_ZERO: u16 = 0xffff;
/// The protocol type of Ethernet in GRE.
const ETHERNET_IN_GRE: u16 = 0x6558;

/// The superframes that a sender takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joinable {
    /// TCP segments.
    pub tcp: bool,
    /// Trains of UDP datagrams.
    pub udp: bool,
    /// TCP segments in a tunnel.
    pub tunnels: bool,
}

/// The kind of a tunnel, as far as a device that cuts must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelKind {
    /// VXLAN, GENEVE and other tunnels over UDP. Each frame has the same checksum, or none.
    Udp,
    /// GRE without a checksum.
    Gre,
    /// An IP packet directly behind an IP header.
    Ip,
}

/// The headers around the packet that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelHeaders {
    /// The kind of the tunnel.
    pub kind: TunnelKind,
    /// Whether the outer packet is IPv6, else IPv4.
    pub is_ip6: bool,
    /// Whether the inner packet has an Ethernet header.
    pub has_ethernet: bool,
    /// Bytes from the start of the outer IP header to the start of the inner one.
    pub len: u16,
}

impl TunnelHeaders {
    /// The largest [`TunnelHeaders::len`]. Segments with longer headers (GENEVE with many options) leave one by one.
    pub const LONGEST: u16 = 128;
}

/// Several frames as one.
#[derive(Clone, Copy, Debug)]
pub struct Superframe {
    headers: [u8; MAX_HEADER_BYTES],
    headers_len: usize,
    frames: usize,
    tunnel: Option<TunnelHeaders>,
    is_ip6: bool,
    transport: u8,
    size: u16,
    l4: u16,
}

impl Superframe {
    /// Joins as many frames as go together from the first on. `None` if there are fewer than two.
    pub fn join<'f>(frames: impl IntoIterator<Item = &'f [u8]>, joinable: Joinable) -> Option<Superframe> {
        let mut frames = frames.into_iter();
        let first = Part::of(frames.next()?, joinable)?;
        let size = first.payload();
        let (mut last, mut count, mut len) = (first, 1, size);
        let max = if first.transport == UDP { MAX_DATAGRAMS } else { usize::MAX };
        let ip_headers = first.headers - ETHERNET_HEADER;
        while count < max && last.payload() == size && last.flags() & LAST == 0 {
            let next = frames.next().and_then(|next| first.like(next));
            let Some(next) = next.filter(|next| next.follows(&first, count, len)) else { break };
            if next.payload() > size || ip_headers + len + next.payload() > LONGEST {
                break;
            }
            len += next.payload();
            count += 1;
            last = next;
        }
        (count > 1).then(|| first.joined(count, len, last.flags()))
    }

    /// The number of frames that it stands for.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Its headers, with the checksum of the transport header unfinished: the sum of the pseudo header.
    pub fn headers(&self) -> &[u8] {
        &self.headers[..self.headers_len]
    }

    /// Bytes of payload of each of its frames but the last, which may have fewer.
    pub fn segment_payload(&self) -> u16 {
        self.size
    }

    /// The tunnel that the packet is in.
    pub fn tunnel(&self) -> Option<TunnelHeaders> {
        self.tunnel
    }

    /// [`TCP`] or [`UDP`].
    pub fn transport(&self) -> u8 {
        self.transport
    }

    /// Whether the packet, in a tunnel the inner one, is IPv6, else IPv4.
    pub fn is_ip6(&self) -> bool {
        self.is_ip6
    }

    /// The offset of the transport header.
    pub fn l4(&self) -> u16 {
        self.l4
    }
}

/// An IP header that may be part of a superframe: without IPv4 options, IPv6 extension headers or errors, of a packet that ends with its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IpHeader {
    offset: usize,
    is_ip6: bool,
    proto: u8,
}

impl IpHeader {
    fn at(bytes: &[u8], at: usize, ether_type: u16) -> Option<IpHeader> {
        let (_, packet) = bytes.split_at_checked(at)?;
        match ether_type {
            ETHER_IP4 => {
                let header: &[u8; IP4_HEADER] = packet.first_chunk()?;
                let is_plain = header[0] == 0x45 && header[6] & 0x3f == 0 && header[7] == 0;
                let is_plain = is_plain && word(header, 10) != OTHER_ZERO;
                let is_whole = usize::from(word(header, 2)) == packet.len();
                (is_plain && is_whole && header_is_sound(header)).then_some(IpHeader {
                    offset: at,
                    is_ip6: false,
                    proto: header[9],
                })
            }
            ETHER_IP6 => {
                let header: &[u8; IP6_HEADER] = packet.first_chunk()?;
                let is_whole = usize::from(word(header, 4)) == packet.len() - IP6_HEADER;
                (header[0] >> 4 == 6 && is_whole).then_some(IpHeader {
                    offset: at,
                    is_ip6: true,
                    proto: header[6],
                })
            }
            _ => None,
        }
    }

    fn ether_type(&self) -> u16 {
        if self.is_ip6 { ETHER_IP6 } else { ETHER_IP4 }
    }

    /// The offset of what is behind it.
    fn end(&self) -> usize {
        self.offset + if self.is_ip6 { IP6_HEADER } else { IP4_HEADER }
    }

    /// Whether another frame has the same bytes in it, but for its length, its identification and its checksum.
    fn is_like(&self, same: impl Fn(usize, usize) -> bool) -> bool {
        match self.is_ip6 {
            false => {
                same(self.offset, self.offset + 2)
                    && same(self.offset + 6, self.offset + 10)
                    && same(self.offset + 12, self.end())
            }
            true => same(self.offset, self.offset + 4) && same(self.offset + 6, self.end()),
        }
    }

    /// Whether the identification of a frame is that of the first one plus `frames`.
    fn follows(&self, bytes: &[u8], first: &[u8], frames: usize) -> bool {
        let id = |bytes: &[u8]| word(bytes, self.offset + 4);
        self.is_ip6 || id(bytes) == id(first).wrapping_add(frames as u16)
    }

    /// Writes the length of what is behind it, and its checksum.
    fn write_len(&self, headers: &mut [u8], behind: usize) {
        let len = if self.is_ip6 { behind } else { self.end() - self.offset + behind };
        write_word(headers, self.offset + if self.is_ip6 { 4 } else { 2 }, len as u16);
        if !self.is_ip6 {
            write_word(headers, self.offset + 10, 0);
            let checksum = ChecksumSum::default().bytes(&headers[self.offset..self.end()]).checksum();
            write_word(headers, self.offset + 10, checksum);
        }
    }
}

/// A frame that may be part of a superframe: without VLAN tags, padding or errors, and with payload.
#[derive(Clone, Copy, Debug)]
struct Part<'f> {
    bytes: &'f [u8],
    /// The outer IP header, and the tunnel that it begins.
    tunnel: Option<(IpHeader, TunnelHeaders)>,
    /// The header of the packet that is cut.
    ip: IpHeader,
    transport: u8,
    /// The offset of the payload.
    headers: usize,
}

impl<'f> Part<'f> {
    fn of(bytes: &'f [u8], joinable: Joinable) -> Option<Part<'f>> {
        let ether_type = bytes.get(12..ETHERNET_HEADER).map(|bytes| word(bytes, 0))?;
        let ip = IpHeader::at(bytes, ETHERNET_HEADER, ether_type)?;
        match ip.proto {
            TCP if joinable.tcp => Part::tcp(bytes, ip, None),
            UDP => {
                let header: &[u8; UDP_HEADER] = bytes[ip.end()..].first_chunk()?;
                if usize::from(word(header, 4)) != bytes.len() - ip.end() {
                    return None;
                }
                let tunnel = joinable.tunnels.then(|| Part::in_tunnel(bytes, ip, ether_type)).flatten();
                tunnel.or_else(|| (joinable.udp && word(header, 6) != 0).then(|| Part::udp(bytes, ip))?)
            }
            GRE | IP_IN_IP | IP6_IN_IP if joinable.tunnels => Part::in_tunnel(bytes, ip, ether_type),
            _ => None,
        }
    }

    fn in_tunnel(bytes: &'f [u8], outer: IpHeader, ether_type: u16) -> Option<Part<'f>> {
        let layout = parse_ip(bytes, outer.offset as u16, ether_type, &ParserLimits::default()).ok()?;
        let inner = tunnel::inner(bytes, &layout, usize::MAX)?;
        let (l4, at) = (outer.end(), usize::from(inner.ip));
        let is_ethernet = |from: usize| at >= from + ETHERNET_HEADER && word(bytes, at - 2) == inner.eth_type;
        let (kind, has_ethernet) = match outer.proto {
            UDP if word(bytes, l4 + 6) != 0 && !sum_is_right(bytes, outer) => return None,
            // Headers of tunnels over UDP have eight bytes at least.
            UDP => (TunnelKind::Udp, is_ethernet(l4 + 2 * UDP_HEADER)),
            GRE if tunnel::has_gre_checksum(bytes, l4) => return None,
            GRE => (TunnelKind::Gre, word(bytes, l4 + 2) == ETHERNET_IN_GRE && is_ethernet(l4 + GRE_HEADER)),
            _ => (TunnelKind::Ip, false),
        };
        let len = at - outer.offset;
        let ip = IpHeader::at(bytes, at, inner.eth_type)?;
        let headers = TunnelHeaders { kind, is_ip6: outer.is_ip6, has_ethernet, len: len as u16 };
        (len <= TunnelHeaders::LONGEST.into() && ip.proto == TCP)
            .then(|| Part::tcp(bytes, ip, Some((outer, headers))))?
    }

    /// Another frame with the same headers, as a part of the same superframe. [`Part::follows`] compares the numbers.
    fn like<'n>(&self, next: &'n [u8]) -> Option<Part<'n>> {
        if !self.is_like(next) {
            return None;
        }
        let ends_with_frame = |ip: &IpHeader| IpHeader::at(next, ip.offset, ip.ether_type()) == Some(*ip);
        let tunnel_ends = self.tunnel.is_none_or(|(outer, headers)| {
            let is_whole = || usize::from(word(next, outer.end() + 4)) == next.len() - outer.end();
            ends_with_frame(&outer) && (headers.kind != TunnelKind::Udp || is_whole())
        });
        if !tunnel_ends || !ends_with_frame(&self.ip) {
            return None;
        }
        match self.transport {
            TCP => Part::tcp(next, self.ip, self.tunnel),
            _ => {
                let l4 = self.l4();
                let is_whole = usize::from(word(next, l4 + 4)) == next.len() - l4 && word(next, l4 + 6) != 0;
                is_whole.then(|| Part::udp(next, self.ip))?
            }
        }
    }

    fn tcp(bytes: &'f [u8], ip: IpHeader, tunnel: Option<(IpHeader, TunnelHeaders)>) -> Option<Part<'f>> {
        let header: &[u8; TCP_HEADER] = bytes[ip.end()..].first_chunk()?;
        let is_plain = header[13] & (ACK | NEVER_JOINED) == ACK && word(header, 16) != OTHER_ZERO;
        let len = usize::from(header[12] >> 4) * 4;
        let part = Part { bytes, tunnel, ip, transport: TCP, headers: ip.end() + len };
        (is_plain && len >= TCP_HEADER && part.is_sound()).then_some(part)
    }

    fn udp(bytes: &'f [u8], ip: IpHeader) -> Option<Part<'f>> {
        let part = Part { bytes, tunnel: None, ip, transport: UDP, headers: ip.end() + UDP_HEADER };
        part.is_sound().then_some(part)
    }

    /// Whether it has payload, and the right checksum.
    fn is_sound(&self) -> bool {
        self.headers < self.bytes.len() && sum_is_right(self.bytes, self.ip)
    }

    /// The offset of the transport header.
    fn l4(&self) -> usize {
        self.ip.end()
    }

    fn payload(&self) -> usize {
        self.bytes.len() - self.headers
    }

    /// TCP flags, none of UDP.
    fn flags(&self) -> u8 {
        if self.transport == TCP { self.bytes[self.l4() + 13] } else { 0 }
    }

    /// Whether a frame has the same headers, but for what is different in each frame of a superframe: lengths, checksums, and what
    /// [`Part::follows`] compares.
    fn is_like(&self, other: &[u8]) -> bool {
        let same = |from: usize, to: usize| other.get(from..to) == Some(&self.bytes[from..to]);
        let before_ip = match &self.tunnel {
            None => same(0, self.ip.offset),
            Some((outer, headers)) => {
                let behind = outer.end();
                // With a checksum they have one length.
                let is_like = match headers.kind {
                    TunnelKind::Udp if word(self.bytes, behind + 6) == 0 => {
                        same(behind, behind + 4) && same(behind + 6, self.ip.offset)
                    }
                    TunnelKind::Udp | TunnelKind::Gre | TunnelKind::Ip => same(behind, self.ip.offset),
                };
                same(0, outer.offset) && outer.is_like(same) && is_like
            }
        };
        let l4 = self.l4();
        let transport = match self.transport {
            TCP => same(l4 + 8, l4 + 13) && same(l4 + 14, l4 + 16) && same(l4 + 18, self.headers),
            _ => true,
        };
        before_ip && self.ip.is_like(same) && same(l4, l4 + 4) && transport
    }

    /// Whether sequence number, identifications and flags are those that follow `frames` frames with `len` bytes of payload, of which `first` is the first.
    fn follows(&self, first: &Part<'_>, frames: usize, len: usize) -> bool {
        let l4 = self.l4();
        let seq = |bytes: &[u8]| Seq(u32::from(word(bytes, l4 + 4)) << 16 | u32::from(word(bytes, l4 + 6)));
        let outer = self.tunnel.as_ref().map(|(outer, _)| outer);
        outer.into_iter().chain([&self.ip]).all(|ip| ip.follows(self.bytes, first.bytes, frames))
            && (self.transport == UDP || seq(self.bytes) == seq(first.bytes) + len as u32)
            && (self.flags() ^ first.flags()) & !LAST == 0
    }

    /// The superframe of so many frames and bytes of payload, of which this is the first.
    fn joined(&self, frames: usize, len: usize, last_flags: u8) -> Superframe {
        let l4 = self.l4();
        let all = self.headers + len;
        let mut bytes = [0; MAX_HEADER_BYTES];
        let headers = &mut bytes[..self.headers];
        headers.copy_from_slice(&self.bytes[..self.headers]);
        let unfinished = pseudo_header(self.bytes, self.ip, all - l4).fold();
        match self.transport {
            TCP => {
                write_word(headers, l4 + 16, unfinished);
                headers[l4 + 13] = last_flags;
            }
            _ => {
                write_word(headers, l4 + 4, (all - l4) as u16);
                write_word(headers, l4 + 6, unfinished);
            }
        }
        self.ip.write_len(headers, all - l4);
        if let Some((outer, tunnel)) = &self.tunnel {
            if tunnel.kind == TunnelKind::Udp {
                write_word(headers, outer.end() + 4, (all - outer.end()) as u16);
            }
            outer.write_len(headers, all - outer.end());
        }
        Superframe {
            headers: bytes,
            headers_len: self.headers,
            frames,
            tunnel: self.tunnel.map(|(_, headers)| headers),
            is_ip6: self.ip.is_ip6,
            transport: self.transport,
            size: self.payload() as u16,
            l4: l4 as u16,
        }
    }
}

/// The sum of the pseudo header of a segment with so many bytes.
fn pseudo_header(bytes: &[u8], ip: IpHeader, len: usize) -> ChecksumSum {
    let addresses = if ip.is_ip6 { 32 } else { 8 };
    ChecksumSum::default()
        .bytes(&bytes[ip.end() - addresses..ip.end()])
        .word(ip.proto.into())
        .long(len as u32)
}

/// Whether the checksum of a segment behind an IP header is right.
fn sum_is_right(bytes: &[u8], ip: IpHeader) -> bool {
    let segment = &bytes[ip.end()..];
    pseudo_header(bytes, ip, segment.len()).bytes(segment).fold() == 0xffff
}

/// Writes a number of 16 bits to an offset.
fn write_word(bytes: &mut [u8], at: usize, number: u16) {
    bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
}

/// The number of 16 bits at an offset.
fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
