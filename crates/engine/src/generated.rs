//! Packets that a worker generates: resets of connections that a rule closes, and the packets of edited
//! streams.
//!
//! A generated packet has the same port, link header, addresses and ports as the packets that one end of a
//! connection sends, as they arrive. It then takes the same way as those packets, so translation and edits
//! need no special case. Resets wait in a bounded queue until the host provides buffers
//! ([`Worker::return_packets`](crate::Worker::return_packets)); the packets of streams are generated only
//! then. If the queue is full or no buffer is free, the packet is discarded, as if the network had lost it,
//! and not counted as generated.

use arrayvec::ArrayVec;
use mmb_packet::checksum::{ChecksumSum, pseudo4, pseudo6};
use mmb_packet::{Class, Layout, LinkType, Packet, PortId, proto};
use mmb_stream::{GeneratedSegment, SegmentPurpose};
use std::collections::VecDeque;

/// The kind of a generated packet. [`GeneratedKind::Reject`] and [`GeneratedKind::MtuError`] are the kinds of
/// answers (`answer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GeneratedKind {
    /// A RST to one end of a connection that a rule closes.
    Reset,
    /// Payload, a FIN or a window probe of an edited TCP stream, or a datagram of an edited UDP stream.
    Data,
    /// An acknowledgment to a sender whose bytes are edited.
    Acknowledgment,
    /// A RST or an ICMP error to the sender of a packet that a rule rejects.
    Reject,
    /// An ICMP error with the MTU of the next link, to the sender of a packet that exceeds it.
    MtuError,
}

impl GeneratedKind {
    /// Every kind, in the order in which counters are shown.
    pub const ALL: [GeneratedKind; 5] = [
        GeneratedKind::Reset,
        GeneratedKind::Data,
        GeneratedKind::Acknowledgment,
        GeneratedKind::Reject,
        GeneratedKind::MtuError,
    ];

    /// The kind's name in counters. Names are stable.
    pub const fn name(self) -> &'static str {
        match self {
            GeneratedKind::Reset => "reset",
            GeneratedKind::Data => "data",
            GeneratedKind::Acknowledgment => "ack",
            GeneratedKind::Reject => "reject",
            GeneratedKind::MtuError => "mtu-error",
        }
    }
}

/// Bytes of a link header with two VLAN tags and of the fixed part of an IPv6 header.
const MAX_HEADER_BYTES: usize = 20 + 8 + 40;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const IP4_HEADER: usize = 20;
const IP6_HEADER: usize = 40;

/// The most packets in one worker's queue.
const QUEUE_LEN: usize = 1024;

/// A generated packet.
#[derive(Debug)]
pub(crate) struct GeneratedPacket {
    pub(crate) kind: GeneratedKind,
    pub(crate) port: PortId,
    pub(crate) link: LinkType,
    pub(crate) bytes: ArrayVec<u8, { MAX_HEADER_BYTES + TCP_HEADER }>,
}

/// Generated packets that wait for buffers.
#[derive(Debug)]
pub(crate) struct GeneratedQueue(VecDeque<GeneratedPacket>);

impl GeneratedQueue {
    /// An empty queue. Its memory is reserved, and touched only as the queue fills.
    pub(crate) fn new() -> GeneratedQueue {
        GeneratedQueue(VecDeque::with_capacity(QUEUE_LEN))
    }

    /// Adds a packet; discards it if the queue is full.
    pub(crate) fn push(&mut self, packet: GeneratedPacket) {
        if self.0.len() < QUEUE_LEN {
            self.0.push_back(packet);
        }
    }

    /// Takes the oldest packet.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<GeneratedPacket> {
        self.0.pop_front()
    }
}

/// The sequence and acknowledgment numbers of a RST; without an acknowledgment number it has no ACK flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResetNumbers {
    pub(crate) seq: u32,
    pub(crate) ack: Option<u32>,
}

/// The link header and IP header of the packets that one end of a connection sends, as they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderTemplate {
    port: PortId,
    link: LinkType,
    is_ip6: bool,
    /// Bytes before the IP header.
    link_len: u8,
    bytes: [u8; MAX_HEADER_BYTES],
}

/// Whether a packet is IPv6, and the length of its link header plus the fixed part of its IP header. `None`
/// if the packet is not IP.
#[inline]
fn extent(layout: &Layout) -> Option<(bool, usize)> {
    let link_len = usize::from(layout.ip);
    match layout.class {
        Class::Ip4 => Some((false, link_len + IP4_HEADER)),
        Class::Ip6 => Some((true, link_len + IP6_HEADER)),
        Class::Other => None,
    }
}

impl HeaderTemplate {
    /// The headers of a packet. `None` if the packet is not IP, or if the headers before the IP header are
    /// too long.
    pub(crate) fn from_packet(packet: &Packet<'_>, layout: &Layout) -> Option<HeaderTemplate> {
        let (is_ip6, len) = extent(layout)?;
        let headers = packet.bytes().get(..len)?;
        let mut bytes = [0; MAX_HEADER_BYTES];
        bytes.get_mut(..headers.len())?.copy_from_slice(headers);
        Some(HeaderTemplate {
            port: packet.port,
            link: packet.link,
            is_ip6,
            link_len: layout.ip as u8,
            bytes,
        })
    }

    /// Stores the headers of a packet in `place`. If they cannot be stored, `place` stays as it is.
    #[inline]
    pub(crate) fn store(place: &mut Option<HeaderTemplate>, packet: &Packet<'_>, layout: &Layout) {
        if let Some(before) = place
            && let Some((is_ip6, len)) = extent(layout)
            && before.link_len == layout.ip as u8
            && let (Some(from), Some(to)) = (packet.bytes().get(..len), before.bytes.get_mut(..len))
        {
            to.copy_from_slice(from);
            (before.port, before.link, before.is_ip6) = (packet.port, packet.link, is_ip6);
            return;
        }
        *place = HeaderTemplate::from_packet(packet, layout).or(*place);
    }

    /// The headers of the packets that the other end sends, which arrive on `port` with these addresses. The
    /// two MAC addresses are exchanged: on a switch or a wire, frames of both ends have the same two MAC
    /// addresses.
    pub(crate) fn reversed(&self, port: PortId, addresses: [u128; 2]) -> HeaderTemplate {
        const LIFE: u8 = 64;
        let mut reversed = HeaderTemplate { port, ..*self };
        let (link, ip) = reversed.bytes.split_at_mut(usize::from(self.link_len));
        if self.link == LinkType::Ethernet
            && let Some(macs) = link.first_chunk_mut::<12>()
        {
            macs.rotate_left(6);
        }
        let [source, destination] = addresses;
        if self.is_ip6 {
            ip[7] = LIFE;
            ip[8..24].copy_from_slice(&source.to_be_bytes());
            ip[24..40].copy_from_slice(&destination.to_be_bytes());
        } else {
            ip[8] = LIFE;
            ip[12..16].copy_from_slice(&(source as u32).to_be_bytes());
            ip[16..20].copy_from_slice(&(destination as u32).to_be_bytes());
        }
        reversed
    }

    /// The port on which these packets arrive.
    pub(crate) fn port(&self) -> PortId {
        self.port
    }

    /// The type of their link header.
    pub(crate) fn link(&self) -> LinkType {
        self.link
    }

    /// Writes a segment or a datagram of a stream to `out`, with these headers. Subtracts `ack_shift` from
    /// its acknowledgment number and SACK blocks.
    pub(crate) fn segment(
        &self,
        ports: [u16; 2],
        ack_shift: u32,
        generated: &GeneratedSegment<'_>,
        out: &mut Vec<u8>,
    ) {
        const MARK: u8 = 0b11;
        out.clear();
        let link_len = usize::from(self.link_len);
        let ip_len = if self.is_ip6 { IP6_HEADER } else { IP4_HEADER };
        out.extend_from_slice(&self.bytes[..link_len + ip_len]);
        let l4 = out.len();
        let [source, destination] = ports;
        out.extend_from_slice(&source.to_be_bytes());
        out.extend_from_slice(&destination.to_be_bytes());
        if let SegmentPurpose::Datagram { pending } = generated.purpose {
            return self.finish_datagram(generated.payload, pending, l4, out);
        }
        out.extend_from_slice(&generated.seq.to_be_bytes());
        out.extend_from_slice(&generated.ack.wrapping_sub(ack_shift).to_be_bytes());
        out.extend_from_slice(&[0, generated.flags]);
        out.extend_from_slice(&generated.window.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        push_options(generated, ack_shift, out);
        out[l4 + 12] = (((out.len() - l4) / 4) << 4) as u8;
        out.extend_from_slice(generated.payload);
        let (headers, tcp) = out.split_at_mut(l4);
        let ip = &mut headers[link_len..];
        let checksum = self.finish_ip(ip, proto::TCP, tcp.len()).bytes(tcp).checksum();
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        if generated.has_ce_mark && !self.is_ip6 {
            ip[1] |= MARK;
            ip[10..12].fill(0);
            let checksum = ChecksumSum::default().bytes(ip).checksum();
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else if generated.has_ce_mark {
            ip[1] |= MARK << 4;
        }
    }

    /// Appends the rest of a UDP datagram, after its ports. This template has the headers of the last
    /// datagram that arrived from the same end. `pending` datagrams arrived after the one that is written
    /// here and will be generated too.
    fn finish_datagram(&self, payload: &[u8], pending: usize, l4: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&((UDP_HEADER + payload.len()) as u16).to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(payload);
        let (headers, udp) = out.split_at_mut(l4);
        let ip = &mut headers[usize::from(self.link_len)..];
        if !self.is_ip6 {
            // Each of these datagrams needs a different identification (RFC 6864 section 4.2).
            let last = u16::from_be_bytes([ip[4], ip[5]]);
            ip[4..6].copy_from_slice(&last.wrapping_sub(pending as u16).to_be_bytes());
        }
        // Zero means no checksum (RFC 768).
        let checksum = match self.finish_ip(ip, proto::UDP, udp.len()).bytes(udp).checksum() {
            0 => u16::MAX,
            checksum => checksum,
        };
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Generates a RST with these headers.
    pub(crate) fn reset(&self, ports: [u16; 2], numbers: ResetNumbers) -> GeneratedPacket {
        let mut bytes = ArrayVec::new();
        let link_len = usize::from(self.link_len);
        let ip_len = if self.is_ip6 { IP6_HEADER } else { IP4_HEADER };
        bytes.extend(self.bytes[..link_len + ip_len].iter().copied());
        bytes.extend([0; TCP_HEADER]);
        let (ip, tcp) = bytes[link_len..].split_at_mut(ip_len);
        write_tcp(tcp, ports, numbers);
        let checksum = self.finish_ip(ip, proto::TCP, TCP_HEADER).bytes(tcp).checksum();
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        GeneratedPacket { kind: GeneratedKind::Reset, port: self.port, link: self.link, bytes }
    }

    /// Completes an IP header for a payload of `len` bytes of `proto`. Returns the checksum of the
    /// pseudo-header.
    fn finish_ip(&self, ip: &mut [u8], proto: u8, len: usize) -> ChecksumSum {
        if self.is_ip6 { finish_ip6(ip, proto, len) } else { finish_ip4(ip, proto, len) }
    }
}

/// Appends the options of a segment: timestamps and SACK blocks, aligned as in RFC 7323 appendix A and RFC
/// 2018.
fn push_options(generated: &GeneratedSegment<'_>, ack_shift: u32, out: &mut Vec<u8>) {
    const NOP: u8 = 1;
    const SACK: u8 = 5;
    const TIMESTAMPS: u8 = 8;
    if let Some(values) = generated.timestamps {
        out.extend_from_slice(&[NOP, NOP, TIMESTAMPS, 10]);
        values.iter().for_each(|value| out.extend_from_slice(&value.to_be_bytes()));
    }
    if !generated.sack.is_empty() {
        out.extend_from_slice(&[NOP, NOP, SACK, 2 + 8 * generated.sack.len() as u8]);
        for edge in generated.sack.as_flattened() {
            out.extend_from_slice(&edge.wrapping_sub(ack_shift).to_be_bytes());
        }
    }
}

/// Writes the header of a RST (RFC 9293 section 3.5.2).
fn write_tcp(tcp: &mut [u8], [source, destination]: [u16; 2], ResetNumbers { seq, ack }: ResetNumbers) {
    const RST: u8 = 0x04;
    const ACK: u8 = 0x10;
    tcp[..2].copy_from_slice(&source.to_be_bytes());
    tcp[2..4].copy_from_slice(&destination.to_be_bytes());
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&ack.unwrap_or(0).to_be_bytes());
    tcp[12] = (TCP_HEADER as u8 / 4) << 4;
    tcp[13] = if ack.is_some() { RST | ACK } else { RST };
}

/// Completes an IPv4 header for a payload of `len` bytes of `upper`: without options, not a fragment, for TCP
/// without an ECN mark. Returns the checksum of the pseudo-header.
fn finish_ip4(ip: &mut [u8], upper: u8, len: usize) -> ChecksumSum {
    const DO_NOT_FRAGMENT: u8 = 0x40;
    ip[0] = 0x45;
    if upper == proto::TCP {
        ip[1] &= 0xfc;
    }
    ip[2..4].copy_from_slice(&((IP4_HEADER + len) as u16).to_be_bytes());
    if upper == proto::TCP || ip[6] & DO_NOT_FRAGMENT != 0 {
        // An atomic datagram needs no identification (RFC 6864 section 4.1).
        ip[4..8].copy_from_slice(&[0, 0, DO_NOT_FRAGMENT, 0]);
    } else {
        // A datagram that may be fragmented keeps its identification.
        ip[6..8].fill(0);
    }
    ip[9] = upper;
    ip[10..12].fill(0);
    let checksum = ChecksumSum::default().bytes(ip).checksum();
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let address = |offset: usize| std::array::from_fn(|byte| ip[offset + byte]);
    pseudo4(address(12), address(16), upper, len as u16)
}

/// Completes an IPv6 header in the same way, without extension headers.
fn finish_ip6(ip: &mut [u8], upper: u8, len: usize) -> ChecksumSum {
    if upper == proto::TCP {
        ip[1] &= 0xcf;
    }
    ip[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    ip[6] = upper;
    let address = |offset: usize| std::array::from_fn(|byte| ip[offset + byte]);
    pseudo6(address(8), address(24), upper, len as u32)
}
