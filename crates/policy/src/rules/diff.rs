//! The differences between two stores, found without a look at the chunks that they share.

use super::chunk::{ChunkEntry, RuleChunk};
use super::store::RuleStore;
use crate::rule::Rule;
use std::sync::Arc;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleChange {
    /// A rule of the old store is not in the new one.
    Removed(Rule),
    /// A rule of the new store is not in the old one.
    Added(Rule),
}

/// [`RuleChange`], not yet read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EntryChange<'a> {
    Removed(ChunkEntry<'a>),
    Added(ChunkEntry<'a>),
}

/// The differences between two stores in the order of rules' numbers; see [`RuleStore::diff`].
#[derive(Clone, Debug)]
pub struct RuleDiff<'a> {
    old: StoreCursor<'a>,
    new: StoreCursor<'a>,
}

impl RuleStore {
    /// The changes from `old` to `new`, in the order of numbers; where a rule was replaced by another under its number, the
    /// old one is removed before the new one is added. Costs as much as the chunks are long that the two do not share.
    pub fn diff<'a>(old: &'a RuleStore, new: &'a RuleStore) -> RuleDiff<'a> {
        RuleDiff { old: StoreCursor::new(old), new: StoreCursor::new(new) }
    }
}

impl PartialEq for RuleStore {
    /// Compares rules by number. The origin of the numbers does not count.
    fn eq(&self, other: &RuleStore) -> bool {
        self.len() == other.len() && RuleStore::diff(self, other).next_entry().is_none()
    }
}

impl Eq for RuleStore {}

impl<'a> RuleDiff<'a> {
    /// The fewest and the most differences that may be to come, found without looking at a rule: by the lengths of
    /// the chunks that are not shared.
    pub fn bounds(&self) -> (usize, usize) {
        let (mut old, mut new) = (self.old.clone(), self.new.clone());
        let (mut removed, mut added) = (0usize, 0usize);
        loop {
            skip_shared(&mut old, &mut new);
            let first = |cursor: &StoreCursor<'_>| cursor.entry().map(|entry| entry.id);
            match (first(&old), first(&new)) {
                (None, None) => return (removed.abs_diff(added), removed + added),
                (Some(a), Some(b)) if a == b => {
                    removed += old.skip_chunk();
                    added += new.skip_chunk();
                }
                (Some(a), Some(b)) if a > b => added += new.skip_chunk(),
                (None, Some(_)) => added += new.skip_chunk(),
                (Some(_), _) => removed += old.skip_chunk(),
            }
        }
    }

    /// The next difference, not yet read.
    pub(crate) fn next_entry(&mut self) -> Option<EntryChange<'a>> {
        loop {
            skip_shared(&mut self.old, &mut self.new);
            match (self.old.entry(), self.new.entry()) {
                (None, None) => return None,
                (Some(old), Some(new)) if old.is(&new) => {
                    self.old.advance();
                    self.new.advance();
                }
                (Some(old), Some(new)) if old.id > new.id => {
                    self.new.advance();
                    return Some(EntryChange::Added(new));
                }
                (None, Some(new)) => {
                    self.new.advance();
                    return Some(EntryChange::Added(new));
                }
                (Some(old), _) => {
                    self.old.advance();
                    return Some(EntryChange::Removed(old));
                }
            }
        }
    }
}

impl Iterator for RuleDiff<'_> {
    type Item = RuleChange;

    fn next(&mut self) -> Option<RuleChange> {
        Some(match self.next_entry()? {
            EntryChange::Removed(entry) => RuleChange::Removed(entry.rule()),
            EntryChange::Added(entry) => RuleChange::Added(entry.rule()),
        })
    }
}

/// A place in a store.
#[derive(Clone, Debug)]
struct StoreCursor<'a> {
    /// The chunk that it is in, and those behind.
    chunks: &'a [Arc<RuleChunk>],
    at: usize,
}

impl<'a> StoreCursor<'a> {
    fn new(rules: &'a RuleStore) -> StoreCursor<'a> {
        StoreCursor { chunks: rules.chunks(), at: 0 }
    }

    fn entry(&self) -> Option<ChunkEntry<'a>> {
        Some(self.chunks.first()?.entry(self.at))
    }

    fn advance(&mut self) {
        self.at += 1;
        if self.chunks.first().is_some_and(|chunk| self.at == chunk.len()) {
            self.skip_chunk();
        }
    }

    /// Goes to the next chunk; returns how many rules that leaves out.
    fn skip_chunk(&mut self) -> usize {
        let left = rules_in(&self.chunks[..1]) - self.at;
        (self.chunks, self.at) = (&self.chunks[1..], 0);
        left
    }
}

/// Passes over chunks that both share. No shared chunk is missed, wherever chunks around it were split or merged: a
/// cursor stays at a chunk's first rule until the other one has passed all smaller numbers, and so is at its start too.
fn skip_shared(old: &mut StoreCursor<'_>, new: &mut StoreCursor<'_>) {
    while old.at == 0
        && new.at == 0
        && let ([a, olds @ ..], [b, news @ ..]) = (old.chunks, new.chunks)
        && Arc::ptr_eq(a, b)
    {
        (old.chunks, new.chunks) = (olds, news);
    }
}

/// The number of rules in chunks.
fn rules_in(chunks: &[Arc<RuleChunk>]) -> usize {
    chunks.iter().map(|chunk| chunk.len()).sum()
}
