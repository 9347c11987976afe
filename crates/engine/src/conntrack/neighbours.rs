//! The Ethernet addresses of inside hosts, to which hairpinned packets are sent.
//!
//! A host is learned from a packet that begins a translated connection of its own. Whoever can send such packets could name another
//! host's address, so that an Ethernet address which was heard lately is not replaced by a spoofed frame. Only hosts that have an outside
//! end are asked for, so that an old address holds for as long as no other is heard: a host may have one connection for hours. Each wire
//! has a share of its own, all VLANs together, and when that is full the host that was heard longest ago goes.

use mmb_conn::{Vlans, Wire};
use std::collections::{HashMap, VecDeque};

/// Hosts of a wire, at most.
const SHARE: usize = 4096;
/// For how long the Ethernet address of a host that begins no connection is not replaced: as switches do (IEEE 802.1Q, table 8-6).
const AGE_MS: u64 = 300_000;

/// The hosts of all wires.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    wires: HashMap<u16, WireNeighbours>,
}

/// A host's place in its wire's share.
type NeighbourKey = (Vlans, u128);

#[derive(Debug, Default)]
struct WireNeighbours {
    hosts: HashMap<NeighbourKey, Neighbour>,
    /// Every host once, by a time at which it was heard: the longest ago first, but for those that were heard again.
    order: VecDeque<(NeighbourKey, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    mac: [u8; 6],
    heard_ms: u64,
}

impl Neighbours {
    /// A host has begun a translated connection from an Ethernet address.
    pub(super) fn learn(&mut self, now_ms: u64, wire: Wire, address: u128, mac: [u8; 6]) {
        if self.wires.try_reserve(1).is_err() {
            return;
        }
        self.wires.entry(wire.port).or_default().learn(now_ms, (wire.vlans, address), mac);
    }

    /// Where a host that has an outside end is, if that is known.
    pub(super) fn find(&self, wire: Wire, address: u128) -> Option<[u8; 6]> {
        Some(self.wires.get(&wire.port)?.hosts.get(&(wire.vlans, address))?.mac)
    }
}

impl WireNeighbours {
    fn learn(&mut self, now_ms: u64, key: NeighbourKey, mac: [u8; 6]) {
        if let Some(host) = self.hosts.get_mut(&key) {
            if host.mac == mac || now_ms.saturating_sub(host.heard_ms) >= AGE_MS {
                *host = Neighbour { mac, heard_ms: now_ms };
            }
            return;
        }
        while self.hosts.len() >= SHARE && self.forget_oldest() {}
        // Without memory nobody new is learned.
        if self.hosts.try_reserve(1).is_ok() && self.order.try_reserve(1).is_ok() {
            self.hosts.insert(key, Neighbour { mac, heard_ms: now_ms });
            self.order.push_back((key, now_ms));
        }
    }

    /// Takes the first one out of the order: it goes, unless it was heard again since it was put there.
    fn forget_oldest(&mut self) -> bool {
        let Some((key, heard_ms)) = self.order.pop_front() else { return false };
        match self.hosts.get(&key) {
            Some(host) if host.heard_ms > heard_ms => self.order.push_back((key, host.heard_ms)),
            _ => _ = self.hosts.remove(&key),
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
        let mut neighbours = Neighbours::default();
        neighbours.learn(0, WIRE, 7, OWN);
        for now_ms in [1, AGE_MS - 1] {
            neighbours.learn(now_ms, WIRE, 7, SPOOFED);
            assert_eq!(neighbours.find(WIRE, 7), Some(OWN));
        }
        // What is spoofed does not keep anybody from becoming old either.
        neighbours.learn(AGE_MS, WIRE, 7, SPOOFED);
        assert_eq!(
            neighbours.find(WIRE, 7),
            Some(SPOOFED),
            "another interface of the host, as far as is known"
        );
    }

    #[test]
    fn a_wire_has_a_share_and_the_oldest_go_first() {
        let mut neighbours = Neighbours::default();
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
        assert_eq!(neighbours.wires[&0].hosts.len(), SHARE);
        assert_eq!(neighbours.wires[&0].order.len(), SHARE);
        let known = |wire, host| neighbours.find(wire, host).is_some();
        assert!(known(vlan(0), 0), "it was heard again");
        assert!((1..11).all(|host| !known(vlan((host % 2) as u16), host)), "the oldest");
        assert!((11..SHARE as u128).all(|host| known(vlan((host % 2) as u16), host)));
        assert!((0..10).all(|host| known(vlan(9), host)) && known(other, 1));
    }
}
