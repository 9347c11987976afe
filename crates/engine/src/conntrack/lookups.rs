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
    /// By packet index: the index of its key here, plus one; 0 for none.
    pub(super) places: Box<[u16; VECTOR]>,
}

impl Lookups {
    pub(super) fn new() -> Lookups {
        Lookups {
            tuples: Vec::with_capacity(VECTOR),
            of: Vec::with_capacity(VECTOR),
            places: Box::new([0; VECTOR]),
        }
    }

    pub(super) fn clear(&mut self) {
        self.tuples.clear();
        self.of.clear();
        self.places.fill(0);
    }

    #[inline]
    pub(super) fn push(&mut self, at: usize, LookupKey { tuple, kind: sort }: LookupKey) {
        self.tuples.push(tuple);
        // A vector's packets are numbered in a byte.
        self.of.push((at as u8, sort));
        self.places[at] = self.of.len() as u16;
    }

    #[inline]
    pub(super) fn of_packet(&self, at: usize) -> Option<LookupKey> {
        let place = usize::from(self.places[at]).checked_sub(1)?;
        Some(LookupKey { tuple: self.tuples[place], kind: self.of[place].1 })
    }
}
