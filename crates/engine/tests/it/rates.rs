//! `limit`: how much passes, which packets count, and what becomes of a limit when the policy changes.

use crate::host::{Middlebox, pass_among, policy, ports};
use mmb_engine::{DropReason, Engine, Verdict, Worker};
use mmb_packet::PortId;
use mmb_policy::RuleId;
use mmb_random::SeedTree;
use mmb_rewrite::NotApplied;
use mmb_testkit::{Ip4, Ip6, Tcp, Udp, Upper};
use std::net::{Ipv4Addr, Ipv6Addr};

const A: u16 = 0;
const B: u16 = 1;
const EXCEEDS: Verdict = Verdict::Drop(DropReason::RuleLimit);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const SYN: u8 = 2;
const ACK: u8 = 16;

fn udp(source: [u8; 4], sport: u16) -> Vec<u8> {
    let upper = Upper::Udp(Udp { sport, dport: 53, ..Udp::default() });
    Ip4 { source: source.into(), destination: SERVER, ..Ip4::new(upper) }.frame().bytes()
}

fn reply(destination: [u8; 4], dport: u16) -> Vec<u8> {
    let upper = Upper::Udp(Udp { sport: 53, dport, ..Udp::default() });
    Ip4 { source: SERVER, destination: destination.into(), ..Ip4::new(upper) }.frame().bytes()
}

fn udp6(host: u128) -> Vec<u8> {
    let upper = Upper::Udp(Udp { sport: 1, dport: 53, ..Udp::default() });
    Ip6 { source: Ipv6Addr::from_bits(host), ..Ip6::new(upper) }.frame().bytes()
}

fn tcp(sport: u16, flags: u8) -> Vec<u8> {
    let upper = Upper::Tcp(Tcp { sport, dport: 80, flags, seq: 7, ack: 0, ..Tcp::default() });
    Ip4 { source: Ipv4Addr::new(10, 0, 0, 1), destination: SERVER, ..Ip4::new(upper) }.frame().bytes()
}

/// How many of these frames, which come in by `port` at a time, pass; the others exceed a limit.
fn passed(workers: &mut [Worker], now_ms: u64, port: u16, frames: &[Vec<u8>]) -> usize {
    let verdicts = pass_among(workers, (0, now_ms), port, frames);
    let passes = |(verdict, _): &&(Verdict, Vec<u8>)| matches!(verdict, Verdict::Send(_));
    let count = verdicts.iter().filter(passes).count();
    assert!(
        verdicts
            .iter()
            .all(|(verdict, _)| *verdict == EXCEEDS || *verdict == Verdict::Send(PortId(1 - port)))
    );
    count
}

/// How many of the frames pass that come every 10 ms, in so many ms.
fn passed_in(workers: &mut [Worker], (from_ms, ms): (u64, u64), frames: &[Vec<u8>]) -> usize {
    (from_ms..from_ms + ms).step_by(10).map(|now_ms| passed(workers, now_ms, A, frames)).sum()
}

#[test]
fn a_rate_of_packets_holds_and_what_exceeds_it_is_counted() {
    let mut mmb = Middlebox::new("add id 1 udp-dport 53 limit 1000/s\nadd id 2 tcp-dport 80 accept");
    let workers = std::slice::from_mut(&mut mmb.worker);
    let frames: Vec<_> = (0..40).map(|sport| udp([10, 0, 0, 1], sport)).collect();
    // 4000 a second for two seconds; 100 may come at once.
    let count = passed_in(workers, (0, 2000), &frames);
    assert!((2080..=2100).contains(&count), "{count}");
    assert_eq!(passed(workers, 2000, A, &[tcp(1, SYN)]), 1);
    let rule = mmb.engine.rule_count(RuleId(1));
    assert_eq!((rule.matched.packets, rule.dropped.packets), (8000, 8000 - count as u64));
    assert_eq!(mmb.engine.drops(), [(DropReason::RuleLimit, 8000 - count as u64)]);
    let saved = mmb.engine.saved_counters();
    assert!(saved.iter().all(|counter| counter.name != "rule-limit"), "it is the rule's");
}

#[test]
fn a_rate_of_bytes_counts_frames() {
    for rate in ["100kB/s burst 2000", "800kbit/s burst 16kbit", "6MB/m burst 2000"] {
        let mut mmb = Middlebox::new(&format!("add all limit {rate}"));
        let frames = vec![udp([10, 0, 0, 1], 1); 200];
        let bytes = frames[0].len() * passed_in(std::slice::from_mut(&mut mmb.worker), (0, 1000), &frames);
        assert!((95_000..=105_000).contains(&bytes), "{rate}: {bytes} bytes");
    }
}

#[test]
fn keys_have_rates_of_their_own() {
    let hosts = |rule: &str, frames: &[Vec<u8>]| {
        let mut mmb = Middlebox::new(rule);
        passed(std::slice::from_mut(&mut mmb.worker), 0, A, frames)
    };
    let twenty = |source: [u8; 4]| vec![udp(source, 1); 20];
    let several = [twenty([10, 0, 0, 1]), twenty([10, 0, 0, 2]), twenty([10, 0, 1, 1])].concat();
    assert_eq!(hosts("add all limit 5/s", &several), 5);
    assert_eq!(hosts("add all limit 5/s per ip-saddr", &several), 15);
    assert_eq!(hosts("add all limit 5/s per ip-saddr/24", &several), 10);
    assert_eq!(hosts("add all limit 5/s per ip-daddr", &several), 5);
    assert_eq!(hosts("add all limit 5/s per ip6-saddr/48", &several), 15, "whole addresses of IPv4");
    let network = 0x2001_0db8_0000_0001_u128 << 64;
    let networks: Vec<_> =
        (0..20).flat_map(|host| [udp6(network | host), udp6((network + (1 << 64)) | host)]).collect();
    assert_eq!(hosts("add all limit 5/s per ip-saddr", &networks), 10, "networks of IPv6");
    assert_eq!(hosts("add all limit 5/s per ip6-saddr/128", &networks), 40);
    assert_eq!(hosts("add all limit 5/s per ip6-saddr/32", &networks), 5);
}

#[test]
fn more_keys_than_there_is_room_for_are_counted_and_pass() {
    let mut mmb = Middlebox::new("set limit keys 1024\nadd all limit 1/h burst 1 per ip-saddr");
    let workers = std::slice::from_mut(&mut mmb.worker);
    let frames: Vec<_> = (0..20_000_u16).map(|host| udp([10, 1, (host >> 8) as u8, host as u8], 1)).collect();
    assert_eq!(passed(workers, 0, A, &frames), 20_000);
    let [(NotApplied::LimitKeys, forgot)] = mmb.engine.not_applied()[..] else { panic!("it is told") };
    assert!((15_000..17_000).contains(&forgot), "{forgot}");
}

#[test]
fn accept_exempts_and_drop_comes_first() {
    let mut mmb = Middlebox::new(
        "add prio 1 udp-sport 7 accept\nadd prio 1 udp-sport 8 drop\nadd prio 5 all limit 5/s\nadd prio 5 udp-sport 9 accept\nadd prio 9 udp-sport 10 drop",
    );
    let workers = std::slice::from_mut(&mut mmb.worker);
    let burst = |sport| vec![udp([10, 0, 0, 1], sport); 20];
    assert_eq!(passed(workers, 0, A, &burst(7)), 20, "of a better priority");
    assert_eq!(passed(workers, 0, A, &burst(9)), 20, "of the same priority");
    let dropped = pass_among(workers, (0, 0), A, &burst(8));
    assert!(dropped.iter().all(|(verdict, _)| *verdict == Verdict::Drop(DropReason::Rule)));
    let dropped = pass_among(workers, (0, 0), A, &[udp([10, 0, 0, 1], 10)]);
    assert_eq!(dropped[0].0, Verdict::Drop(DropReason::Rule), "what is within is decided by others");
    assert_eq!(passed(workers, 0, A, &burst(1)), 4, "those before did not count, but for the last one");
}

#[test]
fn what_is_accepted_within_a_limit_wins_as_any_accept_does() {
    let burst = vec![udp([10, 0, 0, 1], 1); 20];
    let pass = |rules: &str| {
        let mut mmb = Middlebox::new(rules);
        let done = pass_among(std::slice::from_mut(&mut mmb.worker), (0, 0), A, &burst);
        done.iter().filter(|(verdict, _)| *verdict == Verdict::Send(PortId(B))).count()
    };
    assert_eq!(pass("add udp-dport 53 limit 1/h burst 5 accept\nadd all drop"), 5, "over a drop");
    assert_eq!(pass("add all drop\nadd udp-dport 53 limit 1/h burst 5 accept"), 5);
    assert_eq!(pass("add all limit 1/h burst 2\nadd all limit 1/h burst 5 accept"), 5, "over another limit");
    assert_eq!(
        pass("add all limit 1/h burst 5 accept\nadd all limit 1/h burst 7 accept"),
        12,
        "each accepts"
    );
    assert_eq!(pass("add all limit 1/h burst 5 accept\nadd all limit 1/h burst 7"), 5);
    assert_eq!(pass("add all accept\nadd all limit 1/h burst 5 accept"), 20);
}

#[test]
fn packets_that_are_invalid_do_not_count() {
    for rules in [
        "set conn invalid drop\nadd-stateful prio 300 tcp-dport 80 accept\nadd prio 10 tcp-dport 80 limit 1/h burst 20",
        "add prio 1 ct invalid drop\nadd-stateful prio 300 tcp-dport 80 accept\nadd prio 10 tcp-dport 80 limit 1/h burst 20",
    ] {
        let mut mmb = Middlebox::new(rules);
        let workers = std::slice::from_mut(&mut mmb.worker);
        let segment = |upper: Tcp, forward: bool| {
            let (inside, outside) = (Ipv4Addr::new(10, 0, 0, 1), SERVER);
            let (source, destination) = if forward { (inside, outside) } else { (outside, inside) };
            Ip4 { source, destination, ..Ip4::new(Upper::Tcp(upper)) }.frame().bytes()
        };
        let client = |flags, seq, ack| {
            segment(Tcp { sport: 9, dport: 80, flags, seq, ack, window: 1000, ..Tcp::default() }, true)
        };
        let server =
            Tcp { sport: 80, dport: 9, flags: SYN | ACK, seq: 100, ack: 8, window: 1000, ..Tcp::default() };
        assert_eq!(passed(workers, 0, A, &[client(SYN, 7, 0)]), 1);
        assert_eq!(passed(workers, 0, B, &[segment(server, false)]), 1);
        // So that the verdict is cached.
        assert_eq!(passed(workers, 0, A, &vec![client(ACK, 8, 101); 9]), 9);
        let invalid = pass_among(workers, (0, 0), A, &vec![client(ACK, 8 + 0x4000_0000, 101); 30]);
        assert!(invalid.iter().all(|(verdict, _)| matches!(verdict, Verdict::Drop(_))));
        assert_eq!(passed(workers, 0, A, &vec![client(ACK, 8, 101); 20]), 10, "{rules}");
    }
}

#[test]
fn beside_accept_what_is_within_passes() {
    let mut mmb = Middlebox::new("add prio 5 udp-dport 53 limit 5/s accept\nadd prio 9 all drop");
    let workers = std::slice::from_mut(&mut mmb.worker);
    assert_eq!(passed(workers, 0, A, &vec![udp([10, 0, 0, 1], 1); 20]), 5);
    assert_eq!(pass_among(workers, (0, 0), A, &[tcp(1, SYN)])[0].0, Verdict::Drop(DropReason::Rule));
}

#[test]
fn several_limits_hold_each() {
    let mut mmb = Middlebox::new("add prio 1 all limit 5/s per ip-saddr\nadd prio 2 all limit 12/s burst 12");
    let workers = std::slice::from_mut(&mut mmb.worker);
    let frames: Vec<_> = (1..=4).flat_map(|host| vec![udp([10, 0, 0, host], 1); 10]).collect();
    assert_eq!(passed(workers, 0, A, &frames), 12);
}

#[test]
fn new_connections_are_counted_and_their_packets_are_not() {
    let mut mmb =
        Middlebox::new("add-stateful tcp-dport 80 limit 10conn/s burst 5 accept\nadd prio 200 all drop");
    let workers = std::slice::from_mut(&mut mmb.worker);
    let syns: Vec<_> = (1..=20).map(|sport| tcp(sport, SYN)).collect();
    let verdicts = pass_among(workers, (0, 0), A, &syns);
    assert!(verdicts.iter().enumerate().all(|(at, (verdict, _))| (*verdict == EXCEEDS) == (at >= 5)));
    for _ in 0..50 {
        assert_eq!(passed(workers, 1, A, &(1..=5).map(|sport| tcp(sport, ACK)).collect::<Vec<_>>()), 5);
    }
    assert_eq!(passed(workers, 100, A, &[tcp(6, SYN)]), 1);
    assert_eq!(passed(workers, 100, A, &[tcp(7, SYN)]), 0);
}

#[test]
fn connections_are_told_apart_by_their_first_packets_in_both_directions() {
    let mut mmb = Middlebox::new("add-stateful in a limit 10/s burst 10 per ip-saddr map ip-saddr 200.0.0.1");
    let workers = std::slice::from_mut(&mut mmb.worker);
    let [one, two] = [[10, 0, 0, 1], [10, 0, 0, 2]];
    assert_eq!(passed(workers, 0, A, &[udp(one, 1000), udp(two, 2000)]), 2);
    let sent = pass_among(workers, (0, 0), A, &[udp(one, 1000)]);
    let port = u16::from_be_bytes([sent[0].1[34], sent[0].1[35]]);
    assert_eq!(passed(workers, 0, B, &vec![reply([200, 0, 0, 1], port); 20]), 8, "two were the client's");
    assert_eq!(passed(workers, 0, A, &vec![udp(one, 1000); 5]), 0);
    assert_eq!(passed(workers, 0, A, &vec![udp(two, 2000); 20]), 9);
}

#[test]
fn workers_share_a_rate() {
    for rule in ["add all limit 1000/s", "add all limit 1000/s per ip-daddr", "add-stateful all limit 1000/s"]
    {
        let (mut engine, mut workers) = Engine::new(ports(), 2, &SeedTree::repeatable(1));
        engine.publish(&policy(rule)).expect("it can be put in force");
        let mut count = 0;
        for now_ms in (0..1000).step_by(10) {
            for worker in 0..2 {
                let frames: Vec<_> = (0..20).map(|host| udp([10, 0, 0, host], 1)).collect();
                let done = pass_among(&mut workers, (worker, now_ms), A, &frames);
                count += done.iter().filter(|(verdict, _)| *verdict == Verdict::Send(PortId(B))).count();
            }
        }
        assert!((1080..=1100).contains(&count), "{rule}: {count}");
    }
}

#[test]
fn a_change_of_other_rules_or_of_this_one_does_not_fill_the_burst_again() {
    for per in ["", " per ip-saddr"] {
        let rule = format!("add id 5 udp-dport 53 limit 1/h burst 5{per}");
        let mut mmb = Middlebox::new(&rule);
        let frames = vec![udp([10, 0, 0, 1], 1); 20];
        let mut run = |text: &str| {
            mmb.engine.publish(&policy(text)).expect("it can be put in force");
            passed(std::slice::from_mut(&mut mmb.worker), 0, A, &frames)
        };
        assert_eq!(run(&rule), 5, "{per}");
        assert_eq!(run(&format!("{rule}\nadd id 6 tcp-dport 1 drop")), 0, "another rule");
        assert_eq!(run(&format!("add id 5 udp-dport {{53, 54}} limit 1/h burst 5{per}")), 0, "other packets");
        let many: String = (100..6000).map(|id| format!("\nadd id {id} tcp-dport {id} drop")).collect();
        assert_eq!(run(&format!("{rule}{many}")), 0, "all anew");
        assert_eq!(run(&format!("add id 5 udp-dport 53 limit 1/h burst 6{per}")), 6, "another limit");
        assert_eq!(run(""), 20);
        assert_eq!(run(&rule), 5, "it was gone");
        let keys = format!("set limit keys 2048\n{rule}");
        assert_eq!(run(&keys), if per.is_empty() { 0 } else { 5 }, "tables of another size are new");
        assert_eq!(run(&keys), 0);
    }
}

#[test]
fn tables_of_keys_are_in_the_account_of_memory() {
    let mmb = Middlebox::new("add id 1 all limit 1/s per ip-saddr");
    let bytes = |before: &str, after: &str| mmb.engine.extra_bytes(&policy(before), &policy(after));
    let there = "add id 1 all limit 1/s per ip-saddr\n";
    let others = bytes(there, &format!("{there}add id 2 all limit 1/s"));
    let table = bytes(there, &format!("{there}add id 2 all limit 1/s per ip-saddr")) - others;
    assert_eq!(table, 64 << 16);
    let large = bytes(there, &format!("set limit keys 10000000\n{there}"));
    assert!((64 << 24..65 << 24).contains(&large), "{large}");
}
