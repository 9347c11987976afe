//! Short lists: at most some twenty rules about at most six fields, whose lines are the list. Most lists of real sets are such ones.
//!
//! A list has the *shape* of the number of fields and groups that there is room for, and lists of one shape are searched one after the other:
//! the same instructions for every one of them, whatever it holds. A field or group that it does not need holds always, or has no rules. The
//! lines are those of [`SideBySideRules`](super::SideBySideRules).

use super::rule::{RangeField, RangedRule};
use super::side_by_side::{GROUP, RuleLine, fields_of, holding, lay_out, number_of, rules_of};
use mmb_base::{PersistentVec, prefetch};
use mmb_packet::columns::Column;

/// The shape of a list: its place among [`SHAPES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListShape(u8);

/// The lines of a list: the fields, and for each group one for each field and the last one.
const fn lines(fields: usize, groups: usize) -> usize {
    1 + groups * (fields + 1)
}

impl ListShape {
    /// The number of shapes.
    pub(crate) const COUNT: usize = SHAPES.len();
    /// The most rules that any shape has room for.
    pub(crate) const MAX_RULES: usize = {
        let (mut max, mut at) = (0, 0);
        while at < SHAPES.len() {
            max = if SHAPES[at].1 > max { SHAPES[at].1 } else { max };
            at += 1;
        }
        max * GROUP
    };

    /// The shape of this number, if it is one.
    #[inline(always)]
    pub(crate) fn new(number: u32) -> Option<ListShape> {
        ((number as usize) < ListShape::COUNT).then_some(ListShape(number as u8))
    }

    /// Its number.
    #[inline(always)]
    pub(crate) fn number(self) -> u32 {
        self.0.into()
    }

    /// Its number as an index.
    #[inline(always)]
    pub(crate) fn index(self) -> usize {
        self.0.into()
    }

    /// All shapes, by number.
    pub(crate) fn all() -> impl Iterator<Item = ListShape> {
        (0..ListShape::COUNT as u8).map(ListShape)
    }

    /// The shape of the fewest lines that has room for all rules; none if there is none, or if some rule has conditions that are no ranges.
    pub(crate) fn for_rules(rules: &[RangedRule]) -> Option<ListShape> {
        if rules.iter().any(|rule| rule.rest().is_some()) {
            return None;
        }
        let (fields, groups) = (fields_of(rules).len(), rules.len().div_ceil(GROUP));
        ListShape::all().find(|shape| {
            let room = SHAPES[usize::from(shape.0)];
            fields <= room.0 && groups <= room.1
        })
    }
}

/// A list of at most `FIELDS` fields and `GROUPS` groups, which has `LINES` lines.
#[derive(Clone, Copy, Debug)]
struct ShortList<const FIELDS: usize, const GROUPS: usize, const LINES: usize>([RuleLine; LINES]);

impl<const FIELDS: usize, const GROUPS: usize, const LINES: usize> Default
    for ShortList<FIELDS, GROUPS, LINES>
{
    fn default() -> Self {
        const { assert!(LINES == lines(FIELDS, GROUPS) && FIELDS <= GROUP) };
        ShortList([RuleLine::default(); LINES])
    }
}

impl<const FIELDS: usize, const GROUPS: usize, const LINES: usize> ShortList<FIELDS, GROUPS, LINES> {
    /// The list of rules that there is room for.
    fn new(rules: &[RangedRule]) -> Self {
        let mut fields = fields_of(rules);
        fields.resize(FIELDS, RangeField::default());
        let mut list = ShortList::default();
        list.0.iter_mut().zip(lay_out(rules, &fields)).for_each(|(to, line)| *to = line);
        list
    }

    fn rules(&self) -> Vec<RangedRule> {
        rules_of(&self.0, FIELDS, |_| None)
    }

    /// Calls `hits` for every group with the rules that hold, a bit each, and the words of their slots.
    #[inline(always)]
    fn find(&self, columns: &[Column], key: u8, mut hits: impl FnMut(u32, &[u32; GROUP])) {
        let mut numbers = [0; FIELDS];
        for (i, number) in numbers.iter_mut().enumerate() {
            *number = number_of(&self.0[0], i, columns, key);
        }
        for group in 0..GROUPS {
            let first = 1 + group * (FIELDS + 1);
            let last = &self.0[first + FIELDS];
            hits(holding(&numbers, &self.0[first..first + FIELDS], last), &last.left);
        }
    }
}

/// Lists of a leaf.
const LEAF: usize = 4;

/// Defines [`SHAPES`] and [`ShortLists`]: for each shape, from those of fewer lines to those of more, a name, its number, its fields and its groups.
macro_rules! short_lists {
    ($($name:ident: $shape:literal, $fields:literal, $groups:literal;)+) => {
        /// The fields and the groups of each shape.
        const SHAPES: &[(usize, usize)] = &[$(($fields, $groups)),+];
        $(const _: () = assert!(SHAPES[$shape].0 == $fields && SHAPES[$shape].1 == $groups);)+

        /// The short lists, by shape and number.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct ShortLists {
            $($name: PersistentVec<ShortList<$fields, $groups, { lines($fields, $groups) }>, LEAF>,)+
        }

        impl ShortLists {
            /// Sets the list of a number to rules that fit its shape.
            pub(crate) fn set(&mut self, shape: ListShape, number: usize, rules: &[RangedRule]) {
                match shape.0 {
                    $($shape => self.$name.set(number, ShortList::new(rules)),)+
                    _ => {}
                }
            }

            /// The rules of a list.
            pub(crate) fn rules(&self, shape: ListShape, number: usize) -> Vec<RangedRule> {
                match shape.0 {
                    $($shape => self.$name.at(number).rules(),)+
                    _ => Vec::new(),
                }
            }

            /// Asks for the memory of lists.
            #[inline]
            pub(crate) fn fetch(&self, shape: ListShape, numbers: impl Iterator<Item = usize>) {
                match shape.0 {
                    $($shape => numbers.for_each(|number| self.$name.at(number).0.iter().for_each(prefetch)),)+
                    _ => {}
                }
            }

            /// Calls `hits` with each key, the rules of a group of its list that hold, a bit each, and the words of the group's slots. As part of a
            /// kernel it is compiled for each level.
            #[inline(always)]
            pub(crate) fn find(
                &self,
                shape: ListShape,
                columns: &[Column],
                keys: impl Iterator<Item = (u8, usize)>,
                mut hits: impl FnMut(u8, u32, &[u32; GROUP]),
            ) {
                match shape.0 {
                    $($shape => {
                        for (key, number) in keys {
                            self.$name.at(number).find(columns, key, |bits, slots| hits(key, bits, slots));
                        }
                    })+
                    _ => {}
                }
            }
        }
    };
}

short_lists! {
    two: 0, 2, 1;
    three: 1, 3, 1;
    four: 2, 4, 1;
    five: 3, 5, 1;
    two_twice: 4, 2, 2;
    three_twice: 5, 3, 2;
    two_thrice: 6, 2, 3;
    four_twice: 7, 4, 2;
    five_twice: 8, 5, 2;
    six_twice: 9, 6, 2;
    four_thrice: 10, 4, 3;
}
