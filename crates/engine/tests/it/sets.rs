//! Named sets in the engine: a change of a set holds for all rules at once, in the flow cache and for connections too, and the rules keep their
//! counters.

use crate::host::{Middlebox, engine, pass, policy};
use crate::inside_frames::{A, ACK, B, SERVER, SYN, tcp};
use mmb_engine::{DropReason, Engine, Verdict};
use mmb_language::parse_command;
use mmb_packet::PortId;
use mmb_policy::sets::Element;
use mmb_policy::{ElementList, Policy, RuleId, SetOperation};
use mmb_testkit::{Ip4, Ip6, Udp, Upper};
use std::net::Ipv4Addr;

/// Publishes a policy after a command.
fn run(engine: &mut Engine, policy: &mut Policy, command: &str) {
    parse_command(command).expect("parses").0.run(policy).expect("runs");
    engine.publish(policy).expect("it can be put in force");
}

fn from(source: [u8; 4], dport: u16) -> Vec<u8> {
    let udp = Udp { dport, ..Udp::default() };
    let destination = Ipv4Addr::new(192, 0, 2, 9);
    Ip4 { source: Ipv4Addr::from(source), destination, ..Ip4::new(Upper::Udp(udp)) }.frame().bytes()
}

fn drops(passed: &[(Verdict, Vec<u8>)]) -> Vec<bool> {
    passed.iter().map(|(verdict, _)| *verdict == Verdict::Drop(DropReason::Rule)).collect()
}

#[test]
fn a_change_of_a_set_holds_for_all_rules_at_once() {
    let text = "set bad {10.0.0.0/24}\nset ports {53}\n\
        add id 1 ip-saddr @bad drop\nadd id 2 prio 1 ip-saddr @bad udp-dport @ports accept\nadd id 3 ip-daddr @bad drop\n\
        add id 4 ! ip-saddr @bad udp-dport 7 drop\nadd id 5 udp-dport != @ports mod ip-ttl 9";
    let (mut engine, mut worker) = engine(text);
    let mut now = policy(text);
    let frames =
        [from([10, 0, 0, 1], 80), from([10, 0, 0, 1], 53), from([10, 0, 1, 1], 80), from([10, 0, 1, 1], 7)];
    // Twice: the second time from the flow cache.
    let mut dropped = || {
        let first = drops(&pass(&mut worker, 0, &frames));
        assert_eq!(drops(&pass(&mut worker, 0, &frames)), first);
        first
    };
    assert_eq!(dropped(), [true, false, false, true]);
    let publish = &mut |command: &str| run(&mut engine, &mut now, command);
    publish("set bad += {10.0.1.0/24}");
    assert_eq!(dropped(), [true, false, true, true]);
    publish("set bad -= {10.0.0.0/24}");
    assert_eq!(dropped(), [false, false, true, true]);
    publish("set ports {7}");
    assert_eq!(dropped(), [false, false, true, false]);
    publish("set bad {}");
    assert_eq!(dropped(), [false, false, false, true]);
    publish("set bad {0.0.0.0/0}");
    assert_eq!(dropped(), [true, true, true, false]);
    // A set that no rule names goes, and another one takes its place.
    publish("del 2");
    publish("del 5");
    publish("del set ports");
    publish("set other {10.0.0.1, 10.0.0.3}");
    publish("set bad {}");
    publish("add id 6 ip-saddr @other drop");
    assert_eq!(dropped(), [true, true, false, true]);
    assert_eq!(engine.rule_count(RuleId(1)).matched.packets, 4 + 8 + 4 + 4 + 8, "counters stay");
}

#[test]
fn a_set_of_addresses_has_those_of_both_versions() {
    let (_, mut worker) =
        engine("set bad {10.0.0.1, 2001:db8::/32}\nadd ip-saddr @bad drop\nadd ip6-saddr @bad drop");
    let ip6 = |source: &str| {
        let source = source.parse().expect("an address");
        Ip6 { source, ..Ip6::new(Upper::Udp(Udp::default())) }.frame().bytes()
    };
    let frames = [from([10, 0, 0, 1], 1), from([10, 0, 0, 2], 1), ip6("2001:db8::9"), ip6("2001:db9::9")];
    assert_eq!(drops(&pass(&mut worker, 0, &frames)), [true, false, true, false]);
}

#[test]
fn an_established_connection_is_decided_again_when_a_set_changes() {
    let text = "set bad {}\nadd id 1 prio 1 ip-saddr @bad drop\nadd-stateful id 2 ip-proto tcp accept";
    let mut mmb = Middlebox::new(text);
    let mut now = policy(text);
    let (client, server) = (([10, 0, 0, 1].into(), 5000), (SERVER, 80));
    mmb.through(A, &tcp(client, server, SYN));
    mmb.through(B, &tcp(server, client, SYN | ACK));
    (0..3).for_each(|_| _ = mmb.through(A, &tcp(client, server, ACK)));
    run(&mut mmb.engine, &mut now, "set bad += {10.0.0.1 timeout 5s}");
    assert_eq!(mmb.dropped(A, &tcp(client, server, ACK)), DropReason::Rule);
    assert_eq!(now.expire(4_999), 0);
    assert_eq!(now.expire(5_000), 1);
    mmb.engine.publish(&now).expect("it can be put in force");
    mmb.through(A, &tcp(client, server, ACK));
}

#[test]
fn a_change_of_a_large_set_costs_what_it_changes() {
    let mut now = policy("set bad {}\nadd ip-saddr @bad drop");
    let mut list = ElementList::default();
    list.ip4.extend((0..300_000u32).map(|n| Element::of(n * 9, n * 9 + 3)));
    now.change_set("bad", SetOperation::Replace, list).expect("they fit");
    let (mut engine, workers) = Engine::new(crate::host::ports(), 1, &mmb_random::SeedTree::repeatable(1));
    let mut worker = workers.into_iter().next().expect("a worker");
    let before = Policy::default();
    assert!(engine.extra_bytes(&before, &now) > 300_000 * 16, "its memory counts");
    engine.publish(&now).expect("it can be put in force");
    let passed = pass(&mut worker, 0, &[from([0, 0, 0, 12], 1), from([0, 0, 0, 13], 1)]);
    assert_eq!(drops(&passed), [true, false]);
    let before = now.clone();
    run(&mut engine, &mut now, "set bad += {0.0.0.13}");
    assert!(engine.extra_bytes(&before, &now) < 10_000);
    // Another set of the same size is another set.
    let mut other = now.clone();
    let mut list = ElementList::default();
    list.ip4.extend((0..300_000u32).map(|n| Element::of(n * 9 + 1, n * 9 + 3)));
    other.change_set("bad", SetOperation::Replace, list).expect("they fit");
    assert!(engine.extra_bytes(&now, &other) > 300_000 * 16);
    let passed = pass(&mut worker, 0, &[from([0, 0, 0, 12], 1), from([0, 0, 0, 13], 1)]);
    assert_eq!(drops(&passed), [true, true]);
    assert_eq!(pass(&mut worker, 0, &[from([0, 0, 0, 14], 1)])[0].0, Verdict::Send(PortId(1)));
}
