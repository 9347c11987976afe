//! The MAC addresses of inside hosts, to which hairpinned packets are sent.
//!
//! A host is learned from a packet that begins a translated connection. A sender of such packets could use another host's address, so a MAC
//! address that was seen recently is not replaced by a spoofed frame. Only hosts with a NAT binding are looked up, so an old address stays
//! valid until another one is seen: a host may keep one connection for hours. Each wire has a limit of its own, for all VLANs together;
//! when it is reached, the host that was seen longest ago is evicted.

use hashbrown::HashTable;
use mmb_conn::{Tuple, TupleHasher, Vlans, Wire};
use mmb_random::Seed;
use std::collections::VecDeque;

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

#[derive(Debug, Default)]
struct WireNeighbours {
    hosts: HashTable<Neighbour>,
    /// Every host once, with a time at which it was seen: the oldest first, except for hosts that were seen again.
    order: VecDeque<(NeighbourKey, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    key: NeighbourKey,
    mac: [u8; 6],
    heard_ms: u64,
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
        let hosts = &self.wires.get(usize::from(wire.port))?.hosts;
        Some(hosts.find(key.hash(&self.hasher), |host| host.key == key)?.mac)
    }
}

impl WireNeighbours {
    fn learn(&mut self, hasher: &TupleHasher, now_ms: u64, key: NeighbourKey, mac: [u8; 6]) {
        let hash = key.hash(hasher);
        if let Some(host) = self.hosts.find_mut(hash, |host| host.key == key) {
            if host.mac == mac || now_ms.saturating_sub(host.heard_ms) >= AGE_MS {
                *host = Neighbour { key, mac, heard_ms: now_ms };
            }
            return;
        }
        while self.hosts.len() >= SHARE && self.forget_oldest(hasher) {}
        let rehash = |host: &Neighbour| host.key.hash(hasher);
        // Without memory, new hosts are not learned.
        if self.hosts.try_reserve(1, rehash).is_ok() && self.order.try_reserve(1).is_ok() {
            self.hosts.insert_unique(hash, Neighbour { key, mac, heard_ms: now_ms }, rehash);
            self.order.push_back((key, now_ms));
        }
    }

    /// Removes the first entry of the order, and its host unless it was seen again since.
    fn forget_oldest(&mut self, hasher: &TupleHasher) -> bool {
        let Some((key, heard_ms)) = self.order.pop_front() else { return false };
        if let Ok(host) = self.hosts.find_entry(key.hash(hasher), |host| host.key == key) {
            match host.get().heard_ms {
                again_ms if again_ms > heard_ms => self.order.push_back((key, again_ms)),
                _ => _ = host.remove(),
            }
        }
        true
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
        assert_eq!(neighbours.wires[0].order.len(), SHARE);
        let known = |wire, host| neighbours.find(wire, host).is_some();
        assert!(known(vlan(0), 0), "it was heard again");
        assert!((1..11).all(|host| !known(vlan((host % 2) as u16), host)), "the oldest");
        assert!((11..SHARE as u128).all(|host| known(vlan((host % 2) as u16), host)));
        assert!((0..10).all(|host| known(vlan(9), host)) && known(other, 1));
    }
}
