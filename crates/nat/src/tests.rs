//! NAT as a whole: invariants under random connections, and single rules.

mod balancing;
mod chaos;
mod entering;
mod limits;
mod model;
mod sources;

use super::*;
use mmb_conn::{DESTINATION, SOURCE, Side, Tuple, Wire, proto};
use mmb_policy::settings::{ConnectionSettings, NatFiltering};
use mmb_random::SeedTree;

/// 200.0.0.0, where pools begin.
const OUTSIDE: u128 = 0xC800_0000;
/// 10.0.0.0, where hosts are.
const INSIDE: u128 = 0x0A00_0000;

fn filtering(nat_filtering: NatFiltering) -> Nat {
    let mut nat = Nat::new(&SeedTree::repeatable(20));
    nat.configure(&ConnectionSettings { nat_filtering, ..ConnectionSettings::default() });
    nat
}

fn pool(addresses: u128) -> ValueSet {
    ValueSet::new(vec![(OUTSIDE, OUTSIDE + addresses - 1)])
}

/// A source NAT to this many addresses.
fn snat(addresses: u128) -> Mapping {
    Mapping { saddr: Some(pool(addresses)), ..Mapping::default() }
}

/// Packets of an inside endpoint to an outside one: host 192.0.2.`peer`.
fn packet(proto: u8, host: u128, port: u16, peer: u128) -> Tuple {
    let dport = if matches!(proto, proto::ICMP | proto::ICMP6) { 8 } else { 443 };
    Tuple {
        addresses: [INSIDE + host, 0xC000_0200 + peer],
        ports: [port, dport],
        proto,
        family: 4,
        ..Tuple::default()
    }
}

fn udp(host: u128, port: u16, peer: u128) -> Tuple {
    packet(proto::UDP, host, port, peer)
}

fn free(_: &Tuple) -> bool {
    false
}

/// The outside endpoint of a translation.
fn outside(translated: &Translated) -> (u128, u16) {
    (translated.sent.addresses[SOURCE], translated.sent.ports[SOURCE])
}

/// Nothing is in use, and no state is left.
fn assert_nothing_left(nat: &Nat) {
    assert!(nat.is_empty());
    assert_eq!(nat.pools.in_use(), (0, 0, 0));
    assert_eq!((nat.peers.len(), nat.pools.targets.len()), (0, 0));
}
