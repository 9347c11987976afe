//! Arguments and results of the quick pass (`table/quick.rs`).

use crate::ends::Ends;
use crate::hash::HashSums;
use crate::{ConnId, Direction, Side, Tuple, Wire};
use arrayvec::ArrayVec;
use mmb_base::VECTOR;
use mmb_packet::columns::KeyColumns;
use mmb_packet::key::LANES4;
use mmb_packet::{Layout, Packet};

/// The number of words with a bit for each packet of a vector.
pub(crate) const WORDS: usize = VECTOR / 64;

/// How the pass looks up the packets that arrive on a port.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub struct QuickPort {
    /// The partial hash sums over the fields that all tuples of the port have in common.
    pub(crate) sums: HashSums,
    /// Packets with one of these bits in their facts (`table/quick.rs`) are not looked up.
    pub(crate) left: u32,
    pub(crate) wire: Wire,
    pub(crate) side: Side,
}

impl QuickPort {
    /// A port whose packets are all left to the owner.
    pub const LEFT: QuickPort =
        QuickPort { sums: HashSums([0; 2]), left: u32::MAX, wire: Wire::ROUTED, side: Side::Any };

    /// The tuple of its packets, without addresses and ports.
    pub(crate) fn tuple(&self, proto: u8) -> Tuple {
        Tuple { wire: self.wire, side: self.side, family: 4, proto, ..Tuple::default() }
    }
}

/// A vector for [`ConnectionTable::pass_quickly`](crate::ConnectionTable::pass_quickly).
#[derive(Clone, Copy, Debug)]
pub struct QuickVector<'v, 'p> {
    /// The time in milliseconds.
    pub now_ms: u64,
    /// The packets, [`VECTOR`] at most.
    pub packets: &'v [Packet<'p>],
    /// Their layouts.
    pub layouts: &'v [Layout; VECTOR],
    /// The keys of IPv4 packets.
    pub keys: &'v KeyColumns<LANES4>,
    /// By the number of the port on which packets arrive. There is at least one.
    pub ports: &'v [QuickPort],
    /// The indices of packets that are left to the owner in any case.
    pub left: &'v [u8],
}

/// New addresses and ports of an IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuickTranslation {
    pub(crate) ends: Ends,
    /// The packet's index in the vector.
    pub packet: u8,
}

impl QuickTranslation {
    /// Source and destination address, as they are in a packet.
    #[inline(always)]
    pub fn addresses(&self) -> [u8; 8] {
        self.ends.addresses.to_ne_bytes()
    }

    /// Source and destination port, as they are in a packet.
    #[inline(always)]
    pub fn ports(&self) -> [u8; 4] {
        self.ends.ports.to_ne_bytes()
    }
}

/// The result of a lookup by the quick pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuickLookup {
    /// The packet was not looked up.
    Unknown,
    /// No connection has its tuple.
    Absent,
    /// The packet belongs to this connection.
    Found(ConnId, Direction),
}

/// The results of the pass for the packets of a vector.
#[derive(Debug)]
pub struct QuickResult {
    /// A bit for each packet that the pass took.
    pub(crate) taken: [u64; WORDS],
    /// By packet, for packets that were not taken.
    pub(crate) lookups: Box<[QuickLookup; VECTOR]>,
    /// The translations of packets that were taken, in order.
    pub translations: Vec<QuickTranslation>,
    /// The packets of followed connections that were taken, in order.
    pub followed: Vec<(u8, ConnId, Direction)>,
    /// Connections whose counts must be folded before the next vector.
    pub full: ArrayVec<ConnId, VECTOR>,
}

impl Default for QuickResult {
    fn default() -> QuickResult {
        QuickResult {
            taken: [0; WORDS],
            lookups: Box::new([QuickLookup::Unknown; VECTOR]),
            translations: Vec::with_capacity(VECTOR),
            followed: Vec::with_capacity(VECTOR),
            full: ArrayVec::new(),
        }
    }
}

impl QuickResult {
    /// Clears the results of the last vector.
    pub fn clear(&mut self) {
        self.taken = [0; WORDS];
        self.lookups.fill(QuickLookup::Unknown);
        self.translations.clear();
        self.followed.clear();
        self.full.clear();
    }

    /// Whether the pass took a packet.
    #[inline]
    pub fn has(&self, packet: usize) -> bool {
        self.taken[packet / 64 % WORDS] >> (packet % 64) & 1 == 1
    }

    /// Number of packets that the pass took.
    #[inline]
    pub fn count(&self) -> usize {
        self.taken.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The packets below `count` that the pass did not take, in order.
    #[inline]
    pub fn others(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let taken = self.taken;
        (0..WORDS).flat_map(move |word| {
            let in_word = count.saturating_sub(64 * word).min(64);
            let all = if in_word == 64 { u64::MAX } else { (1 << in_word) - 1 };
            let mut left = !taken[word] & all;
            std::iter::from_fn(move || {
                let packet = 64 * word + left.trailing_zeros() as usize;
                (left != 0).then(|| left &= left - 1)?;
                Some(packet)
            })
        })
    }

    /// The lookup of a packet that was not taken.
    #[inline]
    pub fn lookup(&self, packet: usize) -> QuickLookup {
        self.lookups[packet % VECTOR]
    }

    #[inline]
    pub(crate) fn take(&mut self, packet: u8) {
        self.taken[usize::from(packet) / 64] |= 1 << (packet % 64);
    }
}
