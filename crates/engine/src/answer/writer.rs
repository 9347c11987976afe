//! Writes answers: the headers of the answered packet with source and destination exchanged, then a RST or an
//! ICMP error.

use super::message::IcmpMessage;
use mmb_packet::checksum::{ChecksumSum, pseudo4, pseudo6};
use mmb_packet::proto::{ICMP, ICMP6, TCP};
use mmb_packet::{Class, Layout, LinkType, Packet};

/// The most bytes of an IP packet with an ICMP error: RFC 1812 section 4.3.2.3, RFC 4443 section 2.4 (c).
const MAX_ERROR4_BYTES: usize = 576;
const MAX_ERROR6_BYTES: usize = 1280;
/// The most bytes of an answer, with the longest link header that mmb parses.
pub(super) const MAX_BYTES: usize = MAX_ERROR6_BYTES + 64;
/// Time to live or hop limit.
const LIFE: u8 = 64;
/// The type of service or traffic class of ICMP errors: precedence 6 (RFC 1812 section 4.3.2.5).
const CS6: u8 = 0xc0;

const IP4_HEADER: usize = 20;
const IP6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
const ICMP_HEADER: usize = 8;

const SYN: u8 = 0x02;
const FIN: u8 = 0x01;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Appends the RST that answers a segment without a connection (RFC 9293 section 3.10.7.1). Returns `None` if
/// no RST can be written: the length of a segment in fragments is unknown. Some bytes may have been written
/// then.
pub(super) fn write_reset(packet: &Packet<'_>, layout: &Layout, out: &mut Vec<u8>) -> Option<()> {
    let segment: &[u8; TCP_HEADER] = packet.bytes().get(usize::from(layout.l4)..)?.first_chunk()?;
    let [s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, _, flags, ..] = *segment;
    let (seq, ack, flags) = if flags & ACK != 0 {
        ([a0, a1, a2, a3], [0; 4], RST)
    } else {
        if layout.is_fragment() {
            return None;
        }
        let payload = layout.payload_range().len() as u32;
        let len = payload + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        let ack = u32::from_be_bytes([q0, q1, q2, q3]).wrapping_add(len);
        ([0; 4], ack.to_be_bytes(), RST | ACK)
    };
    let pseudo = write_headers(TCP, TCP_HEADER, packet, layout, out)?;
    let start = out.len();
    out.extend_from_slice(&[d0, d1, s0, s1]);
    out.extend_from_slice(&seq);
    out.extend_from_slice(&ack);
    out.extend_from_slice(&[(TCP_HEADER as u8 / 4) << 4, flags, 0, 0, 0, 0, 0, 0]);
    finish(pseudo, start, 16, out)
}

/// Appends an ICMP or ICMPv6 error. It quotes as much of the packet as fits into the maximum size of errors
/// and into `mtu`. Returns `None` if no error can be written. Some bytes may have been written then.
pub(super) fn write_icmp(
    message: IcmpMessage,
    mtu: usize,
    packet: &Packet<'_>,
    layout: &Layout,
    out: &mut Vec<u8>,
) -> Option<()> {
    let (proto, max) = match layout.class {
        Class::Ip4 => (ICMP, MAX_ERROR4_BYTES.min(mtu).checked_sub(IP4_HEADER + ICMP_HEADER)?),
        Class::Ip6 => (ICMP6, MAX_ERROR6_BYTES.min(mtu).checked_sub(IP6_HEADER + ICMP_HEADER)?),
        Class::Other => return None,
    };
    let datagram = packet.bytes().get(usize::from(layout.ip)..layout.end as usize)?;
    let quoted = datagram.get(..max).unwrap_or(datagram);
    let pseudo = write_headers(proto, ICMP_HEADER + quoted.len(), packet, layout, out)?;
    let start = out.len();
    out.extend_from_slice(&[message.kind, message.code, 0, 0]);
    out.extend_from_slice(&message.rest);
    out.extend_from_slice(quoted);
    finish(pseudo, start, 2, out)
}

/// Computes the checksum of the bytes from `start` on, and of the pseudo-header. Writes it at the offset
/// `field` from `start`.
fn finish(pseudo: ChecksumSum, start: usize, field: usize, out: &mut [u8]) -> Option<()> {
    let covered = out.get_mut(start..)?;
    let checksum = pseudo.bytes(covered).checksum();
    covered.get_mut(field..field + 2)?.copy_from_slice(&checksum.to_be_bytes());
    Some(())
}

/// Appends the packet's link header with exchanged MAC addresses and unchanged VLAN tags. Then appends an IP
/// header to the packet's sender, for `len` bytes of `proto`. Returns the checksum of the pseudo-header,
/// which is zero for ICMP.
fn write_headers(
    proto: u8,
    len: usize,
    packet: &Packet<'_>,
    layout: &Layout,
    out: &mut Vec<u8>,
) -> Option<ChecksumSum> {
    let (link, ip) = packet.bytes().split_at_checked(usize::from(layout.ip))?;
    let start = out.len();
    out.extend_from_slice(link);
    if packet.link == LinkType::Ethernet {
        out.get_mut(start..)?.first_chunk_mut::<12>()?.rotate_left(6);
    }
    let class_of_service = if proto == TCP { 0 } else { CS6 };
    match layout.class {
        Class::Ip4 => {
            let header: &[u8; IP4_HEADER] = ip.first_chunk()?;
            let (source, destination) = (header[16..].first_chunk()?, header[12..].first_chunk()?);
            let [high, low] = ((IP4_HEADER + len) as u16).to_be_bytes();
            const DO_NOT_FRAGMENT: u8 = 0x40;
            // An atomic datagram needs no identification (RFC 6864 section 4.1).
            let mut answer = [
                0x45,
                class_of_service,
                high,
                low,
                0,
                0,
                DO_NOT_FRAGMENT,
                0,
                LIFE,
                proto,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
            ];
            answer[12..16].copy_from_slice(source);
            answer[16..].copy_from_slice(destination);
            let checksum = ChecksumSum::default().bytes(&answer).checksum();
            answer[10..12].copy_from_slice(&checksum.to_be_bytes());
            out.extend_from_slice(&answer);
            Some(if proto == ICMP {
                ChecksumSum::default()
            } else {
                pseudo4(*source, *destination, proto, len as u16)
            })
        }
        Class::Ip6 => {
            let header: &[u8; IP6_HEADER] = ip.first_chunk()?;
            let (source, destination) = (header[24..].first_chunk()?, header[8..].first_chunk()?);
            let [high, low] = (len as u16).to_be_bytes();
            out.extend_from_slice(&[
                0x60 | class_of_service >> 4,
                class_of_service << 4,
                0,
                0,
                high,
                low,
                proto,
                LIFE,
            ]);
            out.extend_from_slice(source);
            out.extend_from_slice(destination);
            Some(pseudo6(*source, *destination, proto, len as u32))
        }
        Class::Other => None,
    }
}
