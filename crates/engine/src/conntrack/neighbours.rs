//! The MAC addresses of inside hosts, to which hairpinned packets are sent.
//!
//! A host is learned from a packet that begins a translated connection. A sender of such packets could use another host's address, so a MAC
//! address that was seen recently is not replaced by a spoofed frame. Only hosts with a NAT binding are looked up, so an old address stays
//! valid until another one is seen: a host may keep one connection for hours. Each wire has a limit of its own, for all VLANs together;
//! when it is reached, the host that was seen longest ago is evicted.

use mmb_conn::{Vlans, Wire};
use std::collections::{HashMap, VecDeque};

/// Hosts of a wire, at most.
const SHARE: usize = 4096;
/// For this time the MAC address of a host that begins no connection is not replaced: the ageing time of switches (IEEE 802.1Q, table 8-6).
const AGE_MS: u64 = 300_000;

/// The hosts of all wires.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    wires: HashMap<u16, WireNeighbours>,
}

/// The key of a host within its wire.
type NeighbourKey = (Vlans, u128);

#[derive(Debug, Default)]
struct WireNeighbours {
    hosts: HashMap<NeighbourKey, Neighbour>,
    /// Every host once, with a time at which it was seen: the oldest first, except for hosts that were seen again.
    order: VecDeque<(NeighbourKey, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    mac: [u8; 6],
    heard_ms: u64,
}

impl Neighbours {
    /// Learns the MAC address of a host that begins a translated connection.
    pub(super) fn learn(&mut self, now_ms: u64, wire: Wire, address: u128, mac: [u8; 6]) {
        if self.wires.try_reserve(1).is_err() {
            return;
        }
        self.wires.entry(wire.port).or_default().learn(now_ms, (wire.vlans, address), mac);
    }

    /// The MAC address of a host with a NAT binding, if known.
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
        // Without memory, new hosts are not learned.
        if self.hosts.try_reserve(1).is_ok() && self.order.try_reserve(1).is_ok() {
            self.hosts.insert(key, Neighbour { mac, heard_ms: now_ms });
            self.order.push_back((key, now_ms));
        }
    }

    /// Removes the first entry of the order, and its host unless it was seen again since.
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
