//! What rules ask named sets, and the answers for the packets of a vector.
//!
//! A large set is in no cache, and a search in it waits for memory several times. So before packets are held against what their keys led to, the
//! questions that will be asked of them are collected ([`SetAnswers::ask`]) and answered for many packets at once ([`SetAnswers::answer`]), which
//! waits once for all. What was not foreseen, such as a question behind other conditions, is answered when it is asked.

use crate::VECTOR;
use crate::extract::{Extract, address};
use crate::lane_mask::LaneMask;
use crate::names::{SetNumber, SetTable};
use mmb_packet::columns::Column;
use mmb_packet::key::Lanes;

/// The most questions that are foreseen at a time. Policies ask a few sets for one or two fields.
const MOST: usize = 8;
/// Numbers that are searched for at once: about the misses that a core waits for at a time.
const AT_ONCE: usize = 16;

/// Whether a field of a packet is a member of a named set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetQuestion {
    pub(crate) set: SetNumber,
    pub(crate) field: AskedField,
}

/// The field that a set is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedField {
    /// A number: of the set's numbers.
    Number(Extract),
    /// An IPv4 address.
    Ip4(Extract),
    /// The IPv6 address from a lane on.
    Ip6(u8),
}

/// Sets, and what is known about a vector's packets.
#[derive(Clone, Copy)]
pub(crate) struct AskedSets<'a> {
    pub(crate) table: &'a SetTable,
    pub(crate) answers: &'a SetAnswers,
}

impl SetQuestion {
    /// Whether the field of a key is a member; `None` where the check holds without it.
    #[inline]
    pub(crate) fn is_member(self, lanes: &[Column], key: u8, sets: AskedSets<'_>) -> Option<bool> {
        if let AskedField::Number(from) | AskedField::Ip4(from) = self.field {
            from.read(lanes, key)?;
        }
        let known = sets.answers.of(self, key);
        Some(known.unwrap_or_else(|| self.members(sets.table, lanes, &[key]) != 0))
    }

    /// The keys whose field is a member, a bit for each.
    fn members<const COUNT: usize>(self, table: &SetTable, lanes: &[Column], keys: &[u8; COUNT]) -> u32 {
        let Some(set) = table.get(self.set) else { return 0 };
        // Where there is no number, nobody asks for the answer.
        let numbers = |from: Extract| keys.map(|key| from.read(lanes, key).unwrap_or(0));
        match self.field {
            AskedField::Number(from) => set.numbers().index().members(&numbers(from)),
            AskedField::Ip4(from) => set.ip4().index().members(&numbers(from)),
            AskedField::Ip6(lane) => set.ip6().index().members(&keys.map(|key| address(lanes, lane, key))),
        }
    }

    /// Adds the bits of the key that it reads to a mask.
    pub(crate) fn add_bits(self, mask: &mut LaneMask) {
        match self.field {
            AskedField::Number(from) | AskedField::Ip4(from) => from.add_bits(mask),
            AskedField::Ip6(lane) => {
                mask.iter_mut().skip(lane.into()).take(4).for_each(|lane| *lane = u32::MAX);
            }
        }
    }

    /// The lanes that it reads.
    pub(crate) fn lanes(self) -> Lanes {
        match self.field {
            AskedField::Number(from) | AskedField::Ip4(from) => from.lanes(),
            AskedField::Ip6(lane) => Lanes::range(lane.into(), usize::from(lane) + 4),
        }
    }
}

/// A bit for each key of a vector.
type KeyBits = [u64; VECTOR / 64];

/// The answers for packets of a vector. One worker owns and writes them.
#[derive(Clone, Debug)]
pub(crate) struct SetAnswers(Vec<Answered>);

/// A question, the keys for which it is asked, and those of them whose field is a member.
#[derive(Clone, Debug)]
struct Answered {
    question: SetQuestion,
    keys: KeyBits,
    members: KeyBits,
}

impl Default for SetAnswers {
    fn default() -> SetAnswers {
        SetAnswers(Vec::with_capacity(MOST))
    }
}

impl SetAnswers {
    /// No answers.
    pub(crate) const NONE: &SetAnswers = &SetAnswers(Vec::new());

    /// Forgets all questions.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Notes that a question will be asked for a key.
    #[inline]
    pub(crate) fn ask(&mut self, question: SetQuestion, key: u8) {
        let at = match self.0.iter().position(|answered| answered.question == question) {
            Some(at) => at,
            None if self.0.len() < MOST => {
                let nothing = KeyBits::default();
                self.0.push(Answered { question, keys: nothing, members: nothing });
                self.0.len() - 1
            }
            None => return,
        };
        self.0[at].keys[usize::from(key) / 64] |= 1 << (key % 64);
    }

    /// Answers what was asked.
    pub(crate) fn answer(&mut self, table: &SetTable, lanes: &[Column]) {
        for Answered { question, keys, members } in &mut self.0 {
            let (mut group, mut len) = ([0; AT_ONCE], 0);
            let mut search = |group: &[u8; AT_ONCE], len: usize| {
                let found = question.members(table, lanes, group);
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
                // The others of the group are asked for again.
                search(&group, len);
            }
        }
    }

    /// The answer for a key, if it is known.
    #[inline]
    fn of(&self, question: SetQuestion, key: u8) -> Option<bool> {
        let answered = self.0.iter().find(|answered| answered.question == question)?;
        let is_in = |bits: &KeyBits| bits[usize::from(key) / 64] >> (key % 64) & 1 == 1;
        is_in(&answered.keys).then(|| is_in(&answered.members))
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
        let questions: Vec<SetQuestion> = (0..MOST as u32 + 2)
            .map(|number| {
                let mut list = ElementList::default();
                list.ip4.extend((0..500).map(|n| Element::of(n * (number + 2), n * (number + 2))));
                let mut set = mmb_policy::NamedSet::default();
                set.change(SetOperation::Replace, list, 0).expect("they are of one kind");
                let name = format!("set{number}");
                names.put_set(&name, Arc::new(set));
                SetQuestion { set: names.set_number(&name), field: AskedField::Ip4(Extract::new(0, 32, 0)) }
            })
            .collect();
        let lanes = [std::array::from_fn(|key| (key as u32 * 13).to_be())];
        let mut answers = SetAnswers::default();
        // All packets, or some, or none.
        for (at, question) in questions.iter().enumerate() {
            (0..=255u8)
                .filter(|key| at == 0 || key % at as u8 == 1)
                .for_each(|key| answers.ask(*question, key));
        }
        answers.answer(names.sets(), &lanes);
        assert_eq!(answers.of(questions[0], 20), Some(true));
        assert_eq!((answers.of(questions[5], 2), answers.of(questions[MOST + 1], 1)), (None, None));
        let [alone, together] = [SetAnswers::NONE, &answers].map(|answers| {
            let sets = AskedSets { table: names.sets(), answers };
            let of =
                |question: &SetQuestion| (0..=255).map(|key| question.is_member(&lanes, key, sets)).collect();
            questions.iter().map(of).collect::<Vec<Vec<_>>>()
        });
        assert_eq!(together, alone);
        assert!(alone.iter().all(|of_set| of_set.contains(&Some(true)) && of_set.contains(&Some(false))));
    }
}
