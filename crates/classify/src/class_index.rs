//! The writer's side of one packet class: which tuple lives where, and changes of the class's tables.
//!
//! A tuple lives as a whole in the flat rows or in one table. Building decides by `merge`; a tuple that comes later
//! joins a table that takes it, or gets rows or a table of its own. A tuple whose entries crowd a shared table moves out
//! into one of its own.

use crate::cube::{KeyWords, bytes};
use crate::flat;
use crate::list::{Hanging, LIST, ListIndex};
use crate::loosen::{Loosened, SHORT_CHAIN, relax};
use crate::merge::{Group, Tuple, merge};
use crate::search::ClassTables;
use crate::segment::Crowded;
use crate::table::{LaneMask, Table};
use crate::words;
use mmb_packet::Class;
use mmb_packet::key::{L4_KIND, LANE, Lanes};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::Rng;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Entries with one relaxed key that a tuple which comes later may join.
const LONGEST_CHAIN: usize = 6;
/// Keys of a class that the merger sees, about.
const SAMPLE: usize = 32_768;

/// How tuples are put into tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tuning {
    /// Few tables: what works best.
    #[default]
    Merged,
    /// A table a tuple, as in plain tuple-space search: to compare with.
    EveryTuple,
}

/// Key words as lanes.
pub(crate) fn lanes(words: &KeyWords) -> LaneMask {
    let bytes = bytes(words);
    let mut lanes = LaneMask::default();
    for (lane, four) in lanes.iter_mut().zip(bytes.as_chunks::<LANE>().0) {
        *lane = u32::from_ne_bytes(*four);
    }
    lanes
}

/// Lanes as key words.
fn words_of(lanes: &LaneMask) -> KeyWords {
    let mut words = KeyWords::default();
    for (word, four) in words.iter_mut().zip(lanes.as_chunks::<4>().0) {
        *word = four.iter().fold(0, |word, lane| word << 32 | u128::from(u32::from_be(*lane)));
    }
    words
}

fn lane_set(mask: &LaneMask) -> Lanes {
    let nonzero = (0..mask.len()).filter(|&lane| mask[lane] != 0);
    Lanes(nonzero.fold(0, |set, lane| set | 1 << lane))
}

/// Where a tuple lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Flat,
    Table { table: usize, member: u8 },
}

/// A tuple.
#[derive(Clone, Debug)]
struct Home {
    place: Place,
    /// Distinct keys.
    entries: usize,
    /// Rules under these keys.
    rules: usize,
    /// The most rules that ever hung on one key.
    longest: usize,
    /// Kinds of transport header that keys name.
    kinds: BTreeSet<u8>,
}

/// A rule under one of its keys.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) mask: LaneMask,
    pub(crate) key: LaneMask,
    pub(crate) rule: Hanging,
}

/// Rules of a class that come all at once, packed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    tuples: Vec<(LaneMask, Lanes)>,
    numbers: HashMap<LaneMask, u32>,
    keys: Vec<u32>,
    rules: Vec<Packed>,
    /// The rules that are more than a handle.
    hanging: Vec<Hanging>,
}

/// A rule under one of its keys.
#[derive(Clone, Copy, Debug)]
struct Packed {
    tuple: u32,
    /// Where the lanes of its key begin that the tuple's mask has.
    key: u32,
    /// Its handle, or with [`LIST`] its place among those that are more.
    rule: u32,
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
            placed.rule.handle
        } else {
            self.hanging.push(placed.rule);
            LIST | (self.hanging.len() as u32 - 1)
        };
        self.rules.push(Packed { tuple, key, rule });
    }

    /// How many of the rules have a key in the option table.
    pub(crate) fn optional(&self) -> usize {
        self.hanging.iter().filter(|rule| rule.option.is_some()).count()
    }

    fn key(&self, packed: Packed) -> LaneMask {
        let mut key = LaneMask::default();
        let lanes = self.tuples[packed.tuple as usize].1.iter();
        lanes.zip(&self.keys[packed.key as usize..]).for_each(|(lane, part)| key[lane] = *part);
        key
    }

    /// For the merger: every tuple with a sample of its keys, and the share of keys that is in the samples.
    pub(crate) fn sample(&self) -> (Vec<Tuple>, f64) {
        let stride = self.rules.len().div_ceil(SAMPLE).max(1);
        let tuple = |(mask, _): &(LaneMask, Lanes)| Tuple { mask: *mask, entries: 0, sample: Vec::new() };
        let mut tuples: Vec<Tuple> = self.tuples.iter().map(tuple).collect();
        for (at, packed) in self.rules.iter().enumerate() {
            let tuple = &mut tuples[packed.tuple as usize];
            tuple.entries += 1;
            if at % stride == 0 || tuple.sample.is_empty() {
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

    /// The rules, one after the other.
    pub(crate) fn rules(&self) -> impl Iterator<Item = Placed> + '_ {
        self.rules.iter().map(|packed| Placed {
            mask: self.tuples[packed.tuple as usize].0,
            key: self.key(*packed),
            rule: match packed.rule {
                handle if handle & LIST == 0 => Hanging { handle, option: None, checks: Vec::new() },
                number => self.hanging[(number & !LIST) as usize].clone(),
            },
        })
    }
}

/// One table, for people to look at.
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

/// The writer's side of a class.
#[derive(Clone, Debug)]
pub(crate) struct ClassIndex {
    class: Class,
    pub(crate) view: ClassTables,
    pub(crate) wanted: Lanes,
    homes: HashMap<LaneMask, Home>,
    loosened: Loosened,
    /// The most rules that a packet can match.
    pub(crate) most: usize,
    /// Which of the tables tuples got that came later.
    late: Vec<bool>,
    /// How many these are.
    strays: usize,
}

impl ClassIndex {
    pub(crate) fn new(class: Class) -> ClassIndex {
        ClassIndex {
            class,
            view: ClassTables::default(),
            wanted: Lanes::default(),
            homes: HashMap::new(),
            loosened: Loosened::default(),
            most: 0,
            late: Vec::new(),
            strays: 0,
        }
    }

    /// Gives the tuples of rules that are about to come their places.
    pub(crate) fn arrange(&mut self, batch: &Batch, tuning: Tuning, random: &mut SplitMix64) {
        let (tuples, share) = batch.sample();
        let groups = match tuning {
            Tuning::Merged => merge(self.class, &tuples, share),
            Tuning::EveryTuple => (0..).zip(&tuples).map(|(n, tuple)| Group::of(n, &tuple.mask)).collect(),
        };
        let mut groups: Vec<(usize, Group)> =
            groups.into_iter().map(|group| (group.entries(&tuples), group)).collect();
        groups.sort_by_key(|(entries, _)| *entries);
        let mut rows = 0;
        let mut relaxed: Vec<Option<LaneMask>> = vec![None; tuples.len()];
        for (entries, group) in groups {
            let fits = entries <= flat::MOST_OF_A_TUPLE && rows + entries <= flat::MOST;
            if fits && tuning == Tuning::Merged {
                rows += entries;
                for &number in &group.tuples {
                    self.homes.insert(tuples[number].mask, Home::new(Place::Flat));
                }
                continue;
            }
            let mut table = Table::new(&group.relaxed, &group.span, entries, || random.next_u64());
            for &number in &group.tuples {
                let place =
                    Place::Table { table: self.view.tables.len(), member: table.join(&tuples[number].mask) };
                self.homes.insert(tuples[number].mask, Home::new(place));
                relaxed[number] = (group.tuples.len() > 1).then_some(group.relaxed);
            }
            self.view.tables.push(Arc::new(table));
            self.late.push(false);
        }
        self.loosen(batch, &relaxed);
    }

    /// Finds the relaxed keys that too many rules share for a chain. `relaxed`: the mask of each tuple's table, if
    /// the tuple shares it.
    fn loosen(&mut self, batch: &Batch, relaxed: &[Option<LaneMask>]) {
        let mut counts: HashMap<(LaneMask, LaneMask), usize> = HashMap::new();
        let keys = || {
            batch.rules.iter().filter_map(|packed| {
                let mask = relaxed[packed.tuple as usize]?;
                Some((mask, relax(&batch.key(*packed), &mask)))
            })
        };
        // Of very many rules a part, which shows the long chains.
        let stride = batch.rules.len().div_ceil(8 * SAMPLE).max(1);
        keys().step_by(stride).for_each(|key| *counts.entry(key).or_default() += 1);
        let longest = SHORT_CHAIN.div_ceil(stride);
        counts.retain(|_, count| *count > longest);
        if counts.is_empty() {
            return;
        }
        let masks: BTreeSet<LaneMask> = counts.keys().map(|(mask, _)| *mask).collect();
        for mask in masks {
            let members = (0..).zip(relaxed).filter(|(_, its)| **its == Some(mask));
            let tuples: Vec<LaneMask> =
                members.map(|(number, _): (usize, _)| batch.tuples[number].0).collect();
            let keys = counts.keys().filter(|(its, _)| *its == mask).map(|(_, key)| *key);
            let place = tuples.first().map(|tuple| self.homes[tuple].place);
            if let Some(Place::Table { table, .. }) = place
                && !self.homes.contains_key(&mask)
                && Arc::make_mut(&mut self.view.tables[table]).has_room()
            {
                let member = Arc::make_mut(&mut self.view.tables[table]).join(&mask);
                self.homes.insert(mask, Home::new(Place::Table { table, member }));
            }
            self.loosened.add(&mask, tuples.into_iter(), keys);
        }
    }

    /// A rule as it is to be hung, or was.
    pub(crate) fn loosened(&self, placed: Placed) -> Placed {
        self.loosened.apply(self.class, placed)
    }

    /// Hangs a rule on its key.
    pub(crate) fn insert(&mut self, placed: Placed, lists: &mut ListIndex, random: &mut SplitMix64) {
        let Placed { mask, key, rule } = placed;
        self.wanted = self.wanted.with(lane_set(&mask)).with(rule.lanes());
        let place = match self.homes.get(&mask) {
            Some(home) => home.place,
            None => self.settle(&mask, &key, random),
        };
        let before = self.value(place, &mask, &key);
        let (value, rules) = lists.hang(before, rule);
        let home = self.homes.get_mut(&mask).expect("it was found, or settled just now");
        home.rules += 1;
        home.entries += usize::from(before.is_none());
        self.most += rules.saturating_sub(home.longest);
        home.longest = home.longest.max(rules);
        let kind_lane = L4_KIND / LANE;
        if mask[kind_lane].to_ne_bytes()[L4_KIND % LANE] == 0xff {
            home.kinds.insert(key[kind_lane].to_ne_bytes()[L4_KIND % LANE]);
        }
        let grown = home.entries > flat::MOST_OF_A_TUPLE;
        if before != Some(value) {
            self.put(place, &mask, &key, value, before.is_some(), random);
        }
        if place == Place::Flat && (grown || self.view.flat.len() > flat::MOST) {
            self.move_out(&mask, random);
        }
    }

    /// Takes a rule from its key.
    pub(crate) fn remove(&mut self, placed: &Placed, lists: &mut ListIndex) {
        let Placed { mask, key, rule } = placed;
        let Some(home) = self.homes.get_mut(mask) else { return };
        let place = home.place;
        let Some(before) = value(&self.view, place, mask, key) else { return };
        home.rules -= 1;
        match lists.unhang(before, rule) {
            Some(value) if value == before => {}
            Some(value) => self.set(place, mask, key, value),
            None => {
                home.entries -= 1;
                if home.entries == 0 {
                    self.most -= std::mem::take(&mut home.longest);
                    // A member of a table stays one, for when its rules come back.
                    if place == Place::Flat {
                        self.homes.remove(mask);
                    }
                }
                self.take(place, mask, key);
            }
        }
    }

    /// The value of a key.
    fn value(&self, place: Place, mask: &LaneMask, key: &LaneMask) -> Option<u32> {
        value(&self.view, place, mask, key)
    }

    /// The number of the list that hangs on a key.
    pub(crate) fn list(&self, mask: &LaneMask, key: &LaneMask) -> Option<u32> {
        let value = self.value(self.homes.get(mask)?.place, mask, key)?;
        (value & LIST != 0).then_some(value & !LIST)
    }

    fn set(&mut self, place: Place, mask: &LaneMask, key: &LaneMask, value: u32) {
        match place {
            Place::Flat => Arc::make_mut(&mut self.view.flat).set(mask, key, value),
            Place::Table { table, member } => {
                Arc::make_mut(&mut self.view.tables[table]).set(member, key, value);
            }
        }
    }

    fn put(
        &mut self,
        place: Place,
        mask: &LaneMask,
        key: &LaneMask,
        value: u32,
        known: bool,
        random: &mut SplitMix64,
    ) {
        match place {
            Place::Table { table, member } if !known => {
                let crowded = Arc::make_mut(&mut self.view.tables[table]).insert(member, key, value);
                if crowded == Err(Crowded) {
                    self.move_out(mask, random);
                    let place = self.homes[mask].place;
                    self.put(place, mask, key, value, false, random);
                }
            }
            _ => self.set(place, mask, key, value),
        }
    }

    /// Removes a key, and the table with its last one.
    fn take(&mut self, place: Place, mask: &LaneMask, key: &LaneMask) {
        let Place::Table { table, member } = place else {
            Arc::make_mut(&mut self.view.flat).remove(mask, key);
            return;
        };
        let its = Arc::make_mut(&mut self.view.tables[table]);
        its.remove(member, key);
        if its.len() == 0 {
            self.drop_table(table);
        }
    }

    fn drop_table(&mut self, table: usize) {
        // Tuples without entries may be left in it: arranged ahead of rules that never came, or moving out.
        self.homes.retain(|_, home| !matches!(home.place, Place::Table { table: its, .. } if its == table));
        let last = self.view.tables.len() - 1;
        self.forget_table(table);
        for home in self.homes.values_mut() {
            if let Place::Table { table: its, .. } = &mut home.place
                && *its == last
            {
                *its = table;
            }
        }
    }

    /// Takes a table out, in whose place the last one comes.
    fn forget_table(&mut self, table: usize) {
        self.view.tables.swap_remove(table);
        self.strays -= usize::from(self.late.swap_remove(table));
    }

    /// Finds a place for a tuple that has none.
    fn settle(&mut self, mask: &LaneMask, key: &LaneMask, random: &mut SplitMix64) -> Place {
        let joins =
            |table: &&(usize, &Arc<Table>)| table.1.admits(mask) && table.1.chain(key) <= LONGEST_CHAIN;
        let tables: Vec<_> = self.view.tables.iter().enumerate().collect();
        let best =
            tables.iter().filter(joins).max_by_key(|(_, table)| table.hashed_bits()).map(|(at, _)| *at);
        let place = match best {
            Some(table) => {
                Place::Table { table, member: Arc::make_mut(&mut self.view.tables[table]).join(mask) }
            }
            None if self.view.flat.len() < flat::MOST => Place::Flat,
            None => self.own_table(mask, 0, random),
        };
        self.homes.insert(*mask, Home::new(place));
        place
    }

    fn own_table(&mut self, mask: &LaneMask, entries: usize, random: &mut SplitMix64) -> Place {
        let mut table = Table::new(mask, mask, entries, || random.next_u64());
        let member = table.join(mask);
        self.view.tables.push(Arc::new(table));
        self.late.push(true);
        self.strays += 1;
        Place::Table { table: self.view.tables.len() - 1, member }
    }

    /// Moves a tuple into a table of its own; one that is alone already gets a roomier one with other seeds.
    fn move_out(&mut self, mask: &LaneMask, random: &mut SplitMix64) {
        let place = self.homes[mask].place;
        let entries: Vec<(LaneMask, u32)> = match place {
            Place::Flat => self.view.flat.entries(mask).collect(),
            Place::Table { table, member } => {
                let all = self.view.tables[table].entries();
                all.filter(|(of, ..)| *of == member).map(|(_, key, value)| (key, value)).collect()
            }
        };
        let mut room = entries.len() + 1;
        let new = loop {
            let new = self.own_table(mask, room, random);
            let Place::Table { table, member } = new else { continue };
            let table = Arc::make_mut(&mut self.view.tables[table]);
            if entries.iter().all(|(key, value)| table.insert(member, key, *value).is_ok()) {
                break new;
            }
            self.forget_table(self.view.tables.len() - 1);
            room *= 2;
        };
        self.homes.get_mut(mask).expect("the tuple is known").place = new;
        let mut emptied = None;
        for (key, _) in &entries {
            match place {
                Place::Flat => _ = Arc::make_mut(&mut self.view.flat).remove(mask, key),
                Place::Table { table, member } => {
                    let its = Arc::make_mut(&mut self.view.tables[table]);
                    its.remove(member, key);
                    emptied = (its.len() == 0).then_some(table);
                }
            }
        }
        if let Some(table) = emptied {
            self.drop_table(table);
        }
    }

    /// Whether so many tables came later that building anew would pay.
    pub(crate) fn is_scattered(&self) -> bool {
        // Building anew takes a while where there are very many rules.
        let rules: usize = self.view.tables.iter().map(|table| table.len()).sum();
        self.strays > 16 + rules / 16_384 && self.strays * 2 > self.view.tables.len()
    }

    /// Its tables and rows.
    pub(crate) fn stats(&self) -> Vec<TableStats> {
        let mut stats: Vec<TableStats> = Vec::new();
        let mut rows: Vec<(&LaneMask, &Home)> =
            self.homes.iter().filter(|(_, home)| home.place == Place::Flat && home.entries > 0).collect();
        rows.sort_unstable_by_key(|(mask, _)| **mask);
        stats.extend(rows.into_iter().map(|(mask, home)| TableStats {
            class: self.class,
            mask: self.words(mask, &home.kinds),
            tuples: 1,
            rules: home.rules,
            entries: home.entries,
            buckets: 0,
            load: 0.0,
        }));
        for (number, table) in self.view.tables.iter().enumerate() {
            let its = |home: &&Home| matches!(home.place, Place::Table { table, .. } if table == number);
            let homes: Vec<&Home> = self.homes.values().filter(its).filter(|home| home.entries > 0).collect();
            let (buckets, places) = table.room();
            stats.push(TableStats {
                class: self.class,
                mask: self
                    .words(&table.relaxed(), &homes.iter().flat_map(|home| home.kinds.clone()).collect()),
                tuples: homes.len(),
                rules: homes.iter().map(|home| home.rules).sum(),
                entries: table.len(),
                buckets,
                load: table.len() as f64 / places as f64,
            });
        }
        stats
    }

    fn words(&self, mask: &LaneMask, kinds: &BTreeSet<u8>) -> String {
        let cube = crate::cube::Cube { mask: words_of(mask), ..crate::cube::Cube::default() };
        words::describe(self.class, &cube, kinds)
    }
}

impl Home {
    fn new(place: Place) -> Home {
        Home { place, entries: 0, rules: 0, longest: 0, kinds: BTreeSet::new() }
    }
}

fn value(view: &ClassTables, place: Place, mask: &LaneMask, key: &LaneMask) -> Option<u32> {
    match place {
        Place::Flat => view.flat.value(mask, key),
        Place::Table { table, member } => view.tables[table].value(member, key),
    }
}

#[cfg(test)]
mod tests {
    use crate::{ClassifierIndex, Ports};
    use mmb_policy::{Policy, Rule};

    /// Rules with one field set each that no other field set is part of: four of nine fields.
    fn rules_of_many_masks() -> Vec<Rule> {
        let fields = [
            "ip-ttl",
            "ip-id",
            "ip-dscp",
            "ip-len",
            "ip-saddr",
            "ip-daddr",
            "tcp-win",
            "tcp-sport",
            "tcp-dport",
        ];
        let four = (0_u32..1 << fields.len()).filter(|set| set.count_ones() == 4);
        let line = |set: u32| {
            let of = (0..fields.len()).filter(|bit| set >> bit & 1 == 1);
            let tests: Vec<String> = of
                .map(|bit| fields[bit])
                .map(|field| format!("{field} {}", if field.ends_with("addr") { "10.0.0.1" } else { "50" }))
                .collect();
            format!("add {} drop\n", tests.join(" "))
        };
        let (policy, _) = Policy::parse(&four.map(line).collect::<String>()).expect("they parse");
        policy.rules.iter().collect()
    }

    /// Tables that were gone again were once counted for ever, so that each change built everything anew.
    #[test]
    fn tables_that_went_do_not_count_as_scattered() {
        let rules = rules_of_many_masks();
        let mut index = ClassifierIndex::new(Ports::default(), 1);
        for _ in 0..3 {
            for (handle, rule) in (0..).zip(&rules) {
                index.insert(handle, rule).expect("there are no ports in it");
            }
            assert!(index.is_scattered(), "{} tables", index.tables().len());
            for (handle, rule) in (0..).zip(&rules) {
                index.remove(handle, rule);
            }
            assert!(!index.is_scattered() && index.tables().is_empty());
        }
    }
}
