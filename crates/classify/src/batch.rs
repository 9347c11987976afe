//! Rules of a class that come all at once: packed, since there may be millions, until their tables are there.

use crate::ids::RuleSlot;
use crate::lane_mask::{LaneMask, lane_set};
use crate::list::ListEntry;
use crate::merge::MergedTuple;
use mmb_packet::key::Lanes;
use std::collections::HashMap;

/// Keys of a class that the merger sees, about.
pub(crate) const SAMPLE: usize = 32_768;

/// A rule under one of its keys.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) mask: LaneMask,
    pub(crate) key: LaneMask,
    pub(crate) rule: ListEntry,
}

/// The rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    tuples: Vec<(LaneMask, Lanes)>,
    numbers: HashMap<LaneMask, u32>,
    keys: Vec<u32>,
    rules: Vec<Packed>,
    /// The rules with conditions.
    conditional: Vec<ListEntry>,
}

/// A rule under one of its keys, packed.
#[derive(Clone, Copy, Debug)]
struct Packed {
    tuple: u32,
    /// The index of the first lane of its key; a key has the lanes of the tuple's mask.
    key: u32,
    rule: PackedRule,
}

#[derive(Clone, Copy, Debug)]
enum PackedRule {
    Plain(RuleSlot),
    /// An index among the rules with conditions.
    Conditional(u32),
}

impl Batch {
    /// Adds a rule under a key.
    pub(crate) fn push(&mut self, placed: Placed) {
        // Rules of one tuple often stand together.
        let tuple = match self.rules.last() {
            Some(last) if self.tuples[last.tuple as usize].0 == placed.mask => last.tuple,
            _ => *self.numbers.entry(placed.mask).or_insert_with(|| {
                self.tuples.push((placed.mask, lane_set(&placed.mask)));
                self.tuples.len() as u32 - 1
            }),
        };
        let key = self.keys.len() as u32;
        self.keys.extend(self.tuples[tuple as usize].1.iter().map(|lane| placed.key[lane]));
        let rule = if placed.rule.is_plain() {
            PackedRule::Plain(placed.rule.slot)
        } else {
            self.conditional.push(placed.rule);
            PackedRule::Conditional(self.conditional.len() as u32 - 1)
        };
        self.rules.push(Packed { tuple, key, rule });
    }

    /// Number of rules; a rule that lists values counts once for each value.
    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Number of rules that have a key in the option table.
    pub(crate) fn optional(&self) -> usize {
        self.conditional.iter().filter(|rule| rule.option.is_some()).count()
    }

    fn key(&self, packed: Packed) -> LaneMask {
        let mut key = LaneMask::default();
        let lanes = self.tuples[packed.tuple as usize].1.iter();
        lanes.zip(&self.keys[packed.key as usize..]).for_each(|(lane, part)| key[lane] = *part);
        key
    }

    /// Every tuple with a sample of its keys, and the share of keys that is in the samples: the merger's input.
    pub(crate) fn sample(&self) -> (Vec<MergedTuple>, f64) {
        let stride = self.rules.len().div_ceil(SAMPLE).max(1);
        let tuple =
            |(mask, _): &(LaneMask, Lanes)| MergedTuple { mask: *mask, entries: 0, sample: Vec::new() };
        let mut tuples: Vec<MergedTuple> = self.tuples.iter().map(tuple).collect();
        for (index, packed) in self.rules.iter().enumerate() {
            let tuple = &mut tuples[packed.tuple as usize];
            tuple.entries += 1;
            if index % stride == 0 || tuple.sample.is_empty() {
                tuple.sample.push(self.key(*packed));
            }
        }
        for tuple in &mut tuples {
            tuple.sample.sort_unstable();
            tuple.sample.dedup();
            if stride == 1 {
                tuple.entries = tuple.sample.len();
            }
        }
        (tuples, 1.0 / stride as f64)
    }

    /// Every so many-th rule: the number of its tuple in the [`Batch::sample`], and its key.
    pub(crate) fn keys(&self, stride: usize) -> impl Iterator<Item = (usize, LaneMask)> + '_ {
        self.rules.iter().step_by(stride).map(|packed| (packed.tuple as usize, self.key(*packed)))
    }

    /// The rules, one after the other.
    pub(crate) fn rules(&self) -> impl Iterator<Item = Placed> + '_ {
        self.rules.iter().map(|packed| Placed {
            mask: self.tuples[packed.tuple as usize].0,
            key: self.key(*packed),
            rule: match packed.rule {
                PackedRule::Plain(slot) => ListEntry { slot, option: None, checks: Vec::new() },
                PackedRule::Conditional(index) => self.conditional[index as usize].clone(),
            },
        })
    }
}
