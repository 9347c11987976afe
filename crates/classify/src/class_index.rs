//! The writer's side of one packet class: which tuple lives where, and changes of the class's tables.
//!
//! A tuple lives as a whole in the flat rows or in one table. Building decides by `merge` (`arrange`); a tuple that comes
//! later joins a table that takes it, or gets rows or a table of its own. A tuple whose entries crowd a shared table moves
//! out into one of its own.

pub(crate) mod arrange;
pub(crate) mod stats;

use crate::batch::Placed;
use crate::flat;
use crate::ids::ListId;
use crate::key_rules::KeyRules;
use crate::lane_mask::{LaneMask, lane_set, union};
use crate::list::ListIndex;
use crate::relax::RelaxedKeys;
use crate::search::ClassTables;
use crate::segment::NoFreePlace;
use crate::table::TupleTable;
use mmb_packet::Class;
use mmb_packet::key::{L4_KIND, LANE, Lanes};
use mmb_random::Generator;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Entries with one relaxed key that a tuple which comes later may join.
const LONGEST_CHAIN: usize = 6;

/// The place of a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TuplePlace {
    Flat,
    Table { table: usize, member: u8 },
}

/// A tuple.
#[derive(Clone, Debug)]
struct TupleHome {
    place: TuplePlace,
    /// Distinct keys.
    entries: usize,
    /// Rules under these keys.
    rules: usize,
    /// The most rules that one key ever had.
    longest: usize,
    /// Kinds of transport header that keys name.
    kinds: BTreeSet<u8>,
}

/// The writer's side of a class.
#[derive(Clone, Debug)]
pub(crate) struct ClassIndex {
    class: Class,
    pub(crate) view: ClassTables,
    /// The lanes that rules look at, and those that rules looked at which went since it was built.
    pub(crate) wanted: Lanes,
    /// Their bits.
    pub(crate) read: LaneMask,
    homes: HashMap<LaneMask, TupleHome>,
    relaxed: RelaxedKeys,
    /// The most rules that a packet can match.
    pub(crate) max_matches: usize,
    /// By table: whether it was added for a tuple that came after the index was built.
    added_later: Vec<bool>,
}

impl ClassIndex {
    pub(crate) fn new(class: Class) -> ClassIndex {
        ClassIndex {
            class,
            view: ClassTables::default(),
            wanted: Lanes::default(),
            read: LaneMask::default(),
            homes: HashMap::new(),
            relaxed: RelaxedKeys::default(),
            max_matches: 0,
            added_later: Vec::new(),
        }
    }

    /// A rule with the constraints of its key relaxed that searches do not need.
    pub(crate) fn relaxed(&self, placed: Placed) -> Placed {
        self.relaxed.apply(self.class, placed)
    }

    /// Adds a rule to those of its key.
    pub(crate) fn insert(&mut self, placed: Placed, lists: &mut ListIndex, random: &mut Generator) {
        let Placed { mask, key, rule } = placed;
        self.wanted = self.wanted.with(lane_set(&mask)).with(rule.lanes());
        self.read = union(&self.read, &mask);
        rule.checks.iter().for_each(|check| check.add_bits(&mut self.read));
        let place = match self.homes.get(&mask) {
            Some(home) => home.place,
            None => self.place_tuple(&mask, &key, random),
        };
        let before = value(&self.view, place, &mask, &key);
        let (value, rules) = lists.insert(before, rule);
        let home = self.homes.get_mut(&mask).expect("it was found, or placed just now");
        home.rules += 1;
        home.entries += usize::from(before.is_none());
        self.max_matches += rules.saturating_sub(home.longest);
        home.longest = home.longest.max(rules);
        let kind_lane = L4_KIND / LANE;
        if mask[kind_lane].to_ne_bytes()[L4_KIND % LANE] == 0xff {
            home.kinds.insert(key[kind_lane].to_ne_bytes()[L4_KIND % LANE]);
        }
        let grown = home.entries > flat::MAX_PER_TUPLE;
        match before {
            Some(before) if before == value => {}
            Some(_) => self.set(place, &mask, &key, value),
            None => self.add(place, &mask, &key, value, random),
        }
        if place == TuplePlace::Flat && (grown || self.view.flat.len() > flat::MAX_ENTRIES) {
            self.move_out(&mask, random);
        }
    }

    /// Removes a rule from those of its key.
    pub(crate) fn remove(&mut self, placed: &Placed, lists: &mut ListIndex) {
        let Placed { mask, key, rule } = placed;
        let Some(home) = self.homes.get_mut(mask) else { return };
        let place = home.place;
        let Some(before) = value(&self.view, place, mask, key) else { return };
        home.rules -= 1;
        match lists.remove(before, rule) {
            Some(value) if value == before => {}
            Some(value) => self.set(place, mask, key, value),
            None => {
                home.entries -= 1;
                if home.entries == 0 {
                    self.max_matches -= std::mem::take(&mut home.longest);
                    // A member of a table stays one, for when its rules come back.
                    if place == TuplePlace::Flat {
                        self.homes.remove(mask);
                    }
                }
                self.take(place, mask, key);
            }
        }
    }

    /// The list of a key's rules.
    pub(crate) fn list(&self, mask: &LaneMask, key: &LaneMask) -> Option<ListId> {
        match value(&self.view, self.homes.get(mask)?.place, mask, key)? {
            KeyRules::Rule(_) | KeyRules::Ranged(_) | KeyRules::Short(..) => None,
            KeyRules::List(list) => Some(list),
        }
    }

    fn set(&mut self, place: TuplePlace, mask: &LaneMask, key: &LaneMask, value: KeyRules) {
        match place {
            TuplePlace::Flat => Arc::make_mut(&mut self.view.flat).set(mask, key, value.packed()),
            TuplePlace::Table { table, member } => {
                Arc::make_mut(&mut self.view.tables[table]).set(member, key, value.packed());
            }
        }
    }

    /// Adds a key. If it finds no room, its tuple moves out.
    fn add(
        &mut self,
        place: TuplePlace,
        mask: &LaneMask,
        key: &LaneMask,
        value: KeyRules,
        random: &mut Generator,
    ) {
        let TuplePlace::Table { table, member } = place else { return self.set(place, mask, key, value) };
        if Arc::make_mut(&mut self.view.tables[table]).insert(member, key, value.packed()) == Err(NoFreePlace)
        {
            self.move_out(mask, random);
            self.add(self.homes[mask].place, mask, key, value, random);
        }
    }

    /// Removes a key, and the table with its last one.
    fn take(&mut self, place: TuplePlace, mask: &LaneMask, key: &LaneMask) {
        let TuplePlace::Table { table, member } = place else {
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
        self.homes
            .retain(|_, home| !matches!(home.place, TuplePlace::Table { table: its, .. } if its == table));
        let last = self.view.tables.len() - 1;
        self.forget_table(table);
        for home in self.homes.values_mut() {
            if let TuplePlace::Table { table: its, .. } = &mut home.place
                && *its == last
            {
                *its = table;
            }
        }
    }

    /// Removes a table; the last one takes its place.
    fn forget_table(&mut self, table: usize) {
        self.view.tables.swap_remove(table);
        self.added_later.swap_remove(table);
    }

    /// Finds a place for a tuple that has none.
    fn place_tuple(&mut self, mask: &LaneMask, key: &LaneMask, random: &mut Generator) -> TuplePlace {
        let joins = |table: &TupleTable| table.admits(mask) && table.chain(key) <= LONGEST_CHAIN;
        let tables = self.view.tables.iter().enumerate().filter(|(_, table)| joins(table));
        let best = tables.max_by_key(|(_, table)| table.hashed_bits()).map(|(index, _)| index);
        let (table, member) = match best {
            Some(table) => (table, Arc::make_mut(&mut self.view.tables[table]).join(mask)),
            None if self.view.flat.len() < flat::MAX_ENTRIES => {
                self.homes.insert(*mask, TupleHome::new(TuplePlace::Flat));
                return TuplePlace::Flat;
            }
            None => self.own_table(mask, 0, random),
        };
        let place = TuplePlace::Table { table, member };
        self.homes.insert(*mask, TupleHome::new(place));
        place
    }

    /// Makes a table for a tuple; its number and the tuple's in it.
    fn own_table(&mut self, mask: &LaneMask, entries: usize, random: &mut Generator) -> (usize, u8) {
        let mut table = TupleTable::new(mask, mask, entries, || random.word());
        let member = table.join(mask);
        self.view.tables.push(Arc::new(table));
        self.added_later.push(true);
        (self.view.tables.len() - 1, member)
    }

    /// Moves a tuple into a table of its own; one that is alone already gets a roomier one with other seeds.
    fn move_out(&mut self, mask: &LaneMask, random: &mut Generator) {
        let place = self.homes[mask].place;
        let entries: Vec<(LaneMask, u32)> = match place {
            TuplePlace::Flat => self.view.flat.entries(mask).collect(),
            TuplePlace::Table { table, member } => {
                let all = self.view.tables[table].entries();
                all.filter(|(other, ..)| *other == member).map(|(_, key, value)| (key, value)).collect()
            }
        };
        let mut room = entries.len() + 1;
        let new = loop {
            let (table, member) = self.own_table(mask, room, random);
            let its = Arc::make_mut(&mut self.view.tables[table]);
            if entries.iter().all(|(key, value)| its.insert(member, key, *value).is_ok()) {
                break TuplePlace::Table { table, member };
            }
            self.forget_table(table);
            room *= 2;
        };
        self.homes.get_mut(mask).expect("the tuple is known").place = new;
        let mut emptied = None;
        for (key, _) in &entries {
            match place {
                TuplePlace::Flat => _ = Arc::make_mut(&mut self.view.flat).remove(mask, key),
                TuplePlace::Table { table, member } => {
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

    /// Notes that all rules came at once: building from them again would make the same tables.
    pub(crate) fn mark_built(&mut self) {
        // Of a table that was made for tuples under relaxed keys all rules may have gone to another one.
        for table in (0..self.view.tables.len()).rev() {
            if self.view.tables[table].len() == 0 {
                self.drop_table(table);
            }
        }
        self.added_later.fill(false);
    }

    /// Rules, counted for each of their keys.
    pub(crate) fn rules(&self) -> usize {
        self.homes.values().map(|home| home.rules).sum()
    }

    /// Whether so many tables came later that a rebuild would pay.
    pub(crate) fn is_scattered(&self) -> bool {
        // A rebuild takes a while where there are very many rules.
        let rules: usize = self.view.tables.iter().map(|table| table.len()).sum();
        let added_later = self.added_later.iter().filter(|added_later| **added_later).count();
        added_later > 16 + rules / 16_384 && added_later * 2 > self.added_later.len()
    }
}

impl TupleHome {
    fn new(place: TuplePlace) -> TupleHome {
        TupleHome { place, entries: 0, rules: 0, longest: 0, kinds: BTreeSet::new() }
    }
}

fn value(view: &ClassTables, place: TuplePlace, mask: &LaneMask, key: &LaneMask) -> Option<KeyRules> {
    let word = match place {
        TuplePlace::Flat => view.flat.value(mask, key),
        TuplePlace::Table { table, member } => view.tables[table].value(member, key),
    };
    word.and_then(KeyRules::unpacked)
}

#[cfg(test)]
mod tests {
    use crate::{ClassifierIndex, RuleNames, RuleSlot};
    use mmb_base::Id;
    use mmb_language::parse_policy;
    use mmb_policy::Rule;

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
            let set_fields = (0..fields.len()).filter(|bit| set >> bit & 1 == 1);
            let tests: Vec<String> = set_fields
                .map(|bit| fields[bit])
                .map(|field| format!("{field} {}", if field.ends_with("addr") { "10.0.0.1" } else { "50" }))
                .collect();
            format!("add {} drop\n", tests.join(" "))
        };
        let (policy, _) = parse_policy(&four.map(line).collect::<String>()).expect("they parse");
        policy.rules.iter().collect()
    }

    /// Places of lists stay when their lists go: the memory of very many is freed by building the index again.
    #[test]
    fn lists_that_went_are_a_reason_to_build_again() {
        let line = |n: u32| {
            let address = std::net::Ipv4Addr::from((10 << 24) | (n / 2));
            format!("add ip-saddr {address} tcp-dport {}-60000 drop\n", n + 1)
        };
        let (policy, _) = parse_policy(&(0..20_000).map(line).collect::<String>()).expect("they parse");
        let mut index = ClassifierIndex::new(RuleNames::default(), mmb_random::Seed::repeatable(1));
        let rules = || (1..).filter_map(RuleSlot::new).zip(policy.rules.iter());
        for (slot, rule) in rules() {
            index.insert(slot, &rule).expect("there are no ports in it");
        }
        assert!(!index.is_scattered());
        let scattered = rules().position(|(slot, rule)| {
            index.remove(slot, &rule);
            index.is_scattered()
        });
        let gone = scattered.expect("so many went");
        assert!((4_000..18_000).contains(&gone), "{gone} of 20,000 rules were gone");
        // Lists that grew through several shapes while the index was built are no reason to build it again and again.
        let rounds = |key: u32| {
            let address = std::net::Ipv4Addr::from((10 << 24) | (key % 10_000));
            format!("add ip-saddr {address} tcp-dport {}-60000 drop\n", key / 10_000 + 1)
        };
        let (policy, _) = parse_policy(&(0..60_000).map(rounds).collect::<String>()).expect("they parse");
        let rules = (1..).filter_map(RuleSlot::new).zip(policy.rules.iter());
        let seed = mmb_random::Seed::repeatable(2);
        let index = ClassifierIndex::build(rules, RuleNames::default(), seed, crate::Tuning::Merged);
        assert!(!index.expect("there are no ports in it").is_scattered());
    }

    #[test]
    fn rules_with_several_keys_and_conditions_take_more() {
        let bytes = |text: &str| {
            let (policy, _) = parse_policy(&format!("add {text} drop\n")).expect("it parses");
            let rule = policy.rules.iter().next().expect("there is a rule");
            crate::extra_bytes(&rule, &RuleNames::default())
        };
        assert_eq!(bytes("ip-saddr 10.0.0.1 tcp-dport 80"), 0);
        assert!(bytes("ip-saddr 10.0.0.1 tcp-dport 1-80") < 1000);
        let keys = bytes("ip-saddr 10.0.0.1 tcp-dport {1, 3, 5, 7}");
        assert!((300..1000).contains(&keys), "{keys}");
        let listed = bytes("ip-saddr 10.0.0.1 tcp-dport {1, 3, 5, 7} ip-ttl > 3");
        assert!((2000..4000).contains(&listed), "{listed}");
        let long =
            bytes(&format!("ip-saddr 10.0.0.1 tcp-dport {{1, 3, 5, 7}} payload \"{}\"", "x".repeat(1000)));
        assert!(long > listed + 3000, "{long}");
    }

    /// Tables that were gone again were once counted for ever, so that each change rebuilt everything.
    #[test]
    fn tables_that_went_do_not_count_as_scattered() {
        let rules = rules_of_many_masks();
        let mut index = ClassifierIndex::new(RuleNames::default(), mmb_random::Seed::repeatable(1));
        for _ in 0..3 {
            let slots = || (1..).filter_map(RuleSlot::new);
            for (slot, rule) in slots().zip(&rules) {
                index.insert(slot, rule).expect("there are no ports in it");
            }
            assert!(index.is_scattered(), "{} tables", index.tables().len());
            for (slot, rule) in slots().zip(&rules) {
                index.remove(slot, rule);
            }
            assert!(!index.is_scattered() && index.tables().is_empty());
        }
    }
}
