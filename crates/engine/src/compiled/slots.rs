//! Assigns counter slots to rules, across policy updates.
//!
//! A rule that stays (id and content equal) keeps its slot and so its counters. A slot is assigned to another rule only when no worker can
//! still count for the old one: when every snapshot that contains the old rule is gone. Then its cells are reset; otherwise only their
//! worker writes them.
//!
//! Belongs to the control side.

use crate::cells::RuleCells;
use crate::counters::Count;
use mmb_policy::RuleId;
use std::collections::HashMap;
use std::ops::Add;

/// Capacity for retired slots that is kept while rules change one by one.
const USUALLY_RETIRED: usize = 4096;

/// A slot that snapshots from `until` on do not use.
#[derive(Clone, Copy, Debug)]
struct RetiredSlot {
    number: u32,
    until: u64,
}

/// The slots of all rules.
#[derive(Debug)]
pub(crate) struct RuleSlots {
    /// Each worker's cells.
    workers: Vec<RuleCells>,
    numbers: SlotPages,
    /// In the order of `until`.
    retired: Vec<RetiredSlot>,
    free: Vec<u32>,
    /// Number of slots that were ever used.
    used: u32,
}

impl RuleSlots {
    pub(crate) fn new(workers: usize) -> RuleSlots {
        RuleSlots {
            workers: vec![RuleCells::default(); workers],
            numbers: SlotPages::default(),
            retired: Vec::new(),
            free: Vec::new(),
            used: 0,
        }
    }

    /// Retires the slot of a rule that snapshot `until` no longer contains; returns its number.
    pub(crate) fn retire(&mut self, id: RuleId, until: u64) -> Option<u32> {
        let number = self.numbers.remove(id)?;
        self.retired.push(RetiredSlot { number, until });
        Some(number)
    }

    /// Frees the retired slots that no snapshot in use contains; `oldest` is the oldest snapshot in use.
    pub(crate) fn reclaim(&mut self, oldest: u64) {
        let gone = self.retired.partition_point(|retired| retired.until <= oldest);
        self.free.extend(self.retired.drain(..gone).map(|retired| retired.number));
        if self.retired.is_empty() {
            self.retired.shrink_to(USUALLY_RETIRED);
        }
    }

    /// Assigns a rule a slot whose counters are zero.
    pub(crate) fn assign(&mut self, id: RuleId) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        });
        for cells in &mut self.workers {
            if number as usize >= cells.slots() {
                cells.grow();
            }
            cells.slot(number).reset();
        }
        self.numbers.insert(id, number);
        number
    }

    /// The slot of a rule of the newest policy.
    pub(crate) fn number(&self, id: RuleId) -> Option<u32> {
        self.numbers.get(id)
    }

    /// The packets and bytes that a rule has matched.
    pub(crate) fn count(&self, id: RuleId) -> Count {
        let Some(number) = self.number(id) else { return Count::default() };
        self.workers.iter().map(|cells| cells.slot(number).read()).fold(Count::default(), Count::add)
    }

    /// Each worker's cells, for a snapshot.
    pub(crate) fn cells(&self) -> &[RuleCells] {
        &self.workers
    }

    /// Frees capacity after very many rules were removed.
    pub(crate) fn shrink(&mut self) {
        self.numbers.shrink();
    }
}

/// Rule ids per page.
const PAGE: u32 = 16;
/// No slot.
const NONE: u32 = u32::MAX;

/// Slot numbers by rule id. Ids are mostly consecutive, so they are stored in pages: that costs little more than the numbers themselves,
/// except that an isolated id costs a page.
#[derive(Debug, Default)]
struct SlotPages(HashMap<u32, [u32; PAGE as usize]>);

impl SlotPages {
    fn get(&self, id: RuleId) -> Option<u32> {
        let page = self.0.get(&(id.0 / PAGE))?;
        Some(page[(id.0 % PAGE) as usize]).filter(|&number| number != NONE)
    }

    fn insert(&mut self, id: RuleId, number: u32) {
        self.0.entry(id.0 / PAGE).or_insert([NONE; PAGE as usize])[(id.0 % PAGE) as usize] = number;
    }

    fn remove(&mut self, id: RuleId) -> Option<u32> {
        let page = self.0.get_mut(&(id.0 / PAGE))?;
        let number = std::mem::replace(&mut page[(id.0 % PAGE) as usize], NONE);
        if page.iter().all(|&number| number == NONE) {
            self.0.remove(&(id.0 / PAGE));
        }
        Some(number).filter(|&number| number != NONE)
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
    fn numbers_come_and_go_by_id() {
        let mut numbers = SlotPages::default();
        let ids = [0, 1, 15, 16, 17, 4096, u32::MAX].map(RuleId);
        ids.iter().zip(0..).for_each(|(&id, number)| numbers.insert(id, number));
        assert_eq!(ids.map(|id| numbers.get(id)), [0, 1, 2, 3, 4, 5, 6].map(Some));
        assert_eq!(
            (numbers.get(RuleId(2)), numbers.remove(RuleId(2)), numbers.remove(RuleId(99))),
            (None, None, None)
        );
        assert_eq!(ids.map(|id| numbers.remove(id)), [0, 1, 2, 3, 4, 5, 6].map(Some));
        assert!(numbers.0.is_empty());
    }

    #[test]
    fn a_slot_waits_for_every_snapshot_that_knows_its_rule() {
        let mut slots = RuleSlots::new(1);
        let first = slots.assign(RuleId(1));
        // A worker uses snapshot 1 while two policies come and go.
        slots.retire(RuleId(1), 2);
        slots.reclaim(1);
        let second = slots.assign(RuleId(2));
        slots.retire(RuleId(2), 3);
        slots.reclaim(1);
        let third = slots.assign(RuleId(3));
        assert!(first != second && third != first && third != second);
        // It has moved on to 2, which still knows the second, and then to 3.
        slots.reclaim(2);
        assert_eq!(slots.assign(RuleId(4)), first);
        slots.reclaim(3);
        assert_eq!(slots.assign(RuleId(5)), second);
        assert_eq!(slots.used, 3);
    }

    #[test]
    fn a_slot_that_is_used_again_counts_from_zero() {
        let mut slots = RuleSlots::new(2);
        let one = Count { packets: 1, bytes: 60 };
        let slot = slots.assign(RuleId(1));
        slots.cells().iter().for_each(|worker| worker.slot(slot).add(one));
        assert_eq!(slots.count(RuleId(1)), one + one);
        slots.retire(RuleId(1), 2);
        slots.reclaim(2);
        assert_eq!(slots.assign(RuleId(9)), slot);
        assert_eq!((slots.count(RuleId(1)), slots.count(RuleId(9))), (Count::default(), Count::default()));
    }

    #[test]
    fn what_very_many_rules_took_is_given_back() {
        let mut slots = RuleSlots::new(1);
        (1..=100_000).for_each(|id| _ = slots.assign(RuleId(id)));
        (10..=100_000).for_each(|id| _ = slots.retire(RuleId(id), 2));
        slots.reclaim(2);
        slots.shrink();
        assert!(slots.retired.capacity() <= USUALLY_RETIRED && slots.numbers.0.capacity() < 1000);
        // The remaining rule is found, and free slots are reused first.
        assert_eq!((slots.number(RuleId(9)), slots.number(RuleId(10))), (Some(8), None));
        assert!(slots.assign(RuleId(100_001)) < 100_000);
        assert_eq!(slots.used, 100_000);
    }

    #[test]
    fn slots_beyond_a_chunk_have_cells() {
        let mut slots = RuleSlots::new(2);
        (1..=5000).for_each(|id| _ = slots.assign(RuleId(id)));
        let last = slots.number(RuleId(5000)).expect("the rule has a slot");
        let one = Count { packets: 1, bytes: 60 };
        slots.cells().iter().for_each(|worker| worker.slot(last).add(one));
        assert_eq!(slots.count(RuleId(5000)), one + one);
        assert_eq!(slots.count(RuleId(1)), Count::default());
    }
}
