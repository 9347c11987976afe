//! The tables of a class, for people to look at.

use super::{ClassIndex, TupleHome, TuplePlace};
use crate::cube::KeyCube;
use crate::lane_mask::{LaneMask, words_of};
use crate::words;
use mmb_packet::Class;
use std::collections::BTreeSet;

/// One table, or the rules of one tuple without a table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableStats {
    /// The packet class.
    pub class: Class,
    /// The fields that its hash covers, in words: `ip-proto tcp-dport`; of rules without a table, those of the tuple.
    pub mask: String,
    /// Tuples (distinct masks of rules) in it.
    pub tuples: usize,
    /// Rules in it; one that lists values counts for each of them.
    pub rules: usize,
    /// Distinct keys of these rules.
    pub entries: usize,
    /// Buckets of its hash index; 0 for rules that are compared one by one.
    pub buckets: usize,
    /// Used share of the buckets' places, 0 to 1.
    pub load: f64,
}

impl ClassIndex {
    /// Its rows, by tuple, then its tables.
    pub(crate) fn stats(&self) -> Vec<TableStats> {
        let mut rows: Vec<(&LaneMask, &TupleHome)> = Vec::new();
        let mut members: Vec<Vec<&TupleHome>> = vec![Vec::new(); self.view.tables.len()];
        for (mask, home) in self.homes.iter().filter(|(_, home)| home.entries > 0) {
            match home.place {
                TuplePlace::Flat => rows.push((mask, home)),
                TuplePlace::Table { table, .. } => members[table].push(home),
            }
        }
        rows.sort_unstable_by_key(|(mask, _)| **mask);
        let rows = rows.into_iter().map(|(mask, home)| TableStats {
            class: self.class,
            mask: self.words(mask, &home.kinds),
            tuples: 1,
            rules: home.rules,
            entries: home.entries,
            buckets: 0,
            load: 0.0,
        });
        let tables = self.view.tables.iter().zip(&members).map(|(table, members)| {
            let (buckets, places) = table.room();
            let kinds = members.iter().flat_map(|home| home.kinds.iter().copied()).collect();
            TableStats {
                class: self.class,
                mask: self.words(&table.relaxed(), &kinds),
                tuples: members.len(),
                rules: members.iter().map(|home| home.rules).sum(),
                entries: table.len(),
                buckets,
                load: table.len() as f64 / places as f64,
            }
        });
        rows.chain(tables).collect()
    }

    fn words(&self, mask: &LaneMask, kinds: &BTreeSet<u8>) -> String {
        words::describe(self.class, &KeyCube { mask: words_of(mask), ..KeyCube::default() }, kinds)
    }
}
