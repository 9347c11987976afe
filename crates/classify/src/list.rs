//! Lists: the rules of one key, unless that is a single rule that no option key finds. A single rule with conditions is a value of its own, and
//! so are some twenty rules about few ranges (`ranged::short`); the others are a [`RuleList`].
//!
//! A list tells its rules apart by what must hold besides the key: nothing (`plain`), conditions on the key's numbers, the
//! payload or the options (`ranged`), or a TCP option of some kind with some value (`keyed`). The last are not in the list
//! itself but in the option table, under keys of the list's id, the kind and the value, so that of ten thousand such
//! rules only those are looked at whose option the packet has.
//!
//! Lists are persistent, as everything that workers read: the first change after a snapshot makes a new list under the same
//! id.

use crate::check::{OptionTest, RuleCheck};
use crate::ids::{ListId, RangedId, RuleSlot, ShortId};
use crate::key_rules::KeyRules;
use crate::option_key::{OptionKey, OptionKinds};
use crate::ranged::{ListShape, Ranged, RangedRule, ShortLists, SideBySideRules};
use crate::set_lookup::SetLookup;
use mmb_base::{Id, IdPool, PersistentVec, prefetch};
use mmb_packet::key::Lanes;
use std::sync::Arc;

/// The rules of a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleList {
    /// Rules without conditions.
    pub(crate) plain: Vec<RuleSlot>,
    /// Rules with conditions.
    pub(crate) ranged: Ranged,
    /// The options to look up in the option table, if some rule is keyed by an option.
    pub(crate) keyed: Option<Box<OptionKinds>>,
    /// Rules that read what is not in the key.
    beyond: u32,
    /// The set lookups of rules for every packet of the key, and how many rules need each.
    set_lookups: Vec<(SetLookup, u32)>,
}

/// A rule to be stored under a key.
#[derive(Clone, Debug)]
pub(crate) struct ListEntry {
    pub(crate) slot: RuleSlot,
    /// The key that it has in the option table.
    pub(crate) option: Option<OptionKey>,
    /// The remaining conditions, tests of options last.
    pub(crate) checks: Vec<RuleCheck>,
}

impl ListEntry {
    /// A rule with its checks, the best of which for it becomes its option key.
    pub(crate) fn new(slot: RuleSlot, mut checks: Vec<RuleCheck>) -> ListEntry {
        let option = |check: &RuleCheck| match check {
            RuleCheck::Option { kind, test: OptionTest::Number(ranges), none: false } => match ranges[..] {
                [(first, last)] if first == last => Some(OptionKey::Value(*kind, u64::try_from(first).ok()?)),
                _ => Some(OptionKey::Present(*kind)),
            },
            RuleCheck::Option { kind, none: false, .. } => Some(OptionKey::Present(*kind)),
            _ => None,
        };
        let valued = |check: &RuleCheck| matches!(option(check), Some(OptionKey::Value(..)));
        let place =
            checks.iter().position(valued).or_else(|| checks.iter().position(|c| option(c).is_some()));
        let Some(place) = place else { return ListEntry { slot, option: None, checks } };
        let key = option(&checks[place]);
        let said = matches!(key, Some(OptionKey::Value(..)))
            || matches!(checks[place], RuleCheck::Option { test: OptionTest::Present, .. });
        if said {
            checks.remove(place);
        }
        ListEntry { slot, option: key, checks }
    }

    /// Whether nothing but its key must hold.
    pub(crate) fn is_plain(&self) -> bool {
        self.option.is_none() && self.checks.is_empty()
    }

    /// The rule as lists have it that is found by no option.
    fn into_rule(self) -> RangedRule {
        RangedRule::new(self.slot, self.checks)
    }

    /// The rule as it is stored in the option table.
    pub(crate) fn without_option(&self) -> ListEntry {
        ListEntry { option: None, ..self.clone() }
    }

    /// Whether it reads what is not in the key: options or payload.
    pub(crate) fn reads_beyond_key(&self) -> bool {
        self.option.is_some() || self.checks.iter().any(RuleCheck::reads_beyond_key)
    }

    /// The lanes that its checks read.
    pub(crate) fn lanes(&self) -> Lanes {
        self.checks.iter().fold(Lanes::default(), |lanes, check| lanes.with(check.lanes()))
    }
}

impl RuleList {
    /// A list of rules that are found by no option.
    fn new(rules: Vec<RangedRule>) -> RuleList {
        let beyond = rules.iter().filter(|rule| rule.reads_beyond_key()).count() as u32;
        let mut list = RuleList { beyond, ..RuleList::default() };
        rules.iter().for_each(|rule| list.count_set_lookups(rule, true));
        let (plain, ranged): (Vec<_>, Vec<_>) = rules.into_iter().partition(RangedRule::is_plain);
        list.plain = plain.iter().map(|rule| rule.slot).collect();
        list.ranged = Ranged::new(ranged);
        list
    }

    /// The set lookups of its rules for every packet.
    #[inline]
    pub(crate) fn set_lookups(&self) -> impl Iterator<Item = SetLookup> {
        self.set_lookups.iter().map(|(lookup, _)| *lookup)
    }

    /// Counts the set lookups of a rule that is added or removed.
    fn count_set_lookups(&mut self, rule: &RangedRule, is_added: bool) {
        for requested in rule.set_lookups() {
            let known = self.set_lookups.iter_mut().find(|(lookup, _)| *lookup == requested);
            match known {
                Some((_, rules)) if is_added => *rules += 1,
                Some((_, rules)) => *rules -= 1,
                None => self.set_lookups.push((requested, 1)),
            }
        }
        self.set_lookups.retain(|(_, rules)| *rules > 0);
    }

    /// Whether the rules that a packet matches here follow from its key alone.
    #[inline]
    pub(crate) fn is_of_key(&self) -> bool {
        self.beyond == 0
    }

    fn add(&mut self, rule: ListEntry) {
        self.beyond += u32::from(rule.reads_beyond_key());
        match rule.option {
            Some(key) => self.keyed.get_or_insert_default().add(key),
            None if rule.checks.is_empty() => self.plain.push(rule.slot),
            None => {
                let rule = rule.into_rule();
                self.count_set_lookups(&rule, true);
                self.ranged.insert(rule);
            }
        }
    }

    fn remove(&mut self, rule: &ListEntry) {
        self.beyond = self.beyond.saturating_sub(rule.reads_beyond_key().into());
        if rule.option.is_some() {
            if let Some(kinds) = &mut self.keyed {
                kinds.rules = kinds.rules.saturating_sub(1);
            }
            self.keyed.take_if(|kinds| kinds.rules == 0);
        } else if let Some(index) = self.plain.iter().position(|slot| *slot == rule.slot) {
            self.plain.swap_remove(index);
        } else if self.ranged.remove(rule.slot) {
            self.count_set_lookups(&rule.clone().into_rule(), false);
        }
    }

    fn len(&self) -> usize {
        self.plain.len() + self.ranged.len() + self.keyed.as_ref().map_or(0, |kinds| kinds.rules)
    }

    /// Its rules, if they need no list any more.
    fn as_short(&self) -> Option<Vec<RangedRule>> {
        if self.len() > ListShape::MAX_RULES {
            return None;
        }
        let mut rules = self.side_by_side()?.rules();
        rules.extend(self.plain.iter().map(|&slot| RangedRule::plain(slot)));
        (rules.len() < 2 || ListShape::for_rules(&rules).is_some()).then_some(rules)
    }

    /// The rules with conditions, if they lie side by side and no rule is found by an option.
    #[inline(always)]
    pub(crate) fn side_by_side(&self) -> Option<&SideBySideRules> {
        self.ranged.side_by_side().filter(|_| self.keyed.is_none())
    }

    /// Asks for the list's own memory.
    #[inline]
    pub(crate) fn fetch(&self) {
        // It may lie across two cache lines.
        prefetch(&self.plain);
        prefetch(&self.keyed);
    }

    /// Asks for what the list points to.
    #[inline]
    pub(crate) fn fetch_rules(&self) {
        self.ranged.fetch();
        if let Some(first) = self.plain.first() {
            prefetch(first);
        }
    }
}

/// All lists, by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleLists(PersistentVec<Option<Arc<RuleList>>, 64>);

impl RuleLists {
    /// A list that some value names.
    #[inline]
    pub(crate) fn at(&self, id: ListId) -> Option<&RuleList> {
        self.0.at(id.index()).as_deref()
    }

    /// A list to be changed: one that no snapshot has is changed where it is.
    fn change(&mut self, id: ListId) -> &mut RuleList {
        Arc::make_mut(self.0.at_mut(id.index()).get_or_insert_default())
    }
}

/// Rules with conditions that are the only ones of their key, by id: a line each, in leaves of 1 KB.
#[derive(Clone, Debug, Default)]
pub(crate) struct SingleRules(PersistentVec<Option<RangedRule>, 16>);

impl SingleRules {
    /// A rule that some value names.
    #[inline(always)]
    pub(crate) fn at(&self, id: RangedId) -> Option<&RangedRule> {
        self.0.at(id.index()).as_ref()
    }

    /// Asks for its memory.
    #[inline(always)]
    pub(crate) fn fetch(&self, id: RangedId) {
        prefetch(self.0.at(id.index()));
    }
}

/// What values of keys refer to, as workers read it.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyedRules {
    pub(crate) lists: RuleLists,
    pub(crate) singles: SingleRules,
    pub(crate) shorts: ShortLists,
}

/// The writer's side of the lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListIndex {
    pub(crate) rules: KeyedRules,
    ids: IdPool<ListId>,
    single_ids: IdPool<RangedId>,
    short_ids: [IdPool<ShortId>; ListShape::COUNT],
    /// Free places when the index was built.
    free_when_built: usize,
}

impl ListIndex {
    /// Whether so many places of lists became free since the index was built, beside so many rules, that building it again would pay: places stay.
    pub(crate) fn is_sparse(&self, rules: impl Fn() -> usize) -> bool {
        const MIN_FREE: usize = 4096;
        let free = self.free_places().saturating_sub(self.free_when_built);
        free > MIN_FREE && free > MIN_FREE + rules() / 8
    }

    /// Notes that the index was built: places that are free now would be again, since lists grow through shapes.
    pub(crate) fn mark_built(&mut self) {
        self.free_when_built = self.free_places();
    }

    fn free_places(&self) -> usize {
        let free = |used: usize, highest: u32| (highest as usize).saturating_sub(used);
        let shorts = self.short_ids.iter().map(|ids| free(ids.len(), ids.highest())).sum::<usize>();
        let singles = free(self.single_ids.len(), self.single_ids.highest());
        shorts + singles + free(self.ids.len(), self.ids.highest())
    }

    fn put(&mut self, list: RuleList) -> KeyRules {
        let id = self.ids.take();
        self.rules.lists.0.set(id.index(), Some(Arc::new(list)));
        KeyRules::List(id)
    }

    /// Stores the rules of a key, none of which is found by an option, and returns `None` if there are none. The value that the key had before is
    /// freed unless they have it again.
    fn put_rules(&mut self, rules: Vec<RangedRule>, before: Option<KeyRules>) -> Option<KeyRules> {
        let shape = ListShape::for_rules(&rules).filter(|_| rules.len() > 1);
        let before = before.and_then(|before| match before {
            KeyRules::Short(its, id) if Some(its) == shape => Some(id),
            other => {
                self.free(other);
                None
            }
        });
        if let Some(shape) = shape {
            let ids = &mut self.short_ids[shape.index()];
            let id = before.unwrap_or_else(|| ids.take());
            if id.number() < KeyRules::SHORT_END {
                self.rules.shorts.set(shape, id.index(), &rules);
                return Some(KeyRules::Short(shape, id));
            }
            ids.free(id);
        }
        match &rules[..] {
            [] => None,
            [rule] if rule.is_plain() => Some(KeyRules::Rule(rule.slot)),
            [rule] => {
                let id = self.single_ids.take();
                self.rules.singles.0.set(id.index(), Some(rule.clone()));
                Some(KeyRules::Ranged(id))
            }
            _ => Some(self.put(RuleList::new(rules))),
        }
    }

    /// The rules of a value that is no list.
    fn rules(&self, value: KeyRules) -> Vec<RangedRule> {
        match value {
            KeyRules::Rule(slot) => vec![RangedRule::plain(slot)],
            KeyRules::Ranged(id) => self.rules.singles.at(id).cloned().into_iter().collect(),
            KeyRules::Short(shape, id) => self.rules.shorts.rules(shape, id.index()),
            // Lists are changed where they are.
            KeyRules::List(_) => Vec::new(),
        }
    }

    /// Forgets what a value refers to.
    fn free(&mut self, value: KeyRules) {
        match value {
            KeyRules::Rule(_) => {}
            KeyRules::Ranged(id) => {
                self.rules.singles.0.set(id.index(), None);
                self.single_ids.free(id);
            }
            KeyRules::Short(shape, id) => self.short_ids[shape.index()].free(id),
            KeyRules::List(id) => {
                self.rules.lists.0.set(id.index(), None);
                self.ids.free(id);
            }
        }
    }

    /// The rules of a key after one more is added to those that it has, if any; also their number.
    pub(crate) fn insert(&mut self, before: Option<KeyRules>, rule: ListEntry) -> (KeyRules, usize) {
        if let Some(KeyRules::List(id)) = before {
            let list = self.rules.lists.change(id);
            list.add(rule);
            return (KeyRules::List(id), list.len());
        }
        let mut rules = before.map(|before| self.rules(before)).unwrap_or_default();
        let len = rules.len() + 1;
        if rule.option.is_none() {
            let alone = KeyRules::Rule(rule.slot);
            rules.push(rule.into_rule());
            // Rules have a value.
            return (self.put_rules(rules, before).unwrap_or(alone), len);
        }
        let mut list = RuleList::new(rules);
        list.add(rule);
        if let Some(before) = before {
            self.free(before);
        }
        (self.put(list), len)
    }

    /// The rules of a key after one is removed; `None` if no other is left.
    pub(crate) fn remove(&mut self, before: KeyRules, rule: &ListEntry) -> Option<KeyRules> {
        let rules = match before {
            KeyRules::List(id) => {
                let list = self.rules.lists.change(id);
                list.remove(rule);
                match list.as_short() {
                    Some(rules) => rules,
                    None => return Some(before),
                }
            }
            _ => {
                let mut rules = self.rules(before);
                if let Some(index) = rules.iter().position(|other| other.slot == rule.slot) {
                    rules.swap_remove(index);
                }
                rules
            }
        };
        self.put_rules(rules, Some(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The rules of a key: plain ones and those with conditions, sorted, then how many are keyed by options.
    type ListParts = (Vec<RuleSlot>, Vec<RuleSlot>, usize);

    fn slot(number: u32) -> RuleSlot {
        RuleSlot::new(number).expect("slots count from 1")
    }

    fn slots<'a>(rules: impl IntoIterator<Item = &'a RangedRule>) -> Vec<RuleSlot> {
        let mut slots: Vec<_> = rules.into_iter().map(|rule| rule.slot).collect();
        slots.sort_unstable();
        slots
    }

    fn parts(index: &ListIndex, rules: Option<KeyRules>) -> ListParts {
        match rules {
            None => ListParts::default(),
            Some(KeyRules::List(id)) => {
                let list = index.rules.lists.at(id).expect("the list is there");
                let (mut plain, side_by_side) =
                    (list.plain.clone(), list.ranged.side_by_side().expect("they are few"));
                plain.sort_unstable();
                let beyond = side_by_side.rules().iter().filter(|rule| rule.reads_beyond_key()).count();
                let keyed = list.keyed.as_ref().map_or(0, |kinds| kinds.rules);
                assert_eq!(list.beyond as usize, beyond + keyed);
                (plain, slots(&side_by_side.rules()), keyed)
            }
            Some(other) => {
                let rules = index.rules(other);
                let (plain, ranged): (Vec<_>, Vec<_>) = rules.into_iter().partition(RangedRule::is_plain);
                (slots(&plain), slots(&ranged), 0)
            }
        }
    }

    fn expected(rules: &BTreeMap<RuleSlot, ListEntry>) -> ListParts {
        let plain = rules.iter().filter(|(_, rule)| rule.is_plain()).map(|(slot, _)| *slot).collect();
        let keyed = rules.values().filter(|rule| rule.option.is_some()).count();
        let ranged = rules.iter().filter(|(_, rule)| rule.option.is_none() && !rule.is_plain());
        (plain, ranged.map(|(slot, _)| *slot).collect(), keyed)
    }

    /// Rules without conditions, with one, with an option, with some ranges of seven fields.
    fn entry(kind: u8, number: u32) -> ListEntry {
        let test = OptionTest::Number([(7, 7)].into());
        ListEntry::new(
            slot(number),
            match kind {
                0 | 1 => Vec::new(),
                2 => vec![RuleCheck::AnyOption { none: true }],
                3 => vec![RuleCheck::Option { kind: 9, test: OptionTest::Present, none: false }],
                5.. => {
                    let bounds = mmb_policy::Intervals::range(number.into(), u128::from(number) + 9);
                    let field = |at: u8| u16::from((kind + at * 3) % 7) * 32;
                    (0..1 + kind % 3).map(|at| RuleCheck::number(field(at), 32, &bounds, 0)).collect()
                }
                _ => vec![RuleCheck::Option { kind: 9, test, none: false }],
            },
        )
    }

    proptest! {
        #[test]
        fn rules_are_added_and_removed(
            // Of some keys rules with ranges of two fields only, of others every kind.
            steps in prop::collection::vec((0..4usize, 0..12u8, any::<prop::sample::Index>(), 0..4u8), 1..300)
        ) {
            let mut index = ListIndex::default();
            let mut values = [None; 4];
            let mut model: [BTreeMap<RuleSlot, ListEntry>; 4] = Default::default();
            let (mut next, mut max_lists) = (1, 0);
            let mut before = (index.rules.clone(), values, model.clone());
            for (key, kind, which, what) in steps {
                if what > 0 {
                    let rule = entry(if key < 2 && kind > 1 { 5 } else { kind }, next);
                    let (value, rules) = index.insert(values[key], rule.clone());
                    prop_assert_eq!(KeyRules::unpacked(value.packed()), Some(value));
                    values[key] = Some(value);
                    model[key].insert(slot(next), rule);
                    next += 1;
                    prop_assert_eq!(rules, model[key].len());
                } else if !model[key].is_empty() {
                    let slot = *which.get(&model[key].keys().copied().collect::<Vec<_>>());
                    let rule = model[key].remove(&slot).expect("it is there");
                    values[key] = index.remove(values[key].expect("it has rules"), &rule);
                }
                prop_assert_eq!(values[key].is_none(), model[key].is_empty());
                for (value, rules) in values.iter().zip(&model) {
                    prop_assert_eq!(parts(&index, *value), expected(rules));
                    // A single rule is no list, whatever was there before.
                    let plain = rules.len() == 1 && rules.values().all(ListEntry::is_plain);
                    prop_assert!(value.is_none_or(|value| matches!(value, KeyRules::Rule(_)) == plain));
                    let ranged = rules.len() == 1
                        && rules.values().all(|rule| rule.option.is_none() && !rule.is_plain());
                    prop_assert!(value.is_none_or(|value| matches!(value, KeyRules::Ranged(_)) == ranged));
                }
                let lists = values.iter().flatten().filter(|value| matches!(value, KeyRules::List(_))).count();
                max_lists = max_lists.max(lists);
                prop_assert_eq!(index.ids.len(), lists);
                let singles = values.iter().flatten().filter(|value| matches!(value, KeyRules::Ranged(_)));
                prop_assert_eq!(index.single_ids.len(), singles.count());
                for (shape, ids) in ListShape::all().zip(&index.short_ids) {
                    let its = |value: &&KeyRules| matches!(value, KeyRules::Short(its, _) if *its == shape);
                    prop_assert_eq!(ids.len(), values.iter().flatten().filter(its).count());
                }
                // Ids are used again before there are new ones.
                prop_assert!(index.ids.highest() as usize <= max_lists);
                if next % 16 == 0 {
                    // What readers have does not change, though ids are given to others.
                    let then = ListIndex { rules: before.0, ..ListIndex::default() };
                    for (value, rules) in before.1.iter().zip(&before.2) {
                        prop_assert_eq!(parts(&then, *value), expected(rules));
                    }
                    before = (index.rules.clone(), values, model.clone());
                }
            }
        }
    }

    #[test]
    fn a_rule_is_keyed_by_the_option_that_tells_most() {
        let option = |kind, test| RuleCheck::Option { kind, test, none: false };
        let number = |first, last| OptionTest::Number([(first, last)].into());
        let bytes = OptionTest::Bytes { data: [[1, 2].as_slice().into()].into(), differs: false };
        let ttl = RuleCheck::AnyOption { none: false };
        // A number is looked up whole; where it is none, that the option is there.
        let rule = ListEntry::new(
            slot(1),
            vec![ttl.clone(), option(3, OptionTest::Present), option(4, number(5, 5))],
        );
        assert_eq!(rule.option, Some(OptionKey::Value(4, 5)));
        assert_eq!(rule.checks, [ttl.clone(), option(3, OptionTest::Present)]);
        let range = ListEntry::new(slot(1), vec![option(4, number(5, 9)), ttl.clone()]);
        assert_eq!((range.option, range.checks.len()), (Some(OptionKey::Present(4)), 2));
        let string = ListEntry::new(slot(1), vec![option(4, bytes)]);
        assert_eq!((string.option, string.checks.len()), (Some(OptionKey::Present(4)), 1));
        // Numbers that no option of 40 bytes has, and what must not be there, are checked.
        let wide = ListEntry::new(slot(1), vec![option(4, number(1 << 70, 1 << 70))]);
        assert_eq!((wide.option, wide.checks.len()), (None, 1));
        let absent = RuleCheck::Option { kind: 4, test: OptionTest::Present, none: true };
        assert_eq!(ListEntry::new(slot(1), vec![absent]).option, None);
        assert_eq!(ListEntry::new(slot(1), Vec::new()).without_option().option, None);
        assert_ne!(OptionKey::Present(4).lanes(ListId::FIRST), OptionKey::Value(4, 0).lanes(ListId::FIRST));
    }
}
