//! NAT bindings: the outside endpoint of an inside endpoint (RFC 4787, section 4.1), found from either.
//!
//! A binding does not depend on destinations: all connections of an inside endpoint under the same target share it, and it ends with the
//! last one.

use super::shards::ShardedIndex;
use crate::hash::TupleHasher;
use crate::{Side, Tuple, Wire};
use mmb_base::{Chunks, Id, Slab, id_types};

id_types! {
    /// The request of the source side of a mapping; valid while a binding or an exhausted pool has it.
    pub(super) struct TargetId;

    /// A binding; valid while it has connections.
    pub(super) struct BindingId;
}

/// An inside endpoint for one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InsideEnd {
    pub(super) address: u128,
    /// The request: endpoints that two rules translate to different pools have a binding in each.
    pub(super) target: TargetId,
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
            addresses: [address, target.number().into()],
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
    /// Number of connections.
    connections: u32,
}

/// The value of a slab's unused place.
impl Default for Binding {
    fn default() -> Binding {
        let inside = InsideEnd {
            address: 0,
            target: TargetId::FIRST,
            port: 0,
            wire: Wire::default(),
            side: Side::default(),
            proto: 0,
            family: 0,
        };
        Binding { inside, address: 0, port: 0, column: 0, is_shared: false, connections: 0 }
    }
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

/// Bindings are stored in chunks of this many: growing copies none of them.
const CHUNK: usize = 4096;

type BindingSlab = Slab<BindingId, Binding, Chunks<Binding, CHUNK>>;

/// All bindings.
pub(super) struct BindingTable {
    hasher: TupleHasher,
    bindings: BindingSlab,
    by_inside: ShardedIndex<BindingId>,
    by_outside: ShardedIndex<BindingId>,
}

impl BindingTable {
    pub(super) fn new(hasher: TupleHasher) -> BindingTable {
        BindingTable {
            hasher,
            bindings: Slab::default(),
            by_inside: ShardedIndex::new(),
            by_outside: ShardedIndex::new(),
        }
    }

    /// Number of bindings.
    pub(super) fn len(&self) -> usize {
        self.by_outside.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.bindings.memory() + self.by_inside.memory() + self.by_outside.memory()
    }

    pub(super) fn get(&self, id: BindingId) -> &Binding {
        &self.bindings[id]
    }

    pub(super) fn of_inside(&self, inside: &InsideEnd) -> Option<BindingId> {
        self.by_inside.find(inside.hash(&self.hasher), |id| self.bindings[*id].inside == *inside).copied()
    }

    pub(super) fn of_outside(&self, outside: &OutsideAddress, port: u16) -> Option<BindingId> {
        let same = |id: &BindingId| {
            let binding = &self.bindings[*id];
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
    ) -> Result<BindingId, Binding> {
        let is_shared = self.of_inside(&inside).is_none();
        let binding = Binding { inside, address, port, column, is_shared, connections: 1 };
        self.bindings.try_reserve().map_err(|_| binding)?;
        let id = self.bindings.insert(binding);
        let (hasher, bindings) = (&self.hasher, &self.bindings);
        let by_inside = |id: &BindingId| bindings[*id].inside.hash(hasher);
        let by_outside = |id: &BindingId| bindings[*id].hash_outside(hasher);
        let is_known = (!is_shared || self.by_inside.reserve(inside.hash(hasher), by_inside))
            && self.by_outside.insert(binding.hash_outside(hasher), id, by_outside)
            && (!is_shared || self.by_inside.insert(inside.hash(hasher), id, by_inside));
        if is_known {
            return Ok(id);
        }
        self.bindings.free(id);
        Err(binding)
    }

    /// Adds a connection.
    pub(super) fn hold(&mut self, id: BindingId) {
        self.bindings[id].connections += 1;
    }

    /// Removes a connection; returns the binding if that was the last one.
    pub(super) fn release(&mut self, id: BindingId) -> Option<Binding> {
        let binding = &mut self.bindings[id];
        binding.connections -= 1;
        let gone = *binding;
        if gone.connections > 0 {
            return None;
        }
        let (hasher, bindings) = (&self.hasher, &self.bindings);
        let by_inside = |id: &BindingId| bindings[*id].inside.hash(hasher);
        let by_outside = |id: &BindingId| bindings[*id].hash_outside(hasher);
        if gone.is_shared {
            self.by_inside.remove(gone.inside.hash(hasher), |other| *other == id, by_inside);
        }
        self.by_outside.remove(gone.hash_outside(hasher), |other| *other == id, by_outside);
        self.bindings.free(id);
        Some(gone)
    }
}
