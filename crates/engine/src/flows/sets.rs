//! The sets of rules that connections have: few, whatever the number of connections.
//!
//! A set is known by its rules' stamps. Under each policy it is looked up once which of them are still there.

use super::stateful::Stateful;
use crate::snapshot::Snapshot;
use std::collections::HashMap;
use std::sync::Arc;

/// Sets of stateful rules, by number.
#[derive(Debug, Default)]
pub(crate) struct RuleSets {
    sets: Vec<RuleSet>,
    numbers: HashMap<Box<[u64]>, u32>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct RuleSet {
    /// In the order in which their targets are applied.
    rules: Vec<(u32, Arc<Stateful>)>,
    stamps: Box<[u64]>,
    /// Connections that have it.
    users: usize,
    /// The policy for which `live` was made.
    generation: u64,
    /// Slots of the rules that are still there.
    live: Vec<u32>,
}

impl RuleSets {
    /// The number of the set of these rules, given by slot, in the order in which their targets are applied. It has one more user.
    pub(crate) fn enter(&mut self, snapshot: &Snapshot, slots: &[u32]) -> u32 {
        let rules: Vec<_> =
            slots.iter().filter_map(|&slot| Some((slot, Arc::clone(snapshot.stateful(slot)?)))).collect();
        let stamps: Box<[u64]> = rules.iter().map(|(_, rule)| rule.stamp).collect();
        if let Some(&number) = self.numbers.get(&stamps) {
            self.sets[number as usize].users += 1;
            return number;
        }
        let live = rules.iter().map(|(slot, _)| *slot).collect();
        let set = RuleSet { rules, stamps: stamps.clone(), users: 1, generation: snapshot.generation, live };
        let number = self.free.pop().unwrap_or(self.sets.len() as u32);
        match self.sets.get_mut(number as usize) {
            Some(place) => *place = set,
            None => self.sets.push(set),
        }
        self.numbers.insert(stamps, number);
        number
    }

    /// A user of the set less.
    pub(crate) fn leave(&mut self, number: u32) {
        let Some(set) = self.sets.get_mut(number as usize) else { return };
        set.users = set.users.saturating_sub(1);
        if set.users == 0 {
            self.numbers.remove(&set.stamps);
            *set = RuleSet::default();
            self.free.push(number);
        }
    }

    /// The slots of those rules of a set that a policy still has.
    #[inline]
    pub(crate) fn live(&mut self, snapshot: &Snapshot, number: u32) -> &[u32] {
        let Some(set) = self.sets.get_mut(number as usize) else { return &[] };
        if set.generation != snapshot.generation {
            set.generation = snapshot.generation;
            set.live.clear();
            let there = |(slot, rule): &&(u32, Arc<Stateful>)| {
                snapshot.stateful(*slot).is_some_and(|now| now.stamp == rule.stamp)
            };
            set.live.extend(set.rules.iter().filter(there).map(|(slot, _)| *slot));
        }
        &set.live
    }

    /// The rules of a set, those too that are gone.
    pub(crate) fn rules(&self, number: u32) -> impl Iterator<Item = &Arc<Stateful>> {
        self.sets.get(number as usize).into_iter().flat_map(|set| set.rules.iter().map(|(_, rule)| rule))
    }
}
