//! Packets between two hosts keep their order: one that is not rewritten follows those that are.

#[path = "../src/nodes/reorder.rs"]
mod reorder;

use mmb_packet::{LinkType, Packet, PortId};
use mmb_testkit::{Tcp, Udp};
use reorder::ReorderGuard;

fn ip4(host: u8) -> Vec<u8> {
    let mut bytes = Tcp::default().over_ip4().link(LinkType::RawIp).bytes();
    bytes[15] = host;
    bytes
}

fn ip6(host: u8) -> Vec<u8> {
    let mut bytes = Udp::default().over_ip6().link(LinkType::RawIp).bytes();
    bytes[39] = host;
    bytes
}

/// Which packets of a vector take the detour, given which are rewritten.
fn detour(reorder: &mut ReorderGuard, vector: &[(Vec<u8>, bool)]) -> Vec<bool> {
    let mut buffers: Vec<Vec<u8>> = vector.iter().map(|(bytes, _)| bytes.clone()).collect();
    let packets = buffers.iter_mut().filter_map(|bytes| {
        let len = bytes.len();
        Packet::new(bytes, 0, len, PortId(0), LinkType::RawIp)
    });
    let packets: Vec<Packet<'_>> = packets.collect();
    let rewritten = |at: usize| vector[at].1;
    let mut taken = Vec::new();
    for at in 0..packets.len() {
        if rewritten(at) {
            reorder.begin();
        }
        taken.push(rewritten(at) || reorder.follows(at, &packets, rewritten));
    }
    reorder.end_vector();
    taken
}

#[test]
fn packets_follow_those_of_the_same_hosts_before_them() {
    let vector =
        [(ip4(7), false), (ip4(7), true), (ip4(8), false), (ip4(7), false), (ip4(8), true), (ip4(8), false)];
    assert_eq!(detour(&mut ReorderGuard::default(), &vector), [false, true, false, true, true, true]);
    let vector = [(ip6(1), true), (ip6(2), false), (ip6(1), false), (Vec::new(), false)];
    assert_eq!(detour(&mut ReorderGuard::default(), &vector), [true, false, true, false]);
}

#[test]
fn all_follow_while_earlier_vectors_are_on_their_way() {
    let mut reorder = ReorderGuard::default();
    assert_eq!(detour(&mut reorder, &[(ip4(7), true), (ip4(7), false)]), [true, true]);
    assert_eq!(detour(&mut reorder, &[(ip4(9), false)]), [true]);
    reorder.arrive(2);
    assert_eq!(detour(&mut reorder, &[(ip4(9), false)]), [true], "one of the second vector has not arrived");
    reorder.arrive(2);
    assert_eq!(detour(&mut reorder, &[(ip4(7), false), (ip4(9), false)]), [false, false]);
}
