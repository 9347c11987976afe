//! Workers run while policies come and go, and every vector must be decided by one of them as a whole.
//!
//! Each policy, an *epoch*, has a rule that writes the epoch's number into every packet, so that a vector tells which
//! policy decided it; what it did is then held against the oracle under that policy. Policies differ in a few rules or in
//! all of them; keys are few, so that rules share entries and chains, tables grow and empty, and counters' slots are
//! used again all the time.

use crate::host::{pass, policy, ports};
use mmb_differential::oracle::{OraclePacket, evaluate};
use mmb_engine::{DropRandom, Engine, PortTable, Verdict, Worker};
use mmb_language::{Command, Print, parse_command};
use mmb_packet::{LinkType, PortId};
use mmb_policy::{Policy, Rule, RuleId};
use mmb_random::{Purpose, SeedTree};
use mmb_testkit::{Ip4, Tcp, Udp, Upper};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// The rule that writes the epoch.
const MARK: RuleId = RuleId(1);
/// Rules that no packet here matches, to make tables grow; more than are changed one by one.
const FILLERS: u32 = 4200;
/// Rounds, and epochs of each. Between rounds the workers rest, and counters are compared.
const ROUNDS: u16 = 4;
const EPOCHS: u16 = 50;

/// What became of a vector, and how many vectors had that epoch.
type Seen = HashMap<u16, (Vec<(Verdict, Vec<u8>)>, u64)>;

fn rule(line: &str) -> Rule {
    match parse_command(line) {
        Ok((Command::Add(rule), _)) => *rule,
        other => panic!("{line}: {other:?}"),
    }
}

/// Packets of few addresses and ports. The first is matched by nothing but the mark.
fn frames() -> Vec<Vec<u8>> {
    let from = |source: [u8; 4], upper| Ip4 { source: source.into(), ..Ip4::new(upper) }.frame().bytes();
    let mut frames = vec![from([192, 0, 2, 1], Upper::Udp(Udp::default()))];
    for net in 0..3 {
        for port in 0..4 {
            frames.push(from([10, net, 0, net], Upper::Udp(Udp::default().dport(port))));
            let tcp = Tcp::default().dport(port).option(99, &[net]);
            frames.push(from([10, net, port as u8, 7], Upper::Tcp(tcp)));
        }
    }
    frames
}

/// A rule of few keys. The marked packet has another source.
fn any_rule(random: &mut DropRandom) -> Rule {
    let mut below = |bound: u32| random.draw() % bound;
    let source = format!("ip-saddr 10.{}.0.0/{}", below(3), [8, 12, 16, 24, 32][below(5) as usize]);
    let what = match below(6) {
        0 => String::new(),
        1 => format!("tcp-dport {} tcp-opt 99 {}", below(4), below(3)),
        2 => format!("tcp-dport {}-{}", below(2), 2 + below(2)),
        3 => format!("tcp-opt 99 < {}", 1 + below(3)),
        4 => format!("tcp-dport {}", below(4)),
        _ => format!("udp-dport {}", below(4)),
    };
    let does = match below(4) {
        0 => "drop".to_owned(),
        1 => "accept".to_owned(),
        2 => format!("mod ip-ttl {}", below(200)),
        _ => format!("mod ip-dscp {}", below(60)),
    };
    rule(&format!("add prio {} {source} {what} {does}", 1 + below(3)))
}

/// The control side.
struct Author {
    random: DropRandom,
    engine: Engine,
    policy: Policy,
    /// The policies of all epochs without their fillers.
    epochs: Vec<Policy>,
    /// Rules of the policy but for mark and fillers.
    own: Vec<RuleId>,
    fillers: Vec<Rule>,
    filled: Vec<RuleId>,
}

impl Author {
    fn new(engine: Engine) -> Author {
        let filler =
            |number| format!("add ip-saddr 172.16.{}.{} udp-dport 1 drop", number / 250, number % 250);
        Author {
            random: DropRandom::new(SeedTree::repeatable(5).of_worker(Purpose::DropShares, 0)),
            engine,
            policy: policy(&format!("add id {MARK} all accept")),
            epochs: Vec::new(),
            own: Vec::new(),
            fillers: (0..FILLERS).map(|number| rule(&filler(number))).collect(),
            filled: Vec::new(),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.draw() as usize % bound
    }

    /// Writes the next policy and puts it in force.
    fn next(&mut self) {
        let epoch = self.epochs.len();
        self.delete(&[MARK]);
        for _ in 0..self.below(6) {
            let rule = any_rule(&mut self.random);
            self.own.push(self.policy.add(&rule).expect("numbers are left"));
        }
        let goes = match self.own.len() {
            0 => 0,
            len if len > 60 || self.below(30) == 0 => len,
            len => self.below(5).min(len),
        };
        for _ in 0..goes {
            let place = self.below(self.own.len());
            self.delete(&[self.own[place]]);
            self.own.swap_remove(place);
        }
        if epoch % 8 == 3 {
            let filled = std::mem::take(&mut self.filled);
            self.delete(&filled);
            let count = [0, 50, 300, 300, self.fillers.len()][self.below(5)];
            for rule in &self.fillers[..count] {
                self.filled.push(self.policy.add(rule).expect("numbers are left"));
            }
        }
        let mark = rule(&format!("add id {MARK} prio 9 all mod ip-id {epoch}"));
        self.policy.add(&mark).expect("its number is free");
        self.engine.publish(&self.policy).expect("the policy can be put in force");
        let mut alone = self.policy.clone();
        for id in &self.filled {
            alone.delete(*id).expect("fillers are there");
        }
        self.epochs.push(alone);
    }

    fn delete(&mut self, ids: &[RuleId]) {
        for id in ids {
            self.policy.delete(*id).expect("the rule is there");
        }
    }
}

/// Passes vectors until told to stop; all of one epoch must be decided alike.
fn watch(worker: &mut Worker, frames: &[Vec<u8>], stop: &AtomicBool) -> Seen {
    let mut seen = Seen::new();
    while !stop.load(Ordering::Relaxed) {
        let passed = pass(worker, 0, frames);
        let epoch = u16::from_be_bytes([passed[0].1[18], passed[0].1[19]]);
        let (before, count) = seen.entry(epoch).or_insert_with(|| (passed.clone(), 0));
        assert!(*before == passed, "epoch {epoch} decided in two ways");
        *count += 1;
    }
    seen
}

/// The verdicts of the oracle on each frame under a policy.
fn oracle_verdicts(
    policy: &Policy,
    ports: &PortTable,
    frames: &[Vec<u8>],
) -> Vec<(Verdict, Vec<u8>, Vec<RuleId>)> {
    let evaluate_one = |bytes: &Vec<u8>| {
        let received = OraclePacket { bytes, headroom: 64, port: PortId(0), link: LinkType::Ethernet };
        let expected = evaluate(policy, ports, &received, &mut || 0);
        (expected.verdict, expected.bytes, expected.matched)
    };
    frames.iter().map(evaluate_one).collect()
}

#[test]
fn every_vector_is_decided_by_one_policy_and_counted_for_its_rules() {
    let (engine, mut workers) = Engine::new(ports(), 2, &SeedTree::repeatable(1));
    let frames = frames();
    let mut author = Author::new(engine);
    // What each rule of the policy in force has counted.
    let mut counted: HashMap<RuleId, u64> = HashMap::new();
    let mut epochs_seen = 0;
    author.next();
    for _ in 0..ROUNDS {
        let first = author.epochs.len() - 1;
        let stop = AtomicBool::new(false);
        let seen: Vec<Seen> = std::thread::scope(|scope| {
            let watch = |worker| scope.spawn(|| watch(worker, &frames, &stop));
            let running: Vec<_> = workers.iter_mut().map(watch).collect();
            for _ in 0..EPOCHS {
                author.next();
                // Some policies stay until a vector has seen them, others go at once.
                let stays = author.below(3) > 0;
                while stays && author.engine.rule_count(MARK).matched.packets == 0 {
                    std::thread::yield_now();
                }
            }
            stop.store(true, Ordering::Relaxed);
            running.into_iter().map(|thread| thread.join().expect("the worker's assertions hold")).collect()
        });
        for epoch in first..author.epochs.len() {
            let policy = &author.epochs[epoch];
            let before = epoch.checked_sub(1).filter(|_| epoch > first).map(|at| &author.epochs[at].rules);
            counted.retain(|id, _| before.is_none_or(|before| before.agree(&policy.rules, *id)));
            let seen: Vec<_> = seen.iter().filter_map(|seen| seen.get(&(epoch as u16))).collect();
            if seen.is_empty() {
                continue;
            }
            epochs_seen += 1;
            let evaluated = oracle_verdicts(policy, &ports(), &frames);
            for (passed, count) in seen {
                for ((verdict, bytes), (expected, rewritten, matched)) in passed.iter().zip(&evaluated) {
                    assert_eq!(verdict, expected, "epoch {epoch}: {}", policy.text());
                    if let Verdict::Send(_) = verdict {
                        assert_eq!(bytes, rewritten, "epoch {epoch}: {}", policy.text());
                    }
                    matched.iter().for_each(|id| *counted.entry(*id).or_default() += count);
                }
            }
        }
        for id in author.policy.rules.keys() {
            let expected = counted.get(&id).copied().unwrap_or(0);
            assert_eq!(author.engine.rule_count(id).matched.packets, expected, "rule {id}");
        }
    }
    assert!(epochs_seen > usize::from(ROUNDS * EPOCHS) / 4, "{epochs_seen}");
}
