//! The tables of one packet class, as workers search them.

use crate::VECTOR;
use crate::check::CheckedPacket;
use crate::flat::Flat;
use crate::ids::{KeyRules, ListId, RangedId, RuleSlot};
use crate::list::{KeyedRules, OptionKinds, RuleList};
use crate::matches::{Found, Log, Scratch};
use crate::pairs::Pairs;
use crate::probe::ProbeColumns;
use crate::ranged::LazyOptions;
use crate::table::TupleTable;
use mmb_base::Id;
use mmb_base::simd::{Kernel, SimdLevel};
use mmb_packet::columns::Column;
use mmb_packet::options::OptionArea;
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
    pub(crate) of: &'a [u8; VECTOR],
    pub(crate) packets: &'a [Packet<'b>],
    pub(crate) layouts: &'a [Layout],
}

impl<'a, 'b> SearchVector<'a, 'b> {
    fn subject(self, key: u8) -> CheckedPacket<'a, 'b> {
        let packet = usize::from(self.of[usize::from(key)]);
        CheckedPacket { lanes: self.lanes, key, packet: &self.packets[packet], layout: &self.layouts[packet] }
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
            let slot = RuleSlot::of_word(rules).unwrap_or(RuleSlot::FIRST);
            log.hit_if(is_rule, vector.of[usize::from(key)], slot);
            let len = found.len();
            found.push(Found { key, rules });
            found.truncate(len + usize::from(!is_rule));
        };
        self.flat.find(shared.level, vector.lanes, vector.len, &mut hit);
        let by_index = |number: u32| &*self.tables[number as usize];
        for number in 0..self.tables.len() as u32 {
            probe.filter(shared.level, by_index, vector.lanes, vector.len, number);
            if probe.has_enough() {
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

/// Number of finds that are handled together: the first lines of their lists fit the smallest cache.
const AHEAD: usize = 128;

/// Finds of some kinds, in the order of finding.
struct FoundKind {
    found: [Found; AHEAD],
    len: usize,
}

impl FoundKind {
    fn new() -> FoundKind {
        FoundKind { found: [Found::default(); AHEAD], len: 0 }
    }

    /// Adds a find if it is of the kind.
    #[inline(always)]
    fn push_if(&mut self, is: bool, found: Found) {
        // No more are added than are handled together.
        self.found[self.len % AHEAD] = found;
        self.len += usize::from(is);
    }

    fn found(&self) -> &[Found] {
        self.found.get(..self.len).unwrap_or_default()
    }
}

/// Holds packets against what their keys led to, each kind in a loop of its own.
fn match_found(shared: SearchTables<'_>, vector: SearchVector<'_, '_>, scratch: &mut Scratch) {
    let found = std::mem::take(&mut scratch.found);
    scratch.options.clear();
    for found in found.chunks(AHEAD) {
        let (mut singles, mut listed) = (FoundKind::new(), FoundKind::new());
        for &found in found {
            let kind = KeyRules::kind(found.rules);
            singles.push_if(kind == KeyRules::RANGED, found);
            listed.push_if(kind == KeyRules::LIST, found);
        }
        if singles.len > 0 {
            match_singles(shared, vector, singles.found(), scratch);
        }
        if listed.len > 0 {
            match_lists(shared, vector, listed.found(), scratch);
        }
    }
    let (probe, pairs, options, mut log) = scratch.list_parts();
    match_options(pairs, shared, vector, probe, options, &mut log);
    scratch.found = found;
}

/// Holds packets against rules with conditions that are alone under their keys.
fn match_singles(
    shared: SearchTables<'_>,
    vector: SearchVector<'_, '_>,
    found: &[Found],
    scratch: &mut Scratch,
) {
    for found in found {
        if let Some(id) = RangedId::new(KeyRules::number(found.rules)) {
            shared.rules.singles.fetch(id);
        }
    }
    let (_, _, options, log) = scratch.list_parts();
    shared.level.run(MatchSingles { shared, vector, found, options, log });
}

struct MatchSingles<'s, 'a, 'b, 'w> {
    shared: SearchTables<'s>,
    vector: SearchVector<'a, 'b>,
    found: &'s [Found],
    options: &'w mut LazyOptions,
    log: Log<'w>,
}

impl Kernel for MatchSingles<'_, '_, '_, '_> {
    #[inline(always)]
    fn run(self) {
        let MatchSingles { shared, vector, found, options, mut log } = self;
        for &Found { key, rules } in found {
            let Some(id) = RangedId::new(KeyRules::number(rules)) else { continue };
            let Some(rule) = shared.rules.singles.at(id) else { continue };
            let mut holds = rule.spans_hold(vector.lanes, key);
            let packet = vector.of[usize::from(key)];
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
    scratch: &mut Scratch,
) {
    let list = |found: &Found| shared.rules.lists.at(ListId::new(KeyRules::number(found.rules))?);
    found.iter().filter_map(list).for_each(RuleList::fetch);
    found.iter().filter_map(list).for_each(RuleList::fetch_rules);
    let (probe, pairs, options, mut log) = scratch.list_parts();
    let mut others = FoundKind::new();
    shared.level.run(MatchLists { shared, vector, found, others: &mut others, options, log: &mut log });
    // Keys that a small table found stand list by list.
    let mut keys = [0; AHEAD];
    for run in others.found().chunk_by(|a, b| a.rules == b.rules) {
        let Some(id) = ListId::new(KeyRules::number(run[0].rules)) else { continue };
        let Some(list) = shared.rules.lists.at(id) else { continue };
        for (key, found) in keys.iter_mut().zip(run) {
            *key = found.key;
        }
        let keys = &keys[..run.len()];
        if !list.is_of_key() {
            keys.iter().for_each(|&key| log.read_beyond_key(vector.of[usize::from(key)]));
        }
        match_list(list, shared.level, vector, keys, options, &mut log);
        let Some(kinds) = &list.keyed else { continue };
        let mut rest = keys;
        while !rest.is_empty() {
            rest = ask_options((id, kinds), vector, rest, pairs);
            if !rest.is_empty() {
                match_options(pairs, shared, vector, probe, options, &mut log);
            }
        }
    }
}

/// Adds the options of keys' packets that a list asks for, until there is no room for those of one more. Returns the keys that are left. A function of
/// its own: its loop needs all registers.
#[inline(never)]
fn ask_options<'k>(
    (id, kinds): (ListId, &OptionKinds),
    vector: SearchVector<'_, '_>,
    keys: &'k [u8],
    pairs: &mut Pairs,
) -> &'k [u8] {
    for (at, &key) in keys.iter().enumerate() {
        if !pairs.have_room() {
            return &keys[at..];
        }
        let subject = vector.subject(key);
        pairs.ask(key, id, kinds, &OptionArea::of(subject.packet, subject.layout));
    }
    &[]
}

/// Holds packets against lists whose rules lie side by side, and leaves the others.
struct MatchLists<'s, 'a, 'b, 'w, 'l> {
    shared: SearchTables<'s>,
    vector: SearchVector<'a, 'b>,
    found: &'s [Found],
    others: &'w mut FoundKind,
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
            let Some(few) = list.side_by_side() else {
                others.push_if(true, found);
                continue;
            };
            let packet = vector.of[usize::from(found.key)];
            if !list.is_of_key() {
                log.read_beyond_key(packet);
            }
            few.find(vector.lanes, found.key, |hits| {
                let bits = match hits.open {
                    0 => hits.bits,
                    _ => few.checked(hits, &vector.subject(found.key), options),
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
        keys.iter().for_each(|&key| log.hit(vector.of[usize::from(key)], slot));
    }
    if !list.ranged.is_empty() {
        let subject = |key| vector.subject(key);
        list.ranged.find_all(level, keys, subject, options, |key, slot| {
            log.hit(vector.of[usize::from(key)], slot);
        });
    }
}

/// Looks the pairs up in the option table, and holds packets against what is there.
#[inline(never)]
fn match_options(
    pairs: &mut Pairs,
    shared: SearchTables<'_>,
    vector: SearchVector<'_, '_>,
    probe: &mut ProbeColumns,
    options: &mut LazyOptions,
    log: &mut Log<'_>,
) {
    let table = |_| shared.options;
    probe.filter(shared.level, table, pairs.lanes(), pairs.len(), 0);
    probe.finish(shared.level, table);
    probe.verify(shared.level, table, pairs.lanes(), |pair, rules| {
        let key = pairs.key(pair);
        match KeyRules::unpacked(rules) {
            Some(KeyRules::Rule(slot)) => log.hit(vector.of[usize::from(key)], slot),
            Some(KeyRules::Ranged(rule)) => {
                let rule = shared.rules.singles.at(rule);
                if let Some(rule) = rule.filter(|rule| rule.holds(&vector.subject(key), options)) {
                    log.hit(vector.of[usize::from(key)], rule.slot);
                }
            }
            Some(KeyRules::List(list)) => {
                if let Some(list) = shared.rules.lists.at(list) {
                    match_list(list, shared.level, vector, &[key], options, log);
                }
            }
            None => {}
        }
    });
    pairs.clear();
}
