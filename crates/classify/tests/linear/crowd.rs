//! Rules that crowd relaxed keys: many have one entry, relaxed, while their tuples have other rules.

use crate::conditions;
use crate::scale::{check, tcp};
use crate::world::{Arrival, names, numbered, rules, slot};
use mmb_classify::{ClassifierIndex, RuleSlot, Tuning};
use mmb_policy::Rule;
use mmb_random::Seed;
use proptest::collection::vec;
use proptest::prelude::*;

/// Rules of two tuples, by source and by source and port, each with a source of its own, so that the tuples share a table.
fn apart() -> Vec<String> {
    let host = |number: usize| format!("11.{}.{}.1", number / 200, number % 200);
    let source = (0..300).map(|number| format!("add ip-saddr {} drop", host(number)));
    let both = (300..1500).map(|number| format!("add ip-saddr {} tcp-dport {number} drop", host(number)));
    source.chain(both).collect()
}

fn build(rules: &[(RuleSlot, Rule)]) -> ClassifierIndex {
    let all = rules.iter().map(|(slot, rule)| (*slot, rule));
    ClassifierIndex::build(all, names(), Seed::repeatable(7), Tuning::Merged)
        .expect("rules name ports that exist")
}

/// Rules of a few sources, with and without ports and other conditions.
fn colliding() -> impl Strategy<Value = String> {
    let ports = vec!["", " tcp-dport 1", " tcp-dport 2", " tcp-dport {0, 1, 2}", " tcp-dport {1, 2, 3, 4}"];
    let parts = (0..3u8, prop::sample::select(ports), prop_oneof![Just(String::new()), conditions()]);
    parts.prop_map(|(host, ports, conditions)| format!("add ip-saddr 10.0.0.{host}{ports}{conditions} drop"))
}

/// Packets that the crowding rules are about.
fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let option = (2..5u8, 0..4u8).prop_map(|(kind, value)| vec![kind, 3, value]);
    let options = vec(option, 0..4).prop_map(|options| options.concat());
    let packet = (0..3u32, 0..1500u16, 0..5u16, options);
    vec(
        packet.prop_map(|(host, sport, dport, options)| tcp(0x0a00_0000 | host, 2, sport, dport, &options)),
        1..16,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn colliding_rules_come_and_go(
        first in vec(colliding(), 2..9),
        then in vec(prop_oneof![colliding().prop_map(Some), Just(None)], 0..12),
        which in any::<prop::sample::Index>(),
        arrivals in arrivals(),
    ) {
        // A packet that some rule is about, whatever goes.
        let arrivals: Vec<Arrival> = arrivals.into_iter().chain([tcp(0x0b00_0001, 2, 3, 4, &[])]).collect();
        let apart = apart();
        let mut all = numbered(&rules(&[first, apart.clone()].concat()));
        let mut index = build(&all);
        check(&index, &all, &arrivals);
        for (number, step) in (10_000..).zip(then) {
            match step {
                Some(line) => for rule in rules(&[line]) {
                    index.insert(slot(number), &rule).expect("rules name ports that exist");
                    all.insert(0, (slot(number), rule));
                },
                None if all.len() > apart.len() => {
                    let (slot, rule) = all.remove(which.index(all.len() - apart.len()));
                    index.remove(slot, &rule);
                }
                None => {}
            }
            if number % 4 == 3 {
                check(&index, &all, &arrivals);
            }
        }
        // To the last one of each key.
        while all.len() > apart.len() {
            let (slot, rule) = all.remove(which.index(all.len() - apart.len()));
            index.remove(slot, &rule);
            check(&index, &all, &arrivals);
        }
        all.drain(..).for_each(|(slot, rule)| index.remove(slot, &rule));
        prop_assert!(index.tables().is_empty() && index.classifier().max_matches() == 0);
    }
}

/// Taking the first key of the rule with a set away once took all, and the next ones what else hung there.
#[test]
fn a_rule_with_a_set_of_values_leaves_its_neighbours_under_a_crowded_key() {
    let crowd = ["add ip-saddr 10.0.0.1 drop", "add ip-saddr 10.0.0.1 tcp-dport {1, 2, 3, 4} drop"];
    let lines = [crowd.map(str::to_owned).to_vec(), apart()].concat();
    let mut rules = numbered(&rules(&lines));
    let mut index = build(&rules);
    let table = |index: &ClassifierIndex| {
        let [table] = &index.tables()[..] else { panic!("both tuples share one: {:?}", index.tables()) };
        (table.rules, table.entries)
    };
    assert_eq!(table(&index), (lines.len() + 3, lines.len() - 1), "the set's keys hang on one entry");
    let arrivals = [1, 4, 5].map(|port| tcp(0x0a00_0001, 2, 3, port, &[]));
    check(&index, &rules, &arrivals);
    let (slot, rule) = rules.remove(1);
    index.remove(slot, &rule);
    check(&index, &rules, &arrivals);
    assert_eq!(table(&index), (lines.len() - 1, lines.len() - 1));
}
