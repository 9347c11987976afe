//! One rule with its conditions, so that the usual one, a few ranges, is evaluated without following a pointer.

use super::options::LazyOptions;
use crate::check::{CheckedPacket, RuleCheck};
use crate::ids::RuleSlot;
use crate::set_lookup::SetLookup;
use mmb_packet::columns::Column;
use std::sync::Arc;

/// Conditions that a rule holds itself: those that make it a cache line.
const INLINE: usize = 4;
/// The most ranges of a set that are told apart; the closest are taken for one.
const MAX_RANGES: usize = 8;

/// A field of a key: bits of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RangeField {
    pub(super) lane: u8,
    pub(super) mask: u32,
}

impl RangeField {
    /// Bits behind it in the lane.
    #[inline(always)]
    pub(super) fn shift(self) -> u32 {
        self.mask.trailing_zeros() % 32
    }

    /// Its greatest number.
    pub(super) fn max_value(self) -> u32 {
        self.mask >> self.shift()
    }
}

/// A number of the key lies in a range. Numbers are compared where they stand in their lane, and the range may wrap around,
/// so that "outside" is a range too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RangeSpan {
    lane: u8,
    /// The field's bits in the lane.
    mask: u32,
    start: u32,
    length: u32,
}

impl RangeSpan {
    /// The check as a range, if it is one.
    fn from_check(check: &RuleCheck) -> Option<RangeSpan> {
        let RuleCheck::Range { extract, first, last, outside } = check else { return None };
        let (lane, shift, mask) = extract.plain()?;
        let (first, last) = (*first, (*last).min(mask));
        let (start, length) = match outside {
            // Nothing or all: no bits are looked at, and 0 is not 1.
            _ if first > last || (first, last) == (0, mask) => {
                let all = (first > last) == *outside;
                return Some(RangeSpan { lane, mask: 0, start: u32::from(!all), length: 0 });
            }
            false => (first, last - first),
            true => (last.wrapping_add(1), first.wrapping_sub(last).wrapping_sub(2)),
        };
        Some(RangeSpan { lane, mask: mask << shift, start: start << shift, length: length << shift })
    }

    fn field(&self) -> RangeField {
        RangeField { lane: self.lane, mask: self.mask }
    }

    fn is_all(&self) -> bool {
        (self.mask, self.start) == (0, 0)
    }

    #[inline(always)]
    fn holds(&self, lane: u32) -> bool {
        (lane & self.mask).wrapping_sub(self.start) <= self.length
    }

    /// The numbers of the field, shifted down, as at most two ranges, sorted.
    fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let shift = self.mask.trailing_zeros() % 32;
        let max_value = u64::from(self.mask >> shift);
        let ring = 1u64 << 32 >> shift;
        let first = u64::from(self.start >> shift);
        let last = first + u64::from(self.length >> shift);
        let parts = [(last >= ring).then(|| (0, last - ring)), Some((first, last.min(ring - 1)))];
        let parts = parts.into_iter().flatten().filter(move |part| part.0 <= max_value);
        parts.map(move |(first, last)| (first as u32, last.min(max_value) as u32))
    }
}

/// The conditions that do not fit into [`RangedRule`].
#[derive(Debug, Default)]
pub(crate) struct RestOfRule {
    spans: Box<[RangeSpan]>,
    /// Checks that are no ranges, those of options last.
    checks: Box<[RuleCheck]>,
}

/// A rule with its conditions: a cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct RangedRule {
    /// Ranges; those that are not used hold always.
    masks: [u32; INLINE],
    starts: [u32; INLINE],
    lengths: [u32; INLINE],
    lanes: [u8; INLINE],
    pub(crate) slot: RuleSlot,
    rest: Option<Arc<RestOfRule>>,
}

impl RangedRule {
    pub(crate) fn new(slot: RuleSlot, checks: Vec<RuleCheck>) -> RangedRule {
        let spans: Vec<RangeSpan> =
            checks.iter().filter_map(RangeSpan::from_check).filter(|span| !span.is_all()).collect();
        let checks: Box<[RuleCheck]> =
            checks.into_iter().filter(|check| RangeSpan::from_check(check).is_none()).collect();
        // Two ranges of one field: the second is one of the rest, so that fields tell the first ones apart.
        let (mut inline, mut rest) = (Vec::new(), Vec::new());
        for span in spans {
            let again = inline.iter().any(|other: &RangeSpan| other.field() == span.field());
            if again || inline.len() == INLINE { rest.push(span) } else { inline.push(span) }
        }
        let more = !rest.is_empty() || !checks.is_empty();
        let rest = more.then(|| Arc::new(RestOfRule { spans: rest.into(), checks }));
        RangedRule::from_spans(slot, &inline, rest)
    }

    /// A rule without conditions.
    pub(crate) fn plain(slot: RuleSlot) -> RangedRule {
        RangedRule::from_spans(slot, &[], None)
    }

    /// Whether it has no conditions.
    pub(crate) fn is_plain(&self) -> bool {
        self.rest.is_none() && self.spans().next().is_none()
    }

    /// Whether it reads what is not in the key.
    pub(crate) fn reads_beyond_key(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.reads_beyond_key())
    }

    /// Its set lookups for every packet of its key: none if it has other conditions, too.
    pub(crate) fn set_lookups(&self) -> impl Iterator<Item = SetLookup> {
        let checks = self.checks();
        let has_others =
            self.spans().next().is_some() || checks.iter().any(|check| check.set_lookup().is_none());
        checks.iter().filter_map(RuleCheck::set_lookup).filter(move |_| !has_others)
    }

    fn from_spans(slot: RuleSlot, spans: &[RangeSpan], rest: Option<Arc<RestOfRule>>) -> RangedRule {
        let span = |i: usize| spans.get(i).copied().unwrap_or_default();
        RangedRule {
            masks: std::array::from_fn(|i| span(i).mask),
            starts: std::array::from_fn(|i| span(i).start),
            lengths: std::array::from_fn(|i| span(i).length),
            lanes: std::array::from_fn(|i| span(i).lane),
            slot,
            rest,
        }
    }

    /// A rule of [`RangedRule::bounds`], of which those that hold always are left out.
    pub(super) fn from_bounds(
        slot: RuleSlot,
        bounds: impl Iterator<Item = (RangeField, u32, u32)>,
        rest: Option<Arc<RestOfRule>>,
    ) -> RangedRule {
        let spans = bounds.filter(|bounds| (bounds.1, bounds.2) != (0, u32::MAX));
        let span = |(RangeField { lane, mask }, start, length)| RangeSpan { lane, mask, start, length };
        RangedRule::from_spans(slot, &spans.map(span).collect::<Vec<_>>(), rest)
    }

    /// The fields of its ranges but those of the rest: each once.
    pub(super) fn fields(&self) -> impl Iterator<Item = RangeField> {
        (0..INLINE).map(|i| self.span(i)).filter(|span| !span.is_all()).map(|span| span.field())
    }

    /// Start and length of its range of a field, unless that is one of the rest.
    pub(super) fn bounds(&self, field: RangeField) -> Option<(u32, u32)> {
        let mut spans = (0..INLINE).map(|i| self.span(i)).filter(|span| !span.is_all());
        spans.find(|span| span.field() == field).map(|span| (span.start, span.length))
    }

    /// Its conditions that do not fit into it.
    #[inline(always)]
    pub(crate) fn rest(&self) -> Option<&Arc<RestOfRule>> {
        self.rest.as_ref()
    }

    #[inline(always)]
    fn span(&self, i: usize) -> RangeSpan {
        RangeSpan { lane: self.lanes[i], mask: self.masks[i], start: self.starts[i], length: self.lengths[i] }
    }

    fn spans(&self) -> impl Iterator<Item = RangeSpan> {
        let rest = self.rest.iter().flat_map(|rest| rest.spans.iter().copied());
        (0..INLINE).map(|i| self.span(i)).filter(|span| !span.is_all()).chain(rest)
    }

    fn checks(&self) -> &[RuleCheck] {
        self.rest.as_ref().map_or(&[], |rest| &rest.checks)
    }

    /// Calls `each` with the fields that the conditions are about and the ranges that the field's number is in if they hold.
    /// Returns whether the conditions hold if all numbers are in their ranges.
    pub(super) fn ranges(&self, mut each: impl FnMut(RangeField, &[(u32, u32)])) -> bool {
        for span in self.spans() {
            each(RangeField { lane: span.lane, mask: span.mask }, &span.ranges().collect::<Vec<_>>());
        }
        let mut exact = true;
        for check in self.checks() {
            let set = match check {
                RuleCheck::Set { extract, ranges } => extract.plain().map(|extract| (extract, ranges)),
                _ => None,
            };
            let Some(((lane, shift, mask), ranges)) = set else {
                exact = false;
                continue;
            };
            exact &= ranges.len() <= MAX_RANGES;
            each(RangeField { lane, mask: mask << shift }, &joined(ranges, mask));
        }
        exact
    }

    /// Whether its ranges hold for a key, but those of the rest: without branches, so that many rules are evaluated one after the other.
    #[inline(always)]
    pub(crate) fn spans_hold(&self, lanes: &[Column], key: u8) -> bool {
        let mut numbers = [0; INLINE];
        for i in 0..INLINE {
            numbers[i] = lanes[usize::from(self.lanes[i])][usize::from(key)];
        }
        let mut outside = 0;
        for (i, number) in numbers.into_iter().enumerate() {
            let number = (u32::from_be(number) & self.masks[i]).wrapping_sub(self.starts[i]);
            outside |= u32::from(number > self.lengths[i]);
        }
        outside == 0
    }

    /// Whether all conditions hold.
    #[inline]
    pub(crate) fn holds(&self, subject: &CheckedPacket<'_, '_>, options: &mut LazyOptions) -> bool {
        self.spans_hold(subject.lanes, subject.key)
            && self.rest.as_ref().is_none_or(|rest| rest.holds(subject, options))
    }

    /// Whether the conditions that are no ranges hold.
    pub(super) fn checks_hold(&self, subject: &CheckedPacket<'_, '_>, options: &mut LazyOptions) -> bool {
        self.rest.as_ref().is_none_or(|rest| rest.checks_hold(subject, options))
    }
}

impl RestOfRule {
    /// Whether it reads what is not in the key.
    pub(crate) fn reads_beyond_key(&self) -> bool {
        self.checks.iter().any(RuleCheck::reads_beyond_key)
    }

    /// Its set lookups.
    #[inline]
    pub(crate) fn set_lookups(&self) -> impl Iterator<Item = SetLookup> {
        self.checks.iter().filter_map(RuleCheck::set_lookup)
    }

    pub(crate) fn holds(&self, subject: &CheckedPacket<'_, '_>, options: &mut LazyOptions) -> bool {
        let number = |span: &RangeSpan| subject.number(usize::from(span.lane));
        self.spans.iter().all(|span| span.holds(number(span))) && self.checks_hold(subject, options)
    }

    fn checks_hold(&self, subject: &CheckedPacket<'_, '_>, options: &mut LazyOptions) -> bool {
        self.checks.iter().all(|check| match check.about_options() {
            true => check.holds_for(options.parsed(subject)),
            false => check.holds(subject),
        })
    }
}

/// Sorted ranges with the smallest gaps closed, so that there are at most [`MAX_RANGES`].
fn joined(ranges: &[(u32, u32)], max_value: u32) -> Vec<(u32, u32)> {
    let mut joined: Vec<_> =
        ranges.iter().filter(|r| r.0 <= max_value).map(|r| (r.0, r.1.min(max_value))).collect();
    while joined.len() > MAX_RANGES {
        let gaps = joined.windows(2).map(|pair| pair[1].0 - pair[0].1);
        let Some((index, _)) = gaps.enumerate().min_by_key(|gap| gap.1) else { break };
        joined[index].1 = joined.remove(index + 1).1;
    }
    joined
}
