//! The resources of a connection beyond one binding: a second binding, its count at a server, a peer.

use super::bindings::BindingId;
use super::destinations::CountedServer;
use super::shards::ShardedIndex;
use crate::Tuple;
use crate::hash::TupleHasher;
use mmb_base::{Id, Slab, id_types};

/// The resources of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lease {
    /// The bindings of its source and of its destination.
    pub(super) bindings: [Option<BindingId>; 2],
    /// The server that the connection is counted for.
    pub(super) counted: Option<CountedServer>,
    /// The peer address that is recorded for the first binding.
    pub(super) peer: Option<u128>,
}

impl Lease {
    fn is_plain(&self) -> bool {
        self.bindings[1].is_none() && self.counted.is_none() && self.peer.is_none()
    }
}

id_types! {
    /// What a connection holds of the NAT, to be released when it ends; valid until then. A lease that is a single source binding, as most
    /// are, is not stored: it has the binding's number.
    pub struct LeaseId;

    /// A lease that is stored.
    struct StoredLeaseId;
}

/// Lease ids with numbers from here on are stored leases; those below are bindings.
const STORED: u32 = 1 << 31;

enum LeasePlace {
    Binding(BindingId),
    Stored(StoredLeaseId),
}

impl LeaseId {
    fn of_binding(binding: BindingId) -> Option<LeaseId> {
        LeaseId::new(binding.number())
    }

    fn of_stored(stored: StoredLeaseId) -> Option<LeaseId> {
        LeaseId::new(STORED | stored.number())
    }

    fn place(self) -> Option<LeasePlace> {
        match self.number() {
            binding if binding < STORED => BindingId::new(binding).map(LeasePlace::Binding),
            stored => StoredLeaseId::new(stored & !STORED).map(LeasePlace::Stored),
        }
    }
}

/// All leases.
#[derive(Default)]
pub(super) struct LeaseTable(Slab<StoredLeaseId, Lease>);

impl LeaseTable {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.0.memory()
    }

    /// Reserves memory for one more lease, and for releasing all. False if there is none.
    #[must_use]
    pub(super) fn reserve(&mut self) -> bool {
        self.0.try_reserve().is_ok()
    }

    /// Stores a lease; returns the id with which the connection releases it. `None` if there is nothing to release.
    pub(super) fn keep(&mut self, lease: Lease) -> Option<LeaseId> {
        if lease.is_plain() {
            return lease.bindings[0].and_then(LeaseId::of_binding);
        }
        LeaseId::of_stored(self.0.insert(lease))
    }

    /// The source binding of a lease.
    pub(super) fn source(&self, id: LeaseId) -> Option<BindingId> {
        match id.place()? {
            LeasePlace::Binding(binding) => Some(binding),
            LeasePlace::Stored(stored) => self.0[stored].bindings[0],
        }
    }

    /// Removes and returns a lease; an empty one for `None`.
    pub(super) fn take(&mut self, id: Option<LeaseId>) -> Lease {
        match id.and_then(LeaseId::place) {
            None => Lease::default(),
            Some(LeasePlace::Binding(binding)) => {
                Lease { bindings: [Some(binding), None], ..Lease::default() }
            }
            Some(LeasePlace::Stored(stored)) => self.0.remove(stored),
        }
    }
}

struct BindingPeer {
    binding: BindingId,
    address: u128,
    connections: u32,
}

/// The peers of bindings, counted by connections: for address-dependent filtering.
pub(super) struct BindingPeers {
    hasher: TupleHasher,
    peers: ShardedIndex<BindingPeer>,
}

impl BindingPeers {
    pub(super) fn new(hasher: TupleHasher) -> BindingPeers {
        BindingPeers { hasher, peers: ShardedIndex::new() }
    }

    pub(super) fn memory(&self) -> usize {
        self.peers.memory()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(super) fn has(&self, binding: BindingId, address: u128) -> bool {
        let same = |peer: &BindingPeer| peer.binding == binding && peer.address == address;
        self.peers.find(hash_of(&self.hasher, binding, address), same).is_some()
    }

    /// Adds a connection. False, and nothing is changed, if there is no memory.
    #[must_use]
    pub(super) fn hold(&mut self, binding: BindingId, address: u128) -> bool {
        let hasher = &self.hasher;
        let rehash = |peer: &BindingPeer| hash_of(hasher, peer.binding, peer.address);
        if !self.peers.reserve(hash_of(hasher, binding, address), rehash) {
            return false;
        }
        let peer = self.peers.entry(
            hash_of(hasher, binding, address),
            |peer| peer.binding == binding && peer.address == address,
            |peer| hash_of(hasher, peer.binding, peer.address),
            || BindingPeer { binding, address, connections: 0 },
        );
        peer.connections += 1;
        true
    }

    pub(super) fn release(&mut self, binding: BindingId, address: u128) {
        let hasher = &self.hasher;
        let hash = hash_of(hasher, binding, address);
        let same = |peer: &BindingPeer| peer.binding == binding && peer.address == address;
        if let Some(peer) = self.peers.find_mut(hash, same) {
            peer.connections -= 1;
            if peer.connections == 0 {
                self.peers.remove(hash, same, |peer| hash_of(hasher, peer.binding, peer.address));
            }
        }
    }
}

fn hash_of(hasher: &TupleHasher, binding: BindingId, address: u128) -> u64 {
    hasher.hash(&Tuple { addresses: [address, binding.number().into()], ..Tuple::default() })
}
