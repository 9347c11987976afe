//! Flows in one direction (syslog, RTP, telemetry): their verdicts are cached although no end ever answers.

use crate::host::{Middlebox, pass_among};
use mmb_engine::Verdict;
use mmb_testkit::{Ip4, Udp, Upper};
use std::net::Ipv4Addr;

const SENDER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const COLLECTOR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);

fn datagram(sport: u16) -> Vec<u8> {
    let datagram = Udp { sport, dport: 514, payload: b"hello".to_vec(), ..Udp::default() };
    Ip4 { source: SENDER, destination: COLLECTOR, ..Ip4::new(Upper::Udp(datagram)) }.frame().bytes()
}

impl Middlebox {
    /// Processes datagrams with these source ports in one vector. Returns the verdicts.
    fn datagrams(&mut self, sports: &[u16]) -> Vec<Verdict> {
        let frames: Vec<_> = sports.iter().map(|&sport| datagram(sport)).collect();
        let passed = pass_among(std::slice::from_mut(&mut self.worker), (0, self.now_ms), 0, &frames);
        passed.into_iter().map(|(verdict, _)| verdict).collect()
    }

    /// The number of connections that were evicted.
    fn evicted(&self) -> u64 {
        let closed = self.engine.connections().summary().closed;
        closed.into_iter().filter(|(reason, _)| *reason == "evicted").map(|(_, count)| count).sum()
    }
}

fn is_sent(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Send(_))
}

#[test]
fn packets_of_a_one_way_flow_are_not_classified() {
    let mut mmb = Middlebox::new("add-stateful ip-proto udp accept\nadd all drop");
    // The first packet creates the connection, the second one's verdict is cached.
    for expected in [1, 2, 2, 2] {
        assert!(mmb.datagrams(&[7]).iter().all(is_sent));
        assert_eq!(mmb.classified(), expected);
    }
    let [info] = &mmb.list()[..] else { panic!("one connection") };
    assert_eq!((info.packets, info.state), ([4, 0], "unreplied"));
}

#[test]
fn rules_on_ct_states_see_the_first_reply_of_a_one_way_flow() {
    let mut mmb = Middlebox::new("add-stateful ip-proto udp accept\nadd ct established accept\nadd all drop");
    for expected in [1, 2, 3] {
        assert!(mmb.datagrams(&[7]).iter().all(is_sent));
        assert_eq!(mmb.classified(), expected);
    }
}

#[test]
fn a_one_way_flow_in_a_full_table_goes_on_after_its_eviction() {
    let mut mmb = Middlebox::new("set conn max 300\nadd-stateful ip-proto udp accept\nadd all drop");
    let sports: Vec<u16> = (1..=300).collect();
    for _ in 0..2 {
        sports.chunks(100).for_each(|sports| assert!(mmb.datagrams(sports).iter().all(is_sent)));
    }
    assert_eq!(mmb.evicted(), 0);
    // The first packet evicts the connection of the second one.
    assert!(mmb.datagrams(&[1000, 1]).iter().all(is_sent));
    assert_eq!(mmb.evicted(), 2);
}

#[test]
fn a_one_way_flow_keeps_its_port_while_its_packets_are_processed() {
    let mut mmb = Middlebox::new(
        "add-stateful in a ip-proto udp map ip-saddr 200.0.0.1 map udp-sport 7000-7001 accept\nadd all drop",
    );
    assert!((0..3).all(|_| mmb.datagrams(&[1, 2]).iter().all(is_sent)));
    mmb.wait(6);
    // Alone, the first packet would get the port of one of the other connections.
    let verdicts = mmb.datagrams(&[3, 2, 1]);
    assert!(matches!(verdicts[0], Verdict::Drop(_)), "{verdicts:?}");
    assert!(verdicts[1..].iter().all(is_sent));
    mmb.wait(6);
    assert_eq!(mmb.evicted(), 0);
    assert!(mmb.datagrams(&[3]).iter().all(is_sent), "its port may be taken then");
    assert_eq!(mmb.evicted(), 1);
}
