//! Cutting a TCP segment, or a train of UDP datagrams, that is too large for the wire into ones that fit.
//!
//! Purpose: a Linux sender over veth hands on TCP segments of up to 64 KiB, for a device to cut. Where mmb meets one it has
//! to do that itself, as RFC 9293 lets any sender of these bytes have done: the same headers on each piece, with
//! sequence numbers, lengths, flags and checksums of its own. A segment in tunnels also gets a copy of each outer header,
//! with a length, an identification and a checksum of its own.
//!
//! Life-cycle: [`Segments`] borrows the large packet and writes one frame after the other into buffers of the caller's.
//! Nothing is allocated.

use crate::checksum::{self, ChecksumSum};
use crate::layout::{Class, IP4_HEADER, IP6_HEADER, Layout, TCP_HEADER};
use crate::proto::{GRE, TCP, UDP};
use crate::seq::Seq;
use crate::tunnel::{Tunnels, has_gre_checksum};
use crate::view::Packet;

/// Why a packet cannot be cut, or a segment cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// Only TCP has sequence numbers to cut by.
    #[error(
        "a packet of IP protocol {0} cannot be cut into segments; turn off segmentation offload at its sender"
    )]
    NotTcp(u8),
    /// UDP datagrams for segmentation offload look like any other large datagram.
    #[error(
        "a UDP datagram cannot be cut without its sender's word on the size; turn off UDP segmentation offload at its sender"
    )]
    Udp,
    /// Only UDP has datagrams.
    #[error("a packet of IP protocol {0} cannot be cut into datagrams")]
    NotUdp(u8),
    /// A fragment of an IP packet.
    #[error("a fragment cannot be cut into TCP segments")]
    Fragment,
    /// The checksum covers a destination that is not the packet's.
    #[error("a source-routed packet cannot be cut into TCP segments")]
    SourceRouted,
    /// The kind of offload is neither TCP nor UDP segmentation.
    #[error("this kind of segmentation offload is not known")]
    UnknownKind,
    /// The transport header lies in no tunnel that mmb knows.
    #[error("no tunnels lead to the transport header that the sender wants to have cut")]
    NoTunnel,
    /// SYN takes a sequence number of its own, and RST ends what would follow.
    #[error("a segment with SYN or RST cannot be cut")]
    Handshake,
    /// The MTU leaves no byte of payload behind the headers.
    #[error("an MTU of {mtu} bytes has no room behind {headers} bytes of headers")]
    MtuTooSmall {
        /// The MTU.
        mtu: usize,
        /// Bytes of IP and TCP headers.
        headers: usize,
    },
    /// The caller's buffer is shorter than the frame.
    #[error("a frame of {frame} bytes does not fit a buffer of {buffer}")]
    BufferTooSmall {
        /// Bytes of the frame.
        frame: usize,
        /// Bytes of the buffer.
        buffer: usize,
    },
}

/// The segments of one TCP packet, still to be written.
#[derive(Debug)]
pub struct Segments<'p> {
    /// Link, IP and TCP headers, of which each frame gets a copy.
    headers: &'p [u8],
    payload: &'p [u8],
    /// The layout of the packet that is cut: the innermost packet.
    layout: Layout,
    /// The packets around that packet.
    tunnels: Tunnels,
    /// Bytes of payload of every segment but the last.
    size: usize,
    /// The offset in the payload at which the next segment begins; `None` when all are written.
    next: Option<usize>,
    /// Number of segments that are written.
    written: u16,
}

/// TCP flags.
mod flag {
    pub(super) const FIN: u8 = 0x01;
    pub(super) const SYN: u8 = 0x02;
    pub(super) const RST: u8 = 0x04;
    pub(super) const PSH: u8 = 0x08;
    pub(super) const URG: u8 = 0x20;
    pub(super) const CWR: u8 = 0x80;
    /// Those that belong to the last bytes.
    pub(super) const LAST: u8 = FIN | PSH;
}

impl<'p> Segments<'p> {
    /// Prepares to cut a packet, whose own layout `layout` is, into IP packets of at most `mtu` bytes. A packet that fits
    /// is one segment. What lies behind the IP packet is left out.
    ///
    /// # Errors
    /// Why it cannot be cut.
    pub fn new(packet: &'p Packet<'_>, layout: &Layout, mtu: usize) -> Result<Segments<'p>, SegmentError> {
        match layout.l4_kind {
            TCP => {}
            UDP => return Err(SegmentError::Udp),
            _ => return Err(SegmentError::NotTcp(layout.proto)),
        }
        let segments = Segments::whole(packet, layout)?;
        let headers = segments.headers;
        if headers.get(usize::from(layout.l4) + 13).is_none_or(|flags| flags & (flag::SYN | flag::RST) != 0) {
            return Err(SegmentError::Handshake);
        }
        let ip_headers = headers.len() - usize::from(layout.ip).min(headers.len());
        if mtu <= ip_headers {
            return Err(SegmentError::MtuTooSmall { mtu, headers: ip_headers });
        }
        Ok(Segments { size: mtu - ip_headers, ..segments })
    }

    /// Prepares to cut what a UDP sender left to its device (`UDP_SEGMENT`, udp(7)) into datagrams of `size` bytes of
    /// payload, the last one shorter. Only whoever was told of the size can know it.
    ///
    /// # Errors
    /// Why it cannot be cut.
    pub fn datagrams(
        packet: &'p Packet<'_>,
        layout: &Layout,
        size: usize,
    ) -> Result<Segments<'p>, SegmentError> {
        if layout.l4_kind != UDP {
            return Err(SegmentError::NotUdp(layout.proto));
        }
        let segments = Segments::whole(packet, layout)?;
        if size == 0 {
            let headers = segments.headers.len() - usize::from(layout.ip).min(segments.headers.len());
            return Err(SegmentError::MtuTooSmall { mtu: headers, headers });
        }
        Ok(Segments { size, ..segments })
    }

    /// Prepares to cut a packet in tunnels into TCP segments or UDP datagrams of `size` bytes of payload, the last one shorter.
    ///
    /// # Errors
    /// Why it cannot be cut.
    pub fn in_tunnels(
        packet: &'p Packet<'_>,
        tunnels: &Tunnels,
        size: usize,
    ) -> Result<Segments<'p>, SegmentError> {
        let inner = tunnels.inner();
        if tunnels.outer().iter().any(Layout::is_routed) {
            return Err(SegmentError::SourceRouted);
        }
        let segments = match inner.l4_kind {
            UDP => Segments::datagrams(packet, inner, size)?,
            _ => Segments::new(packet, inner, usize::from(inner.payload - inner.ip) + size)?,
        };
        Ok(Segments { tunnels: *tunnels, ..segments })
    }

    /// The packet as one segment.
    fn whole(packet: &'p Packet<'_>, layout: &Layout) -> Result<Segments<'p>, SegmentError> {
        if layout.is_fragment() {
            return Err(SegmentError::Fragment);
        }
        if layout.is_routed() {
            return Err(SegmentError::SourceRouted);
        }
        let bytes = packet.bytes();
        let headers = bytes.get(..usize::from(layout.payload)).unwrap_or_default();
        let payload = bytes.get(layout.payload_range()).unwrap_or_default();
        Ok(Segments {
            headers,
            payload,
            layout: *layout,
            tunnels: Tunnels::default(),
            size: payload.len().max(1),
            next: Some(0),
            written: 0,
        })
    }

    /// Number of segments, written ones included; 1 for a packet without payload.
    pub fn count(&self) -> usize {
        self.payload.len().div_ceil(self.size).max(1)
    }

    /// Bytes of the next frame; `None` when all are written.
    pub fn next_len(&self) -> Option<usize> {
        Some(self.headers.len() + self.chunk(self.next?).len())
    }

    /// Writes the next frame to the start of `buffer` and returns its length; `None` when all are written.
    ///
    /// # Errors
    /// [`SegmentError::BufferTooSmall`], with nothing written; the same segment can be asked for again.
    pub fn write_next(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, SegmentError> {
        let (Some(start), Some(len)) = (self.next, self.next_len()) else { return Ok(None) };
        let too_small = SegmentError::BufferTooSmall { frame: len, buffer: buffer.len() };
        let frame = buffer.get_mut(..len).ok_or(too_small)?;
        let chunk = self.chunk(start);
        let (headers, payload) = frame.split_at_mut(self.headers.len());
        headers.copy_from_slice(self.headers);
        payload.copy_from_slice(chunk);
        let end = start + chunk.len();
        let last = end == self.payload.len();

        let layout = Layout { end: len as u32, payload_end: len as u32, ..self.layout };
        let (ip, l4) = (usize::from(layout.ip), usize::from(layout.l4));
        if let Some(header) = headers.get_mut(ip..l4) {
            write_ip(header, layout.class, len - ip, self.written);
        }
        if let Some(transport) = headers.get_mut(l4..) {
            if layout.l4_kind == UDP {
                write_udp(transport, len - l4);
            } else if let Some(header) = transport.first_chunk_mut() {
                write_tcp(header, start as u32, last);
            }
        }
        write_checksum(frame, &layout);
        if !self.tunnels.outer().is_empty()
            && let Some(inner) = segment_sum(frame, &layout)
        {
            // The checksums of outer headers cover the inner ones.
            for outer in self.tunnels.outer().iter().rev() {
                write_outer(frame, outer, self.written, inner);
            }
        }
        self.written = self.written.wrapping_add(1);
        self.next = (!last).then_some(end);
        Ok(Some(len))
    }

    fn chunk(&self, start: usize) -> &'p [u8] {
        let rest = self.payload.get(start..).unwrap_or_default();
        &rest[..rest.len().min(self.size)]
    }
}

/// Gives an IP header its length, and over IPv4 an identification and a checksum of its own.
fn write_ip(header: &mut [u8], class: Class, len: usize, index: u16) {
    if class == Class::Ip6 {
        if let Some(header) = header.first_chunk_mut::<IP6_HEADER>() {
            header[4..6].copy_from_slice(&((len - IP6_HEADER) as u16).to_be_bytes());
        }
        return;
    }
    if let Some(fixed) = header.first_chunk_mut::<IP4_HEADER>() {
        fixed[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        let id = u16::from_be_bytes([fixed[4], fixed[5]]).wrapping_add(index);
        fixed[4..6].copy_from_slice(&id.to_be_bytes());
        fixed[10..12].fill(0);
    }
    let checksum = ChecksumSum::default().bytes(header).checksum();
    if let Some(fixed) = header.first_chunk_mut::<IP4_HEADER>() {
        fixed[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Gives a TCP header the sequence number and the flags of the segment that begins `start` bytes into the payload.
fn write_tcp(header: &mut [u8; TCP_HEADER], start: u32, last: bool) {
    let seq = Seq(u32::from_be_bytes([header[4], header[5], header[6], header[7]])) + start;
    header[4..8].copy_from_slice(&seq.0.to_be_bytes());
    if !last {
        header[13] &= !flag::LAST;
    }
    if start > 0 {
        header[13] &= !flag::CWR;
    }
    if header[13] & flag::URG != 0 {
        // The pointer counts from the sequence number; behind the urgent bytes there is none.
        let pointer = u32::from(u16::from_be_bytes([header[18], header[19]])).saturating_sub(start);
        header[18..20].copy_from_slice(&(pointer as u16).to_be_bytes());
        if start > 0 && pointer == 0 {
            header[13] &= !flag::URG;
        }
    }
}

/// Gives a UDP header its length.
fn write_udp(header: &mut [u8], len: usize) {
    if let Some(field) = header.get_mut(4..6) {
        field.copy_from_slice(&(len as u16).to_be_bytes());
    }
}

/// The sum of a segment that has its checksum.
#[derive(Clone, Copy)]
struct SegmentSum {
    /// The offset of its transport header.
    offset: usize,
    sum: u16,
}

/// The sum of a segment that has its checksum: the complement of its pseudo header's, so that the payload is not summed up again (local checksum
/// offload, as Linux calls it).
fn segment_sum(frame: &[u8], layout: &Layout) -> Option<SegmentSum> {
    let sum = !checksum::pseudo_header(frame, layout)?.fold();
    Some(SegmentSum { offset: layout.l4.into(), sum })
}

/// Writes lengths, identification and checksums into the headers of a packet around the segment, whose sum is `inner`. UDP without a checksum
/// (RFC 768, RFC 6935) stays without one.
fn write_outer(frame: &mut [u8], outer: &Layout, index: u16, inner: SegmentSum) {
    let len = frame.len();
    let (ip, l4) = (usize::from(outer.ip), usize::from(outer.l4));
    if let Some(header) = frame.get_mut(ip..l4) {
        write_ip(header, outer.class, len - ip, index);
    }
    let (offset, pseudo_header) = if outer.proto == UDP {
        if let Some(header) = frame.get_mut(l4..) {
            write_udp(header, len - l4);
        }
        let layout = Layout { end: len as u32, payload_end: len as u32, ..*outer };
        match checksum::pseudo_header(frame, &layout) {
            Some(sum) if frame.get(l4 + 6..l4 + 8).is_some_and(|checksum| checksum != [0; 2]) => (6, sum),
            _ => return,
        }
    } else if outer.proto == GRE && has_gre_checksum(frame, l4) {
        // RFC 2784 section 2.3: from the header to the end. The two bytes behind it are zero.
        if let Some(reserved) = frame.get_mut(l4 + 6..l4 + 8) {
            reserved.fill(0);
        }
        (4, ChecksumSum::default())
    } else {
        return;
    };
    if let Some(headers) = frame.get_mut(l4..inner.offset) {
        write_sum(headers, offset, pseudo_header.word(inner.sum), outer.proto == UDP);
    }
}

/// Writes the checksum of some bytes to an offset in them. `rest` is the sum of all else that it covers.
fn write_sum(bytes: &mut [u8], offset: usize, rest: ChecksumSum, is_udp: bool) {
    if let Some(field) = bytes.get_mut(offset..offset + 2) {
        field.fill(0);
    }
    let sum = match rest.bytes(bytes).checksum() {
        0 if is_udp => 0xffff,
        sum => sum,
    };
    if let Some(field) = bytes.get_mut(offset..offset + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
}

/// Computes the transport checksum of a whole frame.
fn write_checksum(frame: &mut [u8], layout: &Layout) {
    let Some(offset) = checksum::field_offset(layout.l4_kind) else { return };
    let Some(pseudo_header) = checksum::pseudo_header(frame, layout) else { return };
    if let Some(segment) = frame.get_mut(usize::from(layout.l4)..) {
        write_sum(segment, offset, pseudo_header, layout.l4_kind == UDP);
    }
}
