//! A piece of the store: the records of neighbouring rules in one buffer.

use super::record;
use crate::rule::{Prio, Rule, RuleId, Target};

/// The most rules of a chunk.
pub(super) const MAX_RULES: usize = 1024;
/// Chunks of several rules have no more bytes of records than this.
pub(super) const MAX_BYTES: usize = 64 << 10;

/// Rules in the order of their numbers. Never empty within a store.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleChunk {
    ids: Vec<RuleId>,
    /// For each rule twice the end of its record, plus one if the policy gave the rule its number.
    ends: Vec<u32>,
    records: Vec<u8>,
}

/// One rule of a chunk, not yet read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkEntry<'a> {
    /// The rule's number.
    pub(crate) id: RuleId,
    /// The policy gave it, not the command that added the rule.
    pub(crate) numbered: bool,
    /// The rest of the rule; equal where rules are equal but for their number.
    pub(crate) record: &'a [u8],
}

impl<'a> ChunkEntry<'a> {
    /// The rule's name.
    pub(crate) fn name(&self) -> Option<&'a [u8]> {
        record::read_name(self.record)
    }

    /// Whether the rule drains.
    pub(crate) fn is_draining(&self) -> bool {
        record::read_stateful(self.record).1
    }

    /// Whether the rule is stateful.
    pub(crate) fn is_stateful(&self) -> bool {
        record::read_stateful(self.record).0
    }

    /// Whether the rule names sets.
    pub(crate) fn names_sets(&self) -> bool {
        record::names_sets(self.record)
    }

    /// The rule.
    pub(crate) fn rule(&self) -> Rule {
        record::read(self.record, self.id)
    }

    /// What the rule has in common with those that differ from it only in their names and in the values of their targets.
    pub(crate) fn outline(&self) -> Vec<u8> {
        record::outline(self.record)
    }

    /// The rule's priority and targets.
    pub(crate) fn targets(&self) -> (Prio, Vec<Target>) {
        record::read_targets(self.record)
    }

    /// Returns whether both are the same rule under the same number.
    pub(crate) fn is(&self, other: &ChunkEntry<'_>) -> bool {
        self.id == other.id && self.record == other.record
    }
}

impl RuleChunk {
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn ids(&self) -> &[RuleId] {
        &self.ids
    }

    /// The index of the rule of that number, or where to insert it.
    pub(super) fn find(&self, id: RuleId) -> Result<usize, usize> {
        if self.ids.last().is_some_and(|last| *last < id) {
            return Err(self.len());
        }
        self.ids.binary_search(&id)
    }

    pub(super) fn entry(&self, at: usize) -> ChunkEntry<'_> {
        ChunkEntry {
            id: self.ids[at],
            numbered: self.ends[at] & 1 != 0,
            record: &self.records[self.start(at)..self.end(at)],
        }
    }

    /// Returns whether one more rule fits.
    pub(super) fn has_room(&self, record: &[u8]) -> bool {
        self.ids.len() < MAX_RULES && (self.ids.is_empty() || self.records.len() + record.len() <= MAX_BYTES)
    }

    /// Returns whether two chunks are so small that they are to be merged.
    pub(super) fn belongs_with(&self, other: &RuleChunk) -> bool {
        self.len() + other.len() <= MAX_RULES / 2 && self.records.len() + other.records.len() <= MAX_BYTES / 2
    }

    pub(super) fn insert(&mut self, at: usize, entry: ChunkEntry<'_>) {
        let start = self.start(at);
        if at == self.len() {
            self.ids.push(entry.id);
            self.records.extend_from_slice(entry.record);
            self.ends.push(self.records.len() as u32 * 2 + u32::from(entry.numbered));
            return;
        }
        self.make_room(entry.record.len());
        self.ids.insert(at, entry.id);
        self.ends.insert(at, start as u32 * 2 + u32::from(entry.numbered));
        self.splice(at, 0, entry.record);
    }

    pub(super) fn remove(&mut self, at: usize) {
        let len = self.end(at) - self.start(at);
        self.splice(at, len, &[]);
        self.ids.remove(at);
        self.ends.remove(at);
    }

    /// Splits off the upper rules, about half of the bytes. There must be two rules at least.
    pub(super) fn split(&mut self) -> RuleChunk {
        let half = self.records.len() as u32;
        let at = self.ends.partition_point(|end| *end < half).clamp(1, self.len() - 1);
        let start = self.start(at);
        let upper = RuleChunk {
            ids: self.ids.split_off(at),
            ends: self.ends.split_off(at).into_iter().map(|end| end - start as u32 * 2).collect(),
            records: self.records.split_off(start),
        };
        self.shrink();
        upper
    }

    /// Appends the rules of the next chunk.
    pub(super) fn append(&mut self, next: &RuleChunk) {
        let start = self.records.len() as u32 * 2;
        self.ids.extend_from_slice(&next.ids);
        self.ends.extend(next.ends.iter().map(|end| start + end));
        self.records.extend_from_slice(&next.records);
    }

    /// Gives back room that is not used.
    pub(super) fn shrink(&mut self) {
        self.ids.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.records.shrink_to_fit();
    }

    fn start(&self, at: usize) -> usize {
        if at == 0 { 0 } else { self.end(at - 1) }
    }

    fn end(&self, at: usize) -> usize {
        (self.ends[at] >> 1) as usize
    }

    /// Puts other bytes in the place of the first `len` of rule `at`, and moves the ends from there on.
    fn splice(&mut self, at: usize, len: usize, record: &[u8]) {
        let start = self.start(at);
        // A record is at most some five times as long as the text of its command, which the lexer bounds: the records
        // of a chunk do not come near 2 GiB.
        let moved = (record.len() as u32).wrapping_sub(len as u32).wrapping_mul(2);
        self.records.splice(start..start + len, record.iter().copied());
        self.ends[at..].iter_mut().for_each(|end| *end = end.wrapping_add(moved));
    }

    /// Room for one more rule, and little more than that: most chunks change seldom.
    fn make_room(&mut self, bytes: usize) {
        fn reserve<T>(of: &mut Vec<T>, more: usize) {
            if of.capacity() - of.len() < more {
                of.reserve_exact(more.max(of.len() / 8));
            }
        }
        reserve(&mut self.ids, 1);
        reserve(&mut self.ends, 1);
        reserve(&mut self.records, bytes);
    }
}
