//! Joining frames that were cut from one, so that a device, or the kernel in its place, cuts them again.
//!
//! Purpose: a superframe costs its sender and its receiver on the same machine as much as a single frame. [`Superframe::join`] finds how many frames of a
//! vector make one up, and writes its headers. It joins only what a device that cuts TCP segments or trains of UDP datagrams
//! (`virtio_net_hdr` in the VIRTIO specification, section 5.1.6.2) makes again, byte for byte: equal headers, with sequence numbers and IPv4
//! identifications that count on, equal lengths but for the last, and correct checksums, since the device computes them anew.
//!
//! Life-cycle: a value on the stack of the sender, who sends its headers and then the payload of each frame. Nothing is allocated or changed.

use crate::checksum::{ChecksumSum, header_is_sound};
use crate::parse::{IP4_HEADER, IP6_HEADER, TCP_HEADER};
use crate::proto::{TCP, UDP};
use crate::seq::Seq;

const ETHERNET_HEADER: usize = 14;
const UDP_HEADER: usize = 8;
/// The most bytes of headers: Ethernet, IPv6, TCP with all its options.
const MOST_HEADERS: usize = ETHERNET_HEADER + IP6_HEADER + 60;
/// The most bytes of an IP packet.
const LONGEST: usize = u16::MAX as usize;
/// The most datagrams of a train: Linux's UDP_MAX_SEGMENTS before 6.10.
const MOST_DATAGRAMS: usize = 64;

/// TCP flags that only the last segment may have: FIN, PSH.
const LAST: u8 = 0x09;
/// The one that every segment has.
const ACK: u8 = 0x10;
/// Those of segments that are never joined: SYN, RST, URG, CWR.
const NEVER_JOINED: u8 = 0x02 | 0x04 | 0x20 | 0x80;
/// A checksum that stands for the same as 0, and that no device writes, but in UDP (RFC 768).
const OTHER_ZERO: u16 = 0xffff;

/// Several frames as one.
#[derive(Clone, Copy, Debug)]
pub struct Superframe {
    headers: [u8; MOST_HEADERS],
    headers_len: usize,
    frames: usize,
    is_ip6: bool,
    transport: u8,
    size: u16,
    l4: u16,
}

impl Superframe {
    /// Joins as many frames as go together from the first on. `None` if there are fewer than two.
    pub fn join<'f>(frames: impl IntoIterator<Item = &'f [u8]>) -> Option<Superframe> {
        let mut frames = frames.into_iter();
        let first = Part::of(frames.next()?)?;
        let size = first.payload();
        let (mut last, mut count, mut len) = (first, 1, size);
        let most = if first.transport == UDP { MOST_DATAGRAMS } else { usize::MAX };
        let ip_headers = first.headers - ETHERNET_HEADER;
        while count < most && last.payload() == size && last.flags() & LAST == 0 {
            let next = frames.next().filter(|next| first.is_like(next)).and_then(Part::of);
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

    /// [`TCP`] or [`UDP`].
    pub fn transport(&self) -> u8 {
        self.transport
    }

    /// Whether it is an IPv6 packet, else IPv4.
    pub fn is_ip6(&self) -> bool {
        self.is_ip6
    }

    /// The offset of the transport header.
    pub fn l4(&self) -> u16 {
        self.l4
    }
}

/// A frame that may be part of a superframe: without VLAN tags, IPv4 options, IPv6 extension headers, padding or errors, and with payload.
#[derive(Clone, Copy, Debug)]
struct Part<'f> {
    bytes: &'f [u8],
    is_ip6: bool,
    transport: u8,
    /// The offset of the transport header.
    l4: usize,
    /// The offset of the payload.
    headers: usize,
}

impl<'f> Part<'f> {
    fn of(bytes: &'f [u8]) -> Option<Part<'f>> {
        let (_, packet) = bytes.split_at_checked(ETHERNET_HEADER)?;
        let (is_ip6, transport, ip_header) = match bytes[12..ETHERNET_HEADER] {
            [0x08, 0x00] => {
                let header: &[u8; IP4_HEADER] = packet.first_chunk()?;
                let is_plain = header[0] == 0x45 && header[6] & 0x3f == 0 && header[7] == 0;
                let is_plain = is_plain && word(header, 10) != OTHER_ZERO;
                if !is_plain || usize::from(word(header, 2)) != packet.len() || !header_is_sound(header) {
                    return None;
                }
                (false, header[9], IP4_HEADER)
            }
            [0x86, 0xdd] => {
                let header: &[u8; IP6_HEADER] = packet.first_chunk()?;
                if header[0] >> 4 != 6 || usize::from(word(header, 4)) != packet.len() - IP6_HEADER {
                    return None;
                }
                (true, header[6], IP6_HEADER)
            }
            _ => return None,
        };
        let l4 = ETHERNET_HEADER + ip_header;
        let segment = &bytes[l4..];
        let header_len = match transport {
            TCP => {
                let header: &[u8; TCP_HEADER] = segment.first_chunk()?;
                let is_plain = header[13] & (ACK | NEVER_JOINED) == ACK && word(header, 16) != OTHER_ZERO;
                is_plain.then(|| usize::from(header[12] >> 4) * 4)?
            }
            UDP => {
                let header: &[u8; UDP_HEADER] = segment.first_chunk()?;
                let is_whole = usize::from(word(header, 4)) == segment.len() && word(header, 6) != 0;
                is_whole.then_some(UDP_HEADER)?
            }
            _ => return None,
        };
        let least = if transport == TCP { TCP_HEADER } else { UDP_HEADER };
        let part = Part { bytes, is_ip6, transport, l4, headers: l4 + header_len };
        let is_sound = || part.pseudo_header(segment.len()).bytes(segment).fold() == 0xffff;
        (header_len >= least && header_len < segment.len() && is_sound()).then_some(part)
    }

    fn payload(&self) -> usize {
        self.bytes.len() - self.headers
    }

    /// The sum of the pseudo header of a segment with so many bytes.
    fn pseudo_header(&self, len: usize) -> ChecksumSum {
        let addresses = if self.is_ip6 { 32 } else { 8 };
        ChecksumSum::default()
            .bytes(&self.bytes[self.l4 - addresses..self.l4])
            .word(self.transport.into())
            .long(len as u32)
    }

    /// TCP flags, none of UDP.
    fn flags(&self) -> u8 {
        if self.transport == TCP { self.bytes[self.l4 + 13] } else { 0 }
    }

    /// Whether a frame has the same headers, but for what is different in each frame of a superframe: lengths, checksums, and what
    /// [`Part::follows`] compares.
    fn is_like(&self, other: &[u8]) -> bool {
        let same = |from: usize, to: usize| other.get(from..to) == Some(&self.bytes[from..to]);
        let (ip, l4) = (ETHERNET_HEADER, self.l4);
        let network = match self.is_ip6 {
            false => same(0, ip + 2) && same(ip + 6, ip + 10) && same(ip + 12, l4),
            true => same(0, ip + 4) && same(ip + 6, l4),
        };
        let transport = match self.transport {
            TCP => same(l4 + 8, l4 + 13) && same(l4 + 14, l4 + 16) && same(l4 + 18, self.headers),
            _ => true,
        };
        network && same(l4, l4 + 4) && transport
    }

    /// Whether its numbers are those of the frame that has so many frames and bytes of payload before it, of which `first` is the first.
    fn follows(&self, first: &Part<'_>, frames: usize, len: usize) -> bool {
        let id = |part: &Part<'_>| word(part.bytes, ETHERNET_HEADER + 4);
        let seq = |part: &Part<'_>| {
            Seq(u32::from(word(part.bytes, self.l4 + 4)) << 16 | u32::from(word(part.bytes, self.l4 + 6)))
        };
        (self.is_ip6 || id(self) == id(first).wrapping_add(frames as u16))
            && (self.transport == UDP || seq(self) == seq(first) + len as u32)
            && (self.flags() ^ first.flags()) & !LAST == 0
    }

    /// The superframe of so many frames and bytes of payload, of which this is the first.
    fn joined(&self, frames: usize, len: usize, last_flags: u8) -> Superframe {
        let (ip, l4) = (ETHERNET_HEADER, self.l4);
        let segment = (self.headers - l4 + len) as u16;
        let mut headers = [0; MOST_HEADERS];
        headers[..self.headers].copy_from_slice(&self.bytes[..self.headers]);
        let mut write = |at: usize, number: u16| headers[at..at + 2].copy_from_slice(&number.to_be_bytes());
        match self.is_ip6 {
            false => {
                write(ip + 2, (l4 - ip) as u16 + segment);
                write(ip + 10, 0);
            }
            true => write(ip + 4, segment),
        }
        let unfinished = self.pseudo_header(segment.into()).fold();
        match self.transport {
            TCP => write(l4 + 16, unfinished),
            _ => {
                write(l4 + 4, segment);
                write(l4 + 6, unfinished);
            }
        }
        if !self.is_ip6 {
            let checksum = ChecksumSum::default().bytes(&headers[ip..l4]).checksum();
            headers[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
        }
        if self.transport == TCP {
            headers[l4 + 13] = last_flags;
        }
        Superframe {
            headers,
            headers_len: self.headers,
            frames,
            is_ip6: self.is_ip6,
            transport: self.transport,
            size: self.payload() as u16,
            l4: l4 as u16,
        }
    }
}

/// The number of 16 bits at an offset.
fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
