//! The packets that a script sends, and a plain parser of packets.

use mmb_engine::Endpoints;
pub(super) use mmb_packet::proto::{DCCP, GRE, ICMP, ICMP6, SCTP, TCP, UDP, UDP_LITE};
use mmb_testkit::{Dccp, Extension, FragmentHeader, Icmp, Ip4, Ip6, Sctp, Tcp, Udp, UdpLite, Upper, gre};
use std::net::IpAddr;

/// Bytes of an Ethernet header.
pub(super) const LINK: usize = 14;

/// The parsed headers of an IP packet. Offsets are into the IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) family: u8,
    pub(super) proto: u8,
    /// Ports are 0 where there are none, and the identifier on both sides in ICMP queries.
    pub(super) ends: Endpoints,
    /// The key of GRE; 0 without one.
    pub(super) key: u32,
    /// Where the transport header begins, and where the packet ends.
    pub(super) l4: usize,
    pub(super) end: usize,
    /// Any fragment, and one without a transport header.
    pub(super) fragment: bool,
    pub(super) later: bool,
    /// An ICMP message's type.
    pub(super) icmp: Option<u8>,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl Seen {
    /// Reads an IP packet, which may be cut off behind the first 8 bytes of its transport header.
    pub(super) fn read(ip: &[u8]) -> Option<Seen> {
        let (family, mut proto, mut l4, end, src, dst): (_, _, _, _, IpAddr, IpAddr);
        let mut place = 0;
        let mut fragment = false;
        if ip.first()? >> 4 == 4 {
            family = 4;
            proto = *ip.get(9)?;
            l4 = usize::from(ip[0] & 15) * 4;
            end = usize::from(word(ip, 2)?);
            src = <[u8; 4]>::try_from(ip.get(12..16)?).ok()?.into();
            dst = <[u8; 4]>::try_from(ip.get(16..20)?).ok()?.into();
            place = word(ip, 6)? & 0x1fff;
            fragment = word(ip, 6)? & 0x3fff != 0;
        } else {
            family = 6;
            proto = *ip.get(6)?;
            l4 = 40;
            end = 40 + usize::from(word(ip, 4)?);
            src = <[u8; 16]>::try_from(ip.get(8..24)?).ok()?.into();
            dst = <[u8; 16]>::try_from(ip.get(24..40)?).ok()?.into();
            if proto == 44 {
                proto = *ip.get(40)?;
                l4 = 48;
                place = word(ip, 42)? >> 3;
                fragment = word(ip, 42)? & 0xfff9 != 0;
            }
        }
        let later = place != 0;
        let mut seen = Seen {
            family,
            proto,
            ends: Endpoints { src, sport: 0, dst, dport: 0 },
            key: 0,
            l4,
            end,
            fragment,
            later,
            icmp: None,
        };
        if later {
            return Some(seen);
        }
        match proto {
            TCP | UDP | UDP_LITE | DCCP | SCTP => {
                seen.ends.sport = word(ip, l4)?;
                seen.ends.dport = word(ip, l4 + 2)?;
            }
            GRE if ip.get(l4)? & 0x20 != 0 => {
                // Scripts write none with a checksum.
                seen.key = long(ip, l4 + 4)?;
            }
            ICMP | ICMP6 => {
                seen.icmp = Some(*ip.get(l4)?);
                if !seen.is_error() {
                    seen.ends.sport = word(ip, l4 + 4)?;
                    seen.ends.dport = seen.ends.sport;
                }
            }
            _ => {}
        }
        Some(seen)
    }

    /// What both directions of its connection have in common.
    pub(super) fn flow(&self) -> (u8, u32) {
        // What an ICMP query asks, or answers.
        let asked = |icmp: u8| match (self.family, icmp) {
            (4, 0) => 8,
            (4, 14 | 16 | 18) => icmp - 1,
            (6, 129) => 128,
            _ => icmp,
        };
        (self.proto, self.icmp.map_or(self.key, |icmp| asked(icmp).into()))
    }

    pub(super) fn is_error(&self) -> bool {
        self.icmp.is_some_and(|icmp| if self.family == 4 { icmp == 3 } else { icmp == 1 })
    }

    /// Whether it is an error of any type (RFC 792, RFC 4443).
    pub(super) fn is_any_error(&self) -> bool {
        self.icmp.is_some_and(|icmp| match self.family {
            4 => matches!(icmp, 3 | 4 | 11 | 12),
            _ => matches!(icmp, 1..=4),
        })
    }

    /// Of an ICMP query, whether it asks.
    pub(super) fn asks(&self) -> Option<bool> {
        self.icmp.map(|icmp| matches!(icmp, 8 | 13 | 15 | 17 | 128))
    }
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum()
}

/// The checksum of an SCTP packet, bit by bit.
fn crc32c(packet: &[u8]) -> u32 {
    let zeroed = packet.iter().enumerate().map(|(at, byte)| if (8..12).contains(&at) { 0 } else { *byte });
    let step = |crc: u32, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !zeroed.fold(!0, |crc: u32, byte| (0..8).fold(crc ^ u32::from(byte), step))
}

fn is_ones(mut sum: u32) -> bool {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

/// Whether the checksums of an IP packet are right, as far as it is whole; and of the one that an ICMP error quotes.
pub(super) fn sums_up(ip: &[u8]) -> bool {
    let Some(seen) = Seen::read(ip) else { return false };
    if seen.family == 4 && !ip.get(..usize::from(ip[0] & 15) * 4).is_some_and(|header| is_ones(sum(header))) {
        return false;
    }
    let Some(upper) = ip.get(seen.l4..seen.end).filter(|_| !seen.fragment) else { return true };
    if seen.is_error() && !sums_up(&upper[8..]) {
        return false;
    }
    let addresses = if seen.family == 4 { &ip[12..20] } else { &ip[8..40] };
    let pseudo = sum(addresses) + u32::from(seen.proto) + upper.len() as u32;
    match seen.proto {
        UDP if seen.family == 4 && upper[6..8] == [0, 0] => true,
        TCP | UDP | ICMP6 | DCCP => is_ones(pseudo + sum(upper)),
        // Scripts write such as cover twelve bytes.
        UDP_LITE => is_ones(pseudo + sum(&upper[..upper.len().min(12)])),
        SCTP => upper.len() < 12 || upper[8..12] == crc32c(upper).to_le_bytes(),
        ICMP => is_ones(sum(upper)),
        _ => true,
    }
}

/// The Ethernet frame of an IP packet.
pub(super) fn frame(ends: Endpoints, upper: Upper) -> Vec<u8> {
    match (ends.src, ends.dst) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes()
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Ip6 { source, destination, ..Ip6::new(upper) }.frame().bytes()
        }
        _ => Vec::new(),
    }
}

/// A fragment of the IP packet of a frame: `place` and `len` are in units of 8 bytes.
pub(super) fn fragment(whole: &[u8], id: u16, place: u16, len: usize, more: bool) -> Vec<u8> {
    let ip = &whole[LINK..];
    let Some(seen) = Seen::read(ip) else { return Vec::new() };
    let from = (seen.l4 + usize::from(place) * 8).min(ip.len());
    let piece = ip[from..(from + len * 8).min(ip.len())].to_vec();
    let upper = Upper::Raw(seen.proto, piece);
    match (seen.ends.src, seen.ends.dst) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let flags = u8::from(more);
            let ip = Ip4 { source, destination, id, flags, frag_offset: place, ..Ip4::new(upper) };
            ip.frame().bytes()
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = Extension::Fragment(FragmentHeader { offset: place, more });
            Ip6 { source, destination, ..Ip6::new(upper) }.extension(header).frame().bytes()
        }
        _ => Vec::new(),
    }
}

/// An echo or an error in the IP version of the addresses.
pub(super) fn icmp(family: u8, types: [u8; 2], rest: [u8; 4], payload: Vec<u8>) -> Upper {
    let icmp_type = types[usize::from(family == 6)];
    Upper::Icmp(Icmp { icmp_type, rest, payload, ..Icmp::default() })
}

/// What the receiver of a frame may answer; TCP numbers follow on.
pub(super) fn answer(whole: &[u8], flags: u8, payload: usize) -> Option<Vec<u8>> {
    let ip = &whole[LINK..];
    let seen = Seen::read(ip)?;
    let Endpoints { src, sport, dst, dport } = seen.ends;
    let ends = Endpoints { src: dst, sport: dport, dst: src, dport: sport };
    let payload = vec![7; payload];
    let upper = match seen.proto {
        _ if seen.later || seen.is_error() => return None,
        TCP => {
            let taken = long(ip, seen.l4 + 8)?;
            let header = usize::from(ip.get(seen.l4 + 12)? >> 4) * 4;
            let came = u32::from(ip.get(seen.l4 + 13)? & 3 != 0) + (seen.end - seen.l4 - header) as u32;
            let ack = long(ip, seen.l4 + 4)?.wrapping_add(came);
            let seq = if taken == 0 { 9000 } else { taken };
            Upper::Tcp(Tcp { sport: dport, dport: sport, seq, ack, flags, payload, ..Tcp::default() })
        }
        UDP => Upper::Udp(Udp { sport: dport, dport: sport, payload, ..Udp::default() }),
        ICMP | ICMP6 => {
            let [high, low] = sport.to_be_bytes();
            let types = match seen.icmp? {
                // Some answer what was not asked.
                _ if payload.len() == 13 => [14, 129],
                8 | 128 => [0, 129],
                13 => [14, 129],
                14 => [13, 128],
                _ => [8, 128],
            };
            icmp(seen.family, types, [high, low, 0, 1], payload)
        }
        UDP_LITE => udp_lite(dport, sport, payload),
        DCCP => Upper::Dccp(Dccp { sport: dport, dport: sport, payload, ..Dccp::default() }),
        SCTP => {
            let packet = Sctp { sport: dport, dport: sport, tag: 7, ..Sctp::default() };
            let asks = ip.get(seen.l4 + 12) == Some(&1);
            if asks { packet.init(2, 7) } else { packet.chunk(0, 3, &payload) }.upper()
        }
        GRE => gre((ip.get(seen.l4)? & 0x20 != 0).then_some(seen.key)),
        proto => Upper::Raw(proto, payload),
    };
    Some(frame(ends, upper))
}

/// A packet of UDP-Lite whose checksum covers four bytes of the payload.
pub(super) fn udp_lite(sport: u16, dport: u16, mut payload: Vec<u8>) -> Upper {
    payload.resize(payload.len().max(4), 0);
    Upper::UdpLite(UdpLite { sport, dport, coverage: 12, payload, ..UdpLite::default() })
}

/// An ICMP error from a router to somebody about a frame, of whose transport so many bytes are quoted.
pub(super) fn error(whole: &[u8], (router, to): (IpAddr, IpAddr), quoted: usize) -> Option<Vec<u8>> {
    let ip = &whole[LINK..];
    let seen = Seen::read(ip)?;
    let inside = ip.get(..(seen.l4 + quoted).min(seen.end))?.to_vec();
    let ends = Endpoints { src: router, sport: 0, dst: to, dport: 0 };
    Some(frame(ends, icmp(seen.family, [3, 1], [0; 4], inside)))
}
