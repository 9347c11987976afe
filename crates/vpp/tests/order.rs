//! Packets between two hosts keep their order: one that is not rewritten follows those that are.

#[path = "../src/nodes/order.rs"]
mod order;

use mmb_packet::{LinkType, Packet, PortId};
use mmb_testkit::{Tcp, Udp};
use order::Detours;

fn with(bytes: &mut [u8], look: impl FnOnce(&Packet<'_>)) {
    let len = bytes.len();
    look(&Packet::new(bytes, 0, len, PortId(0), LinkType::RawIp).expect("it fits"));
}

fn bytes(sport: u16, host: u8) -> Vec<u8> {
    let mut bytes = Tcp { sport, ..Tcp::default() }.over_ip4().link(LinkType::RawIp).bytes();
    bytes[15] = host;
    bytes
}

#[test]
fn packets_of_the_same_hosts_follow_until_none_is_under_way() {
    let mut detours = Detours::new();
    let (mut syn, mut data, mut other) = (bytes(1, 7), bytes(2, 7), bytes(1, 8));
    with(&mut data, |packet| assert!(!detours.follows(packet)));
    with(&mut syn, |packet| detours.begin(packet));
    with(&mut data, |packet| assert!(detours.follows(packet)));
    with(&mut other, |packet| assert!(!detours.follows(packet)));
    detours.end(1);
    with(&mut data, |packet| assert!(detours.follows(packet), "the one that followed is under way still"));
    detours.end(2);
    with(&mut data, |packet| assert!(!detours.follows(packet)));
}

#[test]
fn ip6_addresses_count_as_a_whole_and_short_packets_are_nobodys() {
    let mut detours = Detours::new();
    let mut here = Udp::default().over_ip6().link(LinkType::RawIp).bytes();
    let mut there = here.clone();
    there[39] ^= 1;
    with(&mut here, |packet| detours.begin(packet));
    with(&mut there, |packet| assert!(!detours.follows(packet)));
    with(&mut here, |packet| assert!(detours.follows(packet)));
    with(&mut [], |packet| assert!(!detours.follows(packet)));
    detours.clear();
    with(&mut here, |packet| assert!(!detours.follows(packet)));
}
