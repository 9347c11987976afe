//! The store: chunks of rules in the order of their numbers.

use super::chunk::{ChunkEntry, RuleChunk};
use super::record;
use crate::rule::{Rule, RuleId};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// Rules by number.
#[derive(Clone, Default)]
pub struct RuleStore {
    /// Not empty, in the order of numbers.
    chunks: Vec<Arc<RuleChunk>>,
    len: usize,
}

impl RuleStore {
    /// The number of rules.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether there is a rule of that number.
    pub fn contains(&self, id: RuleId) -> bool {
        self.entry(id).is_some()
    }

    /// The rule of that number.
    pub fn get(&self, id: RuleId) -> Option<Rule> {
        self.entry(id).map(|entry| entry.rule())
    }

    /// Returns whether both stores have the same rule under that number, or both none.
    pub fn agree(&self, other: &RuleStore, id: RuleId) -> bool {
        match (self.entry(id), other.entry(id)) {
            (Some(ours), Some(theirs)) => ours.record == theirs.record,
            (ours, theirs) => ours.is_none() && theirs.is_none(),
        }
    }

    /// The greatest number.
    pub fn last(&self) -> Option<RuleId> {
        self.chunks.last()?.ids().last().copied()
    }

    /// The rules in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = Rule> + '_ {
        self.entries().map(|entry| entry.rule())
    }

    /// The rules whose numbers are in the range, in order.
    pub fn range(&self, range: impl RangeBounds<RuleId>) -> impl Iterator<Item = Rule> + '_ {
        let last = range.end_bound().cloned();
        let within = move |id: RuleId| match last {
            Bound::Included(last) => id <= last,
            Bound::Excluded(last) => id < last,
            Bound::Unbounded => true,
        };
        let (chunk, at) = match range.start_bound() {
            Bound::Included(first) => self.place(*first).unwrap_or_else(|place| place),
            Bound::Excluded(first) => {
                self.place(*first).map_or_else(|place| place, |(chunk, at)| (chunk, at + 1))
            }
            Bound::Unbounded => (0, 0),
        };
        let entries = self.chunks[chunk.min(self.chunks.len())..].iter().flat_map(entries_of).skip(at);
        entries.take_while(move |entry| within(entry.id)).map(|entry| entry.rule())
    }

    /// The numbers in order.
    pub fn keys(&self) -> impl Iterator<Item = RuleId> + '_ {
        self.chunks.iter().flat_map(|chunk| chunk.ids().iter().copied())
    }

    /// The store of rules in the order of their numbers.
    pub(crate) fn of_entries<'e>(entries: impl IntoIterator<Item = ChunkEntry<'e>>) -> RuleStore {
        let mut rules = RuleStore::default();
        entries.into_iter().for_each(|entry| rules.insert_entry(entry));
        rules.shrink();
        rules
    }

    /// Puts a rule under a number, in the place of the one that has it. The number that is in the rule does not count.
    pub fn insert(&mut self, id: RuleId, rule: &Rule) {
        self.insert_numbered(id, rule, false);
    }

    /// [`RuleStore::insert`], and whether the policy gave the number.
    pub(crate) fn insert_numbered(&mut self, id: RuleId, rule: &Rule, numbered: bool) {
        let mut record = Vec::with_capacity(64);
        record::write(rule, &mut record);
        self.insert_entry(ChunkEntry { id, numbered, record: &record });
    }

    pub(crate) fn insert_entry(&mut self, entry: ChunkEntry<'_>) {
        if let Ok(place) = self.place(entry.id) {
            self.take_out(place);
        }
        if let Err((chunk, at)) = self.place(entry.id) {
            self.insert_new(chunk, at, entry);
            self.len += 1;
        }
    }

    /// Inserts into a chunk, or beside it if it is full.
    fn insert_new(&mut self, chunk: usize, at: usize, entry: ChunkEntry<'_>) {
        let is_last = chunk + 1 == self.chunks.len();
        let Some(place) = self.chunks.get_mut(chunk) else {
            return self.append(entry);
        };
        let full = !place.has_room(entry.record);
        if full && is_last && at == place.len() {
            return self.append(entry);
        }
        let lower = Arc::make_mut(place);
        if !full || lower.len() < 2 {
            return lower.insert(at, entry);
        }
        let mut upper = lower.split();
        match at.checked_sub(lower.len()) {
            Some(at) => upper.insert(at, entry),
            None => lower.insert(at, entry),
        }
        self.chunks.insert(chunk + 1, Arc::new(upper));
        // Where one large rule made it split, its halves may be small.
        self.merge(chunk + 1);
        self.merge(chunk);
    }

    /// A chunk behind the others, which get no more rules: files hold rules in the order of their numbers, and then all
    /// chunks are full.
    fn append(&mut self, entry: ChunkEntry<'_>) {
        self.shrink();
        let mut chunk = RuleChunk::default();
        chunk.insert(0, entry);
        self.chunks.push(Arc::new(chunk));
    }

    /// Gives back the unused memory behind the last rule.
    pub fn shrink(&mut self) {
        if let Some(chunk) = self.chunks.last_mut().and_then(Arc::get_mut) {
            chunk.shrink();
        }
    }

    /// Removes the rule of that number and returns it.
    pub fn remove(&mut self, id: RuleId) -> Option<Rule> {
        let (chunk, at) = self.place(id).ok()?;
        let rule = self.chunks[chunk].entry(at).rule();
        self.take_out((chunk, at));
        Some(rule)
    }

    fn take_out(&mut self, (chunk, at): (usize, usize)) {
        self.len -= 1;
        if self.chunks[chunk].len() == 1 {
            self.chunks.remove(chunk);
        } else {
            Arc::make_mut(&mut self.chunks[chunk]).remove(at);
        }
        self.merge(chunk);
    }

    /// Makes one chunk of this one and its neighbours, as long as they are small.
    fn merge(&mut self, mut chunk: usize) {
        let joins = |chunks: &[Arc<RuleChunk>], lower: usize| {
            let pair = chunks.get(lower).zip(chunks.get(lower + 1));
            pair.is_some_and(|(lower, upper)| lower.belongs_with(upper))
        };
        let neighbours = |chunk: usize| [Some(chunk), chunk.checked_sub(1)].into_iter().flatten();
        while let Some(lower) = neighbours(chunk).find(|lower| joins(&self.chunks, *lower)) {
            let upper = self.chunks.remove(lower + 1);
            Arc::make_mut(&mut self.chunks[lower]).append(&upper);
            chunk = lower;
        }
    }

    /// The chunks in the order of numbers.
    pub(super) fn chunks(&self) -> &[Arc<RuleChunk>] {
        &self.chunks
    }

    /// The rules, not yet read.
    pub(crate) fn entries(&self) -> impl Iterator<Item = ChunkEntry<'_>> {
        self.chunks.iter().flat_map(entries_of)
    }

    pub(crate) fn entry(&self, id: RuleId) -> Option<ChunkEntry<'_>> {
        let (chunk, at) = self.place(id).ok()?;
        Some(self.chunks[chunk].entry(at))
    }

    /// The chunk and the place in it where the rule of that number is, or is to be inserted.
    fn place(&self, id: RuleId) -> Result<(usize, usize), (usize, usize)> {
        let chunk = match self.chunks.last() {
            // Files are read in the order of their numbers.
            Some(last) if last.ids()[0] <= id => self.chunks.len() - 1,
            _ => self.chunks.partition_point(|chunk| chunk.ids()[0] <= id).saturating_sub(1),
        };
        match self.chunks.get(chunk) {
            Some(place) => place.find(id).map(|at| (chunk, at)).map_err(|at| (chunk, at)),
            None => Err((0, 0)),
        }
    }
}

fn entries_of(chunk: &Arc<RuleChunk>) -> impl Iterator<Item = ChunkEntry<'_>> {
    (0..chunk.len()).map(|at| chunk.entry(at))
}

impl FromIterator<Rule> for RuleStore {
    /// The rules under their numbers; those without one are left out. Cheapest in the order of numbers.
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> RuleStore {
        let mut store = RuleStore::default();
        for rule in rules {
            if let Some(id) = rule.id {
                store.insert(id, &rule);
            }
        }
        store.shrink();
        store
    }
}

impl std::fmt::Debug for RuleStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
