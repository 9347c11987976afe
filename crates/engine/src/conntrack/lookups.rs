//! The columns of a vector's lookup keys.

use super::key::{LookupKey, PacketKind};
use crate::verdict::VECTOR;
use mmb_conn::Tuple;

/// The lookup keys of a vector's packets, in columns. Packets that are not looked up have none.
#[derive(Debug)]
pub(super) struct Lookups {
    pub(super) tuples: Vec<Tuple>,
    /// For each key, the packet's index in the vector and its kind.
    pub(super) of: Vec<(u8, PacketKind)>,
    /// The indices and tuples of keys that the quick pass did not look up.
    pub(super) unknown: Vec<(u16, Tuple)>,
    /// By packet index: the index of its key here, or [`NO_KEY`].
    indices: Box<[u16; VECTOR]>,
}

/// Marks a packet that is not looked up. Larger than the index of any key.
const NO_KEY: u16 = u16::MAX;

impl Lookups {
    pub(super) fn new() -> Lookups {
        Lookups {
            tuples: Vec::with_capacity(VECTOR),
            of: Vec::with_capacity(VECTOR),
            unknown: Vec::with_capacity(VECTOR),
            indices: Box::new([NO_KEY; VECTOR]),
        }
    }

    pub(super) fn clear(&mut self) {
        self.tuples.clear();
        self.of.clear();
        self.unknown.clear();
        self.indices.fill(NO_KEY);
    }

    #[inline]
    pub(super) fn push(&mut self, at: usize, LookupKey { tuple, kind }: LookupKey) {
        self.tuples.push(tuple);
        // A vector has at most 256 packets, so the index fits in a byte.
        self.of.push((at as u8, kind));
        self.indices[at] = (self.of.len() - 1) as u16;
    }

    #[inline]
    pub(super) fn of_packet(&self, at: usize) -> Option<LookupKey> {
        let index = usize::from(self.indices[at]);
        Some(LookupKey { tuple: *self.tuples.get(index)?, kind: self.of[index].1 })
    }

    /// The kind of a packet that is looked up.
    #[inline]
    pub(super) fn kind_of(&self, at: usize) -> Option<PacketKind> {
        self.of.get(usize::from(self.indices[at])).map(|of| of.1)
    }
}
