//! What somebody outside sees of random choices, and what that tells.

use crate::host::{engine, pass_among, policy, ports};
use mmb_engine::{Engine, Verdict, Worker};
use mmb_random::SeedTree;
use mmb_testkit::{Ip4, Tcp, Udp, Upper};
use std::collections::HashSet;
use std::net::Ipv4Addr;

const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const SYN: u8 = 2;

/// What leaves when a packet comes in by `a`.
fn sent(worker: &mut Worker, now_ms: u64, upper: Upper) -> Vec<u8> {
    let frame = Ip4 { source: INSIDE, destination: SERVER, ..Ip4::new(upper) }.frame().bytes();
    let (verdict, bytes) = pass_among(std::slice::from_mut(worker), (0, now_ms), 0, &[frame]).remove(0);
    assert!(matches!(verdict, Verdict::Send(_)), "{verdict:?}");
    bytes
}

/// The sequence number that the outside sees of a SYN.
fn initial(worker: &mut Worker, now_ms: u64, sport: u16) -> u32 {
    let bytes =
        sent(worker, now_ms, Upper::Tcp(Tcp { sport, dport: 80, flags: SYN, seq: 77, ..Tcp::default() }));
    u32::from_be_bytes([bytes[38], bytes[39], bytes[40], bytes[41]])
}

/// The source port that the outside sees of a datagram.
fn port(worker: &mut Worker, sport: u16) -> u16 {
    let bytes = sent(worker, 0, Upper::Udp(Udp { sport, dport: 53, ..Udp::default() }));
    u16::from_be_bytes([bytes[34], bytes[35]])
}

const SHUFFLE_SEQ: &str = "add-stateful in a ip-proto tcp shuffle tcp-seq-num";
const SHUFFLE_PORT: &str = "add-stateful in a ip-proto udp map ip-saddr 200.0.0.1 shuffle udp-sport";

/// RFC 6528: 250,000 a second more than before, so that a server in TIME-WAIT takes the SYN (RFC 9293, section 3.6.1).
#[test]
fn a_connection_that_begins_again_begins_with_a_larger_number() {
    let (_engine, mut worker) = engine(SHUFFLE_SEQ);
    let first = initial(&mut worker, 1000, 5000);
    let hour = 3_600_000;
    let again = initial(&mut worker, 1000 + hour, 5000);
    assert_eq!(again.wrapping_sub(first), (hour * 250) as u32);
}

/// No step leads from the number of one port to that of the next.
#[test]
fn numbers_of_neighbours_differ_by_a_step_of_their_own_each() {
    let (_engine, mut worker) = engine(SHUFFLE_SEQ);
    let seen: Vec<u32> = (1024..2024).map(|port| initial(&mut worker, 0, port)).collect();
    let steps: HashSet<u32> = seen.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps.len() > 990, "{} different steps", steps.len());
}

/// Of a process that was given a seed of 64 bits, a few sequence numbers gave all other secrets. Each purpose has its own now: whoever has
/// all of one knows nothing of the others.
#[test]
fn the_same_packets_get_other_numbers_and_ports_under_another_root() {
    let observed = |tree: &SeedTree, rules: &str| {
        let (mut engine, mut workers) = Engine::new(ports(), 1, tree);
        engine.publish(&policy(rules)).expect("the policy can be put in force");
        workers.remove(0)
    };
    let trees = [[1; 32], [2; 32]].map(SeedTree::new);
    let numbers = trees.each_ref().map(|tree| initial(&mut observed(tree, SHUFFLE_SEQ), 0, 5000));
    assert_ne!(numbers[0], numbers[1]);
    let given = trees.each_ref().map(|tree| {
        let mut worker = observed(tree, SHUFFLE_PORT);
        (1024..1064).map(|sport| port(&mut worker, sport)).collect::<Vec<_>>()
    });
    let same = given[0].iter().zip(&given[1]).filter(|(one, other)| one == other).count();
    assert!(same < 3, "{same} of 40 ports are the same");
}

#[test]
fn ports_after_fresh_entropy_do_not_follow_from_those_before() {
    let mut pair = [engine(SHUFFLE_PORT), engine(SHUFFLE_PORT)];
    let given = |pair: &mut [(Engine, Worker); 2], from: u16| {
        pair.each_mut()
            .map(|(_, worker)| (from..from + 40).map(|sport| port(worker, sport)).collect::<Vec<_>>())
    };
    let [one, other] = given(&mut pair, 1024);
    assert_eq!(one, other, "the same seeds, the same ports");
    pair[0].0.reseed(&SeedTree::new([9; 32]));
    let [one, other] = given(&mut pair, 2048);
    let same = one.iter().zip(&other).filter(|(one, other)| one == other).count();
    assert!(same < 3, "{same} of 40 ports are the same");
}

/// A key that changed would have servers in TIME-WAIT refuse connections that begin again.
#[test]
fn numbers_of_the_same_ends_grow_across_fresh_entropy() {
    let (engine, mut worker) = engine(SHUFFLE_SEQ);
    let first = initial(&mut worker, 1000, 5000);
    engine.reseed(&SeedTree::new([9; 32]));
    let hour = 3_600_000;
    assert_eq!(initial(&mut worker, 1000 + hour, 5000).wrapping_sub(first), (hour * 250) as u32);
}
