//! Checksums of built packets, right or wrong.

/// The value of a checksum field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// The correct one.
    #[default]
    Right,
    /// The correct one plus this number, as in a packet that was damaged in transit.
    Off(u16),
    /// This number.
    Is(u16),
}

/// The checksum of `bytes`, in which its own field is zero (RFC 1071).
pub(crate) fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

impl Checksum {
    /// The value of the field, where `right` is the correct one.
    pub(crate) fn value(self, right: u16) -> u16 {
        match self {
            Checksum::Right => right,
            Checksum::Off(by) => right.wrapping_add(by),
            Checksum::Is(value) => value,
        }
    }
}
