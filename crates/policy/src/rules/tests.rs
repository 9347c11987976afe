//! The store beside a plain map, and records beside their rules.

use super::chunk::{MAX_BYTES, MAX_RULES};
use super::{RuleChange, RuleStore, record};
use crate::arbitrary::{RuleOptions, rule};
use crate::rule::{Cond, DropRate, Equality, Match, NumberItem, NumberSet, Rule, RuleId, Target, Test};
use crate::{Field, FieldId};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

type Model = BTreeMap<RuleId, Rule>;

/// A rule that differs from those of other `value`s, now and then a large one.
fn plain(value: u16) -> Rule {
    let set = |n: u128| NumberSet(vec![NumberItem::One(n)]);
    let field = Field::new(FieldId::TcpDport);
    let mut matches = vec![Match { negated: false, field, test: Test::Number(Cond::Eq, set(value.into())) }];
    if value.is_multiple_of(97) {
        let many = (0..value % 4096).map(|n| NumberItem::One(n.into())).collect();
        matches.push(Match { negated: true, field, test: Test::Number(Cond::Eq, NumberSet(many)) });
    }
    Rule {
        id: None,
        prio: 100,
        name: None,
        stateful: false,
        draining: false,
        matches,
        targets: vec![Target::Drop(DropRate::ALL)],
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Rules under neighbouring numbers.
    Insert { first: u32, count: u32, value: u16 },
    /// Every `step`th number goes.
    Remove { first: u32, count: u32, step: u32 },
    /// The store as it is now is what later ones are compared with.
    Copy,
}

fn step() -> impl Strategy<Value = Step> {
    // Close enough together that chunks are split, merged, emptied and overwritten.
    let first = 1u32..6000;
    prop_oneof![
        4 => (first.clone(), prop_oneof![Just(1u32), 1u32..1500], any::<u16>())
            .prop_map(|(first, count, value)| Step::Insert { first, count, value }),
        3 => (first, prop_oneof![Just(1u32), 1u32..3000], 1u32..4)
            .prop_map(|(first, count, step)| Step::Remove { first, count, step }),
        1 => Just(Step::Copy),
    ]
}

/// The differences between a model and an older one.
fn differences(old: &Model, new: &Model) -> Vec<RuleChange> {
    let mut ids: Vec<RuleId> = old.keys().chain(new.keys()).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    let of = |id: RuleId| match (old.get(&id), new.get(&id)) {
        (was, is) if was == is => [None, None],
        (was, is) => [was.cloned().map(RuleChange::Removed), is.cloned().map(RuleChange::Added)],
    };
    ids.into_iter().flat_map(of).flatten().collect()
}

fn check(rules: &RuleStore, model: &Model) -> Result<(), TestCaseError> {
    prop_assert_eq!(rules.len(), model.len());
    prop_assert_eq!(rules.is_empty(), model.is_empty());
    prop_assert!(rules.iter().eq(model.values().cloned()));
    prop_assert!(rules.keys().eq(model.keys().copied()));
    prop_assert_eq!(rules.last(), model.keys().next_back().copied());
    for chunk in rules.chunks() {
        prop_assert!((1..=MAX_RULES).contains(&chunk.len()));
    }
    prop_assert!(!rules.chunks().windows(2).any(|pair| pair[0].belongs_with(&pair[1])));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn a_store_behaves_as_a_map(steps in prop::collection::vec(step(), 1..14), bounds in any::<[u16; 2]>()) {
        let (mut rules, mut model) = (RuleStore::default(), Model::new());
        let (mut old_rules, mut old_model) = (rules.clone(), model.clone());
        for step in steps {
            match step {
                Step::Insert { first, count, value } => for n in 0..count {
                    let rule = plain(value.wrapping_add(n as u16));
                    let id = RuleId(first + n);
                    rules.insert(id, &rule);
                    model.insert(id, Rule { id: Some(id), ..rule });
                },
                Step::Remove { first, count, step } => for n in (0..count).step_by(step as usize) {
                    let id = RuleId(first + n);
                    prop_assert_eq!(rules.contains(id), model.contains_key(&id));
                    prop_assert_eq!(rules.get(id), model.get(&id).cloned());
                    prop_assert_eq!(rules.remove(id), model.remove(&id));
                },
                Step::Copy => (old_rules, old_model) = (rules.clone(), model.clone()),
            }
            check(&rules, &model)?;
            let diff = RuleStore::diff(&old_rules, &rules);
            let (min, max) = diff.bounds();
            let changes: Vec<RuleChange> = diff.collect();
            prop_assert!((min..=max).contains(&changes.len()));
            prop_assert_eq!(rules == old_rules, changes.is_empty());
            prop_assert!(changes == differences(&old_model, &model));
        }
        check(&old_rules, &old_model)?;
        let [first, last] = bounds.map(|bound| RuleId(u32::from(bound) % 8000));
        if first <= last {
            prop_assert!(rules.range(first..=last).eq(model.range(first..=last).map(|(_, rule)| rule.clone())));
            prop_assert!(rules.range(first..last).eq(model.range(first..last).map(|(_, rule)| rule.clone())));
            prop_assert!(rules.range(..last).eq(model.range(..last).map(|(_, rule)| rule.clone())));
            let behind = (Bound::Excluded(first), Bound::Unbounded);
            prop_assert!(rules.range(behind).eq(model.range(behind).map(|(_, rule)| rule.clone())));
        }
    }
}

proptest! {
    #[test]
    fn a_record_is_its_rule(rule in rule(RuleOptions { stateful: true, streams: true, edits: true, limits: true, lists: vec!["l".to_owned()], ..RuleOptions::default() }), id in any::<u32>()) {
        let mut record = Vec::new();
        record::write(&rule, &mut record);
        let read = record::read(&record, RuleId(id));
        prop_assert_eq!(record::read_targets(&record), (read.prio, read.targets.clone()));
        prop_assert_eq!(read, Rule { id: Some(RuleId(id)), ..rule });
    }

    #[test]
    fn records_are_equal_where_rules_are(
        a in rule(RuleOptions { max_matches: 1, max_targets: 1, ..RuleOptions::default() }),
        b in rule(RuleOptions { max_matches: 1, max_targets: 1, ..RuleOptions::default() }),
    ) {
        let record = |rule: &Rule| {
            let mut record = Vec::new();
            record::write(rule, &mut record);
            record
        };
        prop_assert_eq!(record(&a) == record(&b), a == b);
        prop_assert_eq!(record(&a), record(&a.clone()));
    }
}

/// A rule with one constraint.
fn rule_on(id: FieldId, test: Test) -> Rule {
    let matches = vec![Match { negated: false, field: Field::new(id), test }];
    let targets = vec![Target::Drop(DropRate::ALL)];
    Rule { id: None, prio: 100, name: None, stateful: false, draining: false, matches, targets }
}

/// Rules on one number each, numbered from 1.
fn numbered(id: FieldId, numbers: impl Iterator<Item = u32>) -> RuleStore {
    let rule = |n: u32| rule_on(id, Test::Number(Cond::Eq, NumberSet(vec![NumberItem::One(n.into())])));
    (1..).zip(numbers).map(|(at, n)| Rule { id: Some(RuleId(at)), ..rule(n) }).collect()
}

#[test]
fn rules_in_order_fill_their_chunks() {
    let rules = numbered(FieldId::IpSaddr, (0..5000).map(|i| 0x0a00_0000 + i));
    let lens: Vec<usize> = rules.chunks().iter().map(|chunk| chunk.len()).collect();
    assert_eq!(lens, [1024, 1024, 1024, 1024, 904]);
}

#[test]
fn a_change_copies_one_chunk() {
    let before = numbered(FieldId::IpId, 0..50_000);
    let mut after = before.clone();
    after.remove(RuleId(20_000));
    let shared = before.chunks().iter().zip(after.chunks()).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
    assert_eq!(shared, before.chunks().len() - 1);
    assert_eq!(RuleStore::diff(&before, &after).bounds(), (1, 2 * MAX_RULES - 1));
}

#[test]
fn large_rules_do_not_gather_in_one_chunk() {
    let names: Vec<String> = (0..3000).map(|i| format!("port{i}")).collect();
    let rule = rule_on(FieldId::In, Test::Port(Equality::Eq, names.clone()));
    let rules: RuleStore = (1..=20).map(|id| Rule { id: Some(RuleId(id)), ..rule.clone() }).collect();
    assert_eq!(rules.len(), 20);
    assert!(rules.chunks().iter().all(|chunk| chunk.len() <= MAX_BYTES / (names.len() * 5)));
}
