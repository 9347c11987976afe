//! NAT bindings: the outside endpoint of an inside endpoint (RFC 4787, section 4.1), found from either.
//!
//! A binding does not depend on destinations: all connections of an inside endpoint under the same target share it, and it ends with the
//! last one.

use super::shards::ShardedIndex;
use crate::hash::TupleHasher;
use crate::{Side, Tuple, Wire};

/// An inside endpoint for one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InsideEnd {
    pub(super) address: u128,
    /// The request: endpoints that two rules translate to different pools have a binding in each.
    pub(super) target: u32,
    pub(super) port: u16,
    pub(super) wire: Wire,
    /// The side of the wire from which its packets come.
    pub(super) side: Side,
    pub(super) proto: u8,
    pub(super) family: u8,
}

/// An outside address, and the protocol and wire of its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutsideAddress {
    pub(super) address: u128,
    pub(super) wire: Wire,
    pub(super) proto: u8,
    pub(super) family: u8,
}

impl InsideEnd {
    fn hash(&self, hasher: &TupleHasher) -> u64 {
        let InsideEnd { address, target, port, wire, side, proto, family } = *self;
        hasher.hash(&Tuple {
            addresses: [address, u128::from(target)],
            ports: [port, 0],
            wire,
            side,
            proto,
            family,
        })
    }
}

impl OutsideAddress {
    /// The hash of the address with one of its ports.
    pub(super) fn hash(&self, port: u16, hasher: &TupleHasher) -> u64 {
        let OutsideAddress { address, wire, proto, family } = *self;
        hasher.hash(&Tuple {
            addresses: [address, 0],
            ports: [port, 0],
            wire,
            proto,
            family,
            ..Tuple::default()
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Binding {
    pub(super) inside: InsideEnd,
    pub(super) address: u128,
    pub(super) port: u16,
    /// See [`super::pools::column`].
    pub(super) column: u8,
    /// Whether new connections of the inside endpoint use it. Otherwise it is for a single connection, whose destination the inside
    /// endpoint's shared binding could not be used for.
    is_shared: bool,
    /// Number of connections; 0 if the record is free.
    connections: u32,
}

impl Binding {
    pub(super) fn outside(&self) -> OutsideAddress {
        let InsideEnd { wire, proto, family, .. } = self.inside;
        OutsideAddress { address: self.address, wire, proto, family }
    }

    /// Whether it has a single connection.
    pub(super) fn has_one_connection(&self) -> bool {
        self.connections == 1
    }

    fn hash_outside(&self, hasher: &TupleHasher) -> u64 {
        self.outside().hash(self.port, hasher)
    }
}

/// Records are allocated in chunks: growing copies none of them.
const CHUNK: usize = 4096;

/// All bindings.
pub(super) struct BindingTable {
    hasher: TupleHasher,
    records: Vec<Vec<Binding>>,
    free: Vec<u32>,
    by_inside: ShardedIndex<u32>,
    by_outside: ShardedIndex<u32>,
}

impl BindingTable {
    pub(super) fn new(hasher: TupleHasher) -> BindingTable {
        BindingTable {
            hasher,
            records: Vec::new(),
            free: Vec::new(),
            by_inside: ShardedIndex::new(),
            by_outside: ShardedIndex::new(),
        }
    }

    /// Number of bindings.
    pub(super) fn len(&self) -> usize {
        self.by_outside.len()
    }

    pub(super) fn memory(&self) -> usize {
        let records = self.records.len() * CHUNK * size_of::<Binding>() + self.free.capacity() * 4;
        records + self.by_inside.memory() + self.by_outside.memory()
    }

    pub(super) fn record(&self, number: u32) -> &Binding {
        at(&self.records, number)
    }

    pub(super) fn of_inside(&self, inside: &InsideEnd) -> Option<u32> {
        self.by_inside
            .find(inside.hash(&self.hasher), |number| at(&self.records, *number).inside == *inside)
            .copied()
    }

    pub(super) fn of_outside(&self, outside: &OutsideAddress, port: u16) -> Option<u32> {
        let same = |number: &u32| {
            let binding = at(&self.records, *number);
            binding.port == port && binding.outside() == *outside
        };
        self.by_outside.find(outside.hash(port, &self.hasher), same).copied()
    }

    /// Binds a free outside endpoint for one connection. Future connections use the binding too, unless the inside endpoint already has
    /// one.
    ///
    /// # Errors
    /// The binding, if there is no memory for it.
    pub(super) fn bind(
        &mut self,
        inside: InsideEnd,
        (address, port): (u128, u16),
        column: u8,
    ) -> Result<u32, Binding> {
        let is_shared = self.of_inside(&inside).is_none();
        let binding = Binding { inside, address, port, column, is_shared, connections: 1 };
        let number = self.place(binding).ok_or(binding)?;
        let (hasher, records) = (&self.hasher, &self.records);
        let by_inside = |number: &u32| at(records, *number).inside.hash(hasher);
        let by_outside = |number: &u32| at(records, *number).hash_outside(hasher);
        let is_known = (!is_shared || self.by_inside.reserve(inside.hash(hasher), by_inside))
            && self.by_outside.insert(binding.hash_outside(hasher), number, by_outside)
            && (!is_shared || self.by_inside.insert(inside.hash(hasher), number, by_inside));
        if is_known {
            return Ok(number);
        }
        self.free.push(number);
        Err(binding)
    }

    /// Adds a connection.
    pub(super) fn hold(&mut self, number: u32) {
        self.records[number as usize / CHUNK][number as usize % CHUNK].connections += 1;
    }

    /// Removes a connection; returns the binding if that was the last one.
    pub(super) fn release(&mut self, number: u32) -> Option<Binding> {
        let record = &mut self.records[number as usize / CHUNK][number as usize % CHUNK];
        record.connections -= 1;
        let gone = *record;
        if gone.connections > 0 {
            return None;
        }
        let (hasher, records) = (&self.hasher, &self.records);
        let by_inside = |number: &u32| at(records, *number).inside.hash(hasher);
        let by_outside = |number: &u32| at(records, *number).hash_outside(hasher);
        if gone.is_shared {
            self.by_inside.remove(gone.inside.hash(hasher), |other| *other == number, by_inside);
        }
        self.by_outside.remove(gone.hash_outside(hasher), |other| *other == number, by_outside);
        self.free.push(number);
        Some(gone)
    }

    /// Stores a record, if there is memory: also for its entry in the free list, when it is released.
    fn place(&mut self, binding: Binding) -> Option<u32> {
        if let Some(number) = self.free.pop() {
            self.records[number as usize / CHUNK][number as usize % CHUNK] = binding;
            return Some(number);
        }
        if self.records.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            let mut chunk = Vec::new();
            chunk.try_reserve_exact(CHUNK).ok()?;
            self.free.try_reserve((self.records.len() + 1) * CHUNK).ok()?;
            self.records.try_reserve(1).ok()?;
            self.records.push(chunk);
        }
        let chunk = self.records.len() - 1;
        self.records[chunk].push(binding);
        Some((chunk * CHUNK + self.records[chunk].len() - 1) as u32)
    }
}

fn at(records: &[Vec<Binding>], number: u32) -> &Binding {
    &records[number as usize / CHUNK][number as usize % CHUNK]
}
