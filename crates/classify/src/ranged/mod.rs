//! The rules of one list that have conditions: rules of the same mask and value that differ in ranges and other checks.
//!
//! Purpose: [`Ranged::find_all`] tells which of them hold for a packet, [`Ranged::find`] the same for one key. Few rules are
//! evaluated one after the other (`rule`). More are put into blocks (`block`), where each field's number selects a row of
//! bits (`table`, `index`, `rows`), and the rows of all fields together leave the rules that hold (Lakshman and Stiliadis,
//! SIGCOMM 1998). What bits do not say (payloads, IPv6 addresses, options) is checked on the rules that are left.
//!
//! Life-cycle: the control side writes; workers read clones. A clone shares all blocks, and a change copies one: of it,
//! only the tables of the fields that the rule asks for.

mod block;
mod index;
mod options;
mod rows;
mod rule;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use options::LazyOptions;

use crate::check::{CheckedPacket, RuleCheck};
use crate::ids::RuleSlot;
use block::{BATCH, MOST, RangeBlock};
use mmb_base::prefetch;
use mmb_base::simd::SimdLevel;
use mmb_packet::columns::Column;
use rule::RangedRule;
use std::sync::Arc;

/// The most rules that are evaluated one after the other.
const FEW: usize = 12;
/// With this many rules or fewer, blocks are dissolved again.
const FEW_AGAIN: usize = 6;
/// This many keys or fewer are looked up one by one: a batch costs the same whether it is full or not.
const FEW_KEYS: usize = 8;
/// A block of fewer rules is joined with one that has room for them.
const SPARSE: usize = MOST / 8;

/// Rules with conditions.
#[derive(Clone, Debug)]
pub(crate) struct Ranged(Store);

#[derive(Clone, Debug)]
enum Store {
    Few(Arc<[RangedRule]>),
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
        Ranged(Store::Few(Arc::default()))
    }
}

impl Ranged {
    /// Adds a rule. Its checks of options are the last ones.
    pub(crate) fn insert(&mut self, slot: RuleSlot, checks: Vec<RuleCheck>) {
        let rule = RangedRule::new(slot, checks);
        match &mut self.0 {
            Store::Few(rules) if rules.len() < FEW => {
                *rules = rules.iter().cloned().chain([rule]).collect();
            }
            Store::Few(rules) => {
                let mut many = Many::default();
                rules.iter().cloned().chain([rule]).for_each(|rule| many.insert(rule));
                self.0 = Store::Many(Arc::new(many));
            }
            Store::Many(many) => Arc::make_mut(many).insert(rule),
        }
    }

    /// Removes a rule, once if it is there for several values of a set. Returns whether it was there.
    pub(crate) fn remove(&mut self, slot: RuleSlot) -> bool {
        match &mut self.0 {
            Store::Few(rules) => {
                let found = rules.iter().position(|rule| rule.slot == slot);
                if let Some(at) = found {
                    *rules = rules[..at].iter().chain(&rules[at + 1..]).cloned().collect();
                }
                found.is_some()
            }
            Store::Many(many) => {
                let found = Arc::make_mut(many).remove(slot);
                if many.len <= FEW_AGAIN {
                    let left = many.blocks.iter().flat_map(|block| block.rules()).cloned().collect();
                    self.0 = Store::Few(left);
                }
                found
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Store::Few(rules) => rules.len(),
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
            Store::Few(rules) => rules.iter().take(2).for_each(prefetch),
            Store::Many(many) => prefetch(&**many),
        }
    }

    /// Calls `hit` with each rule that holds for a key and its packet.
    #[inline]
    fn find(
        &self,
        level: SimdLevel,
        subject: &CheckedPacket<'_, '_>,
        options: &mut LazyOptions,
        mut hit: impl FnMut(RuleSlot),
    ) {
        match &self.0 {
            Store::Few(rules) => {
                for rule in rules.iter() {
                    if rule.holds(subject, options) {
                        hit(rule.slot);
                    }
                }
            }
            Store::Many(many) => {
                many.find(level, subject.lanes, &[subject.key], |_| *subject, options, |_, slot| hit(slot));
            }
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
        match (&self.0, keys.first()) {
            (Store::Many(many), Some(&first)) => {
                many.find(level, subject(first).lanes, keys, subject, options, hit);
            }
            _ => {
                for &key in keys {
                    self.find(level, &subject(key), options, |slot| hit(key, slot));
                }
            }
        }
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
