//! One field of a block: which rules a number of the field rules out.
//!
//! The boundaries of all rules' ranges cut the field's numbers into intervals, and each interval has a row of bits, one a
//! rule (Lakshman and Stiliadis, SIGCOMM 1998). A bit says that the rule does *not* hold, so that a rule has bits only in the
//! tables of fields that it asks for.

use super::index::RangeIndex;
use super::rows::Rows;
use super::rule::RangeField;
use mmb_packet::columns::Column;

/// The table of a field.
#[derive(Clone, Debug)]
pub(super) struct RangeTable {
    pub(super) field: RangeField,
    /// The first number of each interval: sorted, the first is 0.
    starts: Vec<u32>,
    index: RangeIndex,
    /// By interval.
    rows: Rows,
    /// Rules that have ranges here.
    rules: usize,
}

impl RangeTable {
    pub(super) fn new(field: RangeField, words: usize) -> RangeTable {
        let starts = vec![0];
        let index = RangeIndex::new(&starts, field.max_value());
        RangeTable { field, starts, index, rows: Rows::new(words), rules: 0 }
    }

    /// Enters that rule `bit` holds in sorted ranges only.
    pub(super) fn insert(&mut self, bit: usize, ranges: &[(u32, u32)]) {
        self.rules += 1;
        let max_value = self.field.max_value();
        let mut free = Some(0);
        for &(first, last) in ranges {
            if let Some(from) = free.filter(|&from| from < first) {
                self.rule_out(bit, from, first);
            }
            free = last.checked_add(1).filter(|&next| next <= max_value);
            if let Some(next) = free {
                self.start(next);
            }
        }
        if let Some(from) = free {
            let row = self.start(from);
            self.rows.put(row..self.starts.len(), bit, true);
        }
        self.index = RangeIndex::new(&self.starts, max_value);
    }

    fn rule_out(&mut self, bit: usize, start: u32, end: u32) {
        let (row, end) = (self.start(start), self.start(end));
        self.rows.put(row..end, bit, true);
    }

    /// The row of the interval that starts at a number.
    fn start(&mut self, number: u32) -> usize {
        self.starts.binary_search(&number).unwrap_or_else(|row| {
            self.starts.insert(row, number);
            self.rows.split(row - 1);
            row
        })
    }

    /// Forgets a rule. Returns whether no rule is left.
    pub(super) fn remove(&mut self, bit: usize, ranges: &[(u32, u32)]) -> bool {
        self.rules -= 1;
        self.rows.put(0..self.starts.len(), bit, false);
        let ends = ranges.iter().flat_map(|&(first, last)| [Some(first), last.checked_add(1)]).flatten();
        for end in ends {
            if let Ok(row @ 1..) = self.starts.binary_search(&end)
                && self.rows.is_like_before(row)
            {
                self.starts.remove(row);
                self.rows.remove(row);
            }
        }
        self.index = RangeIndex::new(&self.starts, self.field.max_value());
        self.rules == 0
    }

    /// The same, with rows of so many words.
    pub(super) fn widened(&self, words: usize) -> RangeTable {
        let RangeTable { field, rules, .. } = *self;
        let (starts, index) = (self.starts.clone(), self.index.clone());
        RangeTable { field, starts, index, rows: self.rows.widened(words), rules }
    }

    /// The rows of some keys' numbers, at most `B`.
    #[inline(always)]
    pub(super) fn look_up<const B: usize>(&self, lanes: &[Column], keys: &[u8], rows: &mut [u32; B]) {
        let column = &lanes[usize::from(self.field.lane)];
        let (mask, shift) = (self.field.mask, self.field.shift());
        for (&key, row) in keys.iter().zip(&mut *rows) {
            *row = (u32::from_be(column[usize::from(key)]) & mask) >> shift;
        }
        self.index.look_up(rows);
    }

    /// The rules that a row rules out.
    #[inline(always)]
    pub(super) fn row<const W: usize>(&self, row: u32) -> &[u64; W] {
        self.rows.row(row as usize)
    }
}
