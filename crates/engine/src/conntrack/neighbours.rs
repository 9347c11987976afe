//! The MAC addresses of inside hosts, to which hairpinned packets are sent.
//!
//! A host is learned from a packet that begins a translated connection. A sender of such packets could use another host's address, so a MAC
//! address that was seen recently is not replaced by a spoofed frame. Only hosts with a NAT binding are looked up, so an old address stays
//! valid until another one is seen: a host may keep one connection for hours. Each wire has a limit of its own, for all VLANs together;
//! when it is reached, a host that was not seen for long is evicted.

use hashbrown::HashTable;
use mmb_conn::{Tuple, TupleHasher, Vlans, Wire};
use mmb_random::Seed;

/// Hosts of a wire, at most.
const SHARE: usize = 4096;
/// For this time the MAC address of a host that begins no connection is not replaced: the ageing time of switches (IEEE 802.1Q, table 8-6).
const AGE_MS: u64 = 300_000;

/// The hosts of all wires.
#[derive(Debug)]
pub(super) struct Neighbours {
    hasher: TupleHasher,
    /// By the port of the wire.
    wires: Vec<WireNeighbours>,
}

/// A host within its wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NeighbourKey {
    vlans: Vlans,
    address: u128,
}

impl NeighbourKey {
    fn hash(self, hasher: &TupleHasher) -> u64 {
        let NeighbourKey { vlans, address } = self;
        let wire = Wire { vlans, ..Wire::default() };
        hasher.hash(&Tuple { addresses: [address, 0], wire, ..Tuple::default() })
    }
}

/// The hosts of a wire, in the order in which they were learned; when there are as many as may be, the next one takes the place of the oldest
/// that was not seen again since the last turn (the clock algorithm).
#[derive(Debug, Default)]
struct WireNeighbours {
    hosts: Vec<Neighbour>,
    /// Indices of hosts by the hash of their keys.
    by_key: HashTable<u16>,
    /// The oldest one, if there are as many as may be.
    hand: usize,
}

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    key: NeighbourKey,
    hash: u64,
    heard_ms: u64,
    mac: [u8; 6],
    /// Since the last turn.
    seen_again: bool,
}

impl Neighbours {
    /// No hosts. The hash keys derive from the seed.
    pub(super) fn new(seed: Seed) -> Neighbours {
        Neighbours { hasher: TupleHasher::new(seed), wires: Vec::new() }
    }

    /// Learns the MAC address of a host that begins a translated connection.
    pub(super) fn learn(&mut self, now_ms: u64, wire: Wire, address: u128, mac: [u8; 6]) {
        let port = usize::from(wire.port);
        if self.wires.len() <= port {
            if self.wires.try_reserve(port + 1 - self.wires.len()).is_err() {
                return;
            }
            self.wires.resize_with(port + 1, WireNeighbours::default);
        }
        self.wires[port].learn(&self.hasher, now_ms, NeighbourKey { vlans: wire.vlans, address }, mac);
    }

    /// The MAC address of a host with a NAT binding, if known.
    pub(super) fn find(&self, wire: Wire, address: u128) -> Option<[u8; 6]> {
        let key = NeighbourKey { vlans: wire.vlans, address };
        let wire = self.wires.get(usize::from(wire.port))?;
        wire.find(key.hash(&self.hasher), key).map(|at| wire.hosts[at].mac)
    }
}

impl WireNeighbours {
    fn find(&self, hash: u64, key: NeighbourKey) -> Option<usize> {
        self.by_key.find(hash, |at| self.hosts[usize::from(*at)].key == key).map(|at| usize::from(*at))
    }

    fn learn(&mut self, hasher: &TupleHasher, now_ms: u64, key: NeighbourKey, mac: [u8; 6]) {
        let hash = key.hash(hasher);
        if let Some(at) = self.find(hash, key) {
            let host = &mut self.hosts[at];
            if host.mac == mac || now_ms.saturating_sub(host.heard_ms) >= AGE_MS {
                (host.mac, host.heard_ms, host.seen_again) = (mac, now_ms, true);
            }
            return;
        }
        let hosts = &self.hosts;
        let rehash = |at: &u16| hosts[usize::from(*at)].hash;
        // Without memory, new hosts are not learned.
        if self.by_key.try_reserve(1, rehash).is_err() || self.hosts.try_reserve(1).is_err() {
            return;
        }
        let host = Neighbour { key, hash, heard_ms: now_ms, mac, seen_again: false };
        let at = if self.hosts.len() < SHARE {
            self.hosts.push(host);
            self.hosts.len() - 1
        } else {
            let at = self.forget_oldest();
            self.hosts[at] = host;
            at
        };
        let hosts = &self.hosts;
        self.by_key.insert_unique(hash, at as u16, |at| hosts[usize::from(*at)].hash);
    }

    /// Forgets the oldest host that was not seen again. Returns its place.
    fn forget_oldest(&mut self) -> usize {
        let at = loop {
            let at = self.hand;
            self.hand = (at + 1) % SHARE;
            if !std::mem::take(&mut self.hosts[at].seen_again) {
                break at;
            }
        };
        if let Ok(gone) = self.by_key.find_entry(self.hosts[at].hash, |other| usize::from(*other) == at) {
            gone.remove();
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: Wire = Wire { port: 0, vlans: Vlans::NONE };
    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const SPOOFED: [u8; 6] = [2, 0, 0, 0, 0, 66];

    #[test]
    fn a_spoofed_frame_diverts_nobody_who_was_heard_lately() {
        let mut neighbours = Neighbours::new(Seed::repeatable(1));
        neighbours.learn(0, WIRE, 7, OWN);
        for now_ms in [1, AGE_MS - 1] {
            neighbours.learn(now_ms, WIRE, 7, SPOOFED);
            assert_eq!(neighbours.find(WIRE, 7), Some(OWN));
        }
        // Spoofed frames do not refresh the entry either.
        neighbours.learn(AGE_MS, WIRE, 7, SPOOFED);
        assert_eq!(
            neighbours.find(WIRE, 7),
            Some(SPOOFED),
            "another interface of the host, as far as is known"
        );
    }

    #[test]
    fn a_wire_has_a_share_and_the_oldest_go_first() {
        let mut neighbours = Neighbours::new(Seed::repeatable(1));
        let vlan = |outer| Wire { port: 0, vlans: Vlans { outer, inner: 0 } };
        let other = Wire { port: 2, ..WIRE };
        neighbours.learn(0, other, 1, OWN);
        for host in 0..SHARE as u64 {
            neighbours.learn(host, vlan((host % 2) as u16), host.into(), OWN);
        }
        let now_ms = SHARE as u64;
        neighbours.learn(now_ms, vlan(0), 0, OWN);
        for host in 0..10 {
            neighbours.learn(now_ms, vlan(9), host, OWN);
        }
        assert_eq!(neighbours.wires[0].hosts.len(), SHARE);
        assert_eq!(neighbours.wires[0].by_key.len(), SHARE);
        let known = |wire, host| neighbours.find(wire, host).is_some();
        assert!(known(vlan(0), 0), "it was heard again");
        assert!((1..11).all(|host| !known(vlan((host % 2) as u16), host)), "the oldest");
        assert!((11..SHARE as u128).all(|host| known(vlan((host % 2) as u16), host)));
        assert!((0..10).all(|host| known(vlan(9), host)) && known(other, 1));
    }
}
