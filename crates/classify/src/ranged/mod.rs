//! The rules of one list that have conditions: rules of the same mask and value that differ in ranges and other checks.
//!
//! Purpose: [`Ranged::find_all`] tells which of them hold for a packet. Some tens of rules lie side by side and are compared eight at a time
//! (`side_by_side`). More are put into blocks (`block`), where each field's number selects a row of bits (`table`, `index`, `rows`), and the rows of all
//! fields together leave the rules that hold (Lakshman and Stiliadis, SIGCOMM 1998). What bits do not say (payloads, IPv6 addresses, options) is
//! checked on the rules that are left. Lists of up to 24 rules about ranges only are no [`Ranged`] but [`ShortLists`] (`short`), and a key's only
//! rule is a [`RangedRule`] by itself (`rule`).
//!
//! Life-cycle: the control side writes; workers read clones. A clone shares all blocks, and a change copies one: of it,
//! only the tables of the fields that the rule asks for.

mod block;
mod index;
mod options;
mod rows;
mod rule;
mod short;
mod side_by_side;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use options::LazyOptions;
pub(crate) use rule::RangedRule;
pub(crate) use short::{ListShape, ShortLists};
pub(crate) use side_by_side::SideBySideRules;

use crate::check::CheckedPacket;
use crate::ids::RuleSlot;
use block::{BATCH, MAX_RULES, RangeBlock};
use mmb_base::prefetch;
use mmb_base::simd::SimdLevel;
use mmb_packet::columns::Column;
use std::sync::Arc;

/// With this many rules or fewer, blocks are dissolved again.
const DISSOLVE_AT: usize = 12;
/// This many keys or fewer are looked up one by one: a batch costs the same whether it is full or not.
const MAX_SINGLE_KEYS: usize = 8;
/// A block of fewer rules is joined with one that has room for them.
const SPARSE: usize = MAX_RULES / 8;

/// Rules with conditions.
#[derive(Clone, Debug)]
pub(crate) struct Ranged(Store);

#[derive(Clone, Debug)]
enum Store {
    SideBySide(SideBySideRules),
    Blocks(Arc<RangeBlocks>),
}

/// Rules in blocks.
#[derive(Clone, Debug, Default)]
struct RangeBlocks {
    blocks: Vec<Arc<RangeBlock>>,
    len: usize,
}

impl Default for Ranged {
    fn default() -> Self {
        Ranged(Store::SideBySide(SideBySideRules::default()))
    }
}

impl Ranged {
    /// These rules.
    pub(crate) fn new(rules: Vec<RangedRule>) -> Ranged {
        Ranged(Store::new(rules))
    }

    /// Adds a rule. Its checks of options are the last ones.
    pub(crate) fn insert(&mut self, rule: RangedRule) {
        match &mut self.0 {
            Store::SideBySide(side_by_side) => {
                let mut rules = side_by_side.rules();
                rules.push(rule);
                self.0 = Store::new(rules);
            }
            Store::Blocks(blocks) => Arc::make_mut(blocks).insert(rule),
        }
    }

    /// Removes a rule, once if it is there for several values of a set. Returns whether it was there.
    pub(crate) fn remove(&mut self, slot: RuleSlot) -> bool {
        match &mut self.0 {
            Store::SideBySide(side_by_side) => {
                let mut rules = side_by_side.rules();
                let found = rules.iter().position(|rule| rule.slot == slot);
                if let Some(index) = found {
                    rules.remove(index);
                    self.0 = Store::new(rules);
                }
                found.is_some()
            }
            Store::Blocks(blocks) => {
                let found = Arc::make_mut(blocks).remove(slot);
                if found && blocks.len <= DISSOLVE_AT {
                    let left: Vec<_> =
                        blocks.blocks.iter().flat_map(|block| block.rules()).cloned().collect();
                    self.0 = SideBySideRules::new(&left).map_or_else(|| self.0.clone(), Store::SideBySide);
                }
                found
            }
        }
    }

    /// The rules, if they lie side by side.
    #[inline(always)]
    pub(crate) fn side_by_side(&self) -> Option<&SideBySideRules> {
        match &self.0 {
            Store::SideBySide(side_by_side) => Some(side_by_side),
            Store::Blocks(_) => None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Store::SideBySide(side_by_side) => side_by_side.len(),
            Store::Blocks(blocks) => blocks.len,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks for the memory that finding rules begins with.
    #[inline]
    pub(crate) fn fetch(&self) {
        match &self.0 {
            Store::SideBySide(side_by_side) => side_by_side.fetch(),
            Store::Blocks(blocks) => prefetch(&**blocks),
        }
    }

    /// Calls `hit` with each of some keys and each rule that holds for it. `subject` gives the keys' subjects.
    #[inline]
    pub(crate) fn find_all<'a, 'b: 'a>(
        &self,
        level: SimdLevel,
        keys: &[u8],
        subject: impl Fn(u8) -> CheckedPacket<'a, 'b>,
        options: &mut LazyOptions,
        mut hit: impl FnMut(u8, RuleSlot),
    ) {
        let Some(&first) = keys.first() else { return };
        match &self.0 {
            Store::SideBySide(side_by_side) => {
                for &key in keys {
                    let subject = subject(key);
                    side_by_side.find(subject.lanes, key, |hits| {
                        let mut bits = if hits.open == 0 {
                            hits.bits
                        } else {
                            side_by_side.checked(hits, &subject, options)
                        };
                        while bits != 0 {
                            let slot = hits.slots[bits.trailing_zeros() as usize % hits.slots.len()];
                            if let Some(slot) = RuleSlot::from_word(slot) {
                                hit(key, slot);
                            }
                            bits &= bits - 1;
                        }
                    });
                }
            }
            Store::Blocks(blocks) => blocks.find(level, subject(first).lanes, keys, subject, options, hit),
        }
    }
}

impl Store {
    fn new(rules: Vec<RangedRule>) -> Store {
        SideBySideRules::new(&rules).map_or_else(
            || {
                let mut blocks = RangeBlocks::default();
                rules.into_iter().for_each(|rule| blocks.insert(rule));
                Store::Blocks(Arc::new(blocks))
            },
            Store::SideBySide,
        )
    }
}

impl RangeBlocks {
    fn insert(&mut self, rule: RangedRule) {
        self.len += 1;
        match self.blocks.iter_mut().rev().find(|block| !block.is_full()) {
            Some(block) => Arc::make_mut(block).insert(rule),
            None => {
                let mut block = RangeBlock::new();
                block.insert(rule);
                self.blocks.push(Arc::new(block));
            }
        }
    }

    #[inline]
    fn find<'a, 'b: 'a>(
        &self,
        level: SimdLevel,
        lanes: &[Column],
        keys: &[u8],
        subject: impl Fn(u8) -> CheckedPacket<'a, 'b>,
        options: &mut LazyOptions,
        mut hit: impl FnMut(u8, RuleSlot),
    ) {
        for block in &self.blocks {
            for keys in keys.chunks(BATCH) {
                if keys.len() > MAX_SINGLE_KEYS {
                    block.find::<BATCH>(level, lanes, keys, &subject, options, &mut hit);
                } else {
                    let mut find = |key| block.find::<1>(level, lanes, key, &subject, options, &mut hit);
                    keys.chunks(1).for_each(&mut find);
                }
            }
        }
    }

    fn remove(&mut self, slot: RuleSlot) -> bool {
        let places = self.blocks.iter().enumerate();
        let found = places.filter_map(|(index, block)| Some((index, block.position(slot)?))).next();
        let Some((index, place)) = found else { return false };
        Arc::make_mut(&mut self.blocks[index]).remove(place);
        self.len -= 1;
        let len = self.blocks[index].len();
        let other = |other: &usize| *other != index && self.blocks[*other].len() + len <= MAX_RULES;
        if len == 0 {
            self.blocks.swap_remove(index);
        } else if len < SPARSE
            && let Some(other) = (0..self.blocks.len()).find(other)
        {
            let (from, into) = (Arc::clone(&self.blocks[index]), Arc::make_mut(&mut self.blocks[other]));
            from.rules().cloned().for_each(|rule| into.insert(rule));
            self.blocks.swap_remove(index);
        }
        true
    }
}
