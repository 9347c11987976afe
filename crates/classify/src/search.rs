//! The tables of one packet class, as workers search them.

use crate::VECTOR;
use crate::check::CheckedPacket;
use crate::flat::Flat;
use crate::ids::{ListId, RangedId, RuleSlot};
use crate::key_rules::{Found, KeyRules};
use crate::list::{KeyedRules, RuleList};
use crate::matches::{FOUND_AT_ONCE, FoundKinds, Log, MatchParts, Scratch};
use crate::option_key::OptionKinds;
use crate::option_lookups::OptionLookups;
use crate::ranged::{LazyOptions, ListShape};
use crate::set_lookup::{SetContext, SetResults};
use crate::table::TupleTable;
use mmb_base::Id;
use mmb_base::simd::{Kernel, SimdLevel};
use mmb_packet::columns::Column;
use mmb_packet::options::{OptionArea, area, usual_kinds};
use mmb_packet::{Layout, Packet};
use std::sync::Arc;

/// The tables of a class. A clone shares them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassTables {
    pub(crate) tables: Vec<Arc<TupleTable>>,
    pub(crate) flat: Arc<Flat>,
}

/// The parts of a classifier that the classes share.
#[derive(Clone, Copy)]
pub(crate) struct SearchTables<'a> {
    pub(crate) level: SimdLevel,
    pub(crate) rules: &'a KeyedRules,
    pub(crate) options: &'a TupleTable,
}

/// The vector that is searched for: the keys of a class, and all packets.
#[derive(Clone, Copy)]
pub(crate) struct SearchVector<'a, 'b> {
    pub(crate) lanes: &'a [Column],
    pub(crate) len: usize,
    /// The packet of each key.
    pub(crate) packet_numbers: &'a [u8; VECTOR],
    pub(crate) packets: &'a [Packet<'b>],
    pub(crate) layouts: &'a [Layout],
    pub(crate) sets: SetContext<'a>,
}

impl<'a, 'b> SearchVector<'a, 'b> {
    fn subject(self, key: u8) -> CheckedPacket<'a, 'b> {
        let packet = usize::from(self.packet_numbers[usize::from(key)]);
        let SearchVector { lanes, packets, layouts, sets, .. } = self;
        CheckedPacket { lanes, key, packet: &packets[packet], layout: &layouts[packet], sets }
    }
}

impl ClassTables {
    /// Whether there is nothing to be found.
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.flat.len() == 0
    }

    /// Finds what the keys match.
    #[inline]
    pub(crate) fn search(
        &self,
        shared: SearchTables<'_>,
        vector: SearchVector<'_, '_>,
        scratch: &mut Scratch,
    ) {
        if vector.len == 0 || self.is_empty() {
            return;
        }
        let (probe, found, mut log) = scratch.parts();
        found.clear();
        // Rules without conditions are matches, everything else is still to be looked at: which it is is not to be predicted.
        let mut hit = |key: u8, rules: u32| {
            let is_rule = KeyRules::kind(rules) == KeyRules::RULE;
            let slot = RuleSlot::from_word(rules).unwrap_or(RuleSlot::FIRST);
            log.hit_if(is_rule, vector.packet_numbers[usize::from(key)], slot);
            let len = found.len();
            found.push(Found { key, rules });
            found.truncate(len + usize::from(!is_rule));
        };
        self.flat.find(shared.level, vector.lanes, vector.len, &mut hit);
        let by_index = |number: u32| &*self.tables[number as usize];
        for number in 0..self.tables.len() as u32 {
            probe.filter(shared.level, by_index, vector.lanes, vector.len, number);
            if probe.should_verify() {
                probe.verify(shared.level, by_index, vector.lanes, &mut hit);
            }
        }
        probe.finish(shared.level, by_index);
        probe.verify(shared.level, by_index, vector.lanes, &mut hit);
        if !found.is_empty() {
            match_found(shared, vector, scratch);
        }
    }
}

/// Holds packets against what their keys led to, each kind in a loop of its own.
fn match_found(shared: SearchTables<'_>, vector: SearchVector<'_, '_>, scratch: &mut Scratch) {
    let (found, kinds, results, mut parts) = scratch.match_parts();
    parts.options.clear();
    for found in found.chunks(FOUND_AT_ONCE) {
        kinds.sort(found);
        if !vector.sets.table.is_empty() {
            look_up_sets(shared, vector, kinds, results);
        }
        let vector = SearchVector { sets: SetContext { results, ..vector.sets }, ..vector };
        for shape in ListShape::all() {
            shared.rules.shorts.fetch(shape, kinds.shorts(shape).map(|(_, list)| list));
        }
        for found in kinds.singles() {
            if let Some(id) = RangedId::new(KeyRules::number(found.rules)) {
                shared.rules.singles.fetch(id);
            }
        }
        shared.level.run(MatchShorts { shared, vector, kinds, log: &mut parts.log });
        if !kinds.singles().is_empty() {
            let MatchParts { options, log, .. } = &mut parts;
            shared.level.run(MatchSingles { shared, vector, found: kinds.singles(), options, log });
        }
        if !kinds.lists().is_empty() {
            match_lists(shared, vector, kinds.lists(), &mut parts);
        }
    }
    match_options(shared, vector, &mut parts);
}

/// Makes the set lookups that rules are about to need.
#[inline(never)]
fn look_up_sets(
    shared: SearchTables<'_>,
    vector: SearchVector<'_, '_>,
    kinds: &FoundKinds,
    results: &mut SetResults,
) {
    results.clear();
    for &Found { key, rules } in kinds.singles() {
        let rule = RangedId::new(KeyRules::number(rules)).and_then(|id| shared.rules.singles.at(id));
        let Some(rule) = rule.filter(|rule| rule.spans_hold(vector.lanes, key)) else { continue };
        let rest = rule.rest().into_iter();
        rest.flat_map(|rest| rest.set_lookups()).for_each(|lookup| results.request(lookup, key));
    }
    for found in kinds.lists().chunk_by(|a, b| a.rules == b.rules) {
        let id = ListId::new(KeyRules::number(found[0].rules));
        let Some(list) = id.and_then(|id| shared.rules.lists.at(id)) else { continue };
        for lookup in list.set_lookups() {
            found.iter().for_each(|found| results.request(lookup, found.key));
        }
    }
    results.look_up(vector.sets.table, vector.lanes);
}

/// Holds packets against the short lists that their keys led to.
struct MatchShorts<'s, 'a, 'b, 'w, 'l> {
    shared: SearchTables<'s>,
    vector: SearchVector<'a, 'b>,
    kinds: &'s FoundKinds,
    log: &'w mut Log<'l>,
}

impl Kernel for MatchShorts<'_, '_, '_, '_, '_> {
    #[inline(always)]
    fn run(self) {
        let MatchShorts { shared, vector, kinds, log } = self;
        for shape in ListShape::all() {
            shared.rules.shorts.find(shape, vector.lanes, kinds.shorts(shape), |key, bits, slots| {
                log.hits(vector.packet_numbers[usize::from(key)], bits, slots);
            });
        }
    }
}

/// Holds packets against rules with conditions that are alone under their keys.
struct MatchSingles<'s, 'a, 'b, 'w, 'l> {
    shared: SearchTables<'s>,
    vector: SearchVector<'a, 'b>,
    found: &'s [Found],
    options: &'w mut LazyOptions,
    log: &'w mut Log<'l>,
}

impl Kernel for MatchSingles<'_, '_, '_, '_, '_> {
    #[inline(always)]
    fn run(self) {
        let MatchSingles { shared, vector, found, options, log } = self;
        for &Found { key, rules } in found {
            let Some(id) = RangedId::new(KeyRules::number(rules)) else { continue };
            let Some(rule) = shared.rules.singles.at(id) else { continue };
            let mut holds = rule.spans_hold(vector.lanes, key);
            let packet = vector.packet_numbers[usize::from(key)];
            if let Some(rest) = rule.rest().filter(|_| holds) {
                if rest.reads_beyond_key() {
                    log.read_beyond_key(packet);
                }
                holds = rest.holds(&vector.subject(key), options);
            }
            log.hit_if(holds, packet, rule.slot);
        }
    }
}

/// Holds packets against the lists that their keys led to.
fn match_lists(
    shared: SearchTables<'_>,
    vector: SearchVector<'_, '_>,
    found: &[Found],
    parts: &mut MatchParts<'_>,
) {
    let list = |found: &Found| shared.rules.lists.at(ListId::new(KeyRules::number(found.rules))?);
    found.iter().filter_map(list).for_each(RuleList::fetch);
    found.iter().filter_map(list).for_each(RuleList::fetch_rules);
    let (mut others, mut len) = ([Found::default(); FOUND_AT_ONCE], 0);
    let MatchParts { options, log, .. } = &mut *parts;
    shared.level.run(MatchLists { shared, vector, found, others: (&mut others, &mut len), options, log });
    // Keys that a small table found stand list by list.
    let mut keys = [0; FOUND_AT_ONCE];
    for run in others[..len].chunk_by(|a, b| a.rules == b.rules) {
        let Some(id) = ListId::new(KeyRules::number(run[0].rules)) else { continue };
        let Some(list) = shared.rules.lists.at(id) else { continue };
        for (key, found) in keys.iter_mut().zip(run) {
            *key = found.key;
        }
        let keys = &keys[..run.len()];
        if !list.is_of_key() {
            keys.iter().for_each(|&key| parts.log.read_beyond_key(vector.packet_numbers[usize::from(key)]));
        }
        match_list(list, shared.level, vector, keys, parts.options, &mut parts.log);
        let Some(kinds) = &list.keyed else { continue };
        let mut rest = keys;
        while !rest.is_empty() {
            rest = request_options((id, kinds), vector, rest, parts.option_lookups);
            if !rest.is_empty() {
                match_options(shared, vector, parts);
            }
        }
    }
}

/// Adds the options of keys' packets that a list requests, until there is no room for those of one more. Returns the keys that are left. A function of
/// its own: its loop needs all registers.
#[inline(never)]
fn request_options<'k>(
    (id, kinds): (ListId, &OptionKinds),
    vector: SearchVector<'_, '_>,
    keys: &'k [u8],
    option_lookups: &mut OptionLookups,
) -> &'k [u8] {
    for (index, &key) in keys.iter().enumerate() {
        if !option_lookups.have_room() {
            return &keys[index..];
        }
        let subject = vector.subject(key);
        if usual_kinds(area(subject.packet, subject.layout)).is_some_and(|usual| !kinds.has_any(usual)) {
            continue;
        }
        option_lookups.request(key, id, kinds, &OptionArea::of(subject.packet, subject.layout));
    }
    &[]
}

/// Holds packets against lists whose rules lie side by side, and leaves the others.
struct MatchLists<'s, 'a, 'b, 'w, 'l> {
    shared: SearchTables<'s>,
    vector: SearchVector<'a, 'b>,
    found: &'s [Found],
    /// Those of other lists, and how many.
    others: (&'w mut [Found; FOUND_AT_ONCE], &'w mut usize),
    options: &'w mut LazyOptions,
    log: &'w mut Log<'l>,
}

impl Kernel for MatchLists<'_, '_, '_, '_, '_> {
    #[inline(always)]
    fn run(self) {
        let MatchLists { shared, vector, found, others, options, log } = self;
        for &found in found {
            let Some(id) = ListId::new(KeyRules::number(found.rules)) else { continue };
            let Some(list) = shared.rules.lists.at(id) else { continue };
            let Some(side_by_side) = list.side_by_side() else {
                // As many as were found at most.
                others.0[*others.1 % FOUND_AT_ONCE] = found;
                *others.1 += 1;
                continue;
            };
            let packet = vector.packet_numbers[usize::from(found.key)];
            if !list.is_of_key() {
                log.read_beyond_key(packet);
            }
            side_by_side.find(vector.lanes, found.key, |hits| {
                let bits = match hits.open {
                    0 => hits.bits,
                    _ => side_by_side.checked(hits, &vector.subject(found.key), options),
                };
                log.hits(packet, bits, hits.slots);
            });
            for &slot in &list.plain {
                log.hit(packet, slot);
            }
        }
    }
}

fn match_list(
    list: &RuleList,
    level: SimdLevel,
    vector: SearchVector<'_, '_>,
    keys: &[u8],
    options: &mut LazyOptions,
    log: &mut Log<'_>,
) {
    for &slot in &list.plain {
        keys.iter().for_each(|&key| log.hit(vector.packet_numbers[usize::from(key)], slot));
    }
    if !list.ranged.is_empty() {
        let subject = |key| vector.subject(key);
        list.ranged.find_all(level, keys, subject, options, |key, slot| {
            log.hit(vector.packet_numbers[usize::from(key)], slot);
        });
    }
}

/// Makes the lookups in the option table, and holds packets against what is there.
#[inline(never)]
fn match_options(shared: SearchTables<'_>, vector: SearchVector<'_, '_>, parts: &mut MatchParts<'_>) {
    let MatchParts { probe, option_lookups, options, log } = parts;
    if option_lookups.len() == 0 {
        return;
    }
    let table = |_| shared.options;
    probe.filter(shared.level, table, option_lookups.lanes(), option_lookups.len(), 0);
    probe.finish(shared.level, table);
    probe.verify(shared.level, table, option_lookups.lanes(), |lookup, rules| {
        let key = option_lookups.key(lookup);
        match KeyRules::unpacked(rules) {
            Some(KeyRules::Rule(slot)) => log.hit(vector.packet_numbers[usize::from(key)], slot),
            Some(KeyRules::Ranged(rule)) => {
                let rule = shared.rules.singles.at(rule);
                if let Some(rule) = rule.filter(|rule| rule.holds(&vector.subject(key), options)) {
                    log.hit(vector.packet_numbers[usize::from(key)], rule.slot);
                }
            }
            Some(KeyRules::List(list)) => {
                if let Some(list) = shared.rules.lists.at(list) {
                    match_list(list, shared.level, vector, &[key], options, log);
                }
            }
            Some(KeyRules::Short(shape, list)) => {
                let keys = [(key, list.index())].into_iter();
                shared.rules.shorts.find(shape, vector.lanes, keys, |key, bits, slots| {
                    log.hits(vector.packet_numbers[usize::from(key)], bits, slots);
                });
            }
            None => {}
        }
    });
    option_lookups.clear();
}
