//! Policies change while workers run.

use crate::host::{engine, pass, policy, ports};
use mmb_engine::{Engine, RuleCount, Verdict};
use mmb_policy::RuleId;
use mmb_random::SeedTree;
use mmb_testkit::Udp;
use std::sync::atomic::{AtomicBool, Ordering};

fn udp(dport: u16) -> Vec<u8> {
    Udp::default().dport(dport).over_ip4().bytes()
}

#[test]
fn rules_that_stay_keep_their_counters() {
    let (mut engine, mut worker) = engine("add id 1 all mod ip-ttl 9\nadd id 2 udp-dport 53 drop");
    pass(&mut worker, 0, &[udp(53), udp(54)]);
    engine.publish(&policy("add id 3 all mod ip-ttl 3\nadd id 1 all mod ip-ttl 9")).unwrap();
    pass(&mut worker, 0, &[udp(53)]);
    let packets = |engine: &Engine, id| engine.rule_count(RuleId(id)).matched.packets;
    assert_eq!([1, 2, 3].map(|id| packets(&engine, id)), [3, 0, 1]);

    // Another content under the same number is another rule.
    engine.publish(&policy("add id 1 all mod ip-ttl 8")).unwrap();
    assert_eq!(engine.rule_count(RuleId(1)), RuleCount::default());
    pass(&mut worker, 0, &[udp(53)]);
    assert_eq!(packets(&engine, 1), 1);
}

#[test]
fn a_rule_that_takes_over_a_counter_starts_at_zero() {
    let (mut engine, mut worker) = engine("add id 1 all drop");
    for round in 0..20 {
        pass(&mut worker, 0, &[udp(53), udp(54), udp(55)]);
        assert_eq!(engine.rule_count(RuleId(round + 1)).matched.packets, 3);
        engine.publish(&policy(&format!("add id {} all drop", round + 2))).unwrap();
        assert_eq!(engine.rule_count(RuleId(round + 2)), RuleCount::default());
    }
}

#[test]
fn a_worker_that_lags_behind_counts_for_no_other_rule() {
    let (mut engine, mut workers) = Engine::new(ports(), 2, &SeedTree::repeatable(1));
    engine.publish(&policy("add id 1 all drop")).unwrap();
    let mut slow = workers.remove(0);
    pass(&mut slow, 0, &[udp(1)]);
    let (mut quick, rounds) = (workers.remove(0), 50);
    for id in 2..rounds {
        engine.publish(&policy(&format!("add id {id} all drop"))).unwrap();
        pass(&mut quick, 0, &[udp(1)]);
        assert_eq!(engine.rule_count(RuleId(id)).matched.packets, 1, "rule {id}");
    }
    assert_eq!(engine.reclaim(), 1, "only what the slow worker holds is kept");
    pass(&mut slow, 0, &[]);
    assert_eq!(engine.reclaim(), 0);
}

/// Two policies of which a vector must see one alone: both write TTL and DSCP alike on every packet.
fn colour(shade: u8) -> String {
    format!(
        "add id 1 all mod ip-dscp 1\nadd id {0} all mod ip-ttl {0}\nadd id {1} all mod ip-id {0}",
        shade,
        shade + 100
    )
}

#[test]
fn a_vector_sees_one_policy_and_no_packet_is_lost_to_a_change() {
    const CHANGES: u8 = 60;
    let (mut engine, workers) = Engine::new(ports(), 2, &SeedTree::repeatable(1));
    engine.publish(&policy(&colour(2))).unwrap();
    let stop = AtomicBool::new(false);
    let frames = vec![udp(1); 100];
    let run = |mut worker: mmb_engine::Worker| {
        let mut vectors = 0;
        while !stop.load(Ordering::Relaxed) {
            let passed = pass(&mut worker, 0, &frames);
            let shades: Vec<(u8, u8)> = passed.iter().map(|(_, bytes)| (bytes[22], bytes[19])).collect();
            assert!(shades.iter().all(|&shade| shade == shades[0]), "{shades:?}");
            assert_eq!(shades[0].0, shades[0].1);
            assert!(passed.iter().all(|(verdict, _)| matches!(verdict, Verdict::Send(_))));
            vectors += 1;
        }
        vectors
    };
    let vectors: u64 = std::thread::scope(|scope| {
        let running: Vec<_> = workers.into_iter().map(|worker| scope.spawn(|| run(worker))).collect();
        for change in 0..CHANGES {
            let seen = engine.rule_count(RuleId(1)).matched.packets;
            engine.publish(&policy(&colour(2 + change))).unwrap();
            // Some vector passes under every policy.
            while engine.rule_count(RuleId(1)).matched.packets < seen + 400 {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
        running.into_iter().map(|thread| thread.join().expect("the worker's assertions hold")).sum()
    });
    let counts = engine.port_counts();
    assert_eq!(counts[0].rx.packets, vectors * 100);
    assert_eq!(counts[1].tx, counts[0].rx);
    assert_eq!(engine.rule_count(RuleId(1)).matched.packets, vectors * 100);
    assert_eq!(engine.drops(), []);
}
