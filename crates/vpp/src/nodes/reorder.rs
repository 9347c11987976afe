//! Keeping the order of packets between two hosts.
//!
//! A packet that is rewritten takes a detour, and one behind it that is not could overtake it. So a packet that goes on at once
//! follows through the rewriting node where one before it in its vector does that is between the same two hosts; and every packet
//! does while those of earlier vectors are on their way, of which nothing else is known any more. Hosts are told apart by a few bits:
//! that others follow too costs only time. Vectors of which all packets are rewritten, or none, have no more work with it.

use mmb_packet::Packet;

/// Bits; a power of two.
const BITS: usize = 1024;
const WORDS: usize = BITS / u64::BITS as usize;

/// The packets that are on their way to be rewritten.
#[derive(Default)]
pub(super) struct ReorderGuard {
    /// Of earlier vectors.
    before: usize,
    /// Of this one.
    here: usize,
    /// The hosts of those of this one among its first packets.
    marks: [u64; WORDS],
    /// How many first packets.
    marked: usize,
}

impl ReorderGuard {
    /// A packet goes to be rewritten.
    #[inline(always)]
    pub(super) fn begin(&mut self) {
        self.here += 1;
    }

    /// Whether packet number `at` of the vector, which is not rewritten, has to follow one that is; it is on its way then as well.
    /// `rewritten` tells of those before it.
    #[inline(always)]
    pub(super) fn follows(
        &mut self,
        at: usize,
        packets: &[Packet<'_>],
        rewritten: impl Fn(usize) -> bool,
    ) -> bool {
        self.before + self.here > 0 && self.follows_some(at, packets, rewritten)
    }

    fn follows_some(&mut self, at: usize, packets: &[Packet<'_>], rewritten: impl Fn(usize) -> bool) -> bool {
        let mut follows = self.before > 0;
        if !follows {
            for earlier in (self.marked..at).filter(|earlier| rewritten(*earlier)) {
                let (word, bit) = place(&packets[earlier]);
                self.marks[word] |= bit;
            }
            self.marked = at;
            let (word, bit) = place(&packets[at]);
            follows = self.marks[word] & bit != 0;
        }
        self.here += usize::from(follows);
        follows
    }

    /// The vector is sent on.
    #[inline(always)]
    pub(super) fn end_vector(&mut self) {
        self.before += self.here;
        self.here = 0;
        if self.marked > 0 {
            (self.marked, self.marks) = (0, [0; WORDS]);
        }
    }

    /// So many have come to where they are rewritten.
    #[inline(always)]
    pub(super) fn arrive(&mut self, packets: usize) {
        self.before = self.before.saturating_sub(packets);
    }
}

/// The bit of a packet's two addresses.
fn place(packet: &Packet<'_>) -> (usize, u64) {
    let bytes = packet.bytes();
    let is_ip6 = bytes.first().is_some_and(|first| first >> 4 == 6);
    let addresses = if is_ip6 { bytes.get(8..40) } else { bytes.get(12..20) };
    let words = addresses.unwrap_or_default().as_chunks::<4>().0;
    let sum = words.iter().fold(0u32, |sum, word| sum.rotate_left(5) ^ u32::from_ne_bytes(*word));
    // The high half of the product depends on all bits (Knuth, TAOCP 6.4).
    let hash = sum.wrapping_mul(0x9e37_79b1) >> (u32::BITS - BITS.trailing_zeros());
    (hash as usize / u64::BITS as usize, 1 << (hash % u64::BITS))
}
