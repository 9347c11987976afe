//! Headers of protocols that connections distinguish and rules cannot match.

use super::checksum::Checksum;
use super::transport::{set_checksum, with_pseudo_header};

/// A UDP-Lite packet (RFC 3828).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpLite {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// The number of bytes that the checksum covers; 0: all.
    pub coverage: u16,
    /// The checksum.
    pub checksum: Checksum,
    /// The bytes after the header.
    pub payload: Vec<u8>,
}

impl Default for UdpLite {
    fn default() -> Self {
        UdpLite { sport: 1000, dport: 53, coverage: 0, checksum: Checksum::Right, payload: Vec::new() }
    }
}

/// A DCCP request, with a 48-bit sequence number (RFC 4340 section 5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dccp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// The part of the payload that the checksum covers: 0 for all, otherwise n for n - 1 words of 4 bytes.
    pub coverage: u8,
    /// The checksum.
    pub checksum: Checksum,
    /// The bytes after the header.
    pub payload: Vec<u8>,
}

impl Default for Dccp {
    fn default() -> Self {
        Dccp { sport: 1000, dport: 53, coverage: 0, checksum: Checksum::Right, payload: Vec::new() }
    }
}

/// An SCTP packet (RFC 9260).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sctp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// The verification tag.
    pub tag: u32,
    /// The difference between its checksum and the correct one.
    pub damage: u32,
    /// All chunks.
    pub chunks: Vec<u8>,
}

impl Default for Sctp {
    fn default() -> Self {
        Sctp { sport: 1000, dport: 53, tag: 1, damage: 0, chunks: Vec::new() }
    }
}

impl Sctp {
    /// The same with one more chunk: its type, flags, and the bytes after its length.
    pub fn chunk(mut self, kind: u8, flags: u8, value: &[u8]) -> Sctp {
        self.chunks.extend([kind, flags]);
        self.chunks.extend((4 + value.len() as u16).to_be_bytes());
        self.chunks.extend(value);
        self.chunks.resize(self.chunks.len().next_multiple_of(4), 0);
        self
    }

    /// The same with an INIT (1) or INIT ACK (2) chunk of this initiate tag.
    pub fn init(self, kind: u8, initiate_tag: u32) -> Sctp {
        let [a, b, c, d] = initiate_tag.to_be_bytes();
        self.chunk(kind, 0, &[a, b, c, d, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 9])
    }

    /// The packet with its CRC32c.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.sport.to_be_bytes());
        bytes.extend(self.dport.to_be_bytes());
        bytes.extend(self.tag.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(&self.chunks);
        let checksum = crc32c(&bytes) ^ self.damage;
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// CRC32c, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !bytes.iter().fold(!0, |crc: u32, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

fn ports_and_word(sport: u16, dport: u16, word: [u8; 2]) -> Vec<u8> {
    let [a, b] = sport.to_be_bytes();
    let [c, d] = dport.to_be_bytes();
    vec![a, b, c, d, word[0], word[1], 0, 0]
}

impl UdpLite {
    pub(super) fn bytes(&self, pseudo: &[u8]) -> Vec<u8> {
        let mut bytes = ports_and_word(self.sport, self.dport, self.coverage.to_be_bytes());
        bytes.extend(&self.payload);
        let covered = if self.coverage == 0 { bytes.len() } else { usize::from(self.coverage) };
        let right = match with_pseudo_header(&bytes[..covered.min(bytes.len())], pseudo, bytes.len()) {
            0 => 0xffff,
            other => other,
        };
        set_checksum(&mut bytes, 6, self.checksum.value(right));
        bytes
    }
}

impl Dccp {
    pub(super) fn bytes(&self, pseudo: &[u8]) -> Vec<u8> {
        // The header of 16 bytes and a service code; type and the bit for long sequence numbers.
        const OFFSET: u8 = 5;
        let mut bytes = ports_and_word(self.sport, self.dport, [OFFSET, self.coverage & 0x0f]);
        bytes.extend([0x01, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 42]);
        bytes.extend(&self.payload);
        let covered = match usize::from(self.coverage) {
            0 => bytes.len(),
            words => usize::from(OFFSET) * 4 + 4 * (words - 1),
        };
        let right = with_pseudo_header(&bytes[..covered.min(bytes.len())], pseudo, bytes.len());
        set_checksum(&mut bytes, 6, self.checksum.value(right));
        bytes
    }
}
