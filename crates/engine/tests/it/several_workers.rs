//! Several workers share connections and outside ends: a packet gets the same treatment at whichever worker it arrives.

use crate::host::{pass_among, policy};
use crate::inside_frames::{A, B, INSIDE, OUTSIDE, SERVER, ip4, sport, udp};
use mmb_engine::{DropReason, Verdict, Worker};
use mmb_packet::PortId;
use mmb_random::SeedTree;
use mmb_testkit::Upper;
use std::net::Ipv4Addr;

/// Takes a frame through the worker that gets it, and those that it is handed to if it is; returns what becomes of it.
fn pass_any(workers: &mut [Worker], first: usize, port: u16, frame: &[u8]) -> (Verdict, Vec<u8>) {
    pass_among(workers, (first, 1), port, &[frame.to_vec()]).remove(0)
}

#[test]
fn several_workers_share_connections_and_outside_ends() {
    let (mut engine, mut workers) =
        mmb_engine::Engine::new(crate::host::ports(), 3, &SeedTree::repeatable(1));
    let rules = "add-stateful ip-saddr 10.0.0.0/8 ip-proto udp accept map ip-saddr 200.0.0.1 map udp-sport 1000-1999\nadd in b drop";
    engine.publish(&policy(rules)).expect("it can be put in force");
    let mut outside = std::collections::HashSet::new();
    for number in 0..300u16 {
        let client = (Ipv4Addr::new(10, 0, (number >> 8) as u8, number as u8), 5000 + number);
        let (verdict, sent) = pass_any(&mut workers, usize::from(number % 3), A, &udp(client, (SERVER, 53)));
        assert_eq!(verdict, Verdict::Send(PortId(B)));
        assert_eq!(sent, udp((OUTSIDE, sport(&sent)), (SERVER, 53)));
        assert!(outside.insert(sport(&sent)), "an outside end was given twice");
        for first in 0..3 {
            let reply = udp((SERVER, 53), (OUTSIDE, sport(&sent)));
            let (verdict, back) = pass_any(&mut workers, first, B, &reply);
            assert_eq!((verdict, back), (Verdict::Send(PortId(A)), udp((SERVER, 53), client)));
        }
    }
    let summary = engine.connections().summary();
    assert_eq!((summary.connections, summary.created), (300, 300));
    assert!(summary.handed > 300);
    // Every packet came in once, however many workers saw it.
    let received: u64 = engine.port_counts().iter().map(|port| port.rx.packets).sum();
    let sent: u64 = engine.port_counts().iter().map(|port| port.tx.packets).sum();
    assert_eq!((received, sent), (1200, 1200));
}

#[test]
fn packets_find_another_workers_connection_though_no_rule_is_stateful_any_more() {
    let (mut engine, mut workers) =
        mmb_engine::Engine::new(crate::host::ports(), 2, &SeedTree::repeatable(1));
    engine
        .publish(&policy("add-stateful ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1"))
        .expect("it can be put in force");
    let (client, server) = ((INSIDE, 5000), (SERVER, 53));
    let (_, sent) = pass_any(&mut workers, 0, A, &udp(client, server));
    assert_eq!(sent, udp((OUTSIDE, 5000), server));
    engine.publish(&policy("")).expect("it can be put in force");
    for first in 0..2 {
        let (_, back) = pass_any(&mut workers, first, B, &udp(server, (OUTSIDE, 5000)));
        assert_eq!(back, udp(server, client));
    }
}

#[test]
fn what_one_worker_translates_is_answered_with_nothing_that_another_one_translates() {
    let gre = |source, destination| ip4(source, destination, Upper::Raw(47, vec![3; 12]));
    for host in 1..=16 {
        let (mut engine, mut workers) =
            mmb_engine::Engine::new(crate::host::ports(), 2, &SeedTree::repeatable(1));
        engine
            .publish(&policy("add-stateful ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1"))
            .expect("it can be put in force");
        let client = Ipv4Addr::new(10, 0, 0, host);
        // Its own packets come in as answers to the next ones would.
        let (_, sent) = pass_any(&mut workers, 0, B, &gre(client, OUTSIDE));
        assert_eq!(sent, gre(OUTSIDE, OUTSIDE));
        let (verdict, _) = pass_any(&mut workers, 0, A, &gre(client, client));
        assert_eq!(verdict, Verdict::Drop(DropReason::NatClash), "host {host}");
    }
}
