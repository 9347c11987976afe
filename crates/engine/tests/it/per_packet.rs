//! Rules that match some packets of a connection and not others, beside stateful rules: verdicts are cached all the same.

use crate::host::{Middlebox, engine, pass_among, policy};
use mmb_engine::{DropReason, RuleCount, Verdict};
use mmb_policy::RuleId;
use mmb_testkit::{Ip4, Tcp, Udp, Upper};
use std::net::Ipv4Addr;

const A: u16 = 0;
const B: u16 = 1;
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
/// The offsets of fields in an Ethernet frame.
const DSCP: usize = 15;
const TTL: usize = 22;

fn datagram(from: u16, ttl: u8) -> Vec<u8> {
    let (source, destination, sport, dport) = match from {
        A => (CLIENT, SERVER, 7, 53),
        _ => (SERVER, CLIENT, 53, 7),
    };
    let upper = Upper::Udp(Udp { sport, dport, ..Udp::default() });
    Ip4 { source, destination, ttl, ..Ip4::new(upper) }.frame().bytes()
}

fn segment(from: u16, flags: u8, ttl: u8) -> Vec<u8> {
    let (source, destination, sport, dport) = match from {
        A => (CLIENT, SERVER, 5000, 80),
        _ => (SERVER, CLIENT, 80, 5000),
    };
    let (seq, ack) = match (from, flags) {
        (A, SYN) => (100, 0),
        (A, _) => (101, 201),
        (_, _) => (200, 101),
    };
    let upper = Upper::Tcp(Tcp { sport, dport, flags, seq, ack, ..Tcp::default() });
    Ip4 { source, destination, ttl, ..Ip4::new(upper) }.frame().bytes()
}

impl Middlebox {
    /// Establishes the connection of datagrams, until verdicts of both directions are cached.
    fn established(text: &str) -> Middlebox {
        let mut mmb = Middlebox::new(text);
        for _ in 0..3 {
            mmb.through(A, &datagram(A, 64));
            mmb.through(B, &datagram(B, 64));
        }
        mmb
    }

    /// Makes a change of the policy.
    fn publish(&mut self, text: &str) {
        self.engine.publish(&policy(text)).expect("it can be put in force");
    }

    /// The numbers of packets that a rule matched and dropped.
    fn matched_and_dropped(&self, id: u32) -> (u64, u64) {
        let RuleCount { matched, dropped, .. } = self.engine.rule_count(RuleId(id));
        (matched.packets, dropped.packets)
    }

    /// The number of packets that rules dropped, by reason.
    fn dropped_by_rules(&self) -> u64 {
        let drops = self.engine.drops().into_iter();
        drops.filter(|(reason, _)| *reason == DropReason::Rule).map(|(_, count)| count).sum()
    }
}

#[test]
fn established_packets_need_no_classification_beside_a_per_packet_rule() {
    let mut mmb =
        Middlebox::established("add-stateful id 1 ip-proto udp accept\nadd id 2 prio 1 ip-ttl 1 drop");
    let before = mmb.classified();
    for _ in 0..10 {
        mmb.through(A, &datagram(A, 64));
        mmb.through(B, &datagram(B, 64));
    }
    assert_eq!(mmb.classified(), before);
    assert_eq!((mmb.matched_and_dropped(1).0, mmb.matched_and_dropped(2)), (26, (0, 0)));
}

#[test]
fn a_packet_of_an_established_connection_is_dropped_by_a_per_packet_rule() {
    let mut mmb =
        Middlebox::established("add-stateful id 1 ip-proto udp accept\nadd id 2 prio 1 ip-ttl 1 drop");
    for round in 1..=3 {
        assert_eq!(mmb.dropped(A, &datagram(A, 1)), DropReason::Rule);
        mmb.through(A, &datagram(A, 64));
        assert_eq!(mmb.dropped(B, &datagram(B, 1)), DropReason::Rule);
        assert_eq!((mmb.matched_and_dropped(2), mmb.dropped_by_rules()), ((2 * round, 2 * round), 2 * round));
    }
    assert_eq!(mmb.matched_and_dropped(1), (15, 0));
    let [info] = &mmb.list()[..] else { panic!("one connection") };
    assert_eq!(info.packets, [6, 3], "packets that are dropped are not the connection's");
}

#[test]
fn packets_that_match_per_packet_rules_take_the_cached_verdict_too() {
    for rule in ["ip-ttl < 65 mod ip-dscp 8", "ip-ttl 1 drop", "all drop 0.001%", "ip-ttl 2 accept"] {
        let mut mmb =
            Middlebox::new(&format!("add-stateful id 1 ip-proto udp accept\nadd id 2 prio 1 {rule}"));
        let all = [64, 2, 1];
        let mut round = || {
            all.iter().for_each(|&ttl| _ = mmb.pass(A, &datagram(A, ttl)));
            mmb.classified()
        };
        let before = (0..3).map(|_| round()).last();
        assert_eq!(Some(round()), before, "{rule}");
    }
}

#[test]
fn only_some_packets_of_a_vector_match_a_per_packet_rule() {
    let mut mmb =
        Middlebox::established("add-stateful id 1 ip-proto udp accept\nadd id 2 prio 1 ip-ttl 1 drop");
    let ttls = [64, 1, 2, 1, 1, 63];
    let frames = ttls.map(|ttl| datagram(A, ttl));
    let passed = pass_among(std::slice::from_mut(&mut mmb.worker), (0, mmb.now_ms), A, &frames);
    let dropped: Vec<bool> = passed.iter().map(|(verdict, _)| matches!(verdict, Verdict::Drop(_))).collect();
    assert_eq!(dropped, ttls.map(|ttl| ttl == 1));
}

#[test]
fn a_tcp_connection_is_cached_beside_a_rule_on_flags() {
    let mut mmb = Middlebox::new("add-stateful id 1 ip-proto tcp accept\nadd id 2 prio 1 tcp-flags rst drop");
    mmb.through(A, &segment(A, SYN, 64));
    mmb.through(B, &segment(B, SYN | ACK, 64));
    for _ in 0..2 {
        mmb.through(A, &segment(A, ACK, 64));
        mmb.through(B, &segment(B, ACK, 64));
    }
    let before = mmb.classified();
    (0..5).for_each(|_| _ = mmb.through(A, &segment(A, ACK, 64)));
    assert_eq!(mmb.classified(), before);
    // The rule drops the segment, so that it does not end the connection.
    assert_eq!(mmb.dropped(A, &segment(A, 0x04, 64)), DropReason::Rule);
    mmb.through(B, &segment(B, ACK, 64));
    assert_eq!(mmb.matched_and_dropped(2), (1, 1));
}

#[test]
fn a_percentage_decides_for_each_packet() {
    for rule in ["ip-ttl 64 drop 50%", "all drop 50%", "ip-ttl 64 drop 50% mod ip-dscp 3"] {
        let mut mmb =
            Middlebox::new(&format!("add-stateful id 1 ip-proto udp accept\nadd id 2 prio 1 {rule}"));
        (0..500).for_each(|_| _ = mmb.pass(A, &datagram(A, 64)));
        let (matched, dropped) = mmb.matched_and_dropped(2);
        assert!(matched == 500 && (150..350).contains(&dropped), "{rule}: {dropped}");
        assert_eq!(mmb.dropped_by_rules(), dropped);
    }
}

#[test]
fn a_percentage_of_a_stateful_rule_decides_for_each_packet() {
    let mut mmb = Middlebox::new("add-stateful id 1 ip-proto udp drop 50%");
    (0..500).for_each(|_| _ = mmb.pass(A, &datagram(A, 64)));
    let (matched, dropped) = mmb.matched_and_dropped(1);
    assert!(matched == 500 && (150..350).contains(&dropped), "{dropped}");
    // It drains: it takes no new connections, and its connection keeps it.
    let mut drains = policy("add-stateful id 1 ip-proto udp drop 50%");
    drains.drain(RuleId(1)).expect("there is such a rule");
    mmb.engine.publish(&drains).expect("it can be put in force");
    (0..500).for_each(|_| _ = mmb.pass(A, &datagram(A, 64)));
    let dropped = mmb.dropped_by_rules() - dropped;
    assert!((150..350).contains(&dropped), "{dropped}");
}

#[test]
fn rewrites_of_per_packet_and_constant_rules_are_applied_in_order() {
    for (constant, per_packet, dscp) in [(5, 6, 9), (6, 5, 8), (5, 5, 9)] {
        let mut mmb = Middlebox::established(&format!(
            "add-stateful id 1 ip-proto udp accept\nadd id 2 prio {constant} ip-proto udp mod ip-dscp 8\n\
             add id 3 prio {per_packet} ip-ttl 2 mod ip-dscp 9 mod ip-ttl 33"
        ));
        for _ in 0..3 {
            let plain = mmb.through(A, &datagram(A, 64));
            assert_eq!((plain[DSCP] >> 2, plain[TTL]), (8, 64));
            let matched = mmb.through(A, &datagram(A, 2));
            assert_eq!((matched[DSCP] >> 2, matched[TTL]), (dscp, 33), "{constant} {per_packet}");
        }
        assert_eq!((mmb.matched_and_dropped(2).0, mmb.matched_and_dropped(3).0), (12, 3));
    }
}

#[test]
fn the_better_of_a_per_packet_and_a_constant_rule_decides() {
    let stateful = "add-stateful id 1 prio 9 ip-proto udp accept\n";
    let mut mmb = Middlebox::established(stateful);
    mmb.publish(&format!("{stateful}add id 2 prio 5 ip-proto udp drop\nadd id 3 prio 4 ip-ttl 2 accept"));
    for _ in 0..4 {
        assert_eq!(mmb.dropped(A, &datagram(A, 64)), DropReason::Rule);
        mmb.through(A, &datagram(A, 2));
    }
    assert_eq!((mmb.matched_and_dropped(2), mmb.matched_and_dropped(3)), ((8, 4), (4, 0)));
    mmb.publish(&format!("{stateful}add id 2 prio 5 ip-proto udp drop\nadd id 4 prio 6 ip-ttl 2 accept"));
    for _ in 0..4 {
        assert_eq!(mmb.dropped(A, &datagram(A, 64)), DropReason::Rule);
        assert_eq!(mmb.dropped(A, &datagram(A, 2)), DropReason::Rule);
    }
    assert_eq!((mmb.matched_and_dropped(2), mmb.matched_and_dropped(4)), ((16, 12), (4, 0)));
    mmb.publish(&format!("{stateful}add id 5 prio 5 ip-proto udp accept\nadd id 6 prio 4 ip-ttl 2 drop"));
    for _ in 0..4 {
        mmb.through(A, &datagram(A, 64));
        assert_eq!(mmb.dropped(A, &datagram(A, 2)), DropReason::Rule);
    }
    assert_eq!((mmb.matched_and_dropped(5), mmb.matched_and_dropped(6)), ((8, 0), (4, 4)));
}

#[test]
fn a_per_packet_rule_comes_and_goes_while_connections_live() {
    let stateful = "add-stateful id 1 ip-proto udp accept\n";
    let mut mmb = Middlebox::established(stateful);
    for round in 0..20 {
        mmb.publish(&format!(
            "{stateful}add id 2 prio 1 ip-ttl 1 drop\nadd id 3 prio 1 ip-ttl {} drop",
            2 + round
        ));
        for _ in 0..2 {
            mmb.through(A, &datagram(A, 64));
            assert_eq!(mmb.dropped(A, &datagram(A, 1)), DropReason::Rule);
            assert_eq!(mmb.dropped(A, &datagram(A, 2 + round)), DropReason::Rule);
            mmb.through(A, &datagram(A, 3 + round));
        }
        mmb.publish(stateful);
        (0..2).for_each(|_| _ = mmb.through(A, &datagram(A, 1)));
    }
    // As the first one, beside rules that were there before stateful ones.
    mmb.publish("add id 2 prio 1 ip-ttl 1 drop");
    assert_eq!(mmb.dropped(A, &datagram(A, 1)), DropReason::Rule);
    mmb.publish(&format!("{stateful}add id 2 prio 1 ip-ttl 1 drop"));
    (0..2).for_each(|_| _ = mmb.through(A, &datagram(A, 64)));
    assert_eq!(mmb.dropped(A, &datagram(A, 1)), DropReason::Rule);
}

#[test]
fn many_per_packet_rules_are_replaced_at_once() {
    let rules = |first: usize| {
        let rule = |id: usize| format!("add id {} prio 1 udp-len {id} ip-ttl 1 drop\n", id + 2);
        format!(
            "add-stateful id 1 ip-proto udp accept\n{}",
            (first..first + 6000).map(rule).collect::<String>()
        )
    };
    let mut mmb = Middlebox::established(&rules(1));
    assert_eq!(mmb.dropped(A, &datagram(A, 1)), DropReason::Rule);
    mmb.publish(&rules(6001));
    (0..2).for_each(|_| _ = mmb.through(A, &datagram(A, 1)));
    mmb.publish(&rules(2));
    assert_eq!(mmb.dropped(A, &datagram(A, 1)), DropReason::Rule);
}

#[test]
fn per_packet_rules_with_ct_conditions_apply_in_these_states() {
    let mut mmb = Middlebox::established(
        "add-stateful id 1 ip-proto udp accept\nadd id 2 prio 1 ct established ip-ttl 1 drop\n\
         add id 3 prio 1 ct new ip-ttl 2 drop\nadd id 4 ct established ip-proto udp mod ip-dscp 8",
    );
    let before = mmb.classified();
    for _ in 0..3 {
        assert_eq!(mmb.dropped(A, &datagram(A, 1)), DropReason::Rule);
        assert_eq!(mmb.through(A, &datagram(A, 2))[DSCP] >> 2, 8);
        assert_eq!(mmb.through(A, &datagram(A, 64))[DSCP] >> 2, 8);
    }
    assert_eq!(mmb.classified(), before);
    assert_eq!((mmb.matched_and_dropped(2), mmb.matched_and_dropped(3)), ((3, 3), (0, 0)));
}

#[test]
fn an_invalid_packet_matches_per_packet_rules() {
    let mut mmb = Middlebox::new(
        "add-stateful id 1 ip-proto tcp accept\nadd id 2 prio 1 ct invalid ip-ttl 1 drop\n\
         add id 3 prio 2 ct established ip-ttl 1 mod ip-dscp 8\nadd id 4 prio 3 ct invalid mod ip-dscp 9",
    );
    mmb.through(A, &segment(A, SYN, 64));
    mmb.through(B, &segment(B, SYN | ACK, 64));
    for _ in 0..3 {
        mmb.through(A, &segment(A, ACK, 64));
        mmb.through(B, &segment(B, ACK, 64));
    }
    let out_of_window = |ttl| {
        let upper =
            Upper::Tcp(Tcp { sport: 5000, dport: 80, flags: ACK, seq: 1 << 30, ack: 201, ..Tcp::default() });
        Ip4 { source: CLIENT, destination: SERVER, ttl, ..Ip4::new(upper) }.frame().bytes()
    };
    for _ in 0..2 {
        assert_eq!(mmb.through(A, &out_of_window(64))[DSCP] >> 2, 9);
        assert_eq!(mmb.dropped(A, &out_of_window(1)), DropReason::Rule);
        assert_eq!(mmb.through(A, &segment(A, ACK, 1))[DSCP] >> 2, 8);
    }
    assert_eq!(
        (mmb.matched_and_dropped(2), mmb.matched_and_dropped(3), mmb.matched_and_dropped(4)),
        ((2, 2), (2, 0), (4, 0))
    );
}

#[test]
fn a_stateful_rule_on_the_ttl_is_its_connections() {
    let mut mmb = Middlebox::established("add-stateful id 1 ip-ttl 64 accept\nadd id 2 prio 200 all drop");
    let before = mmb.classified();
    for _ in 0..3 {
        mmb.through(A, &datagram(A, 9));
        mmb.through(B, &datagram(B, 9));
    }
    assert_eq!((mmb.classified(), mmb.matched_and_dropped(1).0), (before, 12));
}

#[test]
fn policies_without_stateful_rules_have_no_connections_to_cache() {
    let (engine, mut worker) = engine("add id 1 ip-ttl 1 drop\nadd id 2 ct new ip-ttl 2 drop");
    let frames = [datagram(A, 1), datagram(A, 2), datagram(A, 64)];
    let passed = crate::host::pass(&mut worker, A, &frames);
    assert_eq!(passed.iter().filter(|(verdict, _)| matches!(verdict, Verdict::Drop(_))).count(), 2);
    assert_eq!(engine.stage_counts()[1].packets, 3);
}

#[test]
fn a_late_segment_is_refused_whatever_per_packet_rules_it_matches() {
    for ttl in [64, 2] {
        let mut mmb =
            Middlebox::new("add-stateful id 1 ip-proto tcp accept\nadd id 2 prio 1 ip-ttl 2 mod ip-dscp 8");
        mmb.through(A, &segment(A, SYN, 64));
        mmb.through(B, &segment(B, SYN | ACK, 64));
        for _ in 0..3 {
            mmb.through(A, &segment(A, ACK, 64));
            mmb.through(B, &segment(B, ACK, 64));
        }
        // The connection ends and a new one begins while a segment of the old one waits.
        let frames = [segment(A, 0x04, 64), segment(A, SYN, 64), segment(A, ACK, ttl)];
        let passed = pass_among(std::slice::from_mut(&mut mmb.worker), (0, mmb.now_ms), A, &frames);
        let verdicts: Vec<Verdict> = passed.iter().map(|(verdict, _)| *verdict).collect();
        assert!(verdicts[..2].iter().all(|verdict| matches!(verdict, Verdict::Send(_))), "{verdicts:?}");
        assert_eq!(verdicts[2], Verdict::Drop(DropReason::ConnInvalid), "{ttl}");
        assert_eq!(mmb.matched_and_dropped(2), (0, 0));
    }
}
