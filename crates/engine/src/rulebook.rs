//! The rules in force as the control side changes them: classifier, actions, edits, slots.
//!
//! A new policy is compared with the one in force, and only what differs is changed. When most of it differs, or when
//! so many rules of new kinds came one by one that searches suffer, the classifier is built anew from all rules.
//!
//! Life-cycle: belongs to the [`Engine`](crate::Engine). What it hands out as a snapshot is not changed by what comes
//! after: classifier, actions and edits share pages with snapshots and copy those that they change.

use crate::conntrack::{StatefulRule, is_constant, is_mapping};
use crate::counters::Count;
use crate::engine::PublishError;
use crate::port::PortTable;
use crate::slots::RuleSlots;
use crate::snapshot::{Action, CompiledRules, Snapshot};
use mmb_classify::{ClassifierIndex, PortNumbers, TableStats, Tuning};
use mmb_packet::PortId;
use mmb_policy::rules::RuleChange;
use mmb_policy::{CtStates, Policy, Rule, RuleId, RuleStore, Test};
use mmb_random::{Generator, Purpose, SeedTree};
use mmb_rewrite::Edit;
use std::borrow::Cow;
use std::sync::Arc;

/// So many changes at once are made one by one, however many rules there are.
const FEW: usize = 4096;

/// What was made of the policy in force.
#[derive(Debug)]
pub(crate) struct Rulebook {
    ports: PortNumbers,
    /// Seeds of classifiers.
    keys: Generator,
    tuning: Tuning,
    policy: Policy,
    index: ClassifierIndex,
    rules: CompiledRules,
    /// The stamp of the last stateful rule.
    last_stamp: u64,
    free_edits: Vec<usize>,
    used_edits: usize,
    slots: RuleSlots,
}

impl Rulebook {
    /// No rules.
    pub(crate) fn new(ports: &PortTable, workers: usize, seeds: &SeedTree, tuning: Tuning) -> Rulebook {
        let ports = PortNumbers::new(ports.0.iter().map(|port| port.name.as_str()));
        let mut keys = Generator::new(seeds.shared(Purpose::Classifier));
        Rulebook {
            index: ClassifierIndex::new(ports.clone(), keys.seed()),
            ports,
            keys,
            tuning,
            policy: Policy::default(),
            rules: CompiledRules::default(),
            last_stamp: 0,
            free_edits: Vec::new(),
            used_edits: 0,
            slots: RuleSlots::new(workers),
        }
    }

    /// Rules may name one more port from now on.
    pub(crate) fn push_port(&mut self, name: &str) {
        self.ports.push(name.to_owned());
        self.index.push_port(name.to_owned());
    }

    /// A port that no rule names has another name from now on.
    pub(crate) fn rename_port(&mut self, port: PortId, name: &str) {
        self.ports.rename(port.0, name);
        self.index.rename_port(port.0, name);
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Checks the rules that a policy adds to another.
    pub(crate) fn check(
        &self,
        before: &Policy,
        after: &Policy,
        known: &PortTable,
    ) -> Result<(), PublishError> {
        for change in RuleStore::diff(&before.rules, &after.rules) {
            if let RuleChange::Added(rule) = change {
                self.names_ports(&rule, known)?;
            }
        }
        Ok(())
    }

    fn names_ports(&self, rule: &Rule, known: &PortTable) -> Result<(), PublishError> {
        let names = rule.matches.iter().filter_map(|constraint| match &constraint.test {
            Test::Port(_, names) => Some(names),
            _ => None,
        });
        names.flatten().try_for_each(|name| match self.ports.number(name) {
            Ok(_) => Ok(()),
            Err(unknown) => {
                Err(PublishError::UnknownPort { rule: id(rule), port: unknown.0, known: known.known() })
            }
        })
    }

    /// Goes over to a policy that was checked, of which `generation` will be the first snapshot. Returns the stamps of stateful rules
    /// that went.
    pub(crate) fn change(&mut self, policy: &Policy, generation: u64) -> Vec<u64> {
        let mut gone = Vec::new();
        let before = std::mem::replace(&mut self.policy, policy.clone());
        let diff = || RuleStore::diff(&before.rules, &policy.rules);
        // A few changes here and there touch many chunks: only what really differs counts.
        let few = FEW.max(policy.rules.len() / 4);
        let (least, most) = diff().bounds();
        let many = least > few || (most > few && diff().nth(few).is_some());
        for change in diff() {
            match change {
                RuleChange::Removed(rule) => gone.extend(self.remove(&rule, generation, !many)),
                RuleChange::Added(rule) => self.add(&rule, !many),
            }
        }
        if many {
            self.slots.shrink();
        }
        if many || self.index.is_scattered() {
            self.rebuild();
        }
        gone
    }

    fn add(&mut self, rule: &Rule, index: bool) {
        let mut edited = Cow::Borrowed(&rule.targets[..]);
        if rule.stateful && rule.targets.iter().any(is_mapping) {
            edited.to_mut().retain(|target| !is_mapping(target));
        }
        let edit = Edit::compile(&edited).map(|edit| {
            let number = self.free_edits.pop().unwrap_or_else(|| {
                self.used_edits += 1;
                self.used_edits - 1
            });
            self.rules.edits.set(number, Some(Arc::new(edit)));
            number
        });
        let slot = self.slots.assign(id(rule));
        self.rules.actions.set(slot as usize, Action::new(rule, edit));
        self.rules.changing_rules += usize::from(!is_constant(rule));
        self.rules.ct_rules += usize::from(asks_for_state(rule));
        if rule.stateful {
            self.last_stamp += 1;
            let stateful = Arc::new(StatefulRule::compile(rule, self.last_stamp));
            self.rules.stateful.set(slot as usize, Some(stateful));
            self.rules.stateful_rules += 1;
        }
        if index {
            // Its ports were checked.
            let _ = self.index.insert(slot, rule);
        }
    }

    fn remove(&mut self, rule: &Rule, generation: u64, index: bool) -> Option<u64> {
        let slot = self.slots.retire(id(rule), generation)?;
        if index {
            self.index.remove(slot, rule);
        }
        if let Some(edit) = self.rules.actions.at(slot as usize).edit() {
            self.rules.edits.set(edit, None);
            self.free_edits.push(edit);
        }
        self.rules.changing_rules -= usize::from(!is_constant(rule));
        self.rules.ct_rules -= usize::from(asks_for_state(rule));
        if !rule.stateful {
            return None;
        }
        self.rules.stateful_rules -= 1;
        self.rules.stateful.at_mut(slot as usize).take().map(|stateful| stateful.stamp)
    }

    /// Builds the classifier anew from all rules.
    fn rebuild(&mut self) {
        let slots = &self.slots;
        let rules = self.policy.rules.iter().filter_map(|rule| Some((slots.number(id(&rule))?, rule)));
        // Ports were checked, so that this does not fail.
        if let Ok(index) = ClassifierIndex::build(rules, self.ports.clone(), self.keys.seed(), self.tuning) {
            self.index = index;
        }
    }

    /// What workers are to use from now on.
    pub(crate) fn snapshot(&self, generation: u64, ports: &PortTable) -> Snapshot {
        let (classifier, rules) = (self.index.classifier(), self.rules.clone());
        Snapshot::new(generation, &self.policy, ports, classifier, rules, self.slots.cells())
    }

    /// Frees what only snapshots before `oldest` knew.
    pub(crate) fn reclaim(&mut self, oldest: u64) {
        self.slots.reclaim(oldest);
    }

    /// What a rule of the policy in force has matched since it is there.
    pub(crate) fn count(&self, id: RuleId) -> Count {
        self.slots.count(id)
    }

    /// The classifier's tables.
    pub(crate) fn tables(&self) -> Vec<TableStats> {
        self.index.tables()
    }
}

/// Whether a rule asks how packets stand to connections.
fn asks_for_state(rule: &Rule) -> bool {
    rule.ct_states() != CtStates::ALL
}

/// A rule of a policy has a number.
fn id(rule: &Rule) -> RuleId {
    rule.id.unwrap_or(RuleId(0))
}
