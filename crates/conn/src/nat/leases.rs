//! The resources of a connection beyond one binding: a second binding, its count at a server, a peer.

use super::destinations::CountedServer;
use super::shards::ShardedIndex;
use crate::Tuple;
use crate::hash::TupleHasher;

/// The resources of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lease {
    /// The bindings of its source and of its destination.
    pub(super) bindings: [Option<u32>; 2],
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

/// Numbers from here on are leases; those below are bindings, the only resource of most connections.
const FIRST: u32 = 1 << 31;

/// All leases.
#[derive(Default)]
pub(super) struct LeaseTable {
    leases: Vec<Lease>,
    free: Vec<u32>,
}

impl LeaseTable {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.leases.len() - self.free.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.leases.capacity() * size_of::<Lease>() + self.free.capacity() * 4
    }

    /// Reserves memory for one more lease, and for its number in the free list. False if there is none.
    #[must_use]
    pub(super) fn reserve(&mut self) -> bool {
        !self.free.is_empty()
            || self.leases.try_reserve(1).is_ok() && self.free.try_reserve(self.leases.capacity()).is_ok()
    }

    /// Stores a lease; returns the number, plus one, with which the connection releases it. 0 if it is empty.
    pub(super) fn keep(&mut self, lease: Lease) -> u32 {
        if lease.is_plain() {
            return lease.bindings[0].map_or(0, |binding| binding + 1);
        }
        let place = match self.free.pop() {
            Some(place) => {
                self.leases[place as usize] = lease;
                place
            }
            None => {
                self.leases.push(lease);
                self.leases.len() as u32 - 1
            }
        };
        FIRST + place + 1
    }

    /// The source binding of a lease.
    pub(super) fn source(&self, number: u32) -> Option<u32> {
        match number.checked_sub(1)? {
            binding if binding < FIRST => Some(binding),
            place => self.leases[(place - FIRST) as usize].bindings[0],
        }
    }

    /// Removes and returns a lease.
    pub(super) fn take(&mut self, number: u32) -> Lease {
        match number.checked_sub(1) {
            None => Lease::default(),
            Some(binding) if binding < FIRST => Lease { bindings: [Some(binding), None], ..Lease::default() },
            Some(place) => {
                self.free.push(place - FIRST);
                self.leases[(place - FIRST) as usize]
            }
        }
    }
}

struct BindingPeer {
    binding: u32,
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

    pub(super) fn has(&self, binding: u32, address: u128) -> bool {
        let same = |peer: &BindingPeer| peer.binding == binding && peer.address == address;
        self.peers.find(hash_of(&self.hasher, binding, address), same).is_some()
    }

    /// Adds a connection. False, and nothing is changed, if there is no memory.
    #[must_use]
    pub(super) fn hold(&mut self, binding: u32, address: u128) -> bool {
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

    pub(super) fn release(&mut self, binding: u32, address: u128) {
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

fn hash_of(hasher: &TupleHasher, binding: u32, address: u128) -> u64 {
    hasher.hash(&Tuple { addresses: [address, u128::from(binding)], ..Tuple::default() })
}
