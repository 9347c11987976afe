//! Answers of `reject` and of packets that exceed an MTU, from outside: who makes them, how many, and what is counted. The bytes of answers are
//! compared in `differential` and in `tests/replay`.

use crate::host::{Middlebox, pass, pass_among, policy, ports};
use mmb_engine::{DropReason, Engine, GeneratedKind, Verdict};
use mmb_packet::PortId;
use mmb_policy::RuleId;
use mmb_random::SeedTree;
use mmb_rewrite::NotApplied;
use mmb_testkit::{Ip4, Tcp, Udp, Upper};
use std::net::Ipv4Addr;

const A: u16 = 0;
const B: u16 = 1;
const REJECTED: Verdict = Verdict::Drop(DropReason::RuleReject);

fn datagram(sport: u16) -> Vec<u8> {
    let upper = Upper::Udp(Udp { sport, dport: 53, ..Udp::default() });
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 80));
    Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes()
}

fn reply(dport: u16) -> Vec<u8> {
    let upper = Upper::Udp(Udp { sport: 53, dport, ..Udp::default() });
    let (source, destination) = (Ipv4Addr::new(192, 0, 2, 80), Ipv4Addr::new(10, 0, 0, 1));
    Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes()
}

fn syn() -> Vec<u8> {
    let upper = Upper::Tcp(Tcp { sport: 5000, dport: 80, flags: 2, seq: 7, ack: 0, ..Tcp::default() });
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 80));
    Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes()
}

/// Received + made = sent + dropped.
fn is_balanced(engine: &Engine) -> bool {
    let ports = engine.port_counts();
    let sum = |each: fn(&mmb_engine::PortCount) -> u64| ports.iter().map(each).sum::<u64>();
    let made: u64 = engine.generated().iter().map(|(_, packets)| packets).sum();
    let dropped: u64 = engine.drops().iter().map(|(_, packets)| packets).sum();
    sum(|port| port.rx.packets) + made == sum(|port| port.tx.packets) + dropped + engine.absorbed()
}

#[test]
fn answers_leave_by_the_port_of_the_packet_and_are_counted_as_made() {
    let mut mmb = Middlebox::new("add id 1 all reject");
    let done = pass_among(std::slice::from_mut(&mut mmb.worker), (0, 1), A, &[datagram(1), syn()]);
    let verdicts: Vec<Verdict> = done.iter().map(|(verdict, _)| *verdict).collect();
    let back = Verdict::Send(PortId(A));
    assert_eq!(verdicts, [REJECTED, REJECTED, back, back]);
    // The quoted datagram behind two headers; a RST.
    assert_eq!([done[2].1.len(), done[3].1.len()], [datagram(1).len() + 28, 54]);
    let done = pass_among(std::slice::from_mut(&mut mmb.worker), (0, 1), B, &[reply(1)]);
    assert_eq!(
        done.iter().map(|(verdict, _)| *verdict).collect::<Vec<_>>(),
        [REJECTED, Verdict::Send(PortId(B))]
    );
    assert_eq!(mmb.engine.generated(), [(GeneratedKind::Reject, 3)]);
    assert_eq!(mmb.engine.drops(), [(DropReason::RuleReject, 3)]);
    assert_eq!(mmb.engine.rule_count(RuleId(1)).dropped.packets, 3);
    assert!(is_balanced(&mmb.engine));
}

#[test]
fn a_port_without_a_wire_is_answered_too() {
    const C: u16 = 2;
    let mut mmb = Middlebox::new("add all reject");
    let done = pass_among(std::slice::from_mut(&mut mmb.worker), (0, 1), C, &[datagram(1)]);
    assert_eq!(
        done.iter().map(|(verdict, _)| *verdict).collect::<Vec<_>>(),
        [REJECTED, Verdict::Send(PortId(C))]
    );
    assert!(is_balanced(&mmb.engine));
}

#[test]
fn an_answer_without_a_buffer_was_never_made() {
    let mut mmb = Middlebox::new("add all reject");
    pass(&mut mmb.worker, A, &[datagram(1), datagram(2)]);
    assert_eq!(mmb.worker.return_packets(|_| false), None);
    assert_eq!(mmb.engine.generated(), []);
    assert!(is_balanced(&mmb.engine));
}

#[test]
fn workers_share_the_rate() {
    let (mut engine, mut workers) = Engine::new(ports(), 2, &SeedTree::repeatable(1));
    engine.publish(&policy("set answer rate 100\nadd all reject")).expect("it can be put in force");
    let mut made = 0;
    for round in 0..40 {
        let now_ms = 1000 + 50 * round;
        for worker in 0..2 {
            let frames: Vec<_> = (0..20).map(datagram).collect();
            let done = pass_among(&mut workers, (worker, now_ms), A, &frames);
            made += done.iter().filter(|(verdict, _)| *verdict == Verdict::Send(PortId(A))).count() as u64;
        }
    }
    // 10 at once, and a hundred a second for 39 times 50 ms.
    assert_eq!(made, 10 + 195);
    assert_eq!(engine.generated(), [(GeneratedKind::Reject, made)]);
    assert_eq!(engine.not_applied(), [(NotApplied::AnswerRate, 40 * 40 - made)]);
    assert!(is_balanced(&engine));
}

#[test]
fn a_queue_that_nobody_empties_is_bounded() {
    let mut mmb = Middlebox::new("set answer rate off\nadd all reject");
    let large = [datagram(1), vec![0; 1000]].concat();
    for _ in 0..10 {
        pass(&mut mmb.worker, A, &vec![large.clone(); 250]);
    }
    let lost: u64 = mmb.engine.not_applied().iter().map(|(_, packets)| packets).sum();
    let mut given = 0;
    while let Some(origin) = mmb.worker.return_packets(|_| {
        given += 1;
        true
    }) {
        assert_eq!(origin, mmb_engine::Origin::Answer);
    }
    assert_eq!(given + lost, 2500);
    assert!((100..=256).contains(&given), "{given}");
    // There is room again.
    pass(&mut mmb.worker, A, &[datagram(1)]);
    assert!(mmb.worker.return_packets(|_| true).is_some());
}

#[test]
fn counters_of_rejected_packets_begin_at_zero_again_and_outlive_a_restart() {
    let rules = "add id 1 udp-dport 53 reject\nadd id 2 tcp-dport 80 drop";
    let mut mmb = Middlebox::new(rules);
    pass(&mut mmb.worker, A, &[datagram(1), datagram(2), syn()]);
    let [rejected, dropped] = [1, 2].map(|id| mmb.engine.rule_count(RuleId(id)));
    let saved = mmb.engine.saved_counters();
    mmb.engine.clear_counters();
    assert_eq!((mmb.engine.drops(), mmb.engine.rule_count(RuleId(1)).dropped.packets), (vec![], 0));
    pass(&mut mmb.worker, A, &[datagram(1), syn()]);
    assert_eq!(mmb.engine.drops(), [(DropReason::Rule, 1), (DropReason::RuleReject, 1)]);
    let mut after = Middlebox::new(rules);
    after.engine.restore_counters(&saved);
    assert!(after.engine.restore_rule_count(RuleId(1), rejected));
    assert!(after.engine.restore_rule_count(RuleId(2), dropped));
    assert_eq!(after.engine.drops(), [(DropReason::Rule, 1), (DropReason::RuleReject, 2)]);
}
