//! Hosts behind one outside address that reach each other by it.

use crate::host::{pass_among, policy, ports};
use mmb_engine::Engine;
use mmb_random::SeedTree;
use mmb_testkit::{Ip4, Udp, Upper};
use std::net::Ipv4Addr;

const PAIRS: u8 = 50;

fn udp(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) -> Vec<u8> {
    let datagram = Udp { sport: source.1, dport: destination.1, ..Udp::default() };
    Ip4 { source: source.0, destination: destination.0, ..Ip4::new(Upper::Udp(datagram)) }.frame().bytes()
}

/// The same frame from another MAC address.
fn sent_by(mac: u8, mut frame: Vec<u8>) -> Vec<u8> {
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, mac]);
    frame
}

#[test]
fn any_two_hosts_reach_each_other_whichever_workers_have_their_connections() {
    let outside = Ipv4Addr::new(200, 0, 0, 1);
    let far = (Ipv4Addr::new(192, 0, 2, 9), 53);
    let rules = "set nat filtering endpoint-independent\nadd-stateful in a map ip-saddr 200.0.0.1";
    for workers in [1, 2, 4] {
        let (mut engine, mut workers) = Engine::new(ports(), workers, &SeedTree::repeatable(1));
        engine.publish(&policy(rules)).expect("it can be put in force");
        for number in 0..PAIRS {
            let called = (Ipv4Addr::new(10, 0, 1, number), 1000 + u16::from(number) * 2);
            let caller = (Ipv4Addr::new(10, 0, 2, number), 3000 + u16::from(number) * 2);
            let frames = [
                sent_by(1, udp(called, far)),
                sent_by(2, udp(caller, far)),
                // Another host uses its address and port.
                sent_by(66, udp(called, (far.0, 54))),
                sent_by(2, udp(caller, (outside, called.1))),
            ];
            let passed = frames.map(|frame| pass_among(&mut workers, (0, 1000), 0, &[frame]));
            let (_, frame) = passed[3].last().expect("one packet");
            assert_eq!(frame[30..34], called.0.octets(), "{workers} workers", workers = workers.len());
            assert_eq!(frame[..6], [2, 0, 0, 0, 0, 1]);
        }
    }
}

#[test]
fn many_made_up_hosts_divert_nobody() {
    let outside = Ipv4Addr::new(200, 0, 0, 1);
    let far = (Ipv4Addr::new(192, 0, 2, 9), 53);
    let (called, caller) = ((Ipv4Addr::new(10, 0, 0, 7), 1000), (Ipv4Addr::new(10, 0, 0, 8), 3000));
    let (mut engine, mut workers) = Engine::new(ports(), 1, &SeedTree::repeatable(1));
    let rules = "set nat filtering endpoint-independent\nadd-stateful in a map ip-saddr 200.0.0.1";
    engine.publish(&policy(rules)).expect("it can be put in force");
    let mut pass = |frame| pass_among(&mut workers, (0, 1000), 0, &[frame]);
    pass(sent_by(1, udp(called, far)));
    for number in 0..5000u16 {
        let [high, low] = number.to_be_bytes();
        pass(sent_by(66, udp((Ipv4Addr::new(10, 1, high, low), 2000), far)));
    }
    pass(sent_by(66, udp(called, (far.0, 54))));
    let passed = pass(sent_by(2, udp(caller, (outside, called.1))));
    let (_, frame) = passed.last().expect("one packet");
    assert_eq!((&frame[30..34], &frame[..6]), (&called.0.octets()[..], &[2, 0, 0, 0, 0, 1][..]));
}
