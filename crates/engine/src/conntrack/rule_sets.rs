//! The sets of stateful rules that connections have: few, whatever the number of connections.
//!
//! A set is identified by the versions of its rules. The first use of a set under a policy determines which
//! of its rules still exist or have a successor. Unused sets are kept for a while, so that the next
//! connection with the same rules can use the set.

use crate::compiled::Snapshot;
use crate::compiled::{AffectedConnections, RuleFate, StatefulChange, StatefulRule};
use crate::server_cells::ServerSlot;
use mmb_base::{Chunks, Id, ShardedIndex, Slab, prefetch};
use mmb_classify::RuleSlot;
use mmb_conn::{RuleSetId, Tuple};
use mmb_nat::{Mapping, RuleVersion};
use mmb_policy::RuleId;
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

/// The most stateful rules of a connection: the first ones, in the order of application.
pub(super) const MAX_RULES: usize = 64;
/// The most unused sets that are kept.
const SPARE: usize = 1 << 16;

/// Sets of stateful rules.
#[derive(Debug, Default)]
pub(crate) struct StatefulRuleSets {
    sets: Slab<RuleSetId, StatefulRuleSet, Chunks<StatefulRuleSet, CHUNK>>,
    /// By slot: the set whose only rule is in this slot. Most sets have one rule.
    alone: SetsBySlot,
    /// All other sets, by a hash of the versions of their rules.
    by_hash: ShardedIndex<RuleSetId>,
    /// Sets that lost their last user, the longest unused first. Some of them may have users again.
    spare: VecDeque<RuleSetId>,
    /// Reserved memory for the rules of the next set.
    room: Room,
}

/// The number of sets in a chunk. Growth adds a chunk and copies no set.
const CHUNK: usize = 1024;

/// Sets by the slot of their only rule.
#[derive(Debug, Default)]
struct SetsBySlot(Vec<Vec<Option<RuleSetId>>>);

/// The number of slots in a page. A page is allocated when the first slot in it is reserved.
const PAGE: usize = 4096;

impl SetsBySlot {
    #[inline]
    fn place(&self, slot: RuleSlot) -> Option<&Option<RuleSetId>> {
        self.0.get(slot.index() / PAGE)?.get(slot.index() % PAGE)
    }

    #[inline]
    fn get(&self, slot: RuleSlot) -> Option<RuleSetId> {
        *self.place(slot)?
    }

    /// Reserves memory for a slot.
    fn reserve(&mut self, slot: RuleSlot) -> Result<(), SetAllocError> {
        let page = slot.index() / PAGE;
        if self.0.len() <= page {
            self.0.try_reserve(page + 1 - self.0.len()).map_err(|_| SetAllocError)?;
            self.0.resize_with(page + 1, Vec::new);
        }
        let page = &mut self.0[page];
        if page.is_empty() {
            page.try_reserve_exact(PAGE).map_err(|_| SetAllocError)?;
            page.resize(PAGE, None);
        }
        Ok(())
    }

    fn set(&mut self, slot: RuleSlot, id: RuleSetId) {
        if let Some(place) =
            self.0.get_mut(slot.index() / PAGE).and_then(|page| page.get_mut(slot.index() % PAGE))
        {
            *place = Some(id);
        }
    }
}

type Room = (Vec<(RuleSlot, Arc<StatefulRule>)>, Vec<RuleSlot>);

#[derive(Debug, Default)]
struct StatefulRuleSet {
    /// In the order in which their targets are applied.
    rules: Vec<(RuleSlot, Arc<StatefulRule>)>,
    /// The version of the rule, if the set has only one. Such a set is found by the slot of the rule.
    only: Option<RuleVersion>,
    /// The number of connections that use the set.
    users: usize,
    is_spare: bool,
    /// The policy generation for which `live` was computed.
    generation: u64,
    /// Slots of the rules that still exist.
    live: Vec<RuleSlot>,
    /// The index of the rule that balances the connections of this set, if any.
    balancer: Option<usize>,
    /// The ids of the rules, shared with listings and events. Computed on first use.
    ids: OnceCell<Arc<[RuleId]>>,
}

impl StatefulRuleSet {
    /// Adds a user. A rule counts only the sets that have users.
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
    /// Reserves memory for one more set with these rules and for the list of unused sets, so that
    /// [`StatefulRuleSets::enter`] and [`StatefulRuleSets::leave`] do not fail.
    pub(crate) fn reserve(&mut self, snapshot: &Snapshot, slots: &[RuleSlot]) -> Result<(), SetAllocError> {
        let StatefulRuleSets { sets, by_hash, spare, room, alone } = self;
        room.0.try_reserve_exact(slots.len()).map_err(|_| SetAllocError)?;
        room.1.try_reserve_exact(slots.len()).map_err(|_| SetAllocError)?;
        sets.try_reserve().map_err(|_| SetAllocError)?;
        let spares = (sets.highest() as usize + 1).min(SPARE + 1);
        if spare.capacity() < spares {
            spare.try_reserve(spares - spare.len()).map_err(|_| SetAllocError)?;
        }
        if let Some((slot, _)) = only(snapshot, slots) {
            return alone.reserve(slot);
        }
        let hash = hash_of(rules(snapshot, slots).map(|(_, rule)| rule.version));
        let is_reserved = by_hash.reserve(hash, |id| hash_of(sets[*id].versions()));
        if is_reserved { Ok(()) } else { Err(SetAllocError) }
    }

    /// Returns the set of these rules, which are in the order in which their targets are applied. Adds a user
    /// to the set.
    pub(crate) fn enter(&mut self, snapshot: &Snapshot, slots: &[RuleSlot]) -> RuleSetId {
        let id = match only(snapshot, slots) {
            Some((slot, version)) => {
                let known = self.alone.get(slot).filter(|id| self.sets[*id].only == Some(version));
                known.unwrap_or_else(|| {
                    let id = self.create(snapshot, slots, Some(version));
                    self.alone.set(slot, id);
                    id
                })
            }
            None => self.find_or_create(snapshot, slots),
        };
        self.sets[id].add_user();
        id
    }

    /// Prefetches the entry by which [`StatefulRuleSets::enter`] finds the set whose only rule is in this
    /// slot.
    #[inline]
    pub(crate) fn prefetch_place(&self, slot: RuleSlot) {
        self.alone.place(slot).into_iter().for_each(prefetch);
    }

    /// Prefetches the set whose only rule is in this slot.
    #[inline]
    pub(crate) fn prefetch_set(&self, slot: RuleSlot) {
        let id = self.alone.get(slot);
        id.and_then(|id| self.sets.get(id)).into_iter().for_each(prefetch);
    }

    /// Prefetches the rules of the set whose only rule is in this slot.
    #[inline]
    pub(crate) fn prefetch_rules(&self, slot: RuleSlot) {
        let id = self.alone.get(slot);
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
            (_, Some((_, rule))) => rule.prefetch_sets(),
            (_, None) => {}
        }
    }

    /// Adds a user to a set that already has users.
    pub(crate) fn add_user(&mut self, id: RuleSetId) {
        self.sets[id].add_user();
    }

    fn find_or_create(&mut self, snapshot: &Snapshot, slots: &[RuleSlot]) -> RuleSetId {
        let versions = || rules(snapshot, slots).map(|(_, rule)| rule.version);
        let hash = hash_of(versions());
        if let Some(&id) = self.by_hash.find(hash, |id| self.sets[*id].versions().eq(versions())) {
            return id;
        }
        let id = self.create(snapshot, slots, None);
        let sets = &self.sets;
        self.by_hash.entry(hash, |_| false, |id| hash_of(sets[*id].versions()), || id);
        id
    }

    fn create(&mut self, snapshot: &Snapshot, slots: &[RuleSlot], only: Option<RuleVersion>) -> RuleSetId {
        let (mut members, mut live) = std::mem::take(&mut self.room);
        members.extend(rules(snapshot, slots).map(|(slot, rule)| (slot, Arc::clone(rule))));
        live.extend(rules(snapshot, slots).map(|(slot, _)| slot));
        self.sets.insert(StatefulRuleSet {
            balancer: balancer(members.iter().map(|(_, rule)| &rule.mapping)),
            only,
            rules: members,
            generation: snapshot.generation,
            live,
            ..StatefulRuleSet::default()
        })
    }

    /// Whether a rule of a set balances its connections.
    #[inline]
    pub(crate) fn balances(&self, id: RuleSetId) -> bool {
        self.sets[id].balancer.is_some()
    }

    /// The server of a connection with this set. `reply` is the tuple with which the replies arrive.
    pub(crate) fn server(&self, id: RuleSetId, reply: &Tuple) -> Option<ServerSlot> {
        let set = &self.sets[id];
        let (_, rule) = &set.rules[set.balancer?];
        let index = rule.mapping.server_of(&reply.hairpinned())?;
        rule.servers.as_ref()?.get(index as usize).copied()
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
                if set.only.is_none() {
                    let sets = &self.sets;
                    let rehash = |id: &RuleSetId| hash_of(sets[*id].versions());
                    self.by_hash.remove(hash_of(set.versions()), |other| *other == oldest, rehash);
                }
            }
        }
    }

    /// The slots of those rules of a set that the policy still contains, or that have a successor in it.
    #[inline]
    pub(crate) fn live(&mut self, snapshot: &Snapshot, id: RuleSetId) -> &[RuleSlot] {
        let set = &mut self.sets[id];
        if set.generation != snapshot.generation {
            set.generation = snapshot.generation;
            set.live.clear();
            let is_live = |(slot, rule): &&(RuleSlot, Arc<StatefulRule>)| {
                snapshot.stateful(*slot).is_some_and(|now| now.line == rule.line)
            };
            set.live.extend(set.rules.iter().filter(is_live).map(|(slot, _)| *slot));
        }
        &set.live
    }

    /// Counts the connections that a change affects, in `max` sets from `first`. Returns the set to continue
    /// with, and the counts. `snapshot` may be the policy before or after the change.
    pub(crate) fn affected(
        &self,
        snapshot: &Snapshot,
        change: &StatefulChange,
        first: RuleSetId,
        max: u32,
    ) -> (Option<RuleSetId>, AffectedConnections) {
        let mut affected = AffectedConnections::default();
        let last = first.number().saturating_add(max - 1).min(self.sets.highest());
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

    /// The versions of a set's rules for which `counts` returns true, including removed rules, but without
    /// rules that drain now.
    pub(crate) fn undrained_versions(
        &self,
        snapshot: &Snapshot,
        id: RuleSetId,
        counts: impl Fn(&StatefulRule) -> bool,
    ) -> impl Iterator<Item = RuleVersion> {
        let drains = |(slot, rule): &&(RuleSlot, Arc<StatefulRule>)| {
            snapshot.stateful(*slot).is_some_and(|now| now.line == rule.line && now.drains)
        };
        let rules = self.sets[id].rules.iter().filter(move |rule| !drains(rule) && counts(&rule.1));
        rules.map(|(_, rule)| rule.version)
    }

    /// The ids of a set's rules, including removed rules.
    pub(crate) fn ids(&self, id: RuleSetId) -> Arc<[RuleId]> {
        let set = &self.sets[id];
        Arc::clone(set.ids.get_or_init(|| set.rules.iter().map(|(_, rule)| rule.id).collect()))
    }

    /// The ids of those rules of a connection's set that the policy still contains, or of their successors.
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

    /// The rules of a connection's set, including removed rules.
    pub(crate) fn rules(&self, id: Option<RuleSetId>) -> impl Iterator<Item = &Arc<StatefulRule>> {
        id.into_iter().flat_map(|id| self.sets[id].rules.iter().map(|(_, rule)| rule))
    }
}

/// The index of the mapping that balances connections with all these mappings, if any: see
/// [`Mapping::merge`].
fn balancer<'m>(mappings: impl Iterator<Item = &'m Mapping>) -> Option<usize> {
    mappings
        .enumerate()
        .fold(None, |previous: Option<(usize, &Mapping)>, (index, mapping)| {
            let goes = previous
                .and_then(|(_, mapping)| mapping.balance)
                .is_some_and(|balance| mapping.maps(balance.over));
            if mapping.balance.is_some() { Some((index, mapping)) } else { previous.filter(|_| !goes) }
        })
        .map(|(index, _)| index)
}

/// There is no memory for another set.
pub(crate) struct SetAllocError;

/// The rules of these slots.
fn rules<'s>(
    snapshot: &'s Snapshot,
    slots: &'s [RuleSlot],
) -> impl Iterator<Item = (RuleSlot, &'s Arc<StatefulRule>)> {
    slots.iter().filter_map(|&slot| Some((slot, snapshot.stateful(slot)?)))
}

/// The rule of these slots and its version, if it is a single one.
#[inline]
fn only(snapshot: &Snapshot, slots: &[RuleSlot]) -> Option<(RuleSlot, RuleVersion)> {
    let &[slot] = slots else { return None };
    snapshot.stateful(slot).map(|rule| (slot, rule.version))
}

/// Versions are assigned by the engine, never by a sender, so the hash needs no key.
fn hash_of(versions: impl Iterator<Item = RuleVersion>) -> u64 {
    let mut hasher = DefaultHasher::new();
    versions.for_each(|version| hasher.write_u64(version.0));
    hasher.finish()
}
