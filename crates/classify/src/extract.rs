//! Numbers of keys.

use crate::lane_mask::LaneMask;
use mmb_packet::columns::Column;
use mmb_packet::key::{FLAGS, LANE, Lanes};
use mmb_policy::field::ones;

/// Reads a field of at most 32 bits from a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Extract {
    /// The lane that it lies in.
    lane: u8,
    /// Bits behind it in the lane.
    shift: u8,
    /// Bit of the key's flags without which a check of the field holds whatever it says; 0: none.
    unless: u8,
    /// Its bits, shifted down.
    mask: u32,
}

impl Extract {
    /// The field of `width` bits at bit `bit`, which does not leave its lane.
    pub(crate) fn new(bit: u16, width: u8, unless: u8) -> Extract {
        let shift = 32 - bit % 32 - u16::from(width);
        Extract { lane: (bit / 32) as u8, shift: shift as u8, unless, mask: ones(width) as u32 }
    }

    /// Some bits of the field: those of `mask`, `below` bits of it left out behind them.
    pub(crate) fn part(self, below: u8, mask: u32) -> Extract {
        Extract { shift: self.shift + below, mask, ..self }
    }

    /// The lane, the bits behind the number in it, and the number's bits shifted down, unless the check may hold without it.
    pub(crate) fn plain(self) -> Option<(u8, u8, u32)> {
        (self.unless == 0).then_some((self.lane, self.shift, self.mask))
    }

    /// The number of a key of a vector, or `None` where the check holds without it.
    #[inline]
    pub(crate) fn read(self, lanes: &[Column], key: u8) -> Option<u32> {
        let flags = || number(lanes, FLAGS / LANE, key).to_be_bytes()[FLAGS % LANE];
        if self.unless != 0 && flags() & self.unless == 0 {
            return None;
        }
        Some(number(lanes, usize::from(self.lane), key) >> self.shift & self.mask)
    }

    /// Adds the bits of the key that it reads to a mask.
    pub(crate) fn add_bits(self, mask: &mut LaneMask) {
        mask[usize::from(self.lane)] |= (self.mask << self.shift).to_be();
        let mut flags = [0; LANE];
        flags[FLAGS % LANE] = self.unless;
        mask[FLAGS / LANE] |= u32::from_ne_bytes(flags);
    }

    /// The lanes that it reads.
    pub(crate) fn lanes(self) -> Lanes {
        let flags = if self.unless == 0 { Lanes::default() } else { Lanes(1) };
        flags.with(Lanes(1 << self.lane))
    }
}

/// A lane of a key as a number.
#[inline]
pub(crate) fn number(lanes: &[Column], lane: usize, key: u8) -> u32 {
    u32::from_be(lanes[lane][usize::from(key)])
}

/// The IPv6 address of a key, from a lane on.
#[inline]
pub(crate) fn address(lanes: &[Column], lane: u8, key: u8) -> u128 {
    let part = |i: usize| u128::from(number(lanes, usize::from(lane) + i, key));
    part(0) << 96 | part(1) << 64 | part(2) << 32 | part(3)
}
