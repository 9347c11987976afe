//! Checksums, computed from scratch.
//!
//! Ones' complement addition of 16-bit words is addition modulo 65,535 (RFC 1071), so plain integers suffice. The fast path updates
//! checksums by the difference that a write makes. The oracle instead computes the correct checksum before and after the change, and keeps
//! the error that the packet arrived with: a correct packet stays correct and a corrupt one stays corrupt by the same amount.

use super::bytes::{MODULUS, sum, u8_at, u16_at};
use super::dissect::{Dissection, Ip, Transport, TransportKind};

/// The new value of a checksum field when the sum of all that it covers (itself taken as zero) changes from `before` to `after`. Of the two
/// representations of zero, 0 is used (RFC 1624 section 3), unless nothing changed.
fn follow(stored: u16, before: u64, after: u64) -> u16 {
    if before == after {
        return stored;
    }
    let right_before = MODULUS - before;
    let right_after = MODULUS - after;
    let error = u64::from(stored) + MODULUS - right_before;
    ((right_after + error) % MODULUS) as u16
}

/// The sums that a packet's checksum fields cover, each with its own field taken as zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums {
    ip_header: Option<Covered>,
    transport: Option<Covered>,
}

/// One checksum field: its offset, its value, and the sum of what it covers.
#[derive(Clone, Copy, Debug)]
struct Covered {
    at: usize,
    stored: u16,
    sum: u64,
}

impl Sums {
    /// Computes the sums of a packet.
    pub(super) fn of(bytes: &[u8], packet: &Dissection) -> Sums {
        let header = packet.ip.as_ref().filter(|ip| ip.version == 4).map(|ip| {
            let at = packet.l3 + 10;
            covered(bytes, at, sum(&bytes[packet.l3..packet.l3 + ip.header_len]))
        });
        let transport = packet.transport().map(|(ip, transport)| {
            let at = ip.upper + checksum_offset(transport.kind);
            // For a first fragment this is only a part of the sum; the missing part does not change.
            let covered_bytes = sum(&bytes[ip.upper..transport.payload_end]);
            covered(bytes, at, covered_bytes + pseudo_header(bytes, packet.l3, ip, transport))
        });
        Sums { ip_header: header, transport }
    }

    /// Updates the checksums in `bytes`, from those that `before` saw to the packet's present sums.
    pub(super) fn follow(self, before: Sums, bytes: &mut [u8], packet: &Dissection) {
        if let (Some(old), Some(new)) = (before.ip_header, self.ip_header) {
            write_u16(bytes, new.at, follow(old.stored, old.sum, new.sum));
        }
        if let (Some(old), Some(new), Some((_, transport))) =
            (before.transport, self.transport, packet.transport())
        {
            let udp = transport.kind == TransportKind::Udp;
            let checksum = match follow(old.stored, old.sum, new.sum) {
                // The sender computed none (RFC 768).
                _ if udp && old.stored == 0 => 0,
                // 0 would mean that there is none.
                0 if udp => 0xffff,
                other => other,
            };
            write_u16(bytes, new.at, checksum);
        }
    }
}

fn covered(bytes: &[u8], at: usize, sum_with_field: u64) -> Covered {
    let stored = u16_at(bytes, at);
    Covered { at, stored, sum: (sum_with_field + MODULUS - u64::from(stored) % MODULUS) % MODULUS }
}

fn checksum_offset(kind: TransportKind) -> usize {
    match kind {
        TransportKind::Tcp => 16,
        TransportKind::Udp => 6,
        TransportKind::Icmp | TransportKind::Icmp6 => 2,
    }
}

/// The sum of the pseudo header: RFC 9293 section 3.1, RFC 768, RFC 8200 section 8.1. ICMP over IPv4 has none. A destination address that
/// is not the final one is omitted: it never changes what the checksum covers.
fn pseudo_header(bytes: &[u8], l3: usize, ip: &Ip, transport: &Transport) -> u64 {
    if transport.kind == TransportKind::Icmp {
        return 0;
    }
    let (source, destination) = match ip.version {
        4 => (&bytes[l3 + 12..l3 + 16], &bytes[l3 + 16..l3 + 20]),
        _ => (&bytes[l3 + 8..l3 + 24], &bytes[l3 + 24..l3 + 40]),
    };
    let length = match transport.kind {
        TransportKind::Udp => u64::from(u16_at(bytes, ip.upper + 4)),
        TransportKind::Tcp | TransportKind::Icmp | TransportKind::Icmp6 => (ip.end - ip.upper) as u64,
    };
    let proto = u64::from(u8_at(bytes, ip.proto_at));
    let destination = if ip.source_routed { 0 } else { sum(destination) };
    sum(source) + destination + length + proto
}

/// Writes a big-endian 16-bit number.
pub(super) fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
