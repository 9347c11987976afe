//! The resources of a connection beyond one binding: a second binding, its count at a server, a peer.

use crate::bindings::{BindingId, CHUNK, Kind, NatKey};
use crate::destinations::CountedServer;
use mmb_base::{Chunks, Id, ShardedIndex, Slab, SlabStorage, id_types, prefetch};
use mmb_conn::{LeaseId, TupleHasher, Wire};

/// The resources of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lease {
    /// The bindings of its source and of its destination.
    pub(super) bindings: [Option<BindingId>; 2],
    /// The server that the connection is counted for.
    pub(super) counted: Option<CountedServer>,
    /// The peer that is recorded for the first binding.
    pub(super) peer: Option<Peer>,
}

/// A peer of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    First,
    Other(u128),
}

id_types! {
    /// A lease that is stored.
    struct StoredLeaseId;
}

/// Bits of a lease's number. [`STORED`]: the lease is stored. [`FIRST_PEER`], of other leases: the first peer
/// of the binding is recorded. Memory does not suffice for bindings whose numbers have these bits.
const STORED: u32 = 1 << 31;
const FIRST_PEER: u32 = 1 << 30;

/// Where a lease is. Most leases are a single source binding, with or without its first peer. Such a lease is
/// not stored: its id contains the binding's number.
enum LeasePlace {
    Binding(BindingId, Option<Peer>),
    Stored(StoredLeaseId),
}

impl LeasePlace {
    /// The id of the lease.
    fn id(&self) -> Option<LeaseId> {
        LeaseId::new(match self {
            LeasePlace::Binding(binding, None) => binding.number(),
            LeasePlace::Binding(binding, Some(_)) => binding.number() | FIRST_PEER,
            LeasePlace::Stored(stored) => stored.number() | STORED,
        })
    }

    /// Reverses [`LeasePlace::id`].
    fn from_id(id: LeaseId) -> Option<LeasePlace> {
        match id.number() {
            binding if binding < STORED => {
                let peer = (binding & FIRST_PEER != 0).then_some(Peer::First);
                BindingId::new(binding & !FIRST_PEER).map(|binding| LeasePlace::Binding(binding, peer))
            }
            stored => StoredLeaseId::new(stored & !STORED).map(LeasePlace::Stored),
        }
    }
}

/// All leases.
#[derive(Default)]
pub(super) struct LeaseTable(Slab<StoredLeaseId, Lease, Chunks<Lease, CHUNK>>);

impl LeaseTable {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.0.memory()
    }

    /// Reserves memory for one more lease, and for releasing all. Returns false if memory is exhausted.
    #[must_use]
    pub(super) fn reserve(&mut self) -> bool {
        self.0.try_reserve().is_ok()
    }

    /// Stores a lease. Returns the id with which the connection releases it, or `None` if it needs no
    /// release.
    pub(super) fn store(&mut self, lease: Lease) -> Option<LeaseId> {
        match lease {
            Lease { bindings: [source, None], counted: None, peer: peer @ (None | Some(Peer::First)) } => {
                source.and_then(|source| LeasePlace::Binding(source, peer).id())
            }
            _ => LeasePlace::Stored(self.0.insert(lease)).id(),
        }
    }

    /// The source binding of a lease.
    pub(super) fn source(&self, id: LeaseId) -> Option<BindingId> {
        match LeasePlace::from_id(id)? {
            LeasePlace::Binding(binding, _) => Some(binding),
            LeasePlace::Stored(stored) => self.0[stored].bindings[0],
        }
    }

    /// The source binding of a lease, if the id contains it.
    #[inline]
    pub(super) fn likely_source(&self, id: LeaseId) -> Option<BindingId> {
        match LeasePlace::from_id(id)? {
            LeasePlace::Binding(binding, _) => Some(binding),
            LeasePlace::Stored(_) => None,
        }
    }

    /// Removes and returns the server that a lease's connection is counted for.
    pub(super) fn take_counted(&mut self, id: LeaseId) -> Option<CountedServer> {
        match LeasePlace::from_id(id)? {
            LeasePlace::Binding(..) => None,
            LeasePlace::Stored(stored) => self.0[stored].counted.take(),
        }
    }

    /// Removes and returns a lease; an empty one for `None`.
    pub(super) fn take(&mut self, id: Option<LeaseId>) -> Lease {
        match id.and_then(LeasePlace::from_id) {
            None => Lease::default(),
            Some(LeasePlace::Binding(binding, peer)) => {
                Lease { bindings: [Some(binding), None], counted: None, peer }
            }
            Some(LeasePlace::Stored(stored)) => self.0.remove(stored),
        }
    }
}

/// A peer of a binding besides the first one.
struct OtherPeer {
    binding: BindingId,
    address: u128,
    connections: u32,
}

/// The first peer of a binding, and the MAC address of the inside host. Most bindings have no other peer.
/// Without connections, the first peer is unused.
#[derive(Clone, Copy, Debug, Default)]
struct FirstPeer {
    address: u128,
    connections: u32,
    /// The last time at which a connection of the inside end started from this MAC address: the lower 32
    /// bits, in milliseconds.
    heard_ms: u32,
    mac: Option<[u8; 6]>,
}

const _: () = assert!(size_of::<FirstPeer>() == 32);

/// A MAC address from which no connection started for this time may be replaced. It is the ageing time of
/// switches (IEEE 802.1Q, table 8-6).
const AGE_MS: u32 = 300_000;

/// The peers of bindings with their numbers of connections, for address-dependent filtering. Also the MAC
/// addresses of the inside hosts, to which hairpinned packets are sent.
///
/// A spoofed frame with another host's address and port does not replace a MAC address that was seen
/// recently. A binding's MAC address does not expire until another one is seen, since a host may keep one
/// connection for hours.
pub(super) struct BindingPeers {
    hasher: TupleHasher,
    /// By the index of the binding's id.
    first: Chunks<FirstPeer, CHUNK>,
    others: ShardedIndex<OtherPeer>,
}

impl BindingPeers {
    pub(super) fn new(hasher: TupleHasher) -> BindingPeers {
        BindingPeers { hasher, first: Chunks::default(), others: ShardedIndex::new() }
    }

    pub(super) fn memory(&self) -> usize {
        self.first.memory() + self.others.memory()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let first = (0..self.first.count()).filter(|index| self.first.at(*index).connections > 0);
        first.count() + self.others.len()
    }

    pub(super) fn has(&self, binding: BindingId, address: u128) -> bool {
        let is_first = self.first_of(binding).is_some_and(|first| first.address == address);
        is_first || self.other(binding, address).is_some()
    }

    /// Adds a connection. Returns `None` and changes nothing if memory is exhausted.
    #[must_use]
    #[inline]
    pub(super) fn hold(&mut self, binding: BindingId, address: u128) -> Option<Peer> {
        let first = self.reserved(binding)?;
        if first.connections > 0 && first.address != address {
            return self.hold_other(binding, address);
        }
        if first.connections == 0 {
            if self.other(binding, address).is_some() {
                return self.hold_other(binding, address);
            }
            self.first.at_mut(binding.index()).address = address;
        }
        self.first.at_mut(binding.index()).connections += 1;
        Some(Peer::First)
    }

    /// The slot of a binding's first peer. `None` if memory is exhausted.
    #[inline]
    fn reserved(&mut self, binding: BindingId) -> Option<&mut FirstPeer> {
        while self.first.count() <= binding.index() {
            self.first.try_reserve().ok()?;
            self.first.push(FirstPeer::default());
        }
        Some(self.first.at_mut(binding.index()))
    }

    /// Records the MAC address of the inside host that starts a connection. Without memory, it is not
    /// recorded.
    #[inline]
    pub(super) fn learn(&mut self, binding: BindingId, now_ms: u64, mac: [u8; 6]) {
        if let Some(first) = self.reserved(binding) {
            let now_ms = now_ms as u32;
            if first.mac.is_none_or(|known| known == mac || now_ms.wrapping_sub(first.heard_ms) >= AGE_MS) {
                (first.mac, first.heard_ms) = (Some(mac), now_ms);
            }
        }
    }

    /// The MAC address of a binding's inside host, if known.
    pub(super) fn mac(&self, binding: BindingId) -> Option<[u8; 6]> {
        if binding.index() < self.first.count() { self.first.at(binding.index()).mac } else { None }
    }

    /// Forgets the MAC address of a binding that ended.
    #[inline]
    pub(super) fn forget(&mut self, binding: BindingId) {
        if binding.index() < self.first.count() {
            self.first.at_mut(binding.index()).mac = None;
        }
    }

    fn hold_other(&mut self, binding: BindingId, address: u128) -> Option<Peer> {
        let hasher = &self.hasher;
        let rehash = |peer: &OtherPeer| hash_of(hasher, peer.binding, peer.address);
        let hash = hash_of(hasher, binding, address);
        if !self.others.reserve(hash, rehash) {
            return None;
        }
        let same = |peer: &OtherPeer| peer.binding == binding && peer.address == address;
        let peer = self.others.entry(hash, same, rehash, || OtherPeer { binding, address, connections: 0 });
        peer.connections += 1;
        Some(Peer::Other(address))
    }

    /// Removes a connection.
    #[inline]
    pub(super) fn release(&mut self, binding: BindingId, peer: Peer) {
        match peer {
            Peer::First => self.first.at_mut(binding.index()).connections -= 1,
            Peer::Other(address) => self.release_other(binding, address),
        }
    }

    fn release_other(&mut self, binding: BindingId, address: u128) {
        let hasher = &self.hasher;
        let hash = hash_of(hasher, binding, address);
        let same = |peer: &OtherPeer| peer.binding == binding && peer.address == address;
        if let Some(peer) = self.others.find_mut(hash, same) {
            peer.connections -= 1;
            if peer.connections == 0 {
                self.others.remove(hash, same, |peer| hash_of(hasher, peer.binding, peer.address));
            }
        }
    }

    /// Prefetches the first peer of a binding.
    #[inline]
    pub(super) fn prefetch(&self, binding: BindingId) {
        if binding.index() < self.first.count() {
            prefetch(self.first.at(binding.index()));
        }
    }

    fn first_of(&self, binding: BindingId) -> Option<&FirstPeer> {
        let exists = binding.index() < self.first.count();
        exists.then(|| self.first.at(binding.index())).filter(|first| first.connections > 0)
    }

    fn other(&self, binding: BindingId, address: u128) -> Option<&OtherPeer> {
        if self.others.is_empty() {
            return None;
        }
        let same = |peer: &OtherPeer| peer.binding == binding && peer.address == address;
        self.others.find(hash_of(&self.hasher, binding, address), same)
    }
}

fn hash_of(hasher: &TupleHasher, binding: BindingId, address: u128) -> u64 {
    let key = NatKey { target: binding.number(), ..NatKey::new(Kind::Peer, address) };
    hasher.hash_words(key.on(Wire::default(), 0))
}
