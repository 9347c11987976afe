//! The packets that each rule dropped: they add up to the drop reason `rule`.

use crate::host::{Middlebox, engine, pass, pass_among, policy, ports};
use mmb_engine::{Count, DropReason, Engine, RuleCount};
use mmb_policy::RuleId;
use mmb_random::SeedTree;
use mmb_testkit::{Ip4, Tcp, Udp, Upper};
use std::net::Ipv4Addr;

const A: u16 = 0;
const B: u16 = 1;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

fn udp(dport: u16) -> Vec<u8> {
    Udp::default().dport(dport).over_ip4().bytes()
}

/// A segment between port 5000 of a client and port 80 of a server.
fn tcp(from_client: bool, flags: u8) -> Vec<u8> {
    let (client, server) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 80));
    let (source, destination) = if from_client { (client, server) } else { (server, client) };
    let (sport, dport) = if from_client { (5000, 80) } else { (80, 5000) };
    let (seq, ack) = match (from_client, flags) {
        (true, SYN) => (100, 0),
        (true, _) => (101, 201),
        (false, _) => (200, 101),
    };
    let segment = Tcp { sport, dport, flags, seq, ack, ..Tcp::default() };
    Ip4 { source, destination, ..Ip4::new(Upper::Tcp(segment)) }.frame().bytes()
}

/// The packets that rules dropped, by reason.
fn by_reason(engine: &Engine) -> u64 {
    engine.drops().into_iter().find(|(reason, _)| *reason == DropReason::Rule).map_or(0, |(_, count)| count)
}

/// The packets that each of the rules 1 to `N` dropped, after a check that these are all.
fn dropped<const N: usize>(engine: &Engine) -> [u64; N] {
    let of_rules = std::array::from_fn(|at| engine.rule_count(RuleId(at as u32 + 1)).dropped.packets);
    let all = of_rules.iter().sum::<u64>() + engine.dropped_by_former_rules().packets;
    assert_eq!(all, by_reason(engine), "{of_rules:?}");
    of_rules
}

#[test]
fn the_rule_that_decides_counts_the_drop() {
    let rules = "add id 1 prio 7 all drop\nadd id 2 prio 5 udp-dport 53 drop\nadd id 3 prio 5 udp-dport 53-60 drop\n\
                 add id 4 prio 3 udp-dport 55 accept\nadd id 5 prio 5 udp-dport 56 accept mod ip-ttl 9";
    let (engine, mut worker) = engine(rules);
    pass(&mut worker, A, &[udp(52), udp(53), udp(53), udp(54), udp(55), udp(56)]);
    // The better priority decides, then the smaller id; an accept rule wins over both.
    assert_eq!(dropped(&engine), [1, 2, 1, 0, 0]);
    let length = udp(53).len() as u64;
    let matched = Count { packets: 6, bytes: 6 * length };
    assert_eq!(
        engine.rule_count(RuleId(1)),
        RuleCount { matched, dropped: Count { packets: 1, bytes: length }, hits: 0 }
    );
}

#[test]
fn a_percentage_counts_what_it_dropped_and_the_next_rule_the_rest() {
    let rules =
        "add id 1 prio 5 all drop 40% mod ip-ttl 9\nadd id 2 prio 5 all drop\nadd id 3 prio 6 all drop";
    let (engine, mut worker) = engine(rules);
    (0..20).for_each(|_| _ = pass(&mut worker, A, &vec![udp(53); 100]));
    let [first, second, third] = dropped(&engine);
    assert!((600..1000).contains(&first) && first + second == 2000 && third == 0, "{first} {second} {third}");
}

#[test]
fn drops_of_a_connection_are_counted_at_the_rule_that_decides() {
    // Under constant rules, verdicts of a connection are cached; `tcp-flags` is not constant.
    for (changing, ct) in [("", ""), ("add id 5 tcp-flags fin mod ip-ttl 3\n", ""), ("", "ct new ")] {
        let rules = |drop: &str| {
            policy(&format!(
                "add-stateful id 1 {ct}ip-saddr 10.0.0.0/24 mod ip-dscp 3\n{changing}\
                 add id 2 ip-proto udp drop\nadd id 3 prio 9 ip-daddr 192.0.2.0/24 drop\n{drop}"
            ))
        };
        let mut mmb = Middlebox::new("");
        mmb.engine.publish(&rules("add id 4 prio 7 ip-proto tcp accept")).expect("it can be put in force");
        mmb.through(A, &tcp(true, SYN));
        mmb.through(B, &tcp(false, SYN | ACK));
        mmb.through(A, &tcp(true, ACK));
        assert_eq!(dropped(&mmb.engine), [0; 5]);
        // Its verdict is now a drop rule's, in both directions, and from the second packet on a cached one.
        mmb.engine.publish(&rules("add id 4 prio 7 ip-proto tcp drop")).expect("it can be put in force");
        for _ in 0..5 {
            mmb.dropped(A, &tcp(true, ACK));
            mmb.dropped(B, &tcp(false, ACK));
        }
        assert_eq!(dropped(&mmb.engine), [0, 0, 0, 10, 0]);
        mmb.engine.publish(&rules("")).expect("it can be put in force");
        (0..5).for_each(|_| _ = mmb.dropped(A, &tcp(true, ACK)));
        assert_eq!(dropped(&mmb.engine), [0, 0, 5, 0, 0]);
        assert_eq!(mmb.engine.dropped_by_former_rules().packets, 10);
    }
}

#[test]
fn a_stateful_rule_counts_its_own_drops_and_restarts_with_a_successor() {
    let rules = |ttl: u8| policy(&format!("add-stateful id 1 ip-proto udp drop mod ip-ttl {ttl}"));
    let mut mmb = Middlebox::new("");
    for (round, former) in [(1, 0), (2, 3), (3, 6)] {
        mmb.engine.publish(&rules(round)).expect("it can be put in force");
        (0..3).for_each(|_| _ = mmb.dropped(A, &udp(53)));
        assert_eq!(dropped(&mmb.engine), [3]);
        assert_eq!(mmb.engine.dropped_by_former_rules().packets, former);
    }
}

#[test]
fn drops_add_up_over_workers_and_changes_of_policy() {
    let (mut engine, mut workers) = Engine::new(ports(), 3, &SeedTree::repeatable(1));
    for round in 0..50u32 {
        let rules = format!("add id {} all drop\nadd id 9 prio 1 udp-dport {round} drop", 1 + round % 3);
        engine.publish(&policy(&rules)).expect("it can be put in force");
        // Some workers still use an earlier policy, and free its slots late.
        let worker = round as usize % 7 % 3;
        pass_among(&mut workers, (worker, 0), A, &[udp(7), udp(8), udp(9)]);
        dropped::<9>(&engine);
    }
    assert_eq!(by_reason(&engine), 150);
    pass_among(&mut workers, (1, 0), A, &[]);
    engine.publish(&policy("")).expect("it can be put in force");
    (0..3).for_each(|worker| pass(&mut workers[worker], A, &[]).clear());
    engine.reclaim();
    assert_eq!((dropped(&engine), engine.dropped_by_former_rules().packets), ([0; 9], 150));
}

#[test]
fn cleared_counters_begin_at_zero_and_go_on() {
    let rules = "add id 1 udp-dport 53 drop\nadd id 2 all mod udp-payload \"0123456789\"";
    let (mut engine, mut worker) = engine(rules);
    let mut some = || pass(&mut worker, A, &[udp(53), udp(54), udp(53), vec![0; 3]]).len();
    some();
    let (stages, ports) = (engine.stage_counts(), engine.port_counts());
    let (drops, not_applied) = (engine.drops(), engine.not_applied());
    let rules = [1, 2].map(|id| engine.rule_count(RuleId(id)));
    assert!(!drops.is_empty() && !not_applied.is_empty() && rules[0].dropped.packets == 2);

    for _ in 0..3 {
        engine.clear_counters();
        assert_eq!([1, 2].map(|id| engine.rule_count(RuleId(id))), [RuleCount::default(); 2]);
        assert_eq!((engine.drops(), engine.not_applied()), (vec![], vec![]));
        assert!(engine.stage_counts().iter().all(|stage| (stage.calls, stage.packets) == (0, 0)));
        assert!(engine.port_counts().iter().all(|port| *port == mmb_engine::PortCount::default()));
        some();
        assert_eq!([1, 2].map(|id| engine.rule_count(RuleId(id))), rules);
        assert_eq!((engine.drops(), engine.not_applied()), (drops.clone(), not_applied.clone()));
        assert_eq!((engine.stage_counts(), engine.port_counts()), (stages.clone(), ports.clone()));
        dropped::<2>(&engine);
    }
    // Another rule in the same place begins at zero, whatever was cleared there.
    engine.publish(&policy("add id 3 all drop")).expect("it can be put in force");
    some();
    assert_eq!(dropped(&engine), [0, 0, 3]);
    assert_eq!(engine.dropped_by_former_rules().packets, 2);
    engine.clear_counters();
    assert_eq!((dropped(&engine), engine.dropped_by_former_rules().packets), ([0, 0, 0], 0));
}

#[test]
fn the_counters_of_connections_are_cleared_but_not_the_number_of_connections() {
    let mut mmb = Middlebox::new("add-stateful all accept");
    mmb.through(A, &tcp(true, SYN));
    mmb.engine.clear_counters();
    let summary = mmb.engine.connections().summary();
    assert_eq!((summary.connections, summary.created, summary.closed), (1, 0, vec![]));
}

#[test]
fn the_counters_of_an_earlier_run_are_added() {
    let (mut engine, mut worker) = engine("add id 1 udp-dport 53 drop\nadd id 2 all mod ip-ttl 9");
    let earlier = RuleCount {
        matched: Count { packets: 100, bytes: 6000 },
        dropped: Count { packets: 90, bytes: 5400 },
        hits: 0,
    };
    pass(&mut worker, A, &[udp(53)]);
    assert!(engine.restore_rule_count(RuleId(1), earlier));
    assert!(!engine.restore_rule_count(RuleId(3), earlier));
    pass(&mut worker, A, &[udp(53)]);
    let now = engine.rule_count(RuleId(1));
    assert_eq!((now.matched.packets, now.dropped.packets), (102, 92));
    assert_eq!((dropped(&engine), engine.rule_count(RuleId(2)).matched.packets), ([92, 0], 2));
    engine.clear_counters();
    pass(&mut worker, A, &[udp(53)]);
    assert_eq!(dropped(&engine), [1, 0]);
}
