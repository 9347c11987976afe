//! Memory does not creep: what deleted rules took is used again, however many rules come and go.

mod counting;

use counting::LIVE;
use mmb_engine::{Engine, Forward, NoCycles, PortSpec, PortTable, Worker};
use mmb_language::{Command, parse_command};
use mmb_packet::PortId;
use mmb_policy::{Policy, RuleId};
use mmb_random::{RepeatableRandom, SeedTree};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

/// Rules of the policy at any time, and changes in all; the latter are more than fit a test of unoptimised code.
const RULES: usize = 2000;
const CHANGES: usize = if cfg!(debug_assertions) { 12_000 } else { 1_200_000 };
/// Times that memory is looked at.
const LOOKS: usize = 12;

/// Rules that share no mask, no list and no value with those before for long.
fn line(kind: usize, numbers: &mut RepeatableRandom) -> String {
    let mut n = |bound| numbers.below(bound);
    match kind {
        0 => format!(
            "ip-saddr 10.{}.{}.{} ip-daddr 10.1.2.{} tcp-dport {} drop",
            n(9),
            n(256),
            n(256),
            n(256),
            n(9)
        ),
        // Masks that come and go.
        1 => format!("ip-saddr 10.{}.0.0/{} ip-daddr 11.0.{}.0/{} drop", n(9), 8 + n(25), n(9), 8 + n(25)),
        // Lists that grow and shrink, with and without conditions.
        2 => format!("udp-dport {} drop", n(20)),
        3 => format!("udp-dport {} ip-ttl {}-{} accept", n(20), n(100), 100 + n(100)),
        4 => format!("tcp-dport {} tcp-opt {} {} drop", n(5), 30 + n(50), n(1000)),
        // Edits.
        5 => format!("tcp-dport {} mod ip-ttl {} mod ip-dscp {}", n(500), n(255), n(63)),
        6 => format!("ip6-saddr 2001:db8::{:x} mod ip6-hop-limit {}", n(5000), n(255)),
        _ => format!("udp-dport {} ip-saddr {{10.0.0.{}, 10.0.1.{}}} drop", n(50), n(256), n(256)),
    }
}

struct Churn {
    engine: Engine,
    worker: Worker,
    policy: Policy,
    rules: VecDeque<RuleId>,
    numbers: RepeatableRandom,
}

impl Churn {
    fn new() -> Churn {
        let ports =
            PortTable(vec![PortSpec { name: "a".to_owned(), mtu: None, forward: Forward::Wire(PortId(0)) }]);
        let (engine, mut workers) = Engine::new(ports, 1, &SeedTree::repeatable(1));
        let worker = workers.remove(0);
        Churn {
            engine,
            worker,
            policy: Policy::default(),
            rules: VecDeque::new(),
            numbers: RepeatableRandom::new(1),
        }
    }

    fn add(&mut self) {
        let kind = self.numbers.below(8) as usize;
        let line = format!("add {}", line(kind, &mut self.numbers));
        match parse_command(&line) {
            Ok((Command::Add(rule), _)) => {
                self.rules.push_back(self.policy.add(&rule).expect("numbers are left"));
            }
            other => panic!("{line}: {other:?}"),
        }
    }

    /// Deletes the oldest rule or any.
    fn delete(&mut self) {
        let place = if self.numbers.below(2) == 0 { 0 } else { self.numbers.below(self.rules.len() as u64) };
        if let Some(id) = self.rules.swap_remove_front(place as usize) {
            self.policy.delete(id).expect("the rule is there");
        }
    }

    /// Puts the policy in force; workers see it sooner or later.
    fn publish(&mut self) {
        self.engine.publish(&self.policy).expect("the policy can be put in force");
        if self.numbers.below(3) == 0 {
            self.worker.process(0, &NoCycles, &mut [], &mut []);
        }
    }

    /// Brings the policy to so many rules, in publications of a few.
    fn grow_to(&mut self, rules: usize) {
        while self.rules.len() != rules {
            for _ in 0..1 + self.numbers.below(60) {
                if self.rules.len() < rules {
                    self.add();
                } else if self.rules.len() > rules {
                    self.delete();
                }
            }
            self.publish();
        }
    }

    /// Bytes in use when only the policy in force is kept.
    fn live(&mut self) -> usize {
        self.worker.process(0, &NoCycles, &mut [], &mut []);
        assert_eq!(self.engine.reclaim(), 0);
        LIVE.load(Relaxed)
    }
}

#[test]
fn memory_stays_as_rules_come_and_go() {
    let mut churn = Churn::new();
    let empty = churn.live();
    churn.grow_to(RULES);
    let mut looks = Vec::new();
    for look in 0..LOOKS {
        for _ in 0..CHANGES / LOOKS / 40 {
            for _ in 0..20 {
                churn.delete();
                churn.add();
            }
            churn.publish();
        }
        if look % 4 == 3 {
            // Tables empty and grow again.
            churn.grow_to(RULES / 100);
            churn.grow_to(RULES);
        }
        looks.push(churn.live());
    }
    let (early, late) = looks.split_at(LOOKS / 2);
    let peak = |looks: &[usize]| looks.iter().copied().max().unwrap_or(0);
    assert!(peak(late) < peak(early) * 21 / 20, "{looks:?}");

    churn.grow_to(0);
    let left = churn.live() - empty;
    assert!(left < peak(early) / 10, "{left} bytes are left of {looks:?}");
}
