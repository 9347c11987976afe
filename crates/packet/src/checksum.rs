//! Internet checksums: whole sums, pseudo headers, incremental updates.
//!
//! Purpose: [`ChecksumSum`] adds bytes up (RFC 1071), [`ChecksumDelta`] collects what a change of bytes does to a checksum and
//! applies it (RFC 1624, equation 3), so that a checksum that was wrong stays wrong by the same difference.
//! Both keep 16-bit words as they lie in memory: the ones' complement sum does not depend on byte order
//! (RFC 1071 section 2 B), so nothing is swapped until a number is asked for.
//!
//! Life-cycle: values on the stack of whoever computes; nothing here reads a packet out of bounds or panics.

use crate::crc::sctp_is_sound;
use crate::flow::header_len;
use crate::layout::{Class, IP4_HEADER, IP6_HEADER, Layout};
use crate::proto::{DCCP, ICMP, ICMP6, SCTP, TCP, UDP, UDP_LITE};
use mmb_base::simd::{Kernel, SimdLevel};

/// A ones' complement sum in the making.
///
/// It holds any number of carries: sums of less than 16 GiB cannot overflow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumSum(u64);

impl ChecksumSum {
    /// Adds bytes that begin at an even offset of what is summed. The last byte of an odd number of bytes is the
    /// upper half of a word whose lower half is zero.
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> ChecksumSum {
        let (longs, rest) = bytes.as_chunks::<4>();
        let mut sum = self.0;
        if longs.len() >= MIN_SIMD_LONGS {
            SimdLevel::detect().run(SumLongs { longs, sum: &mut sum });
        } else {
            SumLongs { longs, sum: &mut sum }.run();
        }
        let mut last = [0; 4];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        ChecksumSum(sum + u64::from(u32::from_ne_bytes(last)))
    }

    /// Adds a number of 16 bits.
    #[inline]
    #[must_use]
    pub fn word(self, number: u16) -> ChecksumSum {
        ChecksumSum(self.0 + u64::from(number.to_be()))
    }

    /// Adds a number of 32 bits, as two words.
    #[inline]
    #[must_use]
    pub fn long(self, number: u32) -> ChecksumSum {
        ChecksumSum(self.0 + u64::from(number.to_be()))
    }

    /// The sum as a 16-bit number: 0 only if nothing but zeros was added, 0xffff for every other zero.
    #[inline]
    #[must_use]
    pub fn fold(self) -> u16 {
        u16::from_be(fold(self.0))
    }

    /// The checksum of what was added: the complement of the sum.
    #[inline]
    #[must_use]
    pub fn checksum(self) -> u16 {
        !self.fold()
    }
}

/// Fewer are not worth the call of a kernel.
const MIN_SIMD_LONGS: usize = 32;

/// Adds numbers of 32 bits to a sum.
struct SumLongs<'s> {
    longs: &'s [[u8; 4]],
    sum: &'s mut u64,
}

impl Kernel for SumLongs<'_> {
    #[inline(always)]
    fn run(self) {
        for long in self.longs {
            *self.sum += u64::from(u32::from_ne_bytes(*long));
        }
    }
}

/// Adds the halves of a sum until it has 16 bits, with end-around carry.
#[inline]
fn fold(sum: u64) -> u16 {
    // A number plus itself with swapped halves has the halves' sum in its upper half, carry included.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Whether an IPv4 header's bytes, checksum included, sum up to nothing.
#[inline]
pub fn header_is_sound(header: &[u8]) -> bool {
    ChecksumSum::default().bytes(header).fold() == 0xffff
}

/// The effect of changed bytes on a checksum over them: the sum of `~old + new` over all words (RFC 1624).
///
/// A word that stays adds 0xffff, which is zero; changes that come to zero leave a checksum as it is, be it 0 or 0xffff.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChecksumDelta(u64);

impl ChecksumDelta {
    /// Whether no change was noted, so that there is nothing to apply.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Both changes.
    #[inline]
    #[must_use]
    pub fn and(self, other: ChecksumDelta) -> ChecksumDelta {
        ChecksumDelta(self.0 + other.0)
    }

    /// A word, at an even offset of what is summed, changes. Bytes as on the wire.
    #[inline]
    pub fn word(&mut self, old: [u8; 2], new: [u8; 2]) {
        self.0 += u64::from(!u16::from_ne_bytes(old)) + u64::from(u16::from_ne_bytes(new));
    }

    /// Two words, at an even offset of what is summed, change. Bytes as on the wire, in memory order.
    #[inline]
    pub fn long(&mut self, old: u32, new: u32) {
        self.0 += u64::from(!old) + u64::from(new);
    }

    /// A byte changes that is the upper half of its word at an even offset, the lower half at an odd one.
    #[inline]
    pub fn byte(&mut self, odd: bool, old: u8, new: u8) {
        if odd {
            self.word([0, old], [0, new]);
        } else {
            self.word([old, 0], [new, 0]);
        }
    }

    /// Bytes change, beginning at an even or odd offset of what is summed. Where one side is longer, bytes are
    /// removed or appended; what is behind them must not change its parity by that.
    #[inline]
    pub fn bytes(&mut self, odd: bool, old: &[u8], new: &[u8]) {
        let sum = |bytes| fold(ChecksumSum::default().bytes(bytes).0).to_ne_bytes();
        let ([a, b], [c, d]) = (sum(old), sum(new));
        // Words that begin one byte later have their halves swapped (RFC 1071 section 2 B).
        if odd {
            self.word([b, a], [d, c]);
        } else {
            self.word([a, b], [c, d]);
        }
    }

    /// The checksum field after the changes, given the one before (RFC 1624 equation 3).
    #[inline]
    #[must_use]
    pub fn apply(self, checksum: [u8; 2]) -> [u8; 2] {
        if fold(self.0) == 0xffff {
            return checksum;
        }
        (!fold(u64::from(!u16::from_ne_bytes(checksum)) + self.0)).to_ne_bytes()
    }

    /// The checksum field of that kind of transport header after the changes. For UDP 0 means that there is no checksum
    /// and stays, and a checksum never becomes 0 (RFC 768): without branches, since in mixed traffic nothing foretells them.
    #[inline]
    #[must_use]
    pub fn apply_transport(self, l4_kind: u8, checksum: [u8; 2]) -> [u8; 2] {
        let udp = u16::from(l4_kind == UDP).wrapping_neg();
        let old = u16::from_ne_bytes(checksum);
        let new = u16::from_ne_bytes(self.apply(checksum));
        // All ones where it is UDP and the number is 0.
        let zero = |number: u16| u16::from(number == 0).wrapping_neg() & udp;
        ((new | zero(new)) & !zero(old)).to_ne_bytes()
    }
}

/// The IPv4 pseudo header (RFC 9293 section 3.1, RFC 768). `length` is the transport header's and payload's.
#[inline]
pub fn pseudo4(source: [u8; 4], destination: [u8; 4], proto: u8, length: u16) -> ChecksumSum {
    ChecksumSum::default().bytes(&source).bytes(&destination).word(u16::from(proto)).word(length)
}

/// The IPv6 pseudo header (RFC 8200 section 8.1).
#[inline]
pub fn pseudo6(source: [u8; 16], destination: [u8; 16], proto: u8, length: u32) -> ChecksumSum {
    ChecksumSum::default().bytes(&source).bytes(&destination).long(u32::from(proto)).long(length)
}

/// By kind of transport header: where the checksum field lies. No header begins with it.
static FIELD_OFFSETS: [u8; 256] = {
    let mut offsets = [0; 256];
    offsets[TCP as usize] = 16;
    offsets[UDP as usize] = 6;
    offsets[ICMP as usize] = 2;
    offsets[ICMP6 as usize] = 2;
    offsets[UDP_LITE as usize] = 6;
    offsets[DCCP as usize] = 6;
    offsets
};

/// The offset of the Internet checksum in a transport header of that kind (1, 6, 17 or 58) or protocol (UDP-Lite and DCCP too).
#[inline]
pub fn field_offset(l4_kind: u8) -> Option<usize> {
    let offset = FIELD_OFFSETS[usize::from(l4_kind)];
    (offset > 0).then_some(usize::from(offset))
}

/// The pseudo header that a packet's transport checksum covers, with the addresses that the IP header holds: empty
/// for ICMP over IPv4, `None` where there is no transport header.
///
/// On a packet that is still to be routed by its sender ([`Layout::is_routed`]) the checksum covers another
/// destination than this one.
#[inline]
pub fn pseudo_header(bytes: &[u8], layout: &Layout) -> Option<ChecksumSum> {
    pseudo_header_of(layout.l4_kind, bytes, layout)
}

/// The pseudo header of a packet of some protocol.
#[inline]
fn pseudo_header_of(proto: u8, bytes: &[u8], layout: &Layout) -> Option<ChecksumSum> {
    let length = layout.payload_end.checked_sub(u32::from(layout.l4))?;
    let header = bytes.get(usize::from(layout.ip)..)?;
    match (proto, layout.class) {
        (0, _) | (_, Class::Other) => None,
        (ICMP, _) => Some(ChecksumSum::default()),
        (kind, Class::Ip4) => {
            let header: &[u8; IP4_HEADER] = header.first_chunk()?;
            Some(pseudo4(*header[12..].first_chunk()?, *header[16..].first_chunk()?, kind, length as u16))
        }
        (kind, Class::Ip6) => {
            let header: &[u8; IP6_HEADER] = header.first_chunk()?;
            Some(pseudo6(*header[8..].first_chunk()?, *header[24..].first_chunk()?, kind, length))
        }
    }
}

/// The result of a check of a packet's transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Soundness {
    /// It is right, or the packet has none.
    Right,
    /// It is wrong.
    Wrong,
    /// This packet alone does not tell.
    Unknown,
}

impl From<bool> for Soundness {
    fn from(is_right: bool) -> Soundness {
        if is_right { Soundness::Right } else { Soundness::Wrong }
    }
}

/// Whether a packet's transport checksum is right, and of UDP the length. Of fragments and of what is still to be routed by its sender nobody can tell from the
/// packet alone, but a SYN or RST of TCP counts as wrong there: no end sends one so. A packet without a
/// checksum counts as right: UDP with a checksum of 0 (RFC 768; over IPv6 in tunnels, RFC 6935 section 5, which a middlebox must not drop, RFC
/// 6936 section 4), and protocols other than those of [`crate::flow`], whose header is not known here.
pub fn transport_soundness(bytes: &[u8], layout: &Layout) -> Soundness {
    const FLAGS: usize = 13;
    const SYN_RST: u8 = 0x06;
    if layout.is_fragment() || layout.is_routed() {
        let flags = bytes.get(usize::from(layout.l4) + FLAGS);
        let is_wrong = layout.l4_kind == TCP && flags.is_some_and(|flags| flags & SYN_RST != 0);
        return if is_wrong { Soundness::Wrong } else { Soundness::Unknown };
    }
    let Some(field) = field_offset(layout.l4_kind) else {
        return other_is_sound(bytes, layout).unwrap_or(true).into();
    };
    if layout.l4_kind == UDP && udp_is_cut(bytes, layout) {
        return Soundness::Wrong;
    }
    let field = bytes.get(usize::from(layout.l4) + field..).and_then(|bytes| bytes.first_chunk::<2>());
    if layout.l4_kind == UDP && field == Some(&[0; 2]) {
        return Soundness::Right;
    }
    transport_sum(bytes, layout).is_none_or(|sum| sum.fold() == 0xffff).into()
}

/// Whether a datagram says that it is longer than it is: no receiver takes it (RFC 1122 section 4.1.3).
fn udp_is_cut(bytes: &[u8], layout: &Layout) -> bool {
    const LENGTH: usize = 4;
    let datagram = bytes.get(usize::from(layout.l4)..layout.end as usize).unwrap_or_default();
    let said = datagram.get(LENGTH..).and_then(|bytes| bytes.first_chunk::<2>());
    said.is_some_and(|said| usize::from(u16::from_be_bytes(*said)) > datagram.len())
}

/// Whether the checksum of SCTP, UDP-Lite or DCCP is right, which it is not without the whole header; `None` for other protocols.
fn other_is_sound(bytes: &[u8], layout: &Layout) -> Option<bool> {
    let segment = bytes.get(usize::from(layout.l4)..layout.end as usize)?;
    if segment.len() < header_len(layout.proto) {
        return Some(false);
    }
    let header: &[u8; 8] = segment.first_chunk()?;
    let covered = match layout.proto {
        SCTP => return sctp_is_sound(segment),
        UDP_LITE => match usize::from(u16::from_be_bytes([header[4], header[5]])) {
            _ if header[6..] == [0; 2] => return Some(false),
            0 => segment.len(),
            1..8 => return Some(false),
            coverage => coverage,
        },
        DCCP => match (usize::from(header[4]) * 4, usize::from(header[5] & 0x0f)) {
            (_, 0) => segment.len(),
            (offset, coverage) => offset + 4 * (coverage - 1),
        },
        _ => return None,
    };
    // One that covers more than there is is not right (RFC 3828 section 3.1, RFC 4340 section 9.2).
    let Some(covered) = segment.get(..covered) else { return Some(false) };
    Some(pseudo_header_of(layout.proto, bytes, layout)?.bytes(covered).fold() == 0xffff)
}

/// The sum of everything that a packet's transport checksum covers, the checksum field included: 0xffff when
/// folded if the checksum is right. `None` where there is no transport header. Meaningless on fragments.
pub fn transport_sum(bytes: &[u8], layout: &Layout) -> Option<ChecksumSum> {
    let covered = bytes.get(usize::from(layout.l4)..layout.payload_end as usize)?;
    Some(pseudo_header(bytes, layout)?.bytes(covered))
}
