//! The flow cache of a worker: the same verdicts, bytes and counters as without it, through changes of the policy, and what it tells.

use crate::host::{engine, pass, policy};
use mmb_engine::{Engine, FlowCacheCount, Verdict, Worker};
use mmb_policy::RuleId;
use mmb_testkit::{Frame, Ip4, Tcp, Udp, Upper};
use std::net::Ipv4Addr;

const A: u16 = 0;

const RULES: [&str; 6] = [
    "add id 1 ip-saddr 10.0.0.0/24 udp-dport 1-40 drop",
    "add id 2 ip-saddr 10.0.0.0/25 mod ip-ttl 9",
    "add id 3 prio 5 udp-dport 30-60 accept",
    "add id 4 ip-ttl > 10 ip-saddr 10.0.0.0/28 mod ip-dscp 3",
    "add id 5 tcp-opt-mss > 1400 mod tcp-opt-mss 1400",
    "add id 6 in a udp-sport != 7 accept",
];

/// Packets of flows, some of them with options.
fn frames() -> Vec<Vec<u8>> {
    let udp = (0..200u8).map(|n| {
        let source = Ipv4Addr::new(10, 0, n % 2, n % 50);
        let udp = Udp { dport: u16::from(n % 70), ..Udp::default() };
        Ip4 { source, ..Ip4::new(Upper::Udp(udp)) }.frame()
    });
    let tcp = (0..40u8).map(|n| Tcp::default().option(2, &[5, 140 + n]).over_ip4());
    udp.chain(tcp).chain([Frame::arp(), Udp::default().over_ip6()]).map(|frame| frame.bytes()).collect()
}

fn counts(engine: &Engine) -> Vec<mmb_engine::RuleCount> {
    (1..=6).map(|id| engine.rule_count(RuleId(id))).collect()
}

/// Packets that passed the cache by since it is off.
fn off_of(count: &FlowCacheCount) -> u64 {
    count.bypasses().find(|(reason, _)| *reason == "off").map_or(0, |(_, packets)| packets)
}

fn both(rules: &str) -> [(Engine, Worker); 2] {
    [engine(rules), engine(&format!("set flow-cache off\n{rules}"))]
}

#[test]
fn packets_and_counters_are_those_without_it() {
    let [(mut cached, mut worker), (mut plain, mut other)] = both(&RULES.join("\n"));
    let frames = frames();
    let mut hits = 0;
    for round in 0..12 {
        // Rules go and come back, so that lines of an earlier policy would be wrong.
        let left: Vec<&str> =
            (0..6).filter(|rule| round % 4 == 0 || rule % 4 != round % 4).map(|rule| RULES[rule]).collect();
        cached.publish(&policy(&left.join("\n"))).unwrap();
        plain.publish(&policy(&format!("set flow-cache off\n{}", left.join("\n")))).unwrap();
        for _ in 0..3 {
            let passed: Vec<(Verdict, Vec<u8>)> = pass(&mut worker, A, &frames);
            assert_eq!(passed, pass(&mut other, A, &frames), "round {round}");
        }
        assert_eq!(counts(&cached), counts(&plain), "round {round}");
        let count = cached.flow_cache_count();
        // Packets whose options count are searched for each time.
        assert!(count.hits > hits && count.misses > 40);
        hits = count.hits;
    }
    let (count, off) = (cached.flow_cache_count(), plain.flow_cache_count());
    assert_eq!((off_of(&count), off.hits, off.misses), (0, 0, 0));
    assert_eq!(off.bypasses().collect::<Vec<_>>(), [("off", 36 * 242)]);
    cached.clear_counters();
    assert_eq!(cached.flow_cache_count(), FlowCacheCount::default());
}

#[test]
fn it_is_turned_off_and_on() {
    let (mut engine, mut worker) = engine(RULES[0]);
    let frame = Udp { dport: 5, ..Udp::default() }.over_ip4().bytes();
    let mut passes = |engine: &mut Engine, setting: &str| {
        engine.publish(&policy(&format!("set flow-cache {setting}\n{}", RULES[0]))).unwrap();
        (0..4).for_each(|_| _ = pass(&mut worker, A, std::slice::from_ref(&frame)));
        let count = engine.flow_cache_count();
        (count.hits, count.misses, off_of(&count))
    };
    assert_eq!(passes(&mut engine, "auto"), (3, 1, 0));
    assert_eq!(passes(&mut engine, "off"), (3, 1, 4));
    assert_eq!(passes(&mut engine, "auto"), (6, 2, 4));
}
