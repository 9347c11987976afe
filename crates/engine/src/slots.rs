//! Which rule counts in which slot, over the publishes.
//!
//! A rule that stays (number and content equal) keeps its slot and so its counters. A slot is given to another rule
//! only when no worker can still write it for the old one: when every snapshot that knew the old rule is gone. Cells
//! are never set back, since only their worker may write them; a rule's count is what was added since it got its
//! slot.
//!
//! Belongs to the control side.

use crate::cells::RuleCells;
use crate::counters::Count;
use mmb_policy::{Policy, Rule, RuleId};
use std::collections::HashMap;
use std::ops::Add;

/// A rule's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    number: u32,
    /// The first snapshot that knows it.
    since: u64,
    /// What the cells held when the rule got it.
    base: Count,
}

/// A slot that snapshots `since..until` know and no later one.
#[derive(Clone, Copy, Debug)]
struct Retired {
    number: u32,
    since: u64,
    until: u64,
}

/// The slots of all rules.
#[derive(Debug)]
pub(crate) struct Slots {
    /// Each worker's cells.
    workers: Vec<RuleCells>,
    rules: HashMap<RuleId, (Rule, Slot)>,
    retired: Vec<Retired>,
    free: Vec<u32>,
    /// Slots that were ever used.
    used: u32,
}

impl Slots {
    pub(crate) fn new(workers: usize) -> Slots {
        Slots {
            workers: vec![RuleCells::default(); workers],
            rules: HashMap::new(),
            retired: Vec::new(),
            free: Vec::new(),
            used: 0,
        }
    }

    /// Gives every rule of the policy its slot for the snapshot `generation`, the newest. `alive` says of the
    /// snapshots before it whether a worker may still use them.
    pub(crate) fn assign(&mut self, policy: &Policy, generation: u64, alive: &[u64]) {
        let mut before = std::mem::take(&mut self.rules);
        let stays = |id: &RuleId, rule: &Rule| policy.rules.get(*id).as_ref() == Some(rule);
        for (id, (rule, slot)) in &before {
            if !stays(id, rule) {
                self.retired.push(Retired { number: slot.number, since: slot.since, until: generation });
            }
        }
        self.reclaim(alive);
        for (id, rule) in policy.rules.keys().zip(policy.rules.iter()) {
            let kept = before.remove(&id).filter(|(old, _)| *old == rule);
            let entry = kept.unwrap_or_else(|| (rule, self.fresh(generation)));
            self.rules.insert(id, entry);
        }
    }

    fn reclaim(&mut self, alive: &[u64]) {
        let free = &mut self.free;
        self.retired.retain(|&Retired { number, since, until }| {
            let held = alive.iter().any(|generation| (since..until).contains(generation));
            if !held {
                free.push(number);
            }
            held
        });
    }

    fn fresh(&mut self, since: u64) -> Slot {
        let number = self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        });
        for cells in self.workers.iter_mut().filter(|cells| number as usize >= cells.slots()) {
            cells.grow();
        }
        Slot { number, since, base: self.sum(number) }
    }

    fn sum(&self, number: u32) -> Count {
        self.workers.iter().map(|cells| cells.slot(number).read()).fold(Count::default(), Count::add)
    }

    /// The slot of a rule of the newest policy.
    pub(crate) fn number(&self, id: RuleId) -> Option<u32> {
        self.rules.get(&id).map(|(_, slot)| slot.number)
    }

    /// What a rule has matched since it has been there.
    pub(crate) fn count(&self, id: RuleId) -> Count {
        let Some((_, slot)) = self.rules.get(&id) else { return Count::default() };
        let now = self.sum(slot.number);
        Count {
            packets: now.packets.wrapping_sub(slot.base.packets),
            bytes: now.bytes.wrapping_sub(slot.base.bytes),
        }
    }

    /// Each worker's cells, for a snapshot.
    pub(crate) fn cells(&self) -> &[RuleCells] {
        &self.workers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        Policy::parse(text).expect("the test's policy parses").0
    }

    #[test]
    fn a_rule_that_stays_keeps_its_slot() {
        let mut slots = Slots::new(2);
        slots.assign(&policy("add id 1 all drop\nadd id 2 all accept"), 1, &[0]);
        let before = [1, 2].map(|id| slots.number(RuleId(id)));
        slots.assign(&policy("add id 2 all accept\nadd id 1 all drop\nadd id 3 all drop"), 2, &[1]);
        assert_eq!([1, 2].map(|id| slots.number(RuleId(id))), before);
        assert!(slots.number(RuleId(3)).is_some() && slots.number(RuleId(4)).is_none());
    }

    #[test]
    fn a_slot_waits_for_every_snapshot_that_knows_its_rule() {
        let mut slots = Slots::new(1);
        slots.assign(&policy("add id 1 all drop"), 1, &[0]);
        let first = slots.number(RuleId(1));
        // A worker uses snapshot 1 while two policies come and go.
        slots.assign(&policy("add id 2 all drop"), 2, &[1]);
        slots.assign(&policy("add id 3 all drop"), 3, &[1, 2]);
        let taken = [2, 3].map(|id| slots.number(RuleId(id)));
        assert!(!taken.contains(&first));
        // It has moved on, past 2; what was known to 2 only is free as well.
        slots.assign(&policy("add id 4 all drop\nadd id 5 all drop"), 4, &[3]);
        let reused = [4, 5].map(|id| slots.number(RuleId(id)));
        assert!(reused.contains(&first));
        assert_eq!(slots.used, 3);
    }

    #[test]
    fn slots_beyond_a_chunk_have_cells() {
        let lines: String = (0..5000).map(|i| format!("add ip-id {i} drop\n")).collect();
        let mut slots = Slots::new(2);
        slots.assign(&policy(&lines), 1, &[0]);
        let last = slots.number(RuleId(5000)).expect("the rule has a slot");
        let one = Count { packets: 1, bytes: 60 };
        slots.cells().iter().for_each(|worker| worker.slot(last).add(one));
        assert_eq!(slots.count(RuleId(5000)), one + one);
        assert_eq!(slots.count(RuleId(1)), Count::default());
    }
}
