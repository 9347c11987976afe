//! The tables of one packet class, as workers search them.

use crate::VECTOR;
use crate::check::CheckedPacket;
use crate::flat::Flat;
use crate::ids::KeyRules;
use crate::list::{RuleList, RuleLists};
use crate::matches::{Listed, Log, Scratch};
use crate::pairs::Pairs;
use crate::probe::ProbeColumns;
use crate::ranged::LazyOptions;
use crate::table::TupleTable;
use mmb_base::simd::SimdLevel;
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
    pub(crate) lists: &'a RuleLists,
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
        let (probe, listed, mut log) = scratch.parts();
        listed.clear();
        let mut hit = |key: u8, rules: u32| match KeyRules::unpacked(rules) {
            Some(KeyRules::Rule(slot)) => log.hit(vector.of[usize::from(key)], slot),
            Some(KeyRules::List(list)) => listed.push(Listed { key, list }),
            None => {}
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
        if !listed.is_empty() {
            match_lists(shared, vector, scratch);
        }
    }
}

/// Number of lists that are prefetched together: their first lines fit the smallest cache.
const AHEAD: usize = 128;

/// Holds packets against the lists that their keys led to.
fn match_lists(shared: SearchTables<'_>, vector: SearchVector<'_, '_>, scratch: &mut Scratch) {
    let listed = std::mem::take(&mut scratch.listed);
    scratch.options.clear();
    for listed in listed.chunks(AHEAD) {
        let lists = || listed.iter().filter_map(|listed| shared.lists.at(listed.list));
        lists().for_each(RuleList::fetch);
        lists().for_each(RuleList::fetch_rules);
        match_some(shared, vector, listed, scratch);
    }
    let (probe, pairs, options, mut log) = scratch.list_parts();
    match_options(pairs, shared, vector, probe, options, &mut log);
    scratch.listed = listed;
}

fn match_some(
    shared: SearchTables<'_>,
    vector: SearchVector<'_, '_>,
    listed: &[Listed],
    scratch: &mut Scratch,
) {
    let (probe, pairs, options, mut log) = scratch.list_parts();
    let mut keys = [0; AHEAD];
    // Keys that a small table found stand list by list.
    for run in listed.chunk_by(|a, b| a.list == b.list) {
        let id = run[0].list;
        let Some(list) = shared.lists.at(id) else { continue };
        for (key, listed) in keys.iter_mut().zip(run) {
            *key = listed.key;
        }
        let keys = &keys[..run.len()];
        if !list.is_of_key() {
            keys.iter().for_each(|&key| log.read_beyond_key(vector.of[usize::from(key)]));
        }
        match_list(list, shared.level, vector, keys, options, &mut log);
        let Some(kinds) = &list.keyed else { continue };
        for &key in keys {
            if !pairs.have_room() {
                match_options(pairs, shared, vector, probe, options, &mut log);
            }
            let subject = vector.subject(key);
            pairs.ask(key, id, kinds, &OptionArea::of(subject.packet, subject.layout));
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
            Some(KeyRules::List(list)) => {
                if let Some(list) = shared.lists.at(list) {
                    match_list(list, shared.level, vector, &[key], options, log);
                }
            }
            None => {}
        }
    });
    pairs.clear();
}
