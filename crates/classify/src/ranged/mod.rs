//! The rules of one list that have conditions: rules of the same mask and value that differ in ranges and other checks.
//!
//! Purpose: [`Ranged::find_all`] tells which of them hold for a packet. Some tens of rules lie side by side and are compared eight at a time
//! (`few`). More are put into blocks (`block`), where each field's number selects a row of bits (`table`, `index`, `rows`), and the rows of all
//! fields together leave the rules that hold (Lakshman and Stiliadis, SIGCOMM 1998). What bits do not say (payloads, IPv6 addresses, options) is
//! checked on the rules that are left. Lists of up to 24 rules about ranges only are no [`Ranged`] but [`ShortLists`] (`short`), and a key's only
//! rule is a [`RangedRule`] by itself (`rule`).
//!
//! Life-cycle: the control side writes; workers read clones. A clone shares all blocks, and a change copies one: of it,
//! only the tables of the fields that the rule asks for.

mod block;
mod few;
mod index;
mod options;
mod rows;
mod rule;
mod short;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use few::FewRules;
pub(crate) use options::LazyOptions;
pub(crate) use rule::RangedRule;
pub(crate) use short::{ListShape, ShortLists};

use crate::check::CheckedPacket;
use crate::ids::RuleSlot;
use block::{BATCH, MOST, RangeBlock};
use mmb_base::prefetch;
use mmb_base::simd::SimdLevel;
use mmb_packet::columns::Column;
use std::sync::Arc;

/// With this many rules or fewer, blocks are dissolved again.
const FEW_AGAIN: usize = 12;
/// This many keys or fewer are looked up one by one: a batch costs the same whether it is full or not.
const FEW_KEYS: usize = 8;
/// A block of fewer rules is joined with one that has room for them.
const SPARSE: usize = MOST / 8;

/// Rules with conditions.
#[derive(Clone, Debug)]
pub(crate) struct Ranged(Store);

#[derive(Clone, Debug)]
enum Store {
    Few(FewRules),
    Many(Arc<Many>),
}

/// Rules in blocks.
#[derive(Clone, Debug, Default)]
struct Many {
    blocks: Vec<Arc<RangeBlock>>,
    len: usize,
}

impl Default for Ranged {
    fn default() -> Self {
        Ranged(Store::Few(FewRules::default()))
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
            Store::Few(few) => {
                let mut rules = few.rules();
                rules.push(rule);
                self.0 = Store::new(rules);
            }
            Store::Many(many) => Arc::make_mut(many).insert(rule),
        }
    }

    /// Removes a rule, once if it is there for several values of a set. Returns whether it was there.
    pub(crate) fn remove(&mut self, slot: RuleSlot) -> bool {
        match &mut self.0 {
            Store::Few(few) => {
                let mut rules = few.rules();
                let found = rules.iter().position(|rule| rule.slot == slot);
                if let Some(at) = found {
                    rules.remove(at);
                    self.0 = Store::new(rules);
                }
                found.is_some()
            }
            Store::Many(many) => {
                let found = Arc::make_mut(many).remove(slot);
                if found && many.len <= FEW_AGAIN {
                    let left: Vec<_> = many.blocks.iter().flat_map(|block| block.rules()).cloned().collect();
                    self.0 = FewRules::new(&left).map_or_else(|| self.0.clone(), Store::Few);
                }
                found
            }
        }
    }

    /// The rules, if they lie side by side.
    #[inline(always)]
    pub(crate) fn few(&self) -> Option<&FewRules> {
        match &self.0 {
            Store::Few(few) => Some(few),
            Store::Many(_) => None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Store::Few(few) => few.len(),
            Store::Many(many) => many.len,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks for the memory that finding rules begins with.
    #[inline]
    pub(crate) fn fetch(&self) {
        match &self.0 {
            Store::Few(few) => few.fetch(),
            Store::Many(many) => prefetch(&**many),
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
            Store::Few(few) => {
                for &key in keys {
                    let subject = subject(key);
                    few.find(subject.lanes, key, |hits| {
                        let mut bits =
                            if hits.open == 0 { hits.bits } else { few.checked(hits, &subject, options) };
                        while bits != 0 {
                            let slot = hits.slots[bits.trailing_zeros() as usize % hits.slots.len()];
                            if let Some(slot) = RuleSlot::of_word(slot) {
                                hit(key, slot);
                            }
                            bits &= bits - 1;
                        }
                    });
                }
            }
            Store::Many(many) => many.find(level, subject(first).lanes, keys, subject, options, hit),
        }
    }
}

impl Store {
    fn new(rules: Vec<RangedRule>) -> Store {
        FewRules::new(&rules).map_or_else(
            || {
                let mut many = Many::default();
                rules.into_iter().for_each(|rule| many.insert(rule));
                Store::Many(Arc::new(many))
            },
            Store::Few,
        )
    }
}

impl Many {
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
                if keys.len() > FEW_KEYS {
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
        let found = places.filter_map(|(at, block)| Some((at, block.position(slot)?))).next();
        let Some((at, place)) = found else { return false };
        Arc::make_mut(&mut self.blocks[at]).remove(place);
        self.len -= 1;
        let len = self.blocks[at].len();
        let other = |other: &usize| *other != at && self.blocks[*other].len() + len <= MOST;
        if len == 0 {
            self.blocks.swap_remove(at);
        } else if len < SPARSE
            && let Some(other) = (0..self.blocks.len()).find(other)
        {
            let (from, into) = (Arc::clone(&self.blocks[at]), Arc::make_mut(&mut self.blocks[other]));
            from.rules().cloned().for_each(|rule| into.insert(rule));
            self.blocks.swap_remove(at);
        }
        true
    }
}
