//! Packets that a worker makes itself: resets of connections that a rule closes, and what streams with edits have to say beyond the packets
//! at hand.
//!
//! A made packet looks as the packets of one end of a connection looked when they came in: the same port, link header, addresses and ports. It
//! then takes the way of those, so that translation and edits need no special case. Resets wait in a bounded queue until the host
//! gives them buffers ([`Worker::give_back`](crate::Worker::give_back)); the packets of streams are made when it does. A packet that finds no room, or no buffer, is lost as
//! if the network had lost it, and not counted as made.

use arrayvec::ArrayVec;
use mmb_packet::checksum::{ChecksumSum, pseudo4, pseudo6};
use mmb_packet::{Class, Layout, LinkType, Packet, PortId, proto};
use mmb_stream::{MadeFor, MadeSegment};
use std::collections::VecDeque;

/// The kind of a made packet. [`MadeKind::Reject`] and [`MadeKind::MtuError`] are those of answers (`answer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MadeKind {
    /// A RST to an end of a connection that a rule closes.
    Reset,
    /// Bytes of a stream with edits, or its FIN; or a datagram of one.
    Data,
    /// An acknowledgment to a sender whose bytes are edited.
    Acknowledgment,
    /// A RST or an ICMP error to the sender of a packet that a rule rejects.
    Reject,
    /// The MTU of the next link to the sender of a packet that exceeds it.
    MtuError,
}

impl MadeKind {
    /// Every kind, in the order in which counters are shown.
    pub const ALL: [MadeKind; 5] =
        [MadeKind::Reset, MadeKind::Data, MadeKind::Acknowledgment, MadeKind::Reject, MadeKind::MtuError];

    /// The kind's name in counters: stable.
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

/// Packets that may wait in one worker's queue.
const WAITING: usize = 1024;

/// A packet that was made.
#[derive(Debug)]
pub(crate) struct MadePacket {
    pub(crate) kind: MadeKind,
    pub(crate) port: PortId,
    pub(crate) link: LinkType,
    pub(crate) bytes: ArrayVec<u8, { MOST_HEADERS + TCP_HEADER }>,
}

/// Packets that wait for buffers.
#[derive(Debug)]
pub(crate) struct MadePackets(VecDeque<MadePacket>);

impl MadePackets {
    /// An empty queue. Its memory is touched as it is used.
    pub(crate) fn new() -> MadePackets {
        MadePackets(VecDeque::with_capacity(WAITING))
    }

    /// Adds a packet, unless too many wait.
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

/// The headers that packets of one end of a connection have when they come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderTemplate {
    port: PortId,
    link: LinkType,
    is_ip6: bool,
    /// Bytes before the IP header.
    link_len: u8,
    bytes: [u8; MOST_HEADERS],
}

/// Whether a packet is one of IPv6, and the bytes of its link header and the fixed part of its IP header; `None` if it is not IP.
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
    /// The headers of a packet. `None` for one that is not IP, or has more headers before that than fit.
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

    /// Keeps the headers of a packet in `place`; what was there stays if they do not fit.
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

    /// The headers of the other end's packets, which come in by `port` with these addresses. A switch or a wire shows both ends' frames with
    /// the same two MAC addresses.
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

    /// The port that these packets come in by.
    pub(crate) fn port(&self) -> PortId {
        self.port
    }

    /// The type of their link header.
    pub(crate) fn link(&self) -> LinkType {
        self.link
    }

    /// Writes a segment or a datagram of a stream from the end whose packets have these headers. `ack_shift` is taken off its acknowledgment number.
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

    /// Appends the rest of a datagram of UDP, whose ports are there. The headers are those of the last datagram of its end; `behind` are made
    /// between the two.
    fn finish_datagram(&self, payload: &[u8], behind: usize, l4: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&((UDP_HEADER + payload.len()) as u16).to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(payload);
        let (headers, udp) = out.split_at_mut(l4);
        let ip = &mut headers[usize::from(self.link_len)..];
        if !self.is_ip6 {
            // None of them has the identification of another one (RFC 6864 section 4.2).
            let last = u16::from_be_bytes([ip[4], ip[5]]);
            ip[4..6].copy_from_slice(&last.wrapping_sub(behind as u16).to_be_bytes());
        }
        // Zero would say that there is no checksum (RFC 768).
        let checksum = match self.finish_ip(ip, proto::UDP, udp.len()).bytes(udp).checksum() {
            0 => u16::MAX,
            checksum => checksum,
        };
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    }

    /// A RST from the end whose packets have these headers.
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

    /// Turns an IP header into that of a packet with so many bytes of a protocol. Returns the sum of the pseudo-header.
    fn finish_ip(&self, ip: &mut [u8], proto: u8, len: usize) -> ChecksumSum {
        if self.is_ip6 { finish_ip6(ip, proto, len) } else { finish_ip4(ip, proto, len) }
    }
}

/// Appends the options of a segment: timestamps and SACK blocks, aligned as RFC 7323 appendix A and RFC 2018 have it.
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

/// Turns an IPv4 header into that of a packet with so many bytes of a protocol: no options, no fragment, for TCP no congestion mark. Returns
/// the pseudo header.
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
        // Its identification stays.
        ip[6..8].fill(0);
    }
    ip[9] = upper;
    ip[10..12].fill(0);
    let checksum = ChecksumSum::default().bytes(ip).checksum();
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let address = |at: usize| std::array::from_fn(|byte| ip[at + byte]);
    pseudo4(address(12), address(16), upper, len as u16)
}

/// The same for an IPv6 header: no extension headers.
fn finish_ip6(ip: &mut [u8], upper: u8, len: usize) -> ChecksumSum {
    if upper == proto::TCP {
        ip[1] &= 0xcf;
    }
    ip[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    ip[6] = upper;
    let address = |at: usize| std::array::from_fn(|byte| ip[at + byte]);
    pseudo6(address(8), address(24), upper, len as u32)
}
