//! Packets that a worker generates: resets of connections that a rule closes, and the packets of edited
//! streams.
//!
//! A generated packet has the same port, link header, addresses and ports as the packets that one end of a
//! connection sends, as they arrive. It then takes the same way as those packets, so translation and edits
//! need no special case. Resets wait in a bounded queue until the host provides buffers
//! ([`Worker::give_back`](crate::Worker::give_back)); the packets of streams are generated only then. If the
//! queue is full or no buffer is free, the packet is discarded, as if the network had lost it, and not
//! counted as made.

use arrayvec::ArrayVec;
use mmb_packet::checksum::{ChecksumSum, pseudo4, pseudo6};
use mmb_packet::{Class, Layout, LinkType, Packet, PortId, proto};
use mmb_stream::{MadeFor, MadeSegment};
use std::collections::VecDeque;

/// The kind of a generated packet. [`MadeKind::Reject`] and [`MadeKind::MtuError`] are the kinds of answers
/// (`answer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MadeKind {
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

impl MadeKind {
    /// Every kind, in the order in which counters are shown.
    pub const ALL: [MadeKind; 5] =
        [MadeKind::Reset, MadeKind::Data, MadeKind::Acknowledgment, MadeKind::Reject, MadeKind::MtuError];

    /// The kind's name in counters. Names are stable.
    pub const fn name(self) -> &'static str {
        match self {
            MadeKind::Reset => "reset",
            MadeKind::Data => "data",
            MadeKind::Acknowledgment => "ack",
            MadeKind::Reject => "reject",
            MadeKind::MtuError => "mtu-error",
        }
    }
}

/// Bytes of a link header with two VLAN tags and of the fixed part of an IPv6 header.
const MOST_HEADERS: usize = 20 + 8 + 40;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const IP4_HEADER: usize = 20;
const IP6_HEADER: usize = 40;

/// The most packets in one worker's queue.
const WAITING: usize = 1024;

/// A generated packet.
#[derive(Debug)]
pub(crate) struct MadePacket {
    pub(crate) kind: MadeKind,
    pub(crate) port: PortId,
    pub(crate) link: LinkType,
    pub(crate) bytes: ArrayVec<u8, { MOST_HEADERS + TCP_HEADER }>,
}

/// Generated packets that wait for buffers.
#[derive(Debug)]
pub(crate) struct MadePackets(VecDeque<MadePacket>);

impl MadePackets {
    /// An empty queue. Its memory is reserved, and touched only as the queue fills.
    pub(crate) fn new() -> MadePackets {
        MadePackets(VecDeque::with_capacity(WAITING))
    }

    /// Adds a packet; discards it if the queue is full.
    pub(crate) fn push(&mut self, packet: MadePacket) {
        if self.0.len() < WAITING {
            self.0.push_back(packet);
        }
    }

    /// Takes the oldest packet.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<MadePacket> {
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
    bytes: [u8; MOST_HEADERS],
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
    pub(crate) fn of(packet: &Packet<'_>, layout: &Layout) -> Option<HeaderTemplate> {
        let (is_ip6, len) = extent(layout)?;
        let headers = packet.bytes().get(..len)?;
        let mut bytes = [0; MOST_HEADERS];
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
    pub(crate) fn keep(place: &mut Option<HeaderTemplate>, packet: &Packet<'_>, layout: &Layout) {
        if let Some(before) = place
            && let Some((is_ip6, len)) = extent(layout)
            && before.link_len == layout.ip as u8
            && let (Some(from), Some(to)) = (packet.bytes().get(..len), before.bytes.get_mut(..len))
        {
            to.copy_from_slice(from);
            (before.port, before.link, before.is_ip6) = (packet.port, packet.link, is_ip6);
            return;
        }
        *place = HeaderTemplate::of(packet, layout).or(*place);
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
    pub(crate) fn segment(&self, ports: [u16; 2], ack_shift: u32, made: &MadeSegment<'_>, out: &mut Vec<u8>) {
        const MARK: u8 = 0b11;
        out.clear();
        let link_len = usize::from(self.link_len);
        let ip_len = if self.is_ip6 { IP6_HEADER } else { IP4_HEADER };
        out.extend_from_slice(&self.bytes[..link_len + ip_len]);
        let l4 = out.len();
        let [source, destination] = ports;
        out.extend_from_slice(&source.to_be_bytes());
        out.extend_from_slice(&destination.to_be_bytes());
        if let MadeFor::Datagram { behind } = made.purpose {
            return self.finish_datagram(made.payload, behind, l4, out);
        }
        out.extend_from_slice(&made.seq.to_be_bytes());
        out.extend_from_slice(&made.ack.wrapping_sub(ack_shift).to_be_bytes());
        out.extend_from_slice(&[0, made.flags]);
        out.extend_from_slice(&made.window.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        push_options(made, ack_shift, out);
        out[l4 + 12] = (((out.len() - l4) / 4) << 4) as u8;
        out.extend_from_slice(made.payload);
        let (headers, tcp) = out.split_at_mut(l4);
        let ip = &mut headers[link_len..];
        let checksum = self.finish_ip(ip, proto::TCP, tcp.len()).bytes(tcp).checksum();
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        if made.is_marked && !self.is_ip6 {
            ip[1] |= MARK;
            ip[10..12].fill(0);
            let checksum = ChecksumSum::default().bytes(ip).checksum();
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else if made.is_marked {
            ip[1] |= MARK << 4;
        }
    }

    /// Appends the rest of a UDP datagram, after its ports. This template has the headers of the last
    /// datagram that arrived from the same end. `behind` datagrams arrived after the one that is written here
    /// and will be generated too.
    fn finish_datagram(&self, payload: &[u8], behind: usize, l4: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&((UDP_HEADER + payload.len()) as u16).to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(payload);
        let (headers, udp) = out.split_at_mut(l4);
        let ip = &mut headers[usize::from(self.link_len)..];
        if !self.is_ip6 {
            // Each of these datagrams needs an identification of its own (RFC 6864 section 4.2).
            let last = u16::from_be_bytes([ip[4], ip[5]]);
            ip[4..6].copy_from_slice(&last.wrapping_sub(behind as u16).to_be_bytes());
        }
        // Zero means that there is no checksum (RFC 768).
        let checksum = match self.finish_ip(ip, proto::UDP, udp.len()).bytes(udp).checksum() {
            0 => u16::MAX,
            checksum => checksum,
        };
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Generates a RST with these headers.
    pub(crate) fn reset(&self, ports: [u16; 2], numbers: ResetNumbers) -> MadePacket {
        let mut bytes = ArrayVec::new();
        let link_len = usize::from(self.link_len);
        let ip_len = if self.is_ip6 { IP6_HEADER } else { IP4_HEADER };
        bytes.extend(self.bytes[..link_len + ip_len].iter().copied());
        bytes.extend([0; TCP_HEADER]);
        let (ip, tcp) = bytes[link_len..].split_at_mut(ip_len);
        write_tcp(tcp, ports, numbers);
        let checksum = self.finish_ip(ip, proto::TCP, TCP_HEADER).bytes(tcp).checksum();
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        MadePacket { kind: MadeKind::Reset, port: self.port, link: self.link, bytes }
    }

    /// Completes an IP header for a payload of `len` bytes of `proto`. Returns the checksum of the
    /// pseudo-header.
    fn finish_ip(&self, ip: &mut [u8], proto: u8, len: usize) -> ChecksumSum {
        if self.is_ip6 { finish_ip6(ip, proto, len) } else { finish_ip4(ip, proto, len) }
    }
}

/// Appends the options of a segment: timestamps and SACK blocks, aligned as in RFC 7323 appendix A and RFC
/// 2018.
fn push_options(made: &MadeSegment<'_>, ack_shift: u32, out: &mut Vec<u8>) {
    const NOP: u8 = 1;
    const SACK: u8 = 5;
    const TIMESTAMPS: u8 = 8;
    if let Some(values) = made.timestamps {
        out.extend_from_slice(&[NOP, NOP, TIMESTAMPS, 10]);
        values.iter().for_each(|value| out.extend_from_slice(&value.to_be_bytes()));
    }
    if !made.sack.is_empty() {
        out.extend_from_slice(&[NOP, NOP, SACK, 2 + 8 * made.sack.len() as u8]);
        for edge in made.sack.as_flattened() {
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
    let address = |at: usize| std::array::from_fn(|byte| ip[at + byte]);
    pseudo4(address(12), address(16), upper, len as u16)
}

/// Completes an IPv6 header in the same way, without extension headers.
fn finish_ip6(ip: &mut [u8], upper: u8, len: usize) -> ChecksumSum {
    if upper == proto::TCP {
        ip[1] &= 0xcf;
    }
    ip[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    ip[6] = upper;
    let address = |at: usize| std::array::from_fn(|byte| ip[at + byte]);
    pseudo6(address(8), address(24), upper, len as u32)
}
