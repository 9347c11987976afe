//! Places for the tuples of rules that are about to come all at once: rows for the smallest, tables as `merge` says, and
//! lists where a relaxed key would get a long chain.

use super::{ClassIndex, TupleHome, TuplePlace};
use crate::batch::{Batch, SAMPLE};
use crate::flat;
use crate::lane_mask::{LaneMask, common};
use crate::merge::{MergedTuple, apart, merge};
use crate::relax::SHORT_CHAIN;
use crate::table::TupleTable;
use mmb_random::Generator;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The rule by which tuples are assigned to tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tuning {
    /// Few tables: what works best.
    #[default]
    Merged,
    /// A table a tuple, as in plain tuple-space search: to compare with.
    EveryTuple,
}

impl ClassIndex {
    /// Gives the tuples of rules that are about to come their places.
    pub(crate) fn arrange(&mut self, batch: &Batch, tuning: Tuning, random: &mut Generator) {
        let (tuples, share) = batch.sample();
        let groups = match tuning {
            Tuning::Merged => merge(self.class, &tuples, share),
            Tuning::EveryTuple => apart(&tuples),
        };
        let mut rows = 0;
        let mut relaxed: Vec<Option<LaneMask>> = vec![None; tuples.len()];
        for group in groups {
            let entries = group.entries(&tuples);
            if tuning == Tuning::Merged && flat::has_room(rows, entries) {
                rows += entries;
                let masks = group.tuples.iter().map(|&number| tuples[number].mask);
                self.homes.extend(masks.map(|mask| (mask, TupleHome::new(TuplePlace::Flat))));
                continue;
            }
            let number = self.view.tables.len();
            let mut table = TupleTable::new(&group.relaxed, &group.span, entries, || random.word());
            for &tuple in &group.tuples {
                let mask = tuples[tuple].mask;
                let place = TuplePlace::Table { table: number, member: table.join(&mask) };
                self.homes.insert(mask, TupleHome::new(place));
                relaxed[tuple] = (group.tuples.len() > 1).then_some(group.relaxed);
            }
            self.view.tables.push(Arc::new(table));
            self.added_later.push(false);
        }
        self.relax_crowded_keys(batch, &tuples, &relaxed);
    }

    /// Finds the relaxed keys that too many rules share for a chain. `relaxed`: the mask of each tuple's table, if
    /// the tuple shares it.
    fn relax_crowded_keys(&mut self, batch: &Batch, tuples: &[MergedTuple], relaxed: &[Option<LaneMask>]) {
        let mut counts: HashMap<(LaneMask, LaneMask), usize> = HashMap::new();
        // Of very many rules a part, which shows the long chains.
        let stride = batch.len().div_ceil(8 * SAMPLE).max(1);
        for (tuple, key) in batch.keys(stride) {
            if let Some(mask) = relaxed[tuple] {
                *counts.entry((mask, common(&key, &mask))).or_default() += 1;
            }
        }
        let longest = SHORT_CHAIN.div_ceil(stride);
        counts.retain(|_, count| *count > longest);
        let masks: BTreeSet<LaneMask> = counts.keys().map(|(mask, _)| *mask).collect();
        for mask in masks {
            let members = tuples.iter().zip(relaxed).filter(|(_, its)| **its == Some(mask));
            let members: Vec<LaneMask> = members.map(|(tuple, _)| tuple.mask).collect();
            let keys = counts.keys().filter(|(its, _)| *its == mask).map(|(_, key)| *key);
            if let Some(first) = members.first() {
                self.admit(mask, self.homes[first].place);
            }
            self.relaxed.add(&mask, members.into_iter(), keys);
        }
    }

    /// Makes the tuple of a relaxed mask a member of the table that has it, if it has room and the tuple no place yet.
    fn admit(&mut self, mask: LaneMask, place: TuplePlace) {
        let TuplePlace::Table { table, .. } = place else { return };
        if self.homes.contains_key(&mask) || !self.view.tables[table].has_room() {
            return;
        }
        let member = Arc::make_mut(&mut self.view.tables[table]).join(&mask);
        self.homes.insert(mask, TupleHome::new(TuplePlace::Table { table, member }));
    }
}
