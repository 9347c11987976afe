//! The columns of a vector's lookup keys.

use super::key::{LookupKey, PacketKind};
use crate::verdict::VECTOR;
use mmb_conn::Tuple;

/// The lookup keys of a vector's packets, in columns. Packets that are not looked up have none.
#[derive(Debug)]
pub(super) struct LookupKeys {
    pub(super) tuples: Vec<Tuple>,
    /// For each key, the packet's index in the vector and its kind.
    pub(super) packets: Vec<(u8, PacketKind)>,
    /// The indices and tuples of keys that the quick pass did not look up.
    pub(super) unknown: Vec<(u16, Tuple)>,
    /// By packet index: the index of its key here, or [`NO_KEY`].
    indices: Box<[u16; VECTOR]>,
}

/// Marks a packet that is not looked up. Larger than the index of any key.
const NO_KEY: u16 = u16::MAX;

impl LookupKeys {
    pub(super) fn new() -> LookupKeys {
        LookupKeys {
            tuples: Vec::with_capacity(VECTOR),
            packets: Vec::with_capacity(VECTOR),
            unknown: Vec::with_capacity(VECTOR),
            indices: Box::new([NO_KEY; VECTOR]),
        }
    }

    pub(super) fn clear(&mut self) {
        self.tuples.clear();
        self.packets.clear();
        self.unknown.clear();
        self.indices.fill(NO_KEY);
    }

    #[inline]
    pub(super) fn push(&mut self, index: usize, LookupKey { tuple, kind }: LookupKey) {
        self.tuples.push(tuple);
        // A vector has at most 256 packets, so the index fits in a byte.
        self.packets.push((index as u8, kind));
        self.indices[index] = (self.packets.len() - 1) as u16;
    }

    #[inline]
    pub(super) fn key_of(&self, index: usize) -> Option<LookupKey> {
        let position = usize::from(self.indices[index]);
        Some(LookupKey { tuple: *self.tuples.get(position)?, kind: self.packets[position].1 })
    }

    /// The kind of a packet that is looked up.
    #[inline]
    pub(super) fn kind_of(&self, index: usize) -> Option<PacketKind> {
        self.packets.get(usize::from(self.indices[index])).map(|packet| packet.1)
    }
}
