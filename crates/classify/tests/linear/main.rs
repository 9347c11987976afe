//! The classifier against a plain evaluator: every rule held against every key, one constraint after the other.
//!
//! The evaluator documents what constraints mean in terms of header keys, layouts and packets. Whether those say what
//! the packet's bytes say is the matter of the engine's oracle.

mod crowd;
mod scale;
mod world;

use mmb_classify::{ClassifierIndex, FlowCache, RuleSlot, Tuning, VECTOR};
use mmb_packet::{Class, LinkType};
use mmb_policy::Rule;
use mmb_random::Seed;
use mmb_testkit::strategy;
use proptest::collection::vec;
use proptest::prelude::*;
use world::{Arrival, World, built, names, numbered, rules, sound};

fn arrival() -> impl Strategy<Value = Arrival> {
    (strategy::wire(), 0..4u16)
}

/// A step of a policy's life: a rule comes, or the one that many from the oldest goes.
#[derive(Clone, Debug)]
enum Step {
    Add(String),
    Remove(prop::sample::Index),
    Rebuild,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => strategy::rule().prop_map(Step::Add),
        // The same few keys over and over.
        3 => few_keys().prop_map(Step::Add),
        1 => of_streams().prop_map(Step::Add),
        4 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => Just(Step::Rebuild),
    ]
}

/// Rules of few keys and shapes, so that keys, chains and lists are shared.
fn few_keys() -> impl Strategy<Value = String> {
    (0..3u8, prop::sample::select(vec![8, 12, 16, 24, 32]), 0..3u16, conditions()).prop_map(
        |(net, len, port, conditions)| {
            format!("add ip-saddr 10.{net}.0.0/{len} tcp-dport {port}{conditions} drop")
        },
    )
}

/// Rules that are decided on the bytes of connections: here they match the packets that may begin one.
fn of_streams() -> impl Strategy<Value = String> {
    let constraint = prop::sample::select(vec![
        "stream \"a\"",
        "stream-reply /b/i",
        "tls-sni \"a.org\"",
        "! tls-sni \".org\"",
    ]);
    let key = prop::sample::select(vec!["", "ip-saddr 10.1.0.0/16 ", "ip6-hop-limit 64 ", "tcp-dport 1 "]);
    (key, constraint).prop_map(|(key, constraint)| format!("add-stateful {key}{constraint} close"))
}

/// What a rule may ask besides its key: an option, a range, both or nothing.
fn conditions() -> impl Strategy<Value = String> {
    let option = prop_oneof![
        Just(String::new()),
        (2..5u8, 0..4u8).prop_map(|(kind, value)| format!(" tcp-opt {kind} {value}")),
        (2..5u8).prop_map(|kind| format!(" tcp-opt {kind}")),
        (2..5u8, 0..4u8).prop_map(|(kind, value)| format!(" ! tcp-opt {kind} {value}")),
        (2..5u8, 1..4u8).prop_map(|(kind, value)| format!(" tcp-opt {kind} < {value}")),
    ];
    let range = prop_oneof![
        Just(String::new()),
        (0..3u16, 0..3u16).prop_map(|(first, more)| format!(
            " tcp-sport {}-{}",
            first * 500,
            first * 500 + more * 300 + 1
        )),
        (0..200u16).prop_map(|ttl| format!(" ip-ttl > {ttl}")),
    ];
    (option, range).prop_map(|(option, range)| option + &range)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn finds_what_a_plain_evaluation_finds(
        lines in vec(strategy::rule(), 0..40),
        mut arrivals in vec(arrival(), 1..80),
        every_tuple: bool,
    ) {
        let rules = rules(&lines);
        let packets = sound(&mut arrivals);
        let world = World::new(&packets);
        let tuning = if every_tuple { Tuning::EveryTuple } else { Tuning::Merged };
        let classifier = built(&rules, tuning).classifier();
        let found = world.found(&classifier);
        let expected = world.expected(&numbered(&rules));
        // Keys that are not there yet, then keys that are.
        let mut cache = FlowCache::new(Seed::repeatable(9));
        for _ in 0..3 {
            prop_assert_eq!(&world.found_with(&mut cache, 1, &classifier), &expected, "{:?}", &rules);
        }
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            prop_assert_eq!(found, expected, "packet {} of {:?}", at, &rules);
        }
    }

    #[test]
    fn rules_come_and_go(
        steps in vec(step(), 1..60),
        mut arrivals in vec(arrival(), 1..40),
    ) {
        let packets = sound(&mut arrivals);
        let world = World::new(&packets);
        let mut index = ClassifierIndex::new(names(), Seed::repeatable(3));
        let mut rules: Vec<(RuleSlot, Rule)> = Vec::new();
        let mut next = 1;
        let mut before = (index.classifier(), rules.clone());
        let (mut cache, mut generation) = (FlowCache::new(Seed::repeatable(9)), 0);
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Add(line) => for rule in world::rules(std::slice::from_ref(line)) {
                    index.insert(world::slot(next), &rule).expect("rules name ports that exist");
                    rules.push((world::slot(next), rule));
                    next += 1;
                },
                Step::Remove(which) if !rules.is_empty() => {
                    let (slot, rule) = rules.swap_remove(which.index(rules.len()));
                    index.remove(slot, &rule);
                }
                Step::Remove(_) => {}
                Step::Rebuild => {
                    let all = rules.iter().map(|(slot, rule)| (*slot, rule));
                    index = ClassifierIndex::build(all, names(), Seed::repeatable(at as u64), Tuning::Merged)
                        .expect("rules name ports that exist");
                }
            }
            if at % 8 == 7 || at + 1 == steps.len() {
                prop_assert_eq!(world.found(&index.classifier()), world.expected(&rules), "after step {}", at);
                generation += 1;
                for _ in 0..2 {
                    let found = world.found_with(&mut cache, generation, &index.classifier());
                    prop_assert_eq!(found, world.expected(&rules), "cached after step {}", at);
                }
                // What was handed out before still says what was true then.
                prop_assert_eq!(world.found(&before.0), world.expected(&before.1), "before step {}", at);
                before = (index.classifier(), rules.clone());
            }
        }
        for (slot, rule) in rules.drain(..) {
            index.remove(slot, &rule);
        }
        prop_assert_eq!(world.found(&index.classifier()), world.expected(&[]));
        prop_assert!(index.tables().is_empty() && index.classifier().max_matches() == 0);
    }
}

#[test]
fn a_full_vector_of_equal_packets_matches_everything() {
    let lines: Vec<String> =
        (0..300).map(|i| format!("add prio {i} ip-ttl < {} drop", 1 + i % 255)).collect();
    let rules = rules(&lines);
    let frame = mmb_testkit::Udp::default().over_ip4();
    let wire = strategy::PacketBytes { link: LinkType::Ethernet, bytes: frame.bytes() };
    let mut arrivals = vec![(wire, 0); VECTOR];
    let packets = sound(&mut arrivals);
    let world = World::new(&packets);
    let (found, expected) =
        (world.found(&built(&rules, Tuning::Merged).classifier()), world.expected(&numbered(&rules)));
    assert!(expected[0].len() > 100);
    assert_eq!(found, expected);
}

#[test]
fn equal_keys_share_an_entry_and_masks_a_table() {
    let lines = [
        "add tcp-dport 80 drop",
        "add tcp-dport 80 ip-ttl > 3 accept",
        "add tcp-dport 443 drop",
        "add udp-dport 53 drop",
        "add tcp-dport {22, 23} drop",
        "add ip-proto udp ip-ttl < 9 drop",
    ];
    let rules = rules(&lines.map(str::to_owned));
    let index = built(&rules, Tuning::EveryTuple);
    let tables = index.tables();
    let tables: Vec<_> = tables.iter().map(|t| (t.class, t.mask.as_str(), t.rules, t.entries)).collect();
    let ports = "ip-proto udp-dport tcp-dport";
    assert_eq!(
        tables,
        [(Class::Ip4, "ip-proto", 1, 1), (Class::Ip4, ports, 6, 5), (Class::Ip6, ports, 5, 5)]
    );
    assert!(index.classifier().wants(Class::Ip6) && !index.classifier().wants(Class::Other));
}

#[test]
fn a_class_knows_only_rules_that_it_can_match() {
    let classes = |rule: &str| {
        let rules = rules(&[rule.to_owned()]);
        let classifier = built(&rules, Tuning::Merged).classifier();
        [Class::Ip4, Class::Ip6, Class::Other].map(|class| classifier.wants(class))
    };
    assert_eq!(classes("add all drop"), [true, true, false]);
    assert_eq!(classes("add ip-ttl 3 drop"), [true, false, false]);
    assert_eq!(classes("add net-proto ip6 tcp-dport 3 drop"), [false, true, false]);
    assert_eq!(classes("add net-proto != ip6 drop"), [true, false, false]);
    assert_eq!(classes("add eth-type arp drop"), [false, false, true]);
    assert_eq!(classes("add eth-type {ip4, arp} drop"), [true, false, true]);
    assert_eq!(classes("add eth-type ip6 udp-dport 53 drop"), [false, true, false]);
    assert_eq!(classes("add eth-type != ip4 drop"), [false, true, true]);
    assert_eq!(classes("add in a drop"), [true, true, false]);
}

#[test]
fn an_unknown_port_is_named_with_its_rule() {
    let rules = rules(&["add prio 1 in a drop", "add prio 2 out nowhere drop"].map(str::to_owned));
    let built = ClassifierIndex::build(
        (1..).map(world::slot).zip(&rules),
        names(),
        Seed::repeatable(7),
        Tuning::Merged,
    );
    let error = built.map(|_| ()).expect_err("there is no such port");
    assert_eq!((error.0, error.1.to_string().as_str()), (world::slot(2), "no port is called 'nowhere'"));
}
