//! Answers to packets: RSTs and ICMP errors, written from the RFCs.

use super::bytes::{MODULUS, sum, u8_at, u16_at};
use super::checksum::write_u16;
use super::dissect::{Dissection, Fragment, Ip, TransportKind};
use super::packet::OraclePacket;
use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_packet::parse::parse;
use mmb_packet::{LinkType, Packet, ParserLimits};
use mmb_policy::rule::Reject;
use std::net::{Ipv4Addr, Ipv6Addr};

const RST: u8 = 4;
const ACK: u8 = 16;

/// The answer to a packet that a rule rejects: `Ok(None)` if the rule answers no such packets, an error if nobody would answer it.
pub(super) fn reject(
    how: Reject,
    mtu: Option<u32>,
    received: &OraclePacket<'_>,
    packet: &Dissection,
) -> Result<Option<Vec<u8>>, Unanswerable> {
    let ip = packet.ip.as_ref().ok_or(Unanswerable);
    let is_tcp = ip.as_ref().is_ok_and(|ip| is_kind(ip, TransportKind::Tcp));
    let icmp6 = packet.ip.as_ref().is_some_and(|ip| ip.version == 6);
    let (kind, code) = match (how, icmp6) {
        (Reject::Usual | Reject::TcpRst, _) if is_tcp => {
            check(received, packet)?;
            return reset(received, packet, ip?).map(Some).ok_or(Unanswerable);
        }
        (Reject::TcpRst, _) => return Ok(None),
        (Reject::Usual, false) => (3, 3),
        (Reject::Usual, true) => (1, 4),
        (Reject::Icmp(code), false) => (3, code),
        // RFC 7915 section 4.2.
        (Reject::Icmp(2), true) => (4, 1),
        (Reject::Icmp(3), true) => (1, 4),
        (Reject::Icmp(9 | 10 | 13 | 14 | 15), true) => (1, 1),
        (Reject::Icmp(_), true) => (1, 0),
        (Reject::Icmp6(code), true) => (1, code),
        // RFC 7915 section 5.2.
        (Reject::Icmp6(0 | 2 | 3), false) => (3, 1),
        (Reject::Icmp6(1), false) => (3, 10),
        (Reject::Icmp6(4), false) => (3, 3),
        (Reject::Icmp6(_), false) => (3, 13),
    };
    check(received, packet)?;
    let ip = ip?;
    let rest = if (kind, code, icmp6) == (4, 1, true) { (ip.proto_at - packet.l3) as u32 } else { 0 };
    Ok(Some(error([kind, code], rest, mtu, received, packet, ip).ok_or(Unanswerable)?))
}

/// The error about a packet that exceeds an MTU (RFC 1191 section 4, RFC 4443 section 3.2): `Ok(None)` for an IPv4 packet that may be fragmented, and
/// an MTU that no host takes.
pub(super) fn mtu_error(
    mtu: u32,
    ingress_mtu: Option<u32>,
    received: &OraclePacket<'_>,
    packet: &Dissection,
) -> Result<Option<Vec<u8>>, Unanswerable> {
    let Some(ip) = packet.ip.as_ref() else { return Ok(None) };
    let kind = match ip.version {
        4 if u8_at(received.bytes, packet.l3 + 6) & 0x40 == 0 => return Ok(None),
        4 => [3, 4],
        _ if mtu < 1280 => return Ok(None),
        _ => [2, 0],
    };
    check(received, packet)?;
    let rest = if ip.version == 4 { mtu.min(0xffff) } else { mtu };
    error(kind, rest, ingress_mtu, received, packet, ip).ok_or(Unanswerable).map(Some)
}

/// Nobody answers such a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unanswerable;

fn is_kind(ip: &Ip, kind: TransportKind) -> bool {
    ip.transport.is_some_and(|transport| transport.kind == kind)
}

/// Checks what RFC 1122 section 3.2.2, RFC 1812 section 4.3.2.7 and RFC 4443 section 2.4 (e) ask of a packet that is answered.
fn check(received: &OraclePacket<'_>, packet: &Dissection) -> Result<(), Unanswerable> {
    let OraclePacket { bytes, link, .. } = *received;
    let ip = packet.ip.as_ref().ok_or(Unanswerable)?;
    let group = match link {
        LinkType::Ethernet => bytes[0] & 1 == 1 || bytes[6] & 1 == 1,
        LinkType::Sll => [1, 2].contains(&u16_at(bytes, 0)),
        LinkType::Sll2 => [1, 2].contains(&bytes[10]),
        LinkType::RawIp => false,
    };
    let at = |offset: usize, len: usize| bytes[packet.l3 + offset..packet.l3 + offset + len].to_vec();
    let (hosts, differ) = match ip.version {
        4 => {
            let [source, destination] = [12, 16].map(|offset| at(offset, 4));
            let is_host = |address: &[u8]| {
                let address = Ipv4Addr::new(address[0], address[1], address[2], address[3]);
                let [first, ..] = address.octets();
                first != 0 && !address.is_loopback() && !address.is_multicast() && first < 240
            };
            (is_host(&source) && is_host(&destination), source != destination)
        }
        _ => {
            let [source, destination] = [8, 24].map(|offset| at(offset, 16));
            let is_host = |address: &[u8]| {
                let address: [u8; 16] = address.try_into().expect("16 bytes were taken");
                let address = Ipv6Addr::from(address);
                !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
            };
            (is_host(&source) && is_host(&destination), source != destination)
        }
    };
    let first = u8_at(bytes, ip.upper);
    let is_final = match ip.transport.map(|transport| transport.kind) {
        Some(TransportKind::Tcp) => bytes[ip.upper + 13] & RST != 0,
        Some(TransportKind::Icmp) => [3, 4, 5, 11, 12].contains(&first) || first > 18,
        Some(TransportKind::Icmp6) => first < 128 || first == 137,
        Some(TransportKind::Udp) | None => false,
    };
    let is_later = ip.fragment == Fragment::Later;
    if group || !hosts || !differ || is_final || is_later || !is_sound(received, packet, ip) {
        return Err(Unanswerable);
    }
    Ok(())
}

/// Whether a receiver would take a packet by its transport checksum. Of fragments, and of what its sender still routes, that is not known: a SYN
/// among them is refused, which no end sends so.
fn is_sound(received: &OraclePacket<'_>, packet: &Dissection, ip: &Ip) -> bool {
    let bytes = received.bytes;
    let Some(transport) = ip.transport else {
        // The checksums of other protocols are not the oracle's matter.
        let mut buffer = bytes.to_vec();
        let len = buffer.len();
        let view = Packet::new(&mut buffer, 0, len, received.port, received.link);
        let view = view.expect("it has all of its buffer");
        let layout = parse(&view, &ParserLimits { ip6_headers: u8::MAX }).expect("it is dissected");
        return transport_soundness(view.bytes(), &layout) != Soundness::Wrong;
    };
    if ip.fragment != Fragment::Whole || ip.source_routed {
        return transport.kind != TransportKind::Tcp || bytes[ip.upper + 13] & 2 == 0;
    }
    if transport.kind == TransportKind::Udp {
        if usize::from(u16_at(bytes, ip.upper + 4)) > ip.end - ip.upper {
            return false;
        }
        // Over IPv4 it has no checksum, nor has it in tunnels over IPv6 (RFC 6935, section 5).
        if u16_at(bytes, ip.upper + 6) == 0 {
            return true;
        }
    }
    let segment = &bytes[ip.upper..transport.payload_end];
    let addresses =
        if ip.version == 4 { packet.l3 + 12..packet.l3 + 20 } else { packet.l3 + 8..packet.l3 + 40 };
    let pseudo = match transport.kind {
        TransportKind::Icmp => 0,
        TransportKind::Tcp | TransportKind::Udp | TransportKind::Icmp6 => {
            sum(&bytes[addresses]) + segment.len() as u64 + u64::from(u8_at(bytes, ip.proto_at))
        }
    };
    let is_empty = pseudo == 0 && segment.iter().all(|byte| *byte == 0);
    !is_empty && (pseudo + sum(segment)).is_multiple_of(MODULUS)
}

/// RFC 9293 section 3.10.7.1.
fn reset(received: &OraclePacket<'_>, packet: &Dissection, ip: &Ip) -> Option<Vec<u8>> {
    let segment = &received.bytes[ip.upper..];
    let flags = segment[13];
    let mut rst = [&segment[2..4], &segment[..2], &[0; 16]].concat();
    rst[12] = 5 << 4;
    if flags & ACK != 0 {
        rst[4..8].copy_from_slice(&segment[8..12]);
        rst[13] = RST;
    } else {
        let transport = ip.transport?;
        if ip.fragment != Fragment::Whole {
            return None;
        }
        let data = transport.payload_end - ip.upper - transport.len;
        let len = data as u32 + u32::from(flags & 2 != 0) + u32::from(flags & 1 != 0);
        let seq = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
        rst[8..12].copy_from_slice(&seq.wrapping_add(len).to_be_bytes());
        rst[13] = RST | ACK;
    }
    Some(to_sender(6, 0, 16, &rst, received, packet, ip))
}

/// RFC 792, RFC 1812 section 4.3.2.3, RFC 4443 section 2.4 (c).
fn error(
    kind: [u8; 2],
    rest: u32,
    mtu: Option<u32>,
    received: &OraclePacket<'_>,
    packet: &Dissection,
    ip: &Ip,
) -> Option<Vec<u8>> {
    let (max, header, proto) = if ip.version == 4 { (576, 20, 1) } else { (1280, 40, 58) };
    let max = mtu.map_or(max, |mtu| max.min(mtu as usize)).checked_sub(header + 8)?;
    let quoted = &received.bytes[packet.l3..ip.end];
    let quoted = &quoted[..quoted.len().min(max)];
    let message = [&kind[..], &[0, 0], &rest.to_be_bytes(), quoted].concat();
    Some(to_sender(proto, 0xc0, 2, &message, received, packet, ip))
}

/// The packet back to the sender of another one, with this upper-layer message, whose checksum is at `field`.
fn to_sender(
    proto: u8,
    traffic_class: u8,
    field: usize,
    message: &[u8],
    received: &OraclePacket<'_>,
    packet: &Dissection,
    ip: &Ip,
) -> Vec<u8> {
    let mut out = received.bytes[..packet.l3].to_vec();
    if received.link == LinkType::Ethernet {
        out[..6].copy_from_slice(&received.bytes[6..12]);
        out[6..12].copy_from_slice(&received.bytes[..6]);
    }
    let l3 = packet.l3;
    let address = |offset: usize, len: usize| &received.bytes[l3 + offset..l3 + offset + len];
    let (source, destination) =
        if ip.version == 4 { (address(16, 4), address(12, 4)) } else { (address(24, 16), address(8, 16)) };
    if ip.version == 4 {
        let length = ((20 + message.len()) as u16).to_be_bytes();
        out.extend([0x45, traffic_class, length[0], length[1], 0, 0, 0x40, 0, 64, proto, 0, 0]);
    } else {
        let length = (message.len() as u16).to_be_bytes();
        out.extend([0x60 | traffic_class >> 4, traffic_class << 4, 0, 0, length[0], length[1], proto, 64]);
    }
    out.extend([source, destination].concat());
    if ip.version == 4 {
        let checksum = (MODULUS - sum(&out[l3..]) % MODULUS) as u16;
        write_u16(&mut out, l3 + 10, checksum);
    }
    let pseudo = match proto {
        1 => 0,
        _ => sum(source) + sum(destination) + u64::from(proto) + message.len() as u64,
    };
    let upper = out.len();
    out.extend(message);
    let checksum = (MODULUS - (pseudo + sum(message)) % MODULUS) as u16;
    write_u16(&mut out, upper + field, if checksum == 0xffff { 0 } else { checksum });
    out
}
