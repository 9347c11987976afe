//! The rule sets of connections: few, whatever the number of connections.
//!
//! A set is identified by its rules' versions. It is resolved once per policy which of its rules still exist or have a successor. Unused sets are kept for a
//! while: the next connection with the same rules reuses its set.

use crate::compiled::Snapshot;
use crate::compiled::{AffectedConnections, RuleFate, StatefulChange, StatefulRule};
use hashbrown::HashTable;
use mmb_base::{Id, Slab, prefetch};
use mmb_classify::RuleSlot;
use mmb_conn::RuleSetId;
use mmb_conn::nat::RuleVersion;
use mmb_policy::RuleId;
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

/// The most stateful rules that one connection has: the first in order.
pub(super) const MOST_RULES: usize = 64;
/// Unused sets that are kept, at most.
const SPARE: usize = 1 << 16;

/// Sets of stateful rules.
#[derive(Debug, Default)]
pub(crate) struct StatefulRuleSets {
    sets: Slab<RuleSetId, StatefulRuleSet>,
    /// Sets by a hash of their rules' versions.
    by_hash: HashTable<RuleSetId>,
    /// By slot, the set that holds only this rule, since most sets hold one: where the search begins.
    alone: Vec<Option<RuleSetId>>,
    /// Sets that lost their last user, the longest unused first; some may be in use again.
    spare: VecDeque<RuleSetId>,
    /// Reserved memory for the rules of the next set.
    room: Room,
}

type Room = (Vec<(RuleSlot, Arc<StatefulRule>)>, Vec<RuleSlot>);

#[derive(Debug, Default)]
struct StatefulRuleSet {
    /// In the order in which their targets are applied.
    rules: Vec<(RuleSlot, Arc<StatefulRule>)>,
    /// The version of its rule if it holds only one.
    only: Option<RuleVersion>,
    /// Number of connections that use it.
    users: usize,
    is_spare: bool,
    /// The policy for which `live` was computed.
    generation: u64,
    /// Slots of the rules that still exist.
    live: Vec<RuleSlot>,
    /// The rules' ids, which listings and events share; computed on first use.
    ids: OnceCell<Arc<[RuleId]>>,
}

impl StatefulRuleSet {
    /// Adds a user. Rules count the sets with users, and not the spare ones.
    #[inline]
    fn add_user(&mut self) {
        if self.users == 0 {
            self.rules.iter().for_each(|(_, rule)| rule.add_set());
        }
        self.users += 1;
    }

    fn versions(&self) -> impl Iterator<Item = RuleVersion> {
        self.rules.iter().map(|(_, rule)| rule.version)
    }
}

impl StatefulRuleSets {
    /// Reserves memory for one more set with this number of rules, and for releasing all sets, so that [`StatefulRuleSets::enter`] and
    /// [`StatefulRuleSets::leave`] do not fail.
    pub(crate) fn reserve(&mut self, rules: usize) -> Result<(), SetAllocError> {
        let StatefulRuleSets { sets, by_hash, spare, room, .. } = self;
        room.0.try_reserve_exact(rules).map_err(|_| SetAllocError)?;
        room.1.try_reserve_exact(rules).map_err(|_| SetAllocError)?;
        sets.try_reserve().map_err(|_| SetAllocError)?;
        let spares = (sets.highest() as usize + 1).min(SPARE + 1);
        if spare.capacity() < spares {
            spare.try_reserve(spares - spare.len()).map_err(|_| SetAllocError)?;
        }
        by_hash.try_reserve(1, |id| hash_of(sets[*id].versions())).map_err(|_| SetAllocError)
    }

    /// The set of these rules, in the order in which their targets are applied. Adds a user.
    pub(crate) fn enter(&mut self, snapshot: &Snapshot, slots: &[RuleSlot]) -> RuleSetId {
        let &[slot] = slots else { return self.find_or_make(snapshot, slots) };
        let version = snapshot.stateful(slot).map(|rule| rule.version);
        if let Some(&Some(id)) = self.alone.get(slot.index())
            && version.is_some()
            && self.sets[id].only == version
        {
            self.sets[id].add_user();
            return id;
        }
        let id = self.find_or_make(snapshot, slots);
        let wanted = (slot.index() + 1).next_power_of_two();
        if self.alone.len() <= slot.index() && self.alone.try_reserve(wanted - self.alone.len()).is_ok() {
            self.alone.resize(wanted, None);
        }
        // Without memory here, the set is found by hash.
        if let Some(alone) = self.alone.get_mut(slot.index()) {
            *alone = Some(id);
        }
        id
    }

    /// Prefetches the entry by which [`StatefulRuleSets::enter`] finds the set of a single rule.
    #[inline]
    pub(crate) fn fetch_place(&self, slot: RuleSlot) {
        self.alone.get(slot.index()).into_iter().for_each(prefetch);
    }

    /// Prefetches that set.
    #[inline]
    pub(crate) fn fetch_set(&self, slot: RuleSlot) {
        let id = self.alone.get(slot.index()).copied().flatten();
        id.and_then(|id| self.sets.get(id)).into_iter().for_each(prefetch);
    }

    /// Prefetches the rules of that set.
    #[inline]
    pub(crate) fn fetch_rules(&self, slot: RuleSlot) {
        let id = self.alone.get(slot.index()).copied().flatten();
        id.into_iter().for_each(|id| self.prefetch(id, 1));
    }

    /// Prefetches what [`StatefulRuleSets::leave`] reads, in steps.
    #[inline]
    pub(crate) fn prefetch(&self, id: RuleSetId, step: usize) {
        let Some(set) = self.sets.get(id) else { return };
        match (step, set.rules.first()) {
            (0, _) => prefetch(set),
            (1, Some(rule)) => prefetch(rule),
            (2, Some((_, rule))) => prefetch(&rule.sets),
            (_, Some((_, rule))) => rule.fetch_sets(),
            (_, None) => {}
        }
    }

    fn find_or_make(&mut self, snapshot: &Snapshot, slots: &[RuleSlot]) -> RuleSetId {
        let rules = || slots.iter().filter_map(|&slot| Some((slot, snapshot.stateful(slot)?)));
        let hash = hash_of(rules().map(|(_, rule)| rule.version));
        let same = |id: &RuleSetId| self.sets[*id].versions().eq(rules().map(|(_, rule)| rule.version));
        if let Some(&id) = self.by_hash.find(hash, same) {
            self.sets[id].add_user();
            return id;
        }
        let only = rules().next().filter(|_| slots.len() == 1);
        let only = only.map(|(_, rule)| rule.version);
        let (mut of, mut live) = std::mem::take(&mut self.room);
        of.extend(rules().map(|(slot, rule)| (slot, Arc::clone(rule))));
        live.extend(rules().map(|(slot, _)| slot));
        let generation = snapshot.generation;
        let set = StatefulRuleSet {
            only,
            rules: of,
            users: 0,
            is_spare: false,
            generation,
            live,
            ids: OnceCell::new(),
        };
        let id = self.sets.insert(set);
        self.sets[id].add_user();
        let sets = &self.sets;
        self.by_hash.insert_unique(hash, id, |id| hash_of(sets[*id].versions()));
        id
    }

    /// Removes a user from a set.
    pub(crate) fn leave(&mut self, id: RuleSetId) {
        let set = &mut self.sets[id];
        let Some(left) = set.users.checked_sub(1) else { return };
        set.users = left;
        if left > 0 {
            return;
        }
        set.rules.iter().for_each(|(_, rule)| rule.remove_set());
        if set.is_spare {
            return;
        }
        set.is_spare = true;
        self.spare.push_back(id);
        if self.spare.len() > SPARE
            && let Some(oldest) = self.spare.pop_front()
        {
            let set = &mut self.sets[oldest];
            set.is_spare = false;
            if set.users == 0 {
                let set = self.sets.remove(oldest);
                if let Ok(entry) = self.by_hash.find_entry(hash_of(set.versions()), |other| *other == oldest)
                {
                    entry.remove();
                }
            }
        }
    }

    /// The slots of those rules of a set that the policy still contains, or a successor of them.
    #[inline]
    pub(crate) fn live(&mut self, snapshot: &Snapshot, id: RuleSetId) -> &[RuleSlot] {
        let set = &mut self.sets[id];
        if set.generation != snapshot.generation {
            set.generation = snapshot.generation;
            set.live.clear();
            let is_there = |(slot, rule): &&(RuleSlot, Arc<StatefulRule>)| {
                snapshot.stateful(*slot).is_some_and(|now| now.line == rule.line)
            };
            set.live.extend(set.rules.iter().filter(is_there).map(|(slot, _)| *slot));
        }
        &set.live
    }

    /// Counts the connections that a change affects, by `most` sets from `first`. Returns where to continue. `snapshot` may be that before or
    /// after the change.
    pub(crate) fn affected(
        &self,
        snapshot: &Snapshot,
        change: &StatefulChange,
        first: RuleSetId,
        most: u32,
    ) -> (Option<RuleSetId>, AffectedConnections) {
        let mut affected = AffectedConnections::default();
        let last = first.number().saturating_add(most - 1).min(self.sets.highest());
        for id in (first.number()..=last).filter_map(RuleSetId::new) {
            let Some(set) = self.sets.get(id).filter(|set| set.users > 0) else { continue };
            let fates = || set.rules.iter().map(|(slot, rule)| (*slot, rule.line, change.fate(rule.line)));
            let (mut accepted, mut accepts) = (false, false);
            for (slot, line, fate) in fates() {
                let now = snapshot.stateful(slot).filter(|now| now.line == line);
                let unchanged = now.is_some_and(|now| now.accepts);
                accepted |= fate.map_or(unchanged, |fate| fate.accepts);
                accepts |=
                    fate.map_or(unchanged, |fate| fate.successor.is_some_and(|successor| successor.accepts));
            }
            let drains = |fate: RuleFate| fate.successor.map(|successor| successor.drains);
            let users = set.users as u64;
            let counted = |is_counted: bool| if is_counted { users } else { 0 };
            let any =
                |is: Option<bool>| fates().any(|(.., fate)| fate.is_some_and(|fate| drains(fate) == is));
            affected.add(AffectedConnections {
                handed_over: counted(any(Some(false))),
                kept: counted(any(Some(true))),
                lose_rules: counted(any(None)),
                lose_accept: counted(accepted && !accepts),
            });
        }
        let next = (last < self.sets.highest()).then(|| RuleSetId::new(last + 1)).flatten();
        (next, affected)
    }

    /// The versions of a set's rules, including removed ones, and without those that drain now.
    pub(crate) fn undrained_versions(
        &self,
        snapshot: &Snapshot,
        id: RuleSetId,
    ) -> impl Iterator<Item = RuleVersion> {
        let drains = |(slot, rule): &&(RuleSlot, Arc<StatefulRule>)| {
            snapshot.stateful(*slot).is_some_and(|now| now.line == rule.line && now.drains)
        };
        self.sets[id].rules.iter().filter(move |rule| !drains(rule)).map(|(_, rule)| rule.version)
    }

    /// The ids of a set's rules, including removed ones.
    pub(crate) fn ids(&self, id: RuleSetId) -> Arc<[RuleId]> {
        let set = &self.sets[id];
        Arc::clone(set.ids.get_or_init(|| set.rules.iter().map(|(_, rule)| rule.id).collect()))
    }

    /// The ids of those rules of a connection's set that the policy still contains, or a successor of them.
    pub(crate) fn ids_in_force(
        &self,
        snapshot: &Snapshot,
        id: Option<RuleSetId>,
    ) -> impl Iterator<Item = RuleId> {
        let rules = id.into_iter().flat_map(|id| &self.sets[id].rules);
        rules.filter_map(|(slot, rule)| {
            let now = snapshot.stateful(*slot)?;
            (now.line == rule.line).then_some(now.id)
        })
    }

    /// The rules of a connection's set, including removed ones.
    pub(crate) fn rules(&self, id: Option<RuleSetId>) -> impl Iterator<Item = &Arc<StatefulRule>> {
        id.into_iter().flat_map(|id| self.sets[id].rules.iter().map(|(_, rule)| rule))
    }
}

/// There is no memory for another set.
pub(crate) struct SetAllocError;

/// Versions are assigned by the engine, never by a sender, so the hash needs no key.
fn hash_of(versions: impl Iterator<Item = RuleVersion>) -> u64 {
    let mut hasher = DefaultHasher::new();
    versions.for_each(|version| hasher.write_u64(version.0));
    hasher.finish()
}
