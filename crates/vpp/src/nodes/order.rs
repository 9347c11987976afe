//! Keeping the order of packets between two hosts.
//!
//! A packet that is rewritten takes a detour, and one behind it that is not could overtake it. So whoever is between the same two
//! hosts follows it through the rewriting node until none is on its way there. Hosts are told apart by a few bits: that others
//! follow too costs only time.

use mmb_packet::Packet;

/// Bits; a power of two.
const BITS: usize = 1024;
const WORDS: usize = BITS / u64::BITS as usize;

/// Pairs of hosts between which packets are on their way to be rewritten.
pub(super) struct Detours {
    marks: [u64; WORDS],
    /// Packets on their way.
    under_way: usize,
}

impl Detours {
    pub(super) fn new() -> Detours {
        Detours { marks: [0; WORDS], under_way: 0 }
    }

    /// A packet goes to be rewritten.
    #[inline]
    pub(super) fn begin(&mut self, packet: &Packet<'_>) {
        let (word, bit) = place(packet);
        self.marks[word] |= bit;
        self.under_way += 1;
    }

    /// Whether a packet that is not rewritten has to follow one that is; it is on its way then as well.
    #[inline]
    pub(super) fn follows(&mut self, packet: &Packet<'_>) -> bool {
        if self.under_way == 0 {
            return false;
        }
        let (word, bit) = place(packet);
        let follows = self.marks[word] & bit != 0;
        self.under_way += usize::from(follows);
        follows
    }

    /// So many have come to where they are rewritten.
    pub(super) fn end(&mut self, packets: usize) {
        self.under_way = self.under_way.saturating_sub(packets);
        if self.under_way == 0 {
            self.marks = [0; WORDS];
        }
    }

    /// None is on its way.
    pub(super) fn clear(&mut self) {
        self.end(usize::MAX);
    }
}

/// The bit of a packet's two addresses.
#[inline]
fn place(packet: &Packet<'_>) -> (usize, u64) {
    let bytes = packet.bytes();
    let addresses =
        if bytes.first().is_some_and(|first| first >> 4 == 6) { bytes.get(8..40) } else { bytes.get(12..20) };
    let words = addresses.unwrap_or_default().as_chunks::<4>().0;
    let sum = words.iter().fold(0u32, |sum, word| sum.rotate_left(5) ^ u32::from_ne_bytes(*word));
    // The high half of the product depends on all bits (Knuth, TAOCP 6.4).
    let hash = sum.wrapping_mul(0x9e37_79b1) >> (u32::BITS - BITS.trailing_zeros());
    (hash as usize / u64::BITS as usize, 1 << (hash % u64::BITS))
}
