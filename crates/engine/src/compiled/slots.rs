//! Assigns counter slots to rules, across policy updates.
//!
//! A rule that stays (equal id and content) keeps its slot, and so its counters. A stateful rule that
//! replaces another one under the same id keeps the slot, and so the connections, but counts from zero. The
//! workers' cells are not written for this: the reported counters are the difference from a baseline. The
//! baseline also serves to clear counters, and to restore those of an earlier run.
//!
//! A slot is assigned to another rule only after every snapshot that contains the old rule is freed. No
//! worker can count for the old rule then, and the cells are reset. At all other times, only their worker
//! writes the cells.
//!
//! Belongs to the control side.

use crate::cells::RuleCells;
use crate::counters::{Count, RuleCount};
use mmb_base::{Id, IdPool};
use mmb_classify::RuleSlot;
use mmb_policy::RuleId;
use std::collections::HashMap;
use std::ops::Add;

/// The capacity for retired slots that is kept, for rules that change one by one.
const RETIRED_CAPACITY: usize = 4096;

/// A slot that snapshots from `generation` on do not use.
#[derive(Clone, Copy, Debug)]
struct RetiredSlot {
    slot: RuleSlot,
    generation: u64,
}

/// The slots of all rules.
#[derive(Debug)]
pub(crate) struct RuleSlots {
    /// Each worker's cells.
    workers: Vec<RuleCells>,
    by_id: SlotPages,
    /// In the order of `generation`.
    retired: Vec<RetiredSlot>,
    slots: IdPool<RuleSlot>,
    /// By slot: the value that is subtracted from its cells, modulo 2^64. Zero for slots beyond the end.
    baselines: Vec<RuleCount>,
    /// The packets that removed rules dropped, except those of retired slots.
    dropped_before: Count,
}

impl RuleSlots {
    pub(crate) fn new(workers: usize) -> RuleSlots {
        RuleSlots {
            workers: vec![RuleCells::default(); workers],
            by_id: SlotPages::default(),
            retired: Vec::new(),
            slots: IdPool::default(),
            baselines: Vec::new(),
            dropped_before: Count::default(),
        }
    }

    /// Number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Retires the slot of a rule that snapshots from `generation` on do not contain. Returns the slot.
    pub(crate) fn retire(&mut self, id: RuleId, generation: u64) -> Option<RuleSlot> {
        let slot = self.by_id.remove(id)?;
        self.retired.push(RetiredSlot { slot, generation });
        Some(slot)
    }

    /// Frees the retired slots that no snapshot in use contains. `oldest` is the oldest snapshot in use.
    pub(crate) fn reclaim(&mut self, oldest: u64) {
        let gone = self.retired.partition_point(|retired| retired.generation <= oldest);
        for index in 0..gone {
            let slot = self.retired[index].slot;
            self.restart(slot);
            self.slots.free(slot);
        }
        self.retired.drain(..gone);
        if self.retired.is_empty() {
            self.retired.shrink_to(RETIRED_CAPACITY);
        }
    }

    /// Assigns a rule a slot whose counters are zero.
    pub(crate) fn assign(&mut self, id: RuleId) -> RuleSlot {
        let slot = self.slots.take();
        for cells in &mut self.workers {
            if slot.index() >= cells.slots() {
                cells.grow();
            }
            cells.reset(slot);
        }
        if let Some(baseline) = self.baselines.get_mut(slot.index()) {
            *baseline = RuleCount::default();
        }
        self.by_id.insert(id, slot);
        slot
    }

    /// Provides cells for the hits of a slot's rule on streams.
    pub(crate) fn allocate_hits(&mut self, slot: RuleSlot) {
        self.workers.iter().for_each(|cells| cells.allocate_hits(slot));
    }

    /// The slot of a rule of the newest policy.
    pub(crate) fn get(&self, id: RuleId) -> Option<RuleSlot> {
        self.by_id.get(id)
    }

    /// The counters of a rule.
    pub(crate) fn count(&self, id: RuleId) -> RuleCount {
        self.get(id).map(|slot| self.reported(slot)).unwrap_or_default()
    }

    /// The packets that removed rules dropped.
    pub(crate) fn dropped_before(&self) -> Count {
        let retired = self.retired.iter().map(|retired| self.reported(retired.slot).dropped);
        retired.fold(self.dropped_before, Count::add)
    }

    /// Adds packets of an earlier run that removed rules dropped.
    pub(crate) fn restore_dropped_before(&mut self, earlier: Count) {
        self.dropped_before = self.dropped_before + earlier;
    }

    /// Makes a slot count from zero, because its rule was replaced or removed.
    pub(crate) fn restart(&mut self, slot: RuleSlot) {
        let now = self.sum(slot);
        self.dropped_before = self.dropped_before + (now - self.baseline(slot)).dropped;
        self.set_baseline(slot, now);
    }

    /// Makes all slots count from zero. Returns the packets that rules dropped since the last call.
    pub(crate) fn clear(&mut self) -> u64 {
        for number in 1..=self.slots.highest() {
            RuleSlot::new(number).into_iter().for_each(|slot| self.restart(slot));
        }
        std::mem::take(&mut self.dropped_before).packets
    }

    /// Adds the counters of an earlier run to those of a rule that exists.
    pub(crate) fn restore(&mut self, slot: RuleSlot, earlier: RuleCount) {
        self.set_baseline(slot, self.baseline(slot) - earlier);
    }

    fn reported(&self, slot: RuleSlot) -> RuleCount {
        self.sum(slot) - self.baseline(slot)
    }

    fn baseline(&self, slot: RuleSlot) -> RuleCount {
        self.baselines.get(slot.index()).copied().unwrap_or_default()
    }

    fn set_baseline(&mut self, slot: RuleSlot, baseline: RuleCount) {
        if baseline == self.baseline(slot) {
            return;
        }
        if self.baselines.len() <= slot.index() {
            self.baselines.resize(slot.index() + 1, RuleCount::default());
        }
        self.baselines[slot.index()] = baseline;
    }

    fn sum(&self, slot: RuleSlot) -> RuleCount {
        self.workers.iter().map(|cells| cells.read(slot)).fold(RuleCount::default(), RuleCount::add)
    }

    /// Each worker's cells, for a snapshot.
    pub(crate) fn cells(&self) -> &[RuleCells] {
        &self.workers
    }

    /// Frees capacity after very many rules were removed.
    pub(crate) fn shrink(&mut self) {
        self.by_id.shrink();
    }
}

/// Rule ids per page.
const PAGE: u32 = 16;

/// Slots by rule id. Ids are mostly consecutive, so slots are stored in pages. That costs little more than
/// the slots themselves, except that an isolated id costs a page.
#[derive(Debug, Default)]
struct SlotPages(HashMap<u32, [Option<RuleSlot>; PAGE as usize]>);

impl SlotPages {
    fn get(&self, id: RuleId) -> Option<RuleSlot> {
        self.0.get(&(id.0 / PAGE))?[(id.0 % PAGE) as usize]
    }

    fn insert(&mut self, id: RuleId, slot: RuleSlot) {
        self.0.entry(id.0 / PAGE).or_default()[(id.0 % PAGE) as usize] = Some(slot);
    }

    fn remove(&mut self, id: RuleId) -> Option<RuleSlot> {
        let page = self.0.get_mut(&(id.0 / PAGE))?;
        let slot = page[(id.0 % PAGE) as usize].take();
        if page.iter().all(Option::is_none) {
            self.0.remove(&(id.0 / PAGE));
        }
        slot
    }

    fn shrink(&mut self) {
        if self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_and_go_by_id() {
        let mut slots = SlotPages::default();
        let expected = [1, 2, 3, 4, 5, 6, 7].map(RuleSlot::new);
        let ids = [0, 1, 15, 16, 17, 4096, u32::MAX].map(RuleId);
        ids.iter().zip(expected).for_each(|(&id, slot)| slots.insert(id, slot.expect("it is not 0")));
        assert_eq!(ids.map(|id| slots.get(id)), expected);
        assert_eq!(
            (slots.get(RuleId(2)), slots.remove(RuleId(2)), slots.remove(RuleId(99))),
            (None, None, None)
        );
        assert_eq!(ids.map(|id| slots.remove(id)), expected);
        assert!(slots.0.is_empty());
    }

    #[test]
    fn a_slot_waits_for_every_snapshot_that_knows_its_rule() {
        let mut slots = RuleSlots::new(1);
        let first = slots.assign(RuleId(1));
        // A worker uses snapshot 1 while two policies are published and replaced.
        slots.retire(RuleId(1), 2);
        slots.reclaim(1);
        let second = slots.assign(RuleId(2));
        slots.retire(RuleId(2), 3);
        slots.reclaim(1);
        let third = slots.assign(RuleId(3));
        assert!(first != second && third != first && third != second);
        // The worker picks up snapshot 2, which still contains the second rule, and then snapshot 3.
        slots.reclaim(2);
        assert_eq!(slots.assign(RuleId(4)), first);
        slots.reclaim(3);
        assert_eq!(slots.assign(RuleId(5)), second);
        assert_eq!(slots.slots.highest(), 3);
    }

    #[test]
    fn a_slot_that_is_used_again_counts_from_zero() {
        let mut slots = RuleSlots::new(2);
        let one = Count { packets: 1, bytes: 60 };
        let slot = slots.assign(RuleId(1));
        slots.cells().iter().for_each(|worker| worker.slot(slot).add(one));
        assert_eq!(slots.count(RuleId(1)).matched, one + one);
        slots.retire(RuleId(1), 2);
        slots.reclaim(2);
        assert_eq!(slots.assign(RuleId(9)), slot);
        assert_eq!([1, 9].map(|id| slots.count(RuleId(id))), [RuleCount::default(); 2]);
    }

    #[test]
    fn what_very_many_rules_took_is_given_back() {
        let mut slots = RuleSlots::new(1);
        (1..=100_000).for_each(|id| _ = slots.assign(RuleId(id)));
        (10..=100_000).for_each(|id| _ = slots.retire(RuleId(id), 2));
        slots.reclaim(2);
        slots.shrink();
        assert!(slots.retired.capacity() <= RETIRED_CAPACITY && slots.by_id.0.capacity() < 1000);
        // The remaining rule is found, and free slots are reused first.
        assert_eq!((slots.get(RuleId(9)), slots.get(RuleId(10))), (RuleSlot::new(9), None));
        assert!(slots.assign(RuleId(100_001)).number() <= 100_000);
        assert_eq!(slots.slots.highest(), 100_000);
    }

    #[test]
    fn slots_beyond_a_chunk_have_cells() {
        let mut slots = RuleSlots::new(2);
        (1..=5000).for_each(|id| _ = slots.assign(RuleId(id)));
        let last = slots.get(RuleId(5000)).expect("the rule has a slot");
        let one = Count { packets: 1, bytes: 60 };
        slots.cells().iter().for_each(|worker| worker.slot(last).add(one));
        assert_eq!(slots.count(RuleId(5000)).matched, one + one);
        assert_eq!(slots.count(RuleId(1)), RuleCount::default());
    }
}
