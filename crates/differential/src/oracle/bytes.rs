//! Numbers in packet bytes, and their ones' complement sum.

/// The modulus of ones' complement arithmetic on 16 bits.
pub(super) const MODULUS: u64 = 0xffff;

/// The byte at `at`; 0 beyond the end. Callers have checked the length where it matters.
pub(super) fn u8_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// The big-endian 16-bit number at `at`.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([u8_at(bytes, at), u8_at(bytes, at + 1)])
}

/// The ones' complement sum of big-endian 16-bit words, from 0 to 65,534; an odd last byte is padded with zero.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2).map(|word| u64::from(u8_at(word, 0)) << 8 | u64::from(u8_at(word, 1)));
    words.sum::<u64>() % MODULUS
}
