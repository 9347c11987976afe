//! The pipeline from outside: verdicts, drop reasons, counters.

use crate::host::{engine, pass, policy};
use mmb_engine::{Count, DropReason, Verdict};
use mmb_packet::{Malformed, PortId};
use mmb_policy::RuleId;
use mmb_rewrite::NotApplied;
use mmb_testkit::{Frame, Tcp, Udp};

const TO_B: Verdict = Verdict::Send(PortId(1));
const BY_RULE: Verdict = Verdict::Drop(DropReason::Rule);

fn udp(dport: u16) -> Vec<u8> {
    Udp::default().dport(dport).over_ip4().bytes()
}

fn verdict(text: &str, frame: &[u8]) -> Verdict {
    let (_engine, mut worker) = engine(text);
    pass(&mut worker, 0, &[frame.to_vec()])[0].0
}

#[test]
fn the_best_priority_decides_and_accept_wins_a_tie() {
    assert_eq!(verdict("add all drop", &udp(53)), BY_RULE);
    assert_eq!(verdict("add udp-dport 54 drop", &udp(53)), TO_B);
    assert_eq!(verdict("add all drop\nadd udp-dport 53 accept", &udp(53)), TO_B);
    assert_eq!(verdict("add prio 1 all drop\nadd prio 2 udp-dport 53 accept", &udp(53)), BY_RULE);
    assert_eq!(verdict("add prio 2 all drop\nadd prio 1 udp-dport 53 accept", &udp(53)), TO_B);
    assert_eq!(verdict("add prio 0 all mod ip-ttl 3\nadd prio 1 all drop", &udp(53)), BY_RULE);
}

#[test]
fn a_share_that_spares_a_packet_leaves_it_to_worse_priorities() {
    assert_eq!(verdict("add prio 1 all drop 0\nadd prio 2 all drop", &udp(53)), BY_RULE);
    let (engine, mut worker) = engine("add prio 1 all drop 30\nadd prio 2 all accept");
    let frames = vec![udp(53); 10_000];
    let dropped = pass(&mut worker, 0, &frames).iter().filter(|(verdict, _)| *verdict == BY_RULE).count();
    assert!((2_700..3_300).contains(&dropped), "{dropped} of 10,000 dropped at 30 %");
    assert_eq!(engine.drops(), [(DropReason::Rule, dropped as u64)]);
    assert_eq!(engine.rule_count(RuleId(1)).matched.packets, 10_000);
}

#[test]
fn every_packet_is_counted_once_more() {
    let (mut engine, mut worker) = engine("add udp-dport 1 drop\nadd udp-dport 2 mod ip-ttl 9");
    let broken = vec![0; 13];
    let large = Udp::default().payload(&[0; 73]).over_ip4().bytes();
    let frames = [udp(1), udp(2), udp(3), broken, large, Frame::arp().bytes()];
    let seen: Vec<Verdict> = pass(&mut worker, 0, &frames).into_iter().map(|(verdict, _)| verdict).collect();
    let truncated = DropReason::Malformed(Malformed::LinkTruncated);
    let too_large = DropReason::MtuExceeded;
    assert_eq!(seen, [BY_RULE, TO_B, TO_B, Verdict::Drop(truncated), Verdict::Drop(too_large), TO_B]);
    assert_eq!(engine.drops(), [(DropReason::Rule, 1), (truncated, 1), (too_large, 1)]);

    let bytes = |frames: &[Vec<u8>]| frames.iter().map(|frame| frame.len() as u64).sum();
    let ports = engine.port_counts();
    assert_eq!(ports[0].rx, Count { packets: 6, bytes: bytes(&frames) });
    let sent = [frames[1].clone(), frames[2].clone(), frames[5].clone()];
    assert_eq!(ports[1].tx, Count { packets: 3, bytes: bytes(&sent) });

    worker.count_unsent(PortId(1), DropReason::TxFull, Count { packets: 2, bytes: bytes(&sent[..2]) });
    worker.count_unprocessed(PortId(1), DropReason::NoBuffer, Count { packets: 1, bytes: 60 });
    let ports = engine.port_counts();
    let received: u64 = ports.iter().map(|port| port.rx.packets).sum();
    let sent: u64 = ports.iter().map(|port| port.tx.packets).sum();
    let dropped: u64 = engine.drops().iter().map(|(_, packets)| packets).sum();
    assert_eq!((received, sent, dropped), (7, 1, 6));
    assert_eq!(engine.reclaim(), 0);
}

#[test]
fn the_mtu_is_that_of_the_packet_as_it_leaves() {
    let segment = Tcp::default().payload(&[0; 58]).over_ip4().bytes();
    assert_eq!(verdict("", &segment), TO_B);
    let grown = verdict("add all add tcp-opt-mss 1400", &segment);
    assert_eq!(grown, Verdict::Drop(DropReason::MtuExceeded));
    let long = Tcp::default().option(2, &[5, 180]).payload(&[0; 58]).over_ip4().bytes();
    assert_eq!(verdict("", &long), Verdict::Drop(DropReason::MtuExceeded));
    assert_eq!(verdict("add all strip all", &long), TO_B);
}

#[test]
fn a_trailer_does_not_count_against_the_mtu() {
    let mut frame = Udp::default().payload(&[0; 72]).over_ip4();
    frame.trailer = vec![0; 20];
    assert_eq!(verdict("", &frame.bytes()), TO_B);
}

#[test]
fn a_port_without_a_wire_drops_what_rules_let_pass() {
    let (engine, mut worker) =
        engine("add udp-dport 1 drop\nadd out b mod ip-ttl 1\nadd in c udp-dport 2 accept");
    let seen: Vec<Verdict> = pass(&mut worker, 2, &[udp(1), udp(2)]).into_iter().map(|(v, _)| v).collect();
    assert_eq!(seen, [BY_RULE, Verdict::Drop(DropReason::NoWire)]);
    let counts = [1, 2, 3].map(|id| engine.rule_count(RuleId(id)).matched.packets);
    assert_eq!(counts, [1, 0, 1]);
}

#[test]
fn a_disabled_port_passes_everything_untouched() {
    let (engine, mut worker) = engine("add all drop\ndisable a");
    let frames = [udp(1), vec![0; 3], Udp::default().payload(&[0; 200]).over_ip4().bytes()];
    for ((verdict, bytes), frame) in pass(&mut worker, 0, &frames).iter().zip(&frames) {
        assert_eq!((verdict, bytes), (&TO_B, frame));
    }
    assert_eq!(pass(&mut worker, 1, &frames[..1])[0].0, BY_RULE);
    assert_eq!(engine.port_counts()[1].tx.packets, 3);
    assert_eq!(engine.rule_count(RuleId(1)).matched.packets, 1);
}

#[test]
fn more_packets_than_a_vector_are_all_worked_on() {
    let (engine, mut worker) = engine("add udp-dport 0-299 mod ip-ttl 9");
    let frames: Vec<_> = (0..1000).map(udp).collect();
    for (dport, (verdict, bytes)) in pass(&mut worker, 0, &frames).iter().enumerate() {
        assert_eq!((*verdict, bytes[22]), (TO_B, if dport < 300 { 9 } else { 64 }), "port {dport}");
    }
    assert_eq!(engine.rule_count(RuleId(1)).matched.packets, 300);
    let classify = engine.stage_counts()[1];
    assert_eq!((classify.name, classify.calls, classify.packets), ("classify", 4, 1000));
    let connections = engine.stage_counts()[2];
    assert_eq!((connections.name, connections.calls, connections.cycles), ("connections", 0, 0));
}

#[test]
fn packets_that_match_thousands_of_rules_are_all_worked_on() {
    let rules: String =
        (1..=3000).map(|i| format!("add id {i} ip-ttl > {} mod ip-ttl {}\n", i % 64, i % 256)).collect();
    let (engine, mut worker) = engine(&rules);
    let frames: Vec<_> = (0..600).map(udp).collect();
    let passed = pass(&mut worker, 0, &frames);
    assert!(passed.iter().all(|(verdict, bytes)| (*verdict, bytes[22]) == (TO_B, 3000u32 as u8)));
    assert!((1..=3000).all(|id| engine.rule_count(RuleId(id)).matched.packets == 600));
}

#[test]
fn targets_that_cannot_be_applied_are_counted() {
    let (engine, mut worker) = engine("add all mod udp-payload \"0123456789\"");
    let short = Udp::default().payload(b"abc").over_ip4().bytes();
    assert_eq!(pass(&mut worker, 0, std::slice::from_ref(&short))[0], (TO_B, short));
    assert_eq!(engine.not_applied(), [(NotApplied::PayloadShort, 1)]);
}

#[test]
fn what_cannot_be_put_in_force_is_refused_and_changes_nothing() {
    let (mut engine, mut worker) = engine("add all drop");
    let mut refusal = |text: &str| engine.publish(&policy(text)).expect_err(text).to_string();
    assert_eq!(refusal("add in lan drop"), "rule 1: no port is called 'lan'; the ports are a, b, c, d");
    assert_eq!(refusal("disable lan"), "disable lan: no port is called 'lan'; the ports are a, b, c, d");
    assert_eq!(pass(&mut worker, 0, &[udp(53)])[0].0, BY_RULE);
}

#[test]
fn the_bound_of_extension_headers_is_a_setting() {
    use mmb_testkit::{Extension, Ip6, Upper};
    let mut ip = Ip6::new(Upper::Udp(Udp::default()));
    for _ in 0..3 {
        ip = ip.extension(Extension::Plain(60, Vec::new()));
    }
    let frame = ip.frame().bytes();
    assert_eq!(verdict("", &frame), TO_B);
    let too_long = DropReason::Malformed(Malformed::Ip6ChainTooLong);
    assert_eq!(verdict("set ip6-max-headers 2", &frame), Verdict::Drop(too_long));
}
