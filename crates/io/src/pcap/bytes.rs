//! Numbers of either byte order in a file's bytes.

/// A byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    pub(super) fn is_big(self) -> bool {
        self == ByteOrder::Big
    }

    pub(super) fn of(big_endian: bool) -> ByteOrder {
        if big_endian { ByteOrder::Big } else { ByteOrder::Little }
    }

    /// The number at `at`; 0 past the end, so check the length first.
    #[inline]
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let raw = array(bytes, at);
        if self.is_big() { u16::from_be_bytes(raw) } else { u16::from_le_bytes(raw) }
    }

    /// The number at `at`; 0 past the end, so check the length first.
    #[inline]
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let raw = array(bytes, at);
        if self.is_big() { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) }
    }

    /// The number at `at`; 0 past the end, so check the length first.
    pub(super) fn i64(self, bytes: &[u8], at: usize) -> i64 {
        let raw = array(bytes, at);
        if self.is_big() { i64::from_be_bytes(raw) } else { i64::from_le_bytes(raw) }
    }

    #[inline]
    pub(super) fn put16(self, value: u16) -> [u8; 2] {
        if self.is_big() { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    #[inline]
    pub(super) fn put32(self, value: u32) -> [u8; 4] {
        if self.is_big() { value.to_be_bytes() } else { value.to_le_bytes() }
    }
}

#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}

/// `len` rounded up to the 4 bytes that pcapng aligns to.
pub(super) fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}
