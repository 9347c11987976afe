//! NAT bindings: the outside endpoint of an inside endpoint (RFC 4787, section 4.1), found from either
//! endpoint.
//!
//! A binding does not depend on destinations: all connections of an inside endpoint under the same target
//! share it. The binding ends with its last connection.

use crate::ids::IdIndex;
use mmb_base::{Chunks, Id, Slab, id_types, prefetch};
use mmb_conn::{SOURCE, Side, Tuple, TupleHasher, Wire};

id_types! {
    /// The request of the source side of a mapping; valid while a binding or an exhausted pool refers to it.
    pub(super) struct TargetId;

    /// A binding; valid while it has connections.
    pub(super) struct BindingId;

    /// An outside address; valid while it has ports in use.
    pub(super) struct OutsideId;

    /// An inside address that has an outside address of a pool; valid while it holds ports.
    pub(super) struct PairId;
}

/// An inside endpoint for one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InsideEnd {
    pub(super) address: u128,
    /// The request. If two rules translate an inside endpoint to different pools, it has a binding in each
    /// pool.
    pub(super) target: TargetId,
    pub(super) port: u16,
    pub(super) wire: Wire,
    /// The side of the wire from which its packets come.
    pub(super) side: Side,
    pub(super) proto: u8,
    pub(super) family: u8,
}

/// An outside address, and the protocol and wire of its ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OutsideAddress {
    pub(super) address: u128,
    pub(super) wire: Wire,
    pub(super) proto: u8,
    pub(super) family: u8,
}

impl InsideEnd {
    /// The inside end of a packet with this tuple.
    #[inline]
    pub(super) fn new(arrived: &Tuple, target: TargetId) -> InsideEnd {
        let Tuple { addresses, ports, wire, side, proto, family } = *arrived;
        InsideEnd { address: addresses[SOURCE], port: ports[SOURCE], target, wire, side, proto, family }
    }

    /// The inside endpoint with the other port of its even-odd pair.
    #[inline]
    pub(super) fn neighbour(&self) -> InsideEnd {
        InsideEnd { port: self.port ^ 1, ..*self }
    }

    fn hash(&self, hasher: &TupleHasher) -> u64 {
        let InsideEnd { address, target, port, wire, side, proto, family } = *self;
        let key = NatKey {
            target: target.number(),
            port,
            side: side as u8,
            proto,
            ..NatKey::new(Kind::Inside, address)
        };
        hasher.hash_words(key.on(wire, family))
    }
}

impl OutsideAddress {
    /// The hash of the address with one of its ports.
    pub(super) fn hash(&self, port: u16, hasher: &TupleHasher) -> u64 {
        let OutsideAddress { address, wire, proto, family } = *self;
        let key = NatKey { port, proto, ..NatKey::new(Kind::Outside, address) };
        hasher.hash_words(key.on(wire, family))
    }
}

/// What a [`NatKey`] identifies.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Inside = 1,
    Outside,
    Host,
    Peer,
}

/// A key of the NAT's tables, for hashing. A field that its kind does not have is 0.
#[derive(Clone, Copy)]
pub(super) struct NatKey {
    pub(super) kind: Kind,
    pub(super) address: u128,
    pub(super) target: u32,
    pub(super) port: u16,
    pub(super) side: u8,
    pub(super) proto: u8,
}

impl NatKey {
    pub(super) fn new(kind: Kind, address: u128) -> NatKey {
        NatKey { kind, address, target: 0, port: 0, side: 0, proto: 0 }
    }

    /// The key on a wire as words. Different keys have different words.
    #[inline]
    pub(super) fn on(self, wire: Wire, family: u8) -> [u64; 4] {
        let NatKey { kind, address, target, port, side, proto } = self;
        let vlans = u64::from(wire.vlans.outer) | u64::from(wire.vlans.inner) << 16;
        let small = u32::from_le_bytes([kind as u8, side, proto, family]);
        let ports = u64::from(wire.port) | u64::from(port) << 16;
        [
            address as u64,
            (address >> 64) as u64,
            u64::from(target) | vlans << 32,
            u64::from(small) | ports << 32,
        ]
    }
}

/// An outside end that was taken for an inside end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutsideEnd {
    pub(super) address: u128,
    pub(super) port: u16,
    pub(super) outside_id: OutsideId,
    /// The inside address that uses the pool, unless the end comes from no pool.
    pub(super) pair: Option<PairId>,
    /// See [`super::paired_address::column`].
    pub(super) column: u8,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Binding {
    pub(super) inside: InsideEnd,
    pub(super) address: u128,
    /// Number of connections.
    connections: u32,
    pub(super) outside_id: OutsideId,
    pub(super) pair: Option<PairId>,
    pub(super) port: u16,
    /// See [`super::paired_address::column`].
    pub(super) column: u8,
    /// Whether new connections of the inside endpoint use this binding. Otherwise it belongs to a single
    /// connection, for whose destination the shared binding of the inside endpoint could not be used.
    is_shared: bool,
}

const _: () = assert!(size_of::<Binding>() == 64);

/// The value of an unused slot of the slab.
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
        Binding {
            inside,
            address: 0,
            connections: 0,
            outside_id: OutsideId::FIRST,
            pair: None,
            port: 0,
            column: 0,
            is_shared: false,
        }
    }
}

impl Binding {
    pub(super) fn outside(&self) -> OutsideAddress {
        let InsideEnd { wire, proto, family, .. } = self.inside;
        OutsideAddress { address: self.address, wire, proto, family }
    }

    /// Its outside end.
    pub(super) fn end(&self) -> OutsideEnd {
        let Binding { address, outside_id, pair, port, column, .. } = *self;
        OutsideEnd { address, port, outside_id, pair, column }
    }

    /// Whether it has a single connection.
    pub(super) fn has_one_connection(&self) -> bool {
        self.connections == 1
    }

    fn hash_outside(&self, hasher: &TupleHasher) -> u64 {
        self.outside().hash(self.port, hasher)
    }
}

/// Bindings per chunk. Growing copies no binding.
pub(super) const CHUNK: usize = 4096;

type BindingSlab = Slab<BindingId, Binding, Chunks<Binding, CHUNK>>;

/// All bindings.
pub(super) struct BindingTable {
    hasher: TupleHasher,
    bindings: BindingSlab,
    by_inside: IdIndex<BindingId>,
    by_outside: IdIndex<BindingId>,
}

impl BindingTable {
    pub(super) fn new(hasher: TupleHasher) -> BindingTable {
        BindingTable {
            hasher,
            bindings: Slab::default(),
            by_inside: IdIndex::new(),
            by_outside: IdIndex::new(),
        }
    }

    /// Number of bindings.
    pub(super) fn len(&self) -> usize {
        self.by_outside.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.bindings.memory() + self.by_inside.memory() + self.by_outside.memory()
    }

    #[inline]
    pub(super) fn get(&self, id: BindingId) -> &Binding {
        &self.bindings[id]
    }

    #[inline]
    pub(super) fn find_inside(&self, inside: &InsideEnd) -> Option<BindingId> {
        self.by_inside.find(inside.hash(&self.hasher), |id| self.bindings[id].inside == *inside)
    }

    #[inline]
    pub(super) fn find_outside(&self, outside: &OutsideAddress, port: u16) -> Option<BindingId> {
        let same = |id: BindingId| {
            let binding = &self.bindings[id];
            binding.port == port && binding.outside() == *outside
        };
        self.by_outside.find(outside.hash(port, &self.hasher), same)
    }

    /// Binds an outside end to an inside end, for one connection. Later connections also use a shared
    /// binding, of which an inside end has at most one. Returns `None` if memory is exhausted.
    pub(super) fn bind(
        &mut self,
        inside: InsideEnd,
        OutsideEnd { address, port, outside_id, pair, column }: OutsideEnd,
        is_shared: bool,
    ) -> Option<BindingId> {
        let binding = Binding { inside, address, connections: 1, outside_id, pair, port, column, is_shared };
        self.bindings.try_reserve().ok()?;
        let id = self.bindings.insert(binding);
        let BindingTable { hasher, bindings, by_inside, by_outside } = self;
        let hash = binding.hash_outside(hasher);
        if by_outside.insert(hash, id, |id| &bindings[id], |binding| binding.hash_outside(hasher)) {
            if !is_shared
                || by_inside.insert(
                    inside.hash(hasher),
                    id,
                    |id| &bindings[id],
                    |binding| binding.inside.hash(hasher),
                )
            {
                return Some(id);
            }
            by_outside.remove(hash, id);
        }
        self.bindings.free(id);
        None
    }

    /// Prefetches a binding.
    #[inline]
    pub(super) fn prefetch(&self, id: BindingId) {
        prefetch(&self.bindings[id]);
    }

    /// Prefetches the index bucket of an inside end. Returns the hash of the end.
    #[inline]
    pub(super) fn prefetch_inside(&self, inside: &InsideEnd) -> u64 {
        let hash = inside.hash(&self.hasher);
        self.by_inside.prefetch(hash);
        hash
    }

    /// Prefetches the likely binding of an inside end with this hash.
    #[inline]
    pub(super) fn prefetch_binding(&self, hash: u64) {
        self.by_inside.likely(hash).into_iter().for_each(|id| self.prefetch(id));
    }

    /// Prefetches the index bucket of an outside end.
    #[inline]
    pub(super) fn prefetch_outside(&self, outside: &OutsideAddress, port: u16) {
        self.by_outside.prefetch(outside.hash(port, &self.hasher));
    }

    /// Prefetches the slots of the next `count` new bindings. Returns their ids.
    pub(super) fn prefetch_slots(&self, count: usize) -> impl Iterator<Item = BindingId> {
        self.bindings.next_ids(count).inspect(|id| self.prefetch(*id))
    }

    /// Prefetches the index buckets of a binding.
    #[inline]
    pub(super) fn prefetch_keys(&self, id: BindingId) {
        let binding = &self.bindings[id];
        self.by_inside.prefetch(binding.inside.hash(&self.hasher));
        self.by_outside.prefetch(binding.hash_outside(&self.hasher));
    }

    /// Adds a connection.
    pub(super) fn hold(&mut self, id: BindingId) {
        self.bindings[id].connections += 1;
    }

    /// Removes a connection. Returns the binding if that was its last connection.
    pub(super) fn release(&mut self, id: BindingId) -> Option<Binding> {
        let binding = &mut self.bindings[id];
        binding.connections -= 1;
        let gone = *binding;
        if gone.connections > 0 {
            return None;
        }
        if gone.is_shared {
            self.by_inside.remove(gone.inside.hash(&self.hasher), id);
        }
        self.by_outside.remove(gone.hash_outside(&self.hasher), id);
        self.bindings.free(id);
        Some(gone)
    }
}
