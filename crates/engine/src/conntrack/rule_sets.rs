//! The rule sets of connections: few, whatever the number of connections.
//!
//! A set is identified by its rules' stamps. It is resolved once per policy which of its rules still exist. Unused sets are kept for a
//! while: the next connection with the same rules reuses its set.

use crate::compiled::Snapshot;
use crate::compiled::StatefulRule;
use hashbrown::HashTable;
use mmb_base::prefetch;
use mmb_policy::RuleId;
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

/// The most stateful rules that one connection has: the first in order.
pub(super) const MOST_RULES: usize = 64;
/// Unused sets that are kept, at most.
const SPARE: usize = 1 << 16;

/// Sets of stateful rules, by number.
#[derive(Debug, Default)]
pub(crate) struct StatefulRuleSets {
    sets: Vec<StatefulRuleSet>,
    /// Numbers of sets by a hash of their rules' stamps.
    numbers: HashTable<u32>,
    /// By slot, the set that holds only this rule, since most sets hold one: where the search begins.
    alone: Vec<u32>,
    free: Vec<u32>,
    /// Sets that lost their last user, the longest unused first; some may be in use again.
    spare: VecDeque<u32>,
    /// Reserved memory for the rules of the next set.
    room: Room,
}

type Room = (Vec<(u32, Arc<StatefulRule>)>, Vec<u32>);

#[derive(Debug, Default)]
struct StatefulRuleSet {
    /// In the order in which their targets are applied.
    rules: Vec<(u32, Arc<StatefulRule>)>,
    /// The stamp of its rule if it holds only one.
    only: Option<u64>,
    /// Number of connections that use it.
    users: usize,
    is_spare: bool,
    /// The policy for which `live` was computed.
    generation: u64,
    /// Slots of the rules that still exist.
    live: Vec<u32>,
    /// The rules' ids, which listings and events share; computed on first use.
    ids: OnceCell<Arc<[RuleId]>>,
}

impl StatefulRuleSet {
    fn stamps(&self) -> impl Iterator<Item = u64> {
        self.rules.iter().map(|(_, rule)| rule.stamp)
    }
}

impl StatefulRuleSets {
    /// Reserves memory for one more set with this number of rules, and for releasing all sets, so that [`StatefulRuleSets::enter`] and
    /// [`StatefulRuleSets::leave`] do not fail.
    pub(crate) fn reserve(&mut self, rules: usize) -> Result<(), SetAllocError> {
        let StatefulRuleSets { sets, numbers, free, spare, room, .. } = self;
        room.0.try_reserve_exact(rules).map_err(|_| SetAllocError)?;
        room.1.try_reserve_exact(rules).map_err(|_| SetAllocError)?;
        if free.is_empty() {
            sets.try_reserve(1).map_err(|_| SetAllocError)?;
        }
        let all = sets.capacity();
        if free.capacity() < all {
            free.try_reserve_exact(all - free.len()).map_err(|_| SetAllocError)?;
        }
        let spares = all.min(SPARE + 1);
        if spare.capacity() < spares {
            spare.try_reserve_exact(spares - spare.len()).map_err(|_| SetAllocError)?;
        }
        let hash_of = |&number: &u32| stamp_hash(sets[number as usize].stamps());
        numbers.try_reserve(1, hash_of).map_err(|_| SetAllocError)
    }

    /// The number of the set of these rules, given by slot, in the order in which their targets are applied. Adds a user.
    pub(crate) fn enter(&mut self, snapshot: &Snapshot, slots: &[u32]) -> u32 {
        let &[slot] = slots else { return self.find_or_make(snapshot, slots) };
        let stamp = snapshot.stateful(slot).map(|rule| rule.stamp);
        if let Some(&number) = self.alone.get(slot as usize)
            && stamp.is_some()
            && let Some(set) = self.sets.get_mut(number as usize)
            && set.only == stamp
        {
            set.users += 1;
            return number;
        }
        let number = self.find_or_make(snapshot, slots);
        let wanted = (slot as usize + 1).next_power_of_two();
        if self.alone.len() <= slot as usize && self.alone.try_reserve(wanted - self.alone.len()).is_ok() {
            self.alone.resize(wanted, 0);
        }
        // Without memory here, the set is found by hash.
        if let Some(place) = self.alone.get_mut(slot as usize) {
            *place = number;
        }
        number
    }

    /// Prefetches the entry by which [`StatefulRuleSets::enter`] finds the set of a single rule.
    #[inline]
    pub(crate) fn fetch_place(&self, slot: u32) {
        self.alone.get(slot as usize).into_iter().for_each(prefetch);
    }

    /// Prefetches that set.
    #[inline]
    pub(crate) fn fetch_set(&self, slot: u32) {
        let number = self.alone.get(slot as usize);
        number.and_then(|&number| self.sets.get(number as usize)).into_iter().for_each(prefetch);
    }

    fn find_or_make(&mut self, snapshot: &Snapshot, slots: &[u32]) -> u32 {
        let rules = || slots.iter().filter_map(|&slot| Some((slot, snapshot.stateful(slot)?)));
        let hash = stamp_hash(rules().map(|(_, rule)| rule.stamp));
        let same =
            |number: &u32| self.sets[*number as usize].stamps().eq(rules().map(|(_, rule)| rule.stamp));
        if let Some(&number) = self.numbers.find(hash, same) {
            self.sets[number as usize].users += 1;
            return number;
        }
        let only = rules().next().filter(|_| slots.len() == 1);
        let only = only.map(|(_, rule)| rule.stamp);
        let (mut of, mut live) = std::mem::take(&mut self.room);
        of.extend(rules().map(|(slot, rule)| (slot, Arc::clone(rule))));
        live.extend(rules().map(|(slot, _)| slot));
        let generation = snapshot.generation;
        let set = StatefulRuleSet {
            only,
            rules: of,
            users: 1,
            is_spare: false,
            generation,
            live,
            ids: OnceCell::new(),
        };
        let number = self.free.pop().unwrap_or(self.sets.len() as u32);
        match self.sets.get_mut(number as usize) {
            Some(place) => *place = set,
            None => self.sets.push(set),
        }
        let sets = &self.sets;
        self.numbers.insert_unique(hash, number, |&number| stamp_hash(sets[number as usize].stamps()));
        number
    }

    /// Removes a user from a set.
    pub(crate) fn leave(&mut self, number: u32) {
        let Some(set) = self.sets.get_mut(number as usize) else { return };
        set.users = set.users.saturating_sub(1);
        if set.users > 0 || set.is_spare {
            return;
        }
        set.is_spare = true;
        self.spare.push_back(number);
        if self.spare.len() > SPARE
            && let Some(oldest) = self.spare.pop_front()
        {
            let set = &mut self.sets[oldest as usize];
            set.is_spare = false;
            if set.users == 0 {
                let set = std::mem::take(set);
                if let Ok(entry) = self.numbers.find_entry(stamp_hash(set.stamps()), |&other| other == oldest)
                {
                    entry.remove();
                }
                self.free.push(oldest);
            }
        }
    }

    /// The slots of those rules of a set that the policy still contains.
    #[inline]
    pub(crate) fn live(&mut self, snapshot: &Snapshot, number: u32) -> &[u32] {
        let Some(set) = self.sets.get_mut(number as usize) else { return &[] };
        if set.generation != snapshot.generation {
            set.generation = snapshot.generation;
            set.live.clear();
            let there = |(slot, rule): &&(u32, Arc<StatefulRule>)| {
                snapshot.stateful(*slot).is_some_and(|now| now.stamp == rule.stamp)
            };
            set.live.extend(set.rules.iter().filter(there).map(|(slot, _)| *slot));
        }
        &set.live
    }

    /// The ids of a set's rules, including removed ones.
    pub(crate) fn ids(&self, number: u32) -> Arc<[RuleId]> {
        let ids = |set: &StatefulRuleSet| set.rules.iter().map(|(_, rule)| rule.id).collect();
        let set = self.sets.get(number as usize);
        set.map(|set| Arc::clone(set.ids.get_or_init(|| ids(set)))).unwrap_or_default()
    }

    /// The rules of a set, including removed ones.
    pub(crate) fn rules(&self, number: u32) -> impl Iterator<Item = &Arc<StatefulRule>> {
        self.sets.get(number as usize).into_iter().flat_map(|set| set.rules.iter().map(|(_, rule)| rule))
    }
}

/// There is no memory for another set.
pub(crate) struct SetAllocError;

/// Stamps are assigned by the engine, never by a sender, so the hash needs no key.
fn stamp_hash(stamps: impl Iterator<Item = u64>) -> u64 {
    let mut hasher = DefaultHasher::new();
    stamps.for_each(|stamp| hasher.write_u64(stamp));
    hasher.finish()
}
