//! Fields at fixed places: a mask and a value for aligned bytes of a header.

use crate::traits::{NEXT_HEADER, Traits, part, required};
use mmb_packet::checksum::{self, ChecksumDelta};
use mmb_packet::proto;
use mmb_packet::{Layout, key};
use mmb_policy::field::{FieldInfo, FieldPlace, Implies};

/// The state of one packet during the steps: its traits, and the effect of the changes so far on its two checksums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RewritePass {
    /// The traits of the packet.
    pub(crate) traits: Traits,
    /// The IPv4 header checksum.
    pub(crate) header: ChecksumDelta,
    /// The transport checksum.
    pub(crate) transport: ChecksumDelta,
}

impl RewritePass {
    #[inline]
    pub(crate) fn new(layout: &Layout) -> RewritePass {
        RewritePass {
            traits: Traits::of(layout),
            header: ChecksumDelta::default(),
            transport: ChecksumDelta::default(),
        }
    }

    /// Updates the checksums over `parts` for the change of two words.
    #[inline(always)]
    fn follow(&mut self, parts: u8, old: u32, new: u32) {
        if parts & part::IP4_HEADER != 0 {
            self.header.long(old, new);
        }
        if parts & part::ANY_TRANSPORT != 0 {
            self.transport.long(old, new);
        }
        if parts & part::UDP_LENGTH != 0 {
            self.transport.long(old, new);
        }
    }
}

/// The base of an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    /// The outermost VLAN tag.
    Tag,
    /// The IP header.
    Ip,
    /// The transport header.
    Transport,
    /// The byte with the number of the upper-layer protocol.
    Proto,
}

/// The new bits: `old & !mask | value`. Numbers are as on the wire, in memory order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldBits {
    /// Four bytes. Every header contains all four if one of them belongs to a field. They are read and written as one number: a
    /// read of bytes that were written in pieces of another size would stall.
    Long { mask: u32, value: u32 },
    /// A whole byte that is the lower half of its word in every checksum that covers it.
    Byte(u8),
    /// An IPv6 address.
    Wide { mask: [u32; 4], value: [u32; 4] },
}

/// One field with its new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldStep {
    needs: u16,
    base: Base,
    /// Offset from the base; a multiple of 4 except for [`FieldBits::Byte`].
    at: u8,
    /// The [`part`]s that the step writes.
    parts: u8,
    bits: FieldBits,
}

impl FieldStep {
    /// The step that writes `number` into the field; `None` if the field has no fixed place in a packet.
    pub(crate) fn new(field: &FieldInfo, number: u128) -> Option<FieldStep> {
        let FieldPlace::Key { bit, width } = field.place else { return None };
        let needs = required(field.implies);
        let (first, last) = (usize::from(bit) / 8, (usize::from(bit) + usize::from(width) - 1) / 8);
        let step = |base, at, parts, bits| Some(FieldStep { needs, base, at, parts, bits });
        match first {
            key::PROTO => {
                return step(Base::Proto, 0, part::IP4_HEADER | part::PROTO, FieldBits::Byte(number as u8));
            }
            key::VLAN => {
                return step(Base::Tag, 0, 0, bits(number, bit - key::VLAN as u16 * 8, width, 4));
            }
            _ => {}
        }
        let (base, start) = match first {
            key::IP.. => (Base::Ip, key::IP),
            key::L4..key::PAYLOAD_LEN => (Base::Transport, key::L4),
            _ => return None,
        };
        let at = first - start;
        if field.implies == Implies::Ip6 && at == usize::from(NEXT_HEADER) {
            return step(base, NEXT_HEADER as u8, part::NEXT, FieldBits::Byte(number as u8));
        }
        let aligned = at & !3;
        let bytes = if last - start - aligned < 4 { 4 } else { 16 };
        let bit = bit - (start + aligned) as u16 * 8;
        step(base, aligned as u8, parts(field.implies, base, at), bits(number, bit, width, bytes))
    }

    /// Whether the field is one of an IP or transport header.
    pub(crate) fn is_of_header(&self) -> bool {
        matches!(self.base, Base::Ip | Base::Transport)
    }

    /// Writes the field if the packet has it.
    #[inline(always)]
    pub(crate) fn apply(&self, bytes: &mut [u8], layout: &Layout, pass: &mut RewritePass) {
        if !pass.traits.meets(self.needs) {
            return;
        }
        let base = match self.base {
            Base::Tag | Base::Proto => self.special_base(layout),
            _ => {
                if self.base == Base::Transport {
                    layout.l4
                } else {
                    layout.ip
                }
            }
        };
        let Some(place) = bytes.get_mut(usize::from(base) + usize::from(self.at)..) else { return };
        let parts = self.parts & pass.traits.covered;
        match &self.bits {
            FieldBits::Long { mask, value } => write(place, &[*mask], &[*value], parts, pass),
            _ => *pass = self.write_other(place, parts, *pass),
        }
    }

    /// Rare: bases other than the IP and the transport header.
    #[cold]
    fn special_base(&self, layout: &Layout) -> u16 {
        match self.base {
            // Tags have four bytes each; the last one is directly before the tagged data.
            Base::Tag => layout.ip - 4 * u16::from(layout.vlan_tags),
            _ => layout.proto_at,
        }
    }

    /// Less frequent: values that do not have four bytes. The pass is a value, so that it stays in registers in the other cases.
    #[inline(never)]
    fn write_other(&self, place: &mut [u8], parts: u8, mut pass: RewritePass) -> RewritePass {
        match (&self.bits, place.first_mut()) {
            (FieldBits::Byte(value), Some(byte)) => {
                let word = |byte| u32::from(u16::from_ne_bytes([0, byte]));
                pass.follow(parts, word(*byte), word(*value));
                *byte = *value;
            }
            (FieldBits::Wide { mask, value }, _) => write(place, mask, value, parts, &mut pass),
            _ => {}
        }
        pass
    }
}

/// Whether a field is a checksum: those are written last and are not updated for changes.
pub(crate) fn is_checksum(field: &FieldInfo) -> bool {
    let FieldPlace::Key { bit, .. } = field.place else { return false };
    let kind = match field.implies {
        Implies::Ip4 => return usize::from(bit) == (key::IP + IP4_CHECKSUM) * 8,
        Implies::Tcp => proto::TCP,
        Implies::Udp => proto::UDP,
        Implies::Icmp => proto::ICMP,
        Implies::Icmp6 => proto::ICMP6,
        Implies::Frame | Implies::Ip | Implies::Ip6 => return false,
        Implies::Transport | Implies::TcpOrUdp => return false,
    };
    checksum::field_offset(kind).is_some_and(|at| usize::from(bit) == (key::L4 + at) * 8)
}

/// Offset of the length in a UDP header.
pub(crate) const UDP_LENGTH: usize = 4;
/// Offset of the checksum in an IPv4 header.
pub(crate) const IP4_CHECKSUM: usize = 10;

/// The parts to which the field at an offset from a base belongs. The unchanged bytes around it add nothing to a checksum,
/// whatever it covers.
fn parts(implies: Implies, base: Base, at: usize) -> u8 {
    match base {
        Base::Transport if implies == Implies::Udp && at == UDP_LENGTH => part::TRANSPORT | part::UDP_LENGTH,
        Base::Transport => part::TRANSPORT,
        Base::Ip if implies == Implies::Ip4 => {
            part::IP4_HEADER
                | match at {
                    12..16 => part::SOURCE,
                    16..20 => part::DESTINATION,
                    _ => 0,
                }
        }
        Base::Ip => match at {
            8..24 => part::SOURCE,
            24..40 => part::DESTINATION,
            _ => 0,
        },
        // Their steps name their parts themselves.
        Base::Tag | Base::Proto => 0,
    }
}

/// `width` bits of `number` at bit `bit` of `bytes` bytes.
fn bits(number: u128, bit: u16, width: u8, bytes: u16) -> FieldBits {
    let shift = u32::from(bytes * 8 - bit - u16::from(width));
    let mask = mmb_policy::field::ones(width) << shift;
    let value = (number << shift) & mask;
    let longs = |number: u128| -> [u32; 4] {
        let bytes = number.to_be_bytes();
        std::array::from_fn(|long| u32::from_ne_bytes(std::array::from_fn(|i| bytes[long * 4 + i])))
    };
    match (bytes, longs(mask), longs(value)) {
        (4, [.., mask], [.., value]) => FieldBits::Long { mask, value },
        (_, mask, value) => FieldBits::Wide { mask, value },
    }
}

/// Writes the masked bits over the first `N` numbers and updates the checksums over `parts`.
#[inline(always)]
fn write<const N: usize>(
    place: &mut [u8],
    mask: &[u32; N],
    value: &[u32; N],
    parts: u8,
    pass: &mut RewritePass,
) {
    let Some(place) = place.as_chunks_mut::<4>().0.first_chunk_mut::<N>() else { return };
    for (place, (mask, value)) in place.iter_mut().zip(mask.iter().zip(value)) {
        let old = u32::from_ne_bytes(*place);
        let new = old & !mask | value;
        *place = new.to_ne_bytes();
        pass.follow(parts, old, new);
    }
}
