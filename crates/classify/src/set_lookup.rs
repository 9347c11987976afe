//! The lookups of rules in named sets, and their results for the packets of a vector.
//!
//! A large set is in no cache, and a search in it waits for memory several times. So before packets are held against what their keys led to, the
//! lookups that they will need are collected ([`SetResults::request`]) and made for many packets at once ([`SetResults::look_up`]), which
//! waits once for all. A lookup that was not foreseen, such as one after other conditions, is made when it is needed.

use crate::VECTOR;
use crate::extract::{Extract, address};
use crate::lane_mask::LaneMask;
use crate::names::{SetNumber, SetTable};
use mmb_packet::columns::Column;
use mmb_packet::key::Lanes;

/// The most lookups that are foreseen at a time. Policies look up one or two fields in a few sets.
const MAX_LOOKUPS: usize = 8;
/// Numbers that are searched for at once: about the misses that a core waits for at a time.
const AT_ONCE: usize = 16;

/// Whether a field of a packet is a member of a named set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetLookup {
    pub(crate) set: SetNumber,
    pub(crate) field: LookupField,
}

/// The field that is looked up in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupField {
    /// A number: of the set's numbers.
    Number(Extract),
    /// An IPv4 address.
    Ip4(Extract),
    /// The IPv6 address from a lane on.
    Ip6(u8),
}

/// Sets, and what is known about a vector's packets.
#[derive(Clone, Copy)]
pub(crate) struct SetContext<'a> {
    pub(crate) table: &'a SetTable,
    pub(crate) results: &'a SetResults,
}

impl SetLookup {
    /// Whether the field of a key is a member; `None` where the check holds without it.
    #[inline]
    pub(crate) fn is_member(self, lanes: &[Column], key: u8, sets: SetContext<'_>) -> Option<bool> {
        if let LookupField::Number(extract) | LookupField::Ip4(extract) = self.field {
            extract.read(lanes, key)?;
        }
        let known = sets.results.get(self, key);
        Some(known.unwrap_or_else(|| self.members(sets.table, lanes, &[key]) != 0))
    }

    /// The keys whose field is a member, a bit for each.
    fn members<const COUNT: usize>(self, table: &SetTable, lanes: &[Column], keys: &[u8; COUNT]) -> u32 {
        let Some(set) = table.get(self.set) else { return 0 };
        // Where there is no number, nobody reads the result.
        let numbers = |extract: Extract| keys.map(|key| extract.read(lanes, key).unwrap_or(0));
        match self.field {
            LookupField::Number(extract) => set.numbers().index().members(&numbers(extract)),
            LookupField::Ip4(extract) => set.ip4().index().members(&numbers(extract)),
            LookupField::Ip6(lane) => set.ip6().index().members(&keys.map(|key| address(lanes, lane, key))),
        }
    }

    /// Adds the bits of the key that it reads to a mask.
    pub(crate) fn add_bits(self, mask: &mut LaneMask) {
        match self.field {
            LookupField::Number(extract) | LookupField::Ip4(extract) => extract.add_bits(mask),
            LookupField::Ip6(lane) => {
                mask.iter_mut().skip(lane.into()).take(4).for_each(|lane| *lane = u32::MAX);
            }
        }
    }

    /// The lanes that it reads.
    pub(crate) fn lanes(self) -> Lanes {
        match self.field {
            LookupField::Number(extract) | LookupField::Ip4(extract) => extract.lanes(),
            LookupField::Ip6(lane) => Lanes::range(lane.into(), usize::from(lane) + 4),
        }
    }
}

/// A bit for each key of a vector.
type KeyBits = [u64; VECTOR / 64];

/// The results for packets of a vector. One worker owns and writes them.
#[derive(Clone, Debug)]
pub(crate) struct SetResults(Vec<SetResult>);

/// A lookup, the keys for which it is requested, and those of them whose field is a member.
#[derive(Clone, Debug)]
struct SetResult {
    lookup: SetLookup,
    keys: KeyBits,
    members: KeyBits,
}

impl Default for SetResults {
    fn default() -> SetResults {
        SetResults(Vec::with_capacity(MAX_LOOKUPS))
    }
}

impl SetResults {
    /// No results.
    pub(crate) const NONE: &SetResults = &SetResults(Vec::new());

    /// Forgets all lookups.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Records that a lookup will be needed for a key.
    #[inline]
    pub(crate) fn request(&mut self, lookup: SetLookup, key: u8) {
        let index = match self.0.iter().position(|entry| entry.lookup == lookup) {
            Some(index) => index,
            None if self.0.len() < MAX_LOOKUPS => {
                let nothing = KeyBits::default();
                self.0.push(SetResult { lookup, keys: nothing, members: nothing });
                self.0.len() - 1
            }
            None => return,
        };
        self.0[index].keys[usize::from(key) / 64] |= 1 << (key % 64);
    }

    /// Makes the requested lookups.
    pub(crate) fn look_up(&mut self, table: &SetTable, lanes: &[Column]) {
        for SetResult { lookup, keys, members } in &mut self.0 {
            let (mut group, mut len) = ([0; AT_ONCE], 0);
            let mut search = |group: &[u8; AT_ONCE], len: usize| {
                let found = lookup.members(table, lanes, group);
                for (bit, &key) in group[..len].iter().enumerate() {
                    members[usize::from(key) / 64] |= u64::from(found >> bit & 1) << (key % 64);
                }
            };
            for (word, &bits) in keys.iter().enumerate() {
                let mut bits = bits;
                while bits != 0 {
                    group[len] = (word * 64) as u8 + bits.trailing_zeros() as u8;
                    len += 1;
                    if len == AT_ONCE {
                        search(&group, AT_ONCE);
                        len = 0;
                    }
                    bits &= bits - 1;
                }
            }
            if len > 0 {
                // The others of the group are looked up again.
                search(&group, len);
            }
        }
    }

    /// The result for a key, if it is known.
    #[inline]
    fn get(&self, lookup: SetLookup, key: u8) -> Option<bool> {
        let entry = self.0.iter().find(|entry| entry.lookup == lookup)?;
        let is_in = |bits: &KeyBits| bits[usize::from(key) / 64] >> (key % 64) & 1 == 1;
        is_in(&entry.keys).then(|| is_in(&entry.members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::RuleNames;
    use mmb_policy::sets::{Element, ElementList, SetOperation};
    use std::sync::Arc;

    #[test]
    fn answers_for_many_keys_are_those_for_one() {
        let mut names = RuleNames::default();
        let lookups: Vec<SetLookup> = (0..MAX_LOOKUPS as u32 + 2)
            .map(|number| {
                let mut list = ElementList::default();
                list.ip4.extend((0..500).map(|n| Element::of(n * (number + 2), n * (number + 2))));
                let mut set = mmb_policy::NamedSet::default();
                set.change(SetOperation::Replace, list, 0).expect("they are of one kind");
                let name = format!("set{number}");
                names.put_set(&name, Arc::new(set));
                SetLookup { set: names.set_number(&name), field: LookupField::Ip4(Extract::new(0, 32, 0)) }
            })
            .collect();
        let lanes = [std::array::from_fn(|key| (key as u32 * 13).to_be())];
        let mut results = SetResults::default();
        // All packets, or some, or none.
        for (index, lookup) in lookups.iter().enumerate() {
            (0..=255u8)
                .filter(|key| index == 0 || key % index as u8 == 1)
                .for_each(|key| results.request(*lookup, key));
        }
        results.look_up(names.sets(), &lanes);
        assert_eq!(results.get(lookups[0], 20), Some(true));
        assert_eq!((results.get(lookups[5], 2), results.get(lookups[MAX_LOOKUPS + 1], 1)), (None, None));
        let [alone, together] = [SetResults::NONE, &results].map(|results| {
            let sets = SetContext { table: names.sets(), results };
            let is_member =
                |lookup: &SetLookup| (0..=255).map(|key| lookup.is_member(&lanes, key, sets)).collect();
            lookups.iter().map(is_member).collect::<Vec<Vec<_>>>()
        });
        assert_eq!(together, alone);
        assert!(alone.iter().all(|of_set| of_set.contains(&Some(true)) && of_set.contains(&Some(false))));
    }
}
