//! Fields in place: a mask and a value over aligned bytes of a header.

use crate::traits::{NEXT_HEADER, Traits, part, required};
use mmb_packet::checksum::{self, Delta};
use mmb_packet::{Layout, key};
use mmb_policy::field::{FieldInfo, Implies, Place};

/// One packet's pass through the steps: what it is, and what the changes so far do to its two checksums.
#[derive(Debug)]
pub(crate) struct Pass {
    /// What the packet is.
    pub(crate) traits: Traits,
    /// The IPv4 header checksum.
    pub(crate) header: Delta,
    /// The transport checksum.
    pub(crate) transport: Delta,
}

impl Pass {
    #[inline]
    pub(crate) fn new(layout: &Layout) -> Pass {
        Pass { traits: Traits::of(layout), header: Delta::default(), transport: Delta::default() }
    }

    /// Lets the checksums over `parts` follow the change of a word.
    #[inline(always)]
    fn follow(&mut self, parts: u8, old: [u8; 2], new: [u8; 2]) {
        if parts & part::IP4_HEADER != 0 {
            self.header.word(old, new);
        }
        if parts & part::ANY_TRANSPORT != 0 {
            self.transport.word(old, new);
        }
        if parts & part::UDP_LENGTH != 0 {
            self.transport.word(old, new);
        }
    }
}

/// What an offset counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    /// The outermost VLAN tag.
    Tag,
    /// The IP header.
    Ip,
    /// The transport header.
    Transport,
    /// The byte that names the upper-layer protocol.
    Proto,
}

/// What is written over the old bytes: `old & !mask | value`. Numbers as on the wire, in memory order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bits {
    /// A whole byte that is the lower half of its word in every checksum that covers it.
    Byte(u8),
    Word {
        mask: [u8; 2],
        value: [u8; 2],
    },
    Long {
        mask: [u8; 4],
        value: [u8; 4],
    },
    Wide {
        mask: [u8; 16],
        value: [u8; 16],
    },
}

/// One field with the value that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldStep {
    needs: u16,
    base: Base,
    /// Offset from the base; even but for [`Bits::Byte`].
    at: u8,
    /// The [`part`]s that it writes.
    parts: u8,
    bits: Bits,
}

impl FieldStep {
    /// The step that writes `number` into the field; `None` if the field has no fixed place in a packet.
    pub(crate) fn new(field: &FieldInfo, number: u128) -> Option<FieldStep> {
        let Place::Key { bit, width } = field.place else { return None };
        let needs = required(field.implies);
        let (first, last) = (usize::from(bit) / 8, (usize::from(bit) + usize::from(width) - 1) / 8);
        let step = |base, at, parts, bits| Some(FieldStep { needs, base, at, parts, bits });
        match first {
            key::PROTO => {
                return step(Base::Proto, 0, part::IP4_HEADER | part::PROTO, Bits::Byte(number as u8));
            }
            key::VLAN => {
                return step(Base::Tag, 0, 0, bits(number, bit - key::VLAN as u16 * 8, width, 2));
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
            return step(base, NEXT_HEADER as u8, part::NEXT, Bits::Byte(number as u8));
        }
        let even = at & !1;
        let bytes = match last - start - even {
            0..=1 => 2,
            2..=3 => 4,
            _ => 16,
        };
        let bit = bit - (start + even) as u16 * 8;
        step(base, even as u8, parts(field.implies, base, even), bits(number, bit, width, bytes))
    }

    /// Whether the step writes a checksum: those are written last and do not follow anything.
    pub(crate) fn writes_checksum(&self) -> bool {
        let at = |kind| checksum::field_offset(kind).map(|at| at as u8);
        match (self.base, self.needs) {
            (Base::Ip, needs) => needs == required(Implies::Ip4) && self.at == IP4_CHECKSUM as u8,
            (Base::Transport, needs) => [
                (Implies::Tcp, checksum::TCP),
                (Implies::Udp, checksum::UDP),
                (Implies::Icmp, checksum::ICMP),
                (Implies::Icmp6, checksum::ICMP6),
            ]
            .iter()
            .any(|&(implies, kind)| needs == required(implies) && at(kind) == Some(self.at)),
            _ => false,
        }
    }

    /// Writes the field if the packet has it.
    #[inline]
    pub(crate) fn apply(&self, bytes: &mut [u8], layout: &Layout, pass: &mut Pass) {
        if !pass.traits.meets(self.needs) {
            return;
        }
        let base = match self.base {
            // Tags are of four bytes each, the last one right in front of what they tag.
            Base::Tag => layout.ip - 4 * u16::from(layout.vlan_tags),
            Base::Ip => layout.ip,
            Base::Transport => layout.l4,
            Base::Proto => layout.proto_at,
        };
        let Some(place) = bytes.get_mut(usize::from(base) + usize::from(self.at)..) else { return };
        let parts = self.parts & pass.traits.covered;
        match self.bits {
            Bits::Byte(value) => {
                let Some(byte) = place.first_mut() else { return };
                pass.follow(parts, [0, *byte], [0, value]);
                *byte = value;
            }
            Bits::Word { mask, value } => write(place, mask, value, parts, pass),
            Bits::Long { mask, value } => write(place, mask, value, parts, pass),
            Bits::Wide { mask, value } => write(place, mask, value, parts, pass),
        }
    }
}

/// Offset of the length in a UDP header.
pub(crate) const UDP_LENGTH: usize = 4;
/// Offset of the checksum in an IPv4 header.
pub(crate) const IP4_CHECKSUM: usize = 10;

/// The parts that bytes at an even offset behind a base belong to.
fn parts(implies: Implies, base: Base, at: usize) -> u8 {
    match (base, implies) {
        (Base::Transport, Implies::Udp) if at == UDP_LENGTH => part::TRANSPORT | part::UDP_LENGTH,
        (Base::Transport, _) => part::TRANSPORT,
        (Base::Ip, Implies::Ip4) => {
            part::IP4_HEADER
                | match at {
                    12..16 => part::SOURCE,
                    16..20 => part::DESTINATION,
                    _ => 0,
                }
        }
        (Base::Ip, Implies::Ip6) => match at {
            8..24 => part::SOURCE,
            24..40 => part::DESTINATION,
            _ => 0,
        },
        _ => 0,
    }
}

/// `width` bits of `number` at bit `bit` of `bytes` bytes.
fn bits(number: u128, bit: u16, width: u8, bytes: u16) -> Bits {
    let shift = u32::from(bytes * 8 - bit - u16::from(width));
    let mask = mmb_policy::rule::ones(width) << shift;
    let value = (number << shift) & mask;
    match bytes {
        2 => Bits::Word { mask: (mask as u16).to_be_bytes(), value: (value as u16).to_be_bytes() },
        4 => Bits::Long { mask: (mask as u32).to_be_bytes(), value: (value as u32).to_be_bytes() },
        _ => Bits::Wide { mask: mask.to_be_bytes(), value: value.to_be_bytes() },
    }
}

/// Writes the masked bits over the first `N` bytes and lets the checksums over `parts` follow.
#[inline(always)]
fn write<const N: usize>(place: &mut [u8], mask: [u8; N], value: [u8; N], parts: u8, pass: &mut Pass) {
    let Some(place) = place.first_chunk_mut::<N>() else { return };
    let old = *place;
    for (byte, (mask, value)) in place.iter_mut().zip(mask.iter().zip(value)) {
        *byte = *byte & !mask | value;
    }
    for (old, new) in old.as_chunks::<2>().0.iter().zip(place.as_chunks::<2>().0) {
        pass.follow(parts, *old, *new);
    }
}
