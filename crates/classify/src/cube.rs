//! A cube: the key bits that a rule fixes, and their values.

use mmb_policy::field::ones;

/// 128-bit words of a cube: the 80 bytes of the longer key. The IPv4 key uses the first four.
pub(crate) const WORDS: usize = 5;

/// Big-endian 128-bit words of a key, or of a mask over one.
pub(crate) type KeyWords = [u128; WORDS];

/// Fixed bits of a key. `value` is 0 wherever `mask` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct KeyCube {
    pub(crate) mask: KeyWords,
    pub(crate) value: KeyWords,
}

/// Two constraints ask different values of one bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contradiction;

impl KeyCube {
    /// Fixes the `width` bits at bit `bit` (0: the most significant of the first byte) to `value`.
    pub(crate) fn fix(&mut self, bit: u16, width: u8, value: u128) -> Result<(), Contradiction> {
        let (mut bit, mut left) = (u32::from(bit), u32::from(width));
        while left > 0 {
            let (word, from) = ((bit / 128) as usize, bit % 128);
            let here = left.min(128 - from);
            let mask = ones(here as u8) << (128 - from - here);
            let part = (value >> (left - here)) << (128 - from - here) & mask;
            if (self.value[word] ^ part) & self.mask[word] & mask != 0 {
                return Err(Contradiction);
            }
            self.mask[word] |= mask;
            self.value[word] |= part;
            bit += here;
            left -= here;
        }
        Ok(())
    }

    /// Fixes the bits of `mask` in a byte, given by its number.
    pub(crate) fn fix_byte(&mut self, byte: usize, mask: u8, value: u8) -> Result<(), Contradiction> {
        let (word, shift) = (byte / 16, 120 - byte % 16 * 8);
        let (mask, part) = (u128::from(mask) << shift, u128::from(value & mask) << shift);
        if (self.value[word] ^ part) & self.mask[word] & mask != 0 {
            return Err(Contradiction);
        }
        self.mask[word] |= mask;
        self.value[word] |= part;
        Ok(())
    }

    /// The value of a field whose bits are all fixed.
    pub(crate) fn known(&self, bit: u16, width: u8) -> Option<u128> {
        let (mut bit, mut left, mut known) = (u32::from(bit), u32::from(width), 0);
        while left > 0 {
            let (word, from) = ((bit / 128) as usize, bit % 128);
            let here = left.min(128 - from);
            let mask = ones(here as u8) << (128 - from - here);
            if self.mask[word] & mask != mask {
                return None;
            }
            // A whole word is the only part of its field, so nothing is shifted out.
            known = if here == 128 { 0 } else { known << here }
                | (self.value[word] & mask) >> (128 - from - here);
            bit += here;
            left -= here;
        }
        Some(known)
    }

    /// The byte with a number, if all its bits are fixed.
    pub(crate) fn known_byte(&self, byte: usize) -> Option<u8> {
        self.known(byte as u16 * 8, 8).map(|value| value as u8)
    }

    /// Lets the bits of `other`'s mask be free again.
    pub(crate) fn release(&mut self, other: &KeyCube) {
        for word in 0..WORDS {
            self.mask[word] &= !other.mask[word];
            self.value[word] &= self.mask[word];
        }
    }
}

/// The bytes of key words, in the order of the key.
pub(crate) fn bytes(words: &KeyWords) -> [u8; WORDS * 16] {
    let mut bytes = [0; WORDS * 16];
    for (chunk, word) in bytes.chunks_exact_mut(16).zip(words) {
        chunk.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_fixed_and_read_back() {
        let mut cube = KeyCube::default();
        cube.fix(84, 12, 0xabc).unwrap();
        assert_eq!(cube.known(84, 12), Some(0xabc));
        assert_eq!(cube.known(88, 8), Some(0xbc));
        assert_eq!(cube.known(80, 8), None);
        assert_eq!(bytes(&cube.value)[10..12], [0x0a, 0xbc]);
        assert_eq!(bytes(&cube.mask)[10..12], [0x0f, 0xff]);
    }

    #[test]
    fn a_field_may_fill_or_cross_a_word() {
        let mut cube = KeyCube::default();
        cube.fix(384, 128, u128::MAX - 5).unwrap();
        assert_eq!(cube.known(384, 128), Some(u128::MAX - 5));
        cube.fix(120, 16, 0x1234).unwrap();
        assert_eq!(cube.known(120, 16), Some(0x1234));
        assert_eq!((cube.known_byte(15), cube.known_byte(16)), (Some(0x12), Some(0x34)));
    }

    #[test]
    fn contradictions_are_found() {
        let mut cube = KeyCube::default();
        cube.fix(0, 8, 6).unwrap();
        assert_eq!(cube.fix(4, 4, 6), Ok(()));
        assert_eq!(cube.fix(4, 4, 7), Err(Contradiction));
        assert_eq!(cube.fix_byte(0, 0x02, 0), Err(Contradiction));
    }

    #[test]
    fn released_bits_are_free() {
        let mut cube = KeyCube::default();
        cube.fix(0, 16, 0x0604).unwrap();
        let mut given = KeyCube::default();
        given.fix(0, 8, 6).unwrap();
        cube.release(&given);
        assert_eq!((cube.known_byte(0), cube.known_byte(1)), (None, Some(4)));
        assert_eq!(cube.value[0] >> 120, 0);
    }
}
