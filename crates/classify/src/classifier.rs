//! The classifier: what workers search, and the writer's side, which changes it rule by rule.

use crate::batch::{Batch, Placed};
use crate::check::RuleCheck;
use crate::class_index::ClassIndex;
use crate::class_index::arrange::Tuning;
use crate::class_index::stats::TableStats;
use crate::compile::compile;
use crate::ids::RuleSlot;
use crate::key_rules::KeyRules;
use crate::lane_mask::{LaneMask, lanes_of};
use crate::list::{KeyedRules, ListEntry, ListIndex};
use crate::matches::Scratch;
use crate::names::{RuleNames, SetTable, UnknownPort};
use crate::option_key::OptionKey;
use crate::search::{ClassTables, SearchTables, SearchVector};
use crate::set_lookup::{SetContext, SetResults};
use crate::table::TupleTable;
use mmb_base::simd::SimdLevel;
use mmb_packet::columns::{KeyColumns, WantedLanes};
use mmb_packet::parse::vector::VectorKeys;
use mmb_packet::{Class, Layout, Packet};
use mmb_policy::{NamedSet, Rule};
use mmb_random::{Generator, Seed};
use std::sync::Arc;

/// The compiled rules of a policy: immutable, shared by all workers, cheap to clone.
#[derive(Clone, Debug)]
pub struct Classifier {
    level: SimdLevel,
    ip4: ClassTables,
    ip6: ClassTables,
    other: ClassTables,
    options: Arc<TupleTable>,
    sets: SetTable,
    rules: KeyedRules,
    wanted: WantedLanes,
    /// The bits of keys that it looks at, by class: Ip4, Ip6, Other.
    read: [LaneMask; 3],
    max_matches: usize,
}

impl Classifier {
    /// The most rules that one packet can match, or more: what [`Scratch::fit`] wants to know.
    pub fn max_matches(&self) -> usize {
        self.max_matches
    }

    /// The instructions that searches use: `avx512`, `avx2` or `scalar`.
    pub fn instructions(&self) -> &'static str {
        self.level.name()
    }

    /// Whether some rule can match packets of a class. If none can, the classifier needs no keys of it.
    #[inline]
    pub fn wants(&self, class: Class) -> bool {
        match class {
            Class::Ip4 => !self.ip4.is_empty(),
            Class::Ip6 => !self.ip6.is_empty(),
            Class::Other => !self.other.is_empty(),
        }
    }

    /// The lanes of keys that it looks at.
    #[inline]
    pub fn wanted(&self) -> WantedLanes {
        self.wanted
    }

    /// Finds the rules that each packet of a vector matches; `scratch` then tells them. `packets` and `layouts` are
    /// those of the whole vector, which the keys' packet numbers refer to.
    pub fn classify(
        &self,
        keys: &VectorKeys,
        packets: &[Packet<'_>],
        layouts: &[Layout],
        scratch: &mut Scratch,
    ) {
        scratch.clear();
        self.find(keys, packets, layouts, scratch);
        scratch.sort_by_packet();
    }

    /// [`Classifier::classify`] without beginning and end of the vector: adds to the matches that are noted.
    pub(crate) fn find(
        &self,
        keys: &VectorKeys,
        packets: &[Packet<'_>],
        layouts: &[Layout],
        scratch: &mut Scratch,
    ) {
        let parsed = (packets, layouts);
        let shared = SearchTables { level: self.level, rules: &self.rules, options: &self.options };
        self.ip4.search(shared, vector(&keys.ip4, parsed, &self.sets), scratch);
        self.ip6.search(shared, vector(&keys.ip6, parsed, &self.sets), scratch);
        self.other.search(shared, vector(&keys.other, parsed, &self.sets), scratch);
    }

    /// The level of instructions.
    pub(crate) fn level(&self) -> SimdLevel {
        self.level
    }

    /// The bits of keys of each class that it looks at: Ip4, Ip6, Other.
    pub(crate) fn read(&self) -> &[LaneMask; 3] {
        &self.read
    }
}

#[inline]
fn vector<'a, 'b, const L: usize>(
    columns: &'a KeyColumns<L>,
    (packets, layouts): (&'a [Packet<'b>], &'a [Layout]),
    sets: &'a SetTable,
) -> SearchVector<'a, 'b> {
    let (lanes, len, packet_numbers) = (columns.lanes(), columns.count(), columns.packets());
    let sets = SetContext { table: sets, results: SetResults::NONE };
    SearchVector { lanes, len, packet_numbers, packets, layouts, sets }
}

/// The writer's side of the classifier. Every change costs about the same however many rules there are; what was
/// handed out by [`ClassifierIndex::classifier`] before does not see it.
#[derive(Debug)]
pub struct ClassifierIndex {
    names: RuleNames,
    random: Generator,
    /// Ip4, Ip6, Other.
    classes: [ClassIndex; 3],
    options: Arc<TupleTable>,
    lists: ListIndex,
}

const CLASSES: [Class; 3] = [Class::Ip4, Class::Ip6, Class::Other];

impl ClassifierIndex {
    /// A classifier without rules. Hash keys are drawn from `seed`.
    pub fn new(names: RuleNames, seed: Seed) -> ClassifierIndex {
        let mut random = Generator::new(seed);
        let options = Arc::new(option_table(0, &mut random));
        ClassifierIndex {
            names,
            random,
            classes: CLASSES.map(ClassIndex::new),
            options,
            lists: ListIndex::default(),
        }
    }

    /// Rules may name one more port from now on.
    pub fn push_port(&mut self, name: String) {
        self.names.push(name);
    }

    /// A port that no rule names has another name from now on.
    pub fn rename_port(&mut self, number: u16, name: &str) {
        self.names.rename(number, name);
    }

    /// Rules that name a set ask this one from now on. Costs the same however many rules there are.
    pub fn put_set(&mut self, name: &str, set: Arc<NamedSet>) {
        self.names.put_set(name, set);
    }

    /// No rule names a set any more.
    pub fn remove_set(&mut self, name: &str) {
        self.names.remove_set(name);
    }

    /// A classifier of rules that come all at once, whose tables suit them best.
    ///
    /// # Errors
    /// The slot of a rule that names a port that does not exist, and the name.
    pub fn build<R: std::borrow::Borrow<Rule>>(
        rules: impl Iterator<Item = (RuleSlot, R)>,
        names: RuleNames,
        seed: Seed,
        tuning: Tuning,
    ) -> Result<ClassifierIndex, (RuleSlot, UnknownPort)> {
        let mut index = ClassifierIndex::new(names, seed);
        let mut batches: [Batch; 3] = Default::default();
        for (slot, rule) in rules {
            for (class, batch) in CLASSES.into_iter().zip(&mut batches) {
                for_each_key(rule.borrow(), slot, class, &index.names, |placed| batch.push(placed))
                    .map_err(|port| (slot, port))?;
            }
        }
        let optional = batches.iter().map(Batch::optional).sum();
        index.options = Arc::new(option_table(optional, &mut index.random));
        for (number, batch) in batches.into_iter().enumerate() {
            index.classes[number].arrange(&batch, tuning, &mut index.random);
            batch.rules().for_each(|placed| index.insert_placed(number, placed));
            index.classes[number].mark_built();
        }
        index.lists.mark_built();
        Ok(index)
    }

    /// Adds a rule under a slot that no other rule has.
    ///
    /// # Errors
    /// A port that the rule names and that does not exist; nothing is changed.
    pub fn insert(&mut self, slot: RuleSlot, rule: &Rule) -> Result<(), UnknownPort> {
        let mut all = Vec::new();
        for (number, class) in CLASSES.into_iter().enumerate() {
            for_each_key(rule, slot, class, &self.names, |placed| all.push((number, placed)))?;
        }
        all.into_iter().for_each(|(number, placed)| self.insert_placed(number, placed));
        Ok(())
    }

    /// Removes a rule that was inserted under this slot.
    pub fn remove(&mut self, slot: RuleSlot, rule: &Rule) {
        for (number, class) in CLASSES.into_iter().enumerate() {
            let mut all = Vec::new();
            // A rule that was inserted names no unknown port.
            let _ = for_each_key(rule, slot, class, &self.names, |placed| all.push(placed));
            all.into_iter().for_each(|placed| self.remove_placed(number, placed));
        }
    }

    fn insert_placed(&mut self, class: usize, placed: Placed) {
        let placed = self.classes[class].relaxed(placed);
        let (mask, key) = (placed.mask, placed.key);
        let without_option = placed.rule.option.map(|option| (option, placed.rule.without_option()));
        let ClassifierIndex { classes, lists, random, .. } = self;
        classes[class].insert(placed, lists, random);
        let Some((option, without_option)) = without_option else { return };
        let Some(list) = self.classes[class].list(&mask, &key) else { return };
        let key = OptionKey::wide(option.lanes(list));
        let table = Arc::make_mut(&mut self.options);
        let before = table.value(0, &key).and_then(KeyRules::unpacked);
        let (rules, _) = self.lists.insert(before, without_option);
        match before {
            Some(before) if before == rules => {}
            Some(_) => table.set(0, &key, rules.packed()),
            None => {
                while table.insert(0, &key, rules.packed()).is_err() {
                    *table = reseeded(table, &mut self.random);
                }
            }
        }
    }

    fn remove_placed(&mut self, class: usize, placed: Placed) {
        let placed = self.classes[class].relaxed(placed);
        if let Some(option) = placed.rule.option
            && let Some(list) = self.classes[class].list(&placed.mask, &placed.key)
        {
            let key = OptionKey::wide(option.lanes(list));
            let table = Arc::make_mut(&mut self.options);
            if let Some(before) = table.value(0, &key).and_then(KeyRules::unpacked) {
                match self.lists.remove(before, &placed.rule.without_option()) {
                    Some(rules) if rules == before => {}
                    Some(rules) => table.set(0, &key, rules.packed()),
                    None => _ = table.remove(0, &key),
                }
            }
        }
        let ClassifierIndex { classes, lists, .. } = self;
        classes[class].remove(&placed, lists);
    }

    /// The classifier as it is now.
    pub fn classifier(&self) -> Classifier {
        let [ip4, ip6, other] = &self.classes;
        Classifier {
            level: SimdLevel::detect(),
            ip4: ip4.view.clone(),
            ip6: ip6.view.clone(),
            other: other.view.clone(),
            options: Arc::clone(&self.options),
            sets: self.names.sets().clone(),
            rules: self.lists.rules.clone(),
            wanted: WantedLanes { ip4: ip4.wanted, ip6: ip6.wanted, other: other.wanted },
            read: [ip4.read, ip6.read, other.read],
            max_matches: self.classes.iter().map(|class| class.max_matches).max().unwrap_or(0),
        }
    }

    /// Whether building it again would pay: so many rules of new kinds came one by one that searches would be faster, or so many lists went that
    /// their memory would be freed.
    pub fn is_scattered(&self) -> bool {
        let rules = || self.classes.iter().map(ClassIndex::rules).sum();
        self.classes.iter().any(ClassIndex::is_scattered) || self.lists.is_sparse(rules)
    }

    /// Its tables, for people to look at.
    pub fn tables(&self) -> Vec<TableStats> {
        self.classes.iter().flat_map(ClassIndex::stats).collect()
    }
}

/// An option table with room for so many keys.
fn option_table(entries: usize, random: &mut Generator) -> TupleTable {
    let mask = OptionKey::mask();
    let mut table = TupleTable::new(&mask, &mask, entries, || random.word());
    table.join(&mask);
    table
}

/// The same entries under other seeds, with more room.
fn reseeded(table: &TupleTable, random: &mut Generator) -> TupleTable {
    let mut room = table.len() * 2 + 16;
    loop {
        let mut new = option_table(room, random);
        if table.entries().all(|(member, key, value)| new.insert(member, &key, value).is_ok()) {
            return new;
        }
        room *= 2;
    }
}

/// What a rule with conditions takes in a list, at most: half of the largest short list of two rules.
const LISTED_BYTES: usize = 576;
/// What a key takes in a table of up to 6 lanes, and of more, while the table grows.
const KEY_BYTES: usize = 128;
const IP6_KEY_BYTES: usize = 384;

/// An upper bound of the memory that a rule takes beyond that of a single key without conditions. A set of values becomes several keys, in the
/// classes of both IP versions where the rule leaves that open, and each of them has the rule's conditions.
pub fn extra_bytes(rule: &Rule, names: &RuleNames) -> u64 {
    let class_bytes = |(class, key_bytes)| {
        let Ok(Some(compiled)) = compile(rule, class, names) else { return 0 };
        let checks: usize =
            compiled.checks.iter().map(|check| size_of::<RuleCheck>() + check.heap_bytes()).sum();
        let listed = if compiled.checks.is_empty() { 0 } else { LISTED_BYTES + checks };
        compiled.cubes.len() * (key_bytes + listed)
    };
    let [ip4, ip6, other] =
        [(Class::Ip4, KEY_BYTES), (Class::Ip6, IP6_KEY_BYTES), (Class::Other, KEY_BYTES)].map(class_bytes);
    let single = if ip4 > 0 || other > 0 { KEY_BYTES } else { IP6_KEY_BYTES };
    (ip4 + ip6 + other).saturating_sub(single) as u64
}

/// Compiles a rule for a class, and hands out each of its keys.
fn for_each_key(
    rule: &Rule,
    slot: RuleSlot,
    class: Class,
    names: &RuleNames,
    mut each: impl FnMut(Placed),
) -> Result<(), UnknownPort> {
    let Some(compiled) = compile(rule, class, names)? else { return Ok(()) };
    let entry = ListEntry::new(slot, compiled.checks);
    for cube in compiled.cubes {
        each(Placed { mask: lanes_of(&cube.mask), key: lanes_of(&cube.value), rule: entry.clone() });
    }
    Ok(())
}
