//! Some tens of rules, laid side by side: one range of eight rules is compared at once.
//!
//! The ranges of all rules are sorted by field. A group of eight rules has a line for each field, with the start and the length of each
//! rule's range; a rule without a range of the field has one that holds all numbers. So a packet's number is read once for all rules,
//! and a group costs a few instructions for each field. Lines are one allocation; conditions that are no ranges are another, and are
//! checked on the rules whose ranges hold.

use super::options::LazyOptions;
use super::rule::{RangeField, RangedRule, RestOfRule};
use crate::check::CheckedPacket;
use crate::ids::RuleSlot;
use crate::simd;
use mmb_base::prefetch;
use mmb_packet::columns::Column;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

/// Rules that are compared at once.
pub(crate) const GROUP: usize = 8;
/// The most fields of a list.
const MAX_FIELDS: usize = 16;
/// The most lines of all groups: as much as a change copies, and about what a lookup in a block costs.
const MAX_LINES: usize = 64;
/// Fields that tell most rules apart: the others are compared only if some rule of a group is left.
const FIRST_FIELDS: usize = 2;
/// Lines that are asked for ahead: the processor itself asks for those behind them.
const FETCHED: usize = 8;

/// A cache line. The first ones have the lanes and the masks of the fields. Each group has, for each field, the [`biased`] starts and lengths of
/// its rules' ranges, where they stand in their lane, and last a line with the rules' slots, the bits of those that are there, and the bits of those with
/// conditions that are no ranges.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct RuleLine {
    pub(super) left: [u32; GROUP],
    pub(super) right: [u32; GROUP],
}

/// A rule's place, and its conditions that are no ranges.
type PlacedRest = (u32, Arc<RestOfRule>);

/// Rules side by side.
#[derive(Clone, Debug, Default)]
pub(crate) struct SideBySideRules {
    lines: Arc<[RuleLine]>,
    /// The conditions that are no ranges, with their rules' places.
    rest: Option<Arc<[PlacedRest]>>,
    fields: u32,
    len: u32,
}

/// The rules of a group whose ranges hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupHits<'a> {
    /// A bit for each.
    pub(crate) bits: u32,
    /// Those of them whose other conditions are still to be checked.
    pub(crate) open: u32,
    pub(crate) slots: &'a [u32; GROUP],
    group: u32,
}

impl SideBySideRules {
    /// The rules side by side, unless they are too many or about too many fields.
    pub(super) fn new(rules: &[RangedRule]) -> Option<SideBySideRules> {
        let mut fields = fields_of(rules);
        let groups = rules.len().div_ceil(GROUP);
        if fields.len() > MAX_FIELDS || groups * (fields.len() + 1) > MAX_LINES {
            return None;
        }
        // The fields in which rules differ most come first.
        fields.sort_by_cached_key(|field| {
            let ranges: HashSet<_> = rules.iter().filter_map(|rule| rule.bounds(*field)).collect();
            Reverse(ranges.len())
        });
        let lines = lay_out(rules, &fields);
        let rest = (0..).zip(rules).filter_map(|(place, rule)| Some((place, Arc::clone(rule.rest()?))));
        let rest: Vec<_> = rest.collect();
        let rest = (!rest.is_empty()).then(|| rest.into());
        Some(SideBySideRules {
            lines: lines.into(),
            rest,
            fields: fields.len() as u32,
            len: rules.len() as u32,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Asks for the first lines.
    #[inline(always)]
    pub(super) fn fetch(&self) {
        self.lines.iter().take(FETCHED).for_each(prefetch);
    }

    /// The rules one by one, to be put together anew.
    pub(crate) fn rules(&self) -> Vec<RangedRule> {
        rules_of(&self.lines, self.fields as usize, |place| self.rest_of(place).cloned())
    }

    fn rest_of(&self, place: u32) -> Option<&Arc<RestOfRule>> {
        self.rest.iter().flat_map(|rest| rest.iter()).find(|rest| rest.0 == place).map(|rest| &rest.1)
    }

    /// Calls `each` for groups with the rules whose ranges hold for a key: for all groups that have some. As part of a kernel it is compiled for
    /// each level.
    #[inline(always)]
    pub(crate) fn find(&self, columns: &[Column], key: u8, mut each: impl FnMut(GroupHits<'_>)) {
        let fields = self.fields as usize;
        let Some((heads, lines)) = self.lines.split_at_checked(heads(fields)) else { return };
        let mut numbers = [0; MAX_FIELDS];
        for (i, number) in numbers.iter_mut().enumerate().take(fields) {
            *number = number_of(&heads[i / GROUP], i % GROUP, columns, key);
        }
        let (first, others) = numbers.split_at(FIRST_FIELDS);
        for (number, group) in (0..).zip(lines.chunks_exact(fields + 1)) {
            let Some((last, bounds)) = group.split_last() else { continue };
            let (telling, bounds) = bounds.split_at(FIRST_FIELDS.min(fields));
            let mut bits = holding(first, telling, last);
            if bits == 0 {
                continue;
            }
            if !bounds.is_empty() {
                bits &= holding(others, bounds, last);
            }
            each(GroupHits { bits, open: bits & last.right[1], slots: &last.left, group: number });
        }
    }

    /// The rules of a group that hold, after those of them with more conditions are checked.
    #[cold]
    #[inline(never)]
    pub(crate) fn checked(
        &self,
        hits: GroupHits<'_>,
        subject: &CheckedPacket<'_, '_>,
        options: &mut LazyOptions,
    ) -> u32 {
        let (mut bits, mut open) = (hits.bits, hits.open);
        while open != 0 {
            let place = open.trailing_zeros();
            let rest = self.rest_of(hits.group * GROUP as u32 + place);
            let holds = rest.is_none_or(|rest| rest.holds(subject, options));
            bits &= !(u32::from(!holds) << place);
            open &= open - 1;
        }
        bits
    }
}

/// The fields of all rules, each once.
pub(super) fn fields_of(rules: &[RangedRule]) -> Vec<RangeField> {
    let mut fields: Vec<RangeField> = rules.iter().flat_map(RangedRule::fields).collect();
    fields.sort_unstable_by_key(|field| (field.lane, field.mask));
    fields.dedup();
    fields
}

/// The lines of rules whose ranges are about these fields.
pub(super) fn lay_out(rules: &[RangedRule], fields: &[RangeField]) -> Vec<RuleLine> {
    let mut lines = vec![RuleLine::default(); heads(fields.len())];
    for (i, field) in fields.iter().enumerate() {
        let head = &mut lines[i / GROUP];
        (head.left[i % GROUP], head.right[i % GROUP]) = (field.lane.into(), field.mask);
    }
    for group in rules.chunks(GROUP) {
        let columns = fields.iter().map(|field| {
            let mut line = RuleLine { left: [biased(0); GROUP], right: [biased(u32::MAX); GROUP] };
            for (i, rule) in group.iter().enumerate() {
                // Of several ranges of a field one is left to be checked with the rest.
                let (start, length) = rule.bounds(*field).unwrap_or((0, u32::MAX));
                (line.left[i], line.right[i]) = (biased(start), biased(length));
            }
            line
        });
        lines.extend(columns);
        let mut last = RuleLine::default();
        for (i, rule) in group.iter().enumerate() {
            last.left[i] = rule.slot.word();
            last.right[0] |= 1 << i;
            last.right[1] |= u32::from(rule.rest().is_some()) << i;
        }
        lines.push(last);
    }
    lines
}

/// The rules that were laid out in some lines; `rest` returns the conditions of a place that are no ranges.
pub(super) fn rules_of(
    lines: &[RuleLine],
    fields: usize,
    rest: impl Fn(u32) -> Option<Arc<RestOfRule>>,
) -> Vec<RangedRule> {
    let Some((heads, lines)) = lines.split_at_checked(heads(fields)) else { return Vec::new() };
    let groups = lines.chunks_exact(fields + 1);
    let len: u32 = groups.clone().map(|group| group[fields].right[0].count_ones()).sum();
    let rule = |place: usize| {
        let group = &lines[place / GROUP * (fields + 1)..];
        let bounds = (0..fields).map(|i| {
            let head = &heads[i / GROUP];
            let field = RangeField { lane: head.left[i % GROUP] as u8, mask: head.right[i % GROUP] };
            (field, biased(group[i].left[place % GROUP]), biased(group[i].right[place % GROUP]))
        });
        let slot = RuleSlot::from_word(group[fields].left[place % GROUP])?;
        Some(RangedRule::from_bounds(slot, bounds, rest(place as u32)))
    };
    (0..len as usize).filter_map(rule).collect()
}

/// The number of a packet for a field: of a column, what counts.
#[inline(always)]
pub(super) fn number_of(head: &RuleLine, field: usize, columns: &[Column], key: u8) -> u32 {
    u32::from_be(columns[head.left[field] as usize][usize::from(key)]) & head.right[field]
}

/// The rules of a group whose ranges hold for a packet's numbers, a bit each: of the group's lines, those of the fields and the last one.
#[inline(always)]
pub(super) fn holding(numbers: &[u32], bounds: &[RuleLine], last: &RuleLine) -> u32 {
    let mut outside = [0i32; GROUP];
    for (bound, &number) in bounds.iter().zip(numbers) {
        for (outside, (&start, &length)) in outside.iter_mut().zip(bound.left.iter().zip(&bound.right)) {
            *outside |= -i32::from(number.wrapping_sub(start) as i32 > length as i32);
        }
    }
    !simd::negative_lanes(&outside) & last.right[0]
}

/// Maps numbers so that signed comparison keeps their order, as in starts and lengths: `number - biased(start)` is the biased distance from the
/// start. Its own inverse.
#[inline(always)]
const fn biased(number: u32) -> u32 {
    number ^ 1 << 31
}

/// Lines with fields.
#[inline(always)]
const fn heads(fields: usize) -> usize {
    fields.div_ceil(GROUP)
}
