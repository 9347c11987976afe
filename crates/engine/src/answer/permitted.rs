//! Which packets may be answered: RFC 1122 section 3.2.2, RFC 1812 section 4.3.2.7, RFC 4443 section 2.4 (e).

use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_packet::proto::{ICMP, ICMP6, TCP};
use mmb_packet::{Class, Layout, LinkType, Packet};

/// The highest ICMP type that is known to be a query or a reply.
const LAST_QUERY: u8 = 18;
/// Types of ICMP errors: destination unreachable, source quench, redirect, time exceeded, parameter problem
/// (RFC 792).
const ERRORS: [u8; 5] = [3, 4, 5, 11, 12];
/// The first ICMPv6 type that is not an error (RFC 4443 section 2.1), and the type of a redirect (RFC 4861).
const FIRST_INFORMATION: u8 = 128;
const REDIRECT6: u8 = 137;

/// Whether a packet may be answered. These packets may not:
///
/// - RSTs, ICMP errors and later fragments,
/// - packets that may have been sent to several hosts, or whose source is not a single host,
/// - packets with a wrong transport checksum, which the receiver would not accept.
pub(super) fn may_be_answered(packet: &Packet<'_>, layout: &Layout) -> bool {
    !layout.is_later_fragment()
        && is_between_hosts(packet, layout)
        && !is_rst_or_error(packet, layout)
        && transport_soundness(packet.bytes(), layout) != Soundness::Wrong
}

/// Whether a packet is a RST or an ICMP error, which nobody answers. An ICMP type that may be an error counts
/// as one.
fn is_rst_or_error(packet: &Packet<'_>, layout: &Layout) -> bool {
    const FLAGS: usize = 13;
    const RST: u8 = 0x04;
    let header = packet.bytes().get(usize::from(layout.l4)..).unwrap_or_default();
    let kind = header.first().copied().unwrap_or_default();
    match layout.l4_kind {
        TCP => header.get(FLAGS).is_none_or(|flags| flags & RST != 0),
        ICMP => ERRORS.contains(&kind) || kind > LAST_QUERY,
        ICMP6 => !(FIRST_INFORMATION..).contains(&kind) || kind == REDIRECT6,
        // Errors of other protocols cannot be recognized.
        _ => false,
    }
}

/// Whether a packet was sent by one host to one other host, by its IP and link addresses.
fn is_between_hosts(packet: &Packet<'_>, layout: &Layout) -> bool {
    let bytes = packet.bytes();
    let ip = bytes.get(usize::from(layout.ip)..).unwrap_or_default();
    let are_hosts = match layout.class {
        Class::Ip4 => match (ip.get(12..16), ip.get(16..20)) {
            (Some(source), Some(destination)) => {
                source != destination && is_host4(source) && is_host4(destination)
            }
            _ => false,
        },
        Class::Ip6 => match (ip.get(8..24), ip.get(24..40)) {
            (Some(source), Some(destination)) => {
                source != destination && is_host6(source) && is_host6(destination)
            }
            _ => false,
        },
        Class::Other => false,
    };
    are_hosts && !is_to_group(packet.link, bytes)
}

/// Whether a frame was sent to a multicast or broadcast link address, or has such a source address.
fn is_to_group(link: LinkType, bytes: &[u8]) -> bool {
    const GROUP: u8 = 1;
    let is_group = |offset: usize| bytes.get(offset).is_some_and(|first| first & GROUP != 0);
    match link {
        LinkType::Ethernet => is_group(0) || is_group(6),
        // The kernel's packet type: 1 is broadcast, 2 is multicast.
        LinkType::Sll => matches!(bytes.get(..2), Some([0, 1 | 2])),
        LinkType::Sll2 => matches!(bytes.get(10), Some(1 | 2)),
        LinkType::RawIp => false,
    }
}

/// Whether an IPv4 address may be that of another host: not 0.0.0.0/8, 127.0.0.0/8, multicast, reserved or
/// broadcast (RFC 1122 section 3.2.1.3).
fn is_host4(address: &[u8]) -> bool {
    address.first().is_some_and(|first| !matches!(first, 0 | 127 | 224..))
}

/// Whether an IPv6 address may be that of another host: not unspecified, loopback or multicast (RFC 4291).
fn is_host6(address: &[u8]) -> bool {
    match address.split_last() {
        Some((last, [first, rest @ ..])) => {
            *first != 0xff && !(*first == 0 && *last <= 1 && rest.iter().all(|byte| *byte == 0))
        }
        _ => false,
    }
}
