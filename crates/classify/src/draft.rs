//! The tables of one class while they are built: rules are placed under their tuples, then each tuple is laid out.

use crate::classifier::{ClassTables, Item, List, Pools, SOLE, TableStats};
use crate::compile::Compiled;
use crate::cube::{Cube, KeyWords};
use crate::tuple::Tuple;
use crate::words;
use mmb_packet::Class;
use mmb_packet::key;
use std::collections::{BTreeSet, HashMap};

/// A class on the way.
pub(crate) struct ClassDraft {
    pub(crate) class: Class,
    /// The tuples' masks, in the order of the first rule of each.
    masks: Vec<KeyWords>,
    numbers: HashMap<KeyWords, usize>,
    placed: Vec<Placed>,
}

/// A rule under one of its keys.
struct Placed {
    tuple: usize,
    value: KeyWords,
    item: Item,
}

impl ClassDraft {
    pub(crate) fn new(class: Class) -> ClassDraft {
        ClassDraft { class, masks: Vec::new(), numbers: HashMap::new(), placed: Vec::new() }
    }

    /// Places a rule under each of its keys.
    pub(crate) fn place(&mut self, compiled: Compiled, rank: u32, pools: &mut Pools) {
        let Compiled { cubes, checks } = compiled;
        let start = pools.checks.len();
        let options = start + checks.iter().filter(|check| !check.about_options()).count();
        pools.checks.extend(checks);
        let item =
            Item { rank, checks: start as u32, options: options as u32, end: pools.checks.len() as u32 };
        for Cube { mask, value } in cubes {
            let tuple = *self.numbers.entry(mask).or_insert_with(|| {
                self.masks.push(mask);
                self.masks.len() - 1
            });
            self.placed.push(Placed { tuple, value, item });
        }
    }

    /// Lays out every tuple. `random` is the state of a generator of seeds.
    pub(crate) fn build<const N: usize>(mut self, pools: &mut Pools, random: &mut u64) -> ClassTables<N> {
        self.placed.sort_unstable_by_key(|placed| (placed.tuple, placed.value, placed.item.rank));
        let mut tables = ClassTables::default();
        for placed in self.placed.chunk_by(|a, b| a.tuple == b.tuple) {
            let mask = self.masks[placed[0].tuple];
            let groups = placed.chunk_by(|a, b| a.value == b.value);
            tables.most += groups.clone().map(<[Placed]>::len).max().unwrap_or(0);
            let entries: Vec<_> = groups.map(|group| (group[0].value, pools.enter(group))).collect();
            let tuple = Tuple::build(&mask, &entries, || split_mix(random));
            tables.stats.push(self.stats(mask, placed, &tuple));
            tables.tuples.push(tuple);
        }
        tables
    }

    fn stats<const N: usize>(&self, mask: KeyWords, placed: &[Placed], tuple: &Tuple<N>) -> TableStats {
        let kind = |placed: &Placed| Cube { mask, value: placed.value }.known_byte(key::L4_KIND);
        let kinds: BTreeSet<u8> = placed.iter().filter_map(kind).collect();
        let ranks: BTreeSet<u32> = placed.iter().map(|placed| placed.item.rank).collect();
        TableStats {
            class: self.class,
            mask: words::describe(self.class, &Cube { mask, ..Cube::default() }, &kinds),
            rules: ranks.len(),
            entries: tuple.table().entries(),
            buckets: tuple.table().buckets(),
            load: tuple.table().load(),
        }
    }
}

impl Pools {
    /// The value that stands for the rules of one key.
    fn enter(&mut self, group: &[Placed]) -> u32 {
        if let [Placed { item, .. }] = group
            && item.checks == item.end
        {
            return item.rank | SOLE;
        }
        let (options, others): (Vec<&Placed>, Vec<&Placed>) =
            group.iter().partition(|placed| placed.item.options < placed.item.end);
        let start = self.items.len() as u32;
        self.items.extend(others.iter().chain(&options).map(|placed| placed.item));
        self.lists.push(List { start, options: start + others.len() as u32, end: self.items.len() as u32 });
        self.lists.len() as u32 - 1
    }
}

/// The next number of the generator splitmix64.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
