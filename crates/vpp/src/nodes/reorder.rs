//! Keeps the order of packets between two hosts.
//!
//! A packet that is rewritten passes through one more node, so that a later packet without a rewrite could overtake it. Such a packet
//! therefore also goes through the rewriting node if an earlier packet of its vector between the same two hosts does; and every packet does
//! while packets of earlier vectors are on their way there, about which nothing else is known. Hosts are told apart by a few bits: a
//! collision costs only time. A vector whose packets are all rewritten, or none, needs no more than two counters.

use mmb_packet::Packet;

/// The size of the bit set; a power of two.
const BITS: usize = 1024;
const WORDS: usize = BITS / u64::BITS as usize;

/// The packets on their way to the rewriting node.
#[derive(Default)]
pub(super) struct ReorderGuard {
    /// Packets of earlier vectors.
    before: usize,
    /// Packets of this vector.
    here: usize,
    /// The hosts of this vector's rewritten packets, among its first packets.
    marks: [u64; WORDS],
    /// The number of first packets that `marks` covers.
    marked: usize,
}

impl ReorderGuard {
    /// A packet goes to the rewriting node.
    #[inline(always)]
    pub(super) fn begin(&mut self) {
        self.here += 1;
    }

    /// True if packet `at` of the vector, which is not rewritten, must go to the rewriting node too; it is counted as on its way then.
    /// `rewritten` is true for those packets before it that are rewritten.
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
                let (word, bit) = bit_of(&packets[earlier]);
                self.marks[word] |= bit;
            }
            self.marked = at;
            let (word, bit) = bit_of(&packets[at]);
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

    /// Packets have arrived at the rewriting node.
    #[inline(always)]
    pub(super) fn arrive(&mut self, packets: usize) {
        self.before = self.before.saturating_sub(packets);
    }
}

/// The bit of a packet's two addresses, as a word and a mask.
fn bit_of(packet: &Packet<'_>) -> (usize, u64) {
    let bytes = packet.bytes();
    let is_ip6 = bytes.first().is_some_and(|first| first >> 4 == 6);
    let addresses = if is_ip6 { bytes.get(8..40) } else { bytes.get(12..20) };
    let words = addresses.unwrap_or_default().as_chunks::<4>().0;
    let sum = words.iter().fold(0u32, |sum, word| sum.rotate_left(5) ^ u32::from_ne_bytes(*word));
    // The high half of the product depends on all bits (Knuth, TAOCP 6.4).
    let hash = sum.wrapping_mul(0x9e37_79b1) >> (u32::BITS - BITS.trailing_zeros());
    (hash as usize / u64::BITS as usize, 1 << (hash % u64::BITS))
}
