//! Up to 512 rules, found by bit vectors.

use super::options::LazyOptions;
use super::rows::LINE;
use super::rule::RangedRule;
use super::table::RangeTable;
use crate::check::CheckedPacket;
use crate::ids::RuleSlot;
use mmb_base::simd::{Kernel, SimdLevel};
use mmb_packet::columns::Column;
use std::sync::Arc;

/// The most rules of a block.
pub(super) const MAX_RULES: usize = LINE * 64;
/// Keys that are looked up together, at most.
pub(super) const BATCH: usize = 16;
/// Words of a bit for each word of so many keys' rows.
const FULL: usize = BATCH * LINE / 64;
/// Tables whose rows are looked up before they are read.
const GROUP: usize = 8;

/// Rules, and a table for each field that one of them has ranges of. A rule's bit is its place.
#[derive(Clone, Debug)]
pub(super) struct RangeBlock {
    tables: Vec<Arc<RangeTable>>,
    /// Places that hold a rule.
    used: [u64; LINE],
    /// Rules with conditions that the tables do not decide.
    open: [u64; LINE],
    /// By place; a place that is not used keeps what it had.
    slots: Vec<RuleSlot>,
    rules: Vec<RangedRule>,
    /// Words of a row.
    words: usize,
}

impl RangeBlock {
    pub(super) fn new() -> RangeBlock {
        let (used, open) = ([0; LINE], [0; LINE]);
        RangeBlock { tables: Vec::new(), used, open, slots: Vec::new(), rules: Vec::new(), words: 1 }
    }

    pub(super) fn len(&self) -> usize {
        self.used.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn is_full(&self) -> bool {
        self.used == [u64::MAX; LINE]
    }

    /// The rules.
    pub(super) fn rules(&self) -> impl Iterator<Item = &RangedRule> {
        let used = |(bit, rule)| (self.used[bit / 64] >> (bit % 64) & 1 == 1).then_some(rule);
        self.rules.iter().enumerate().filter_map(used)
    }

    /// Adds a rule. There is room.
    pub(super) fn insert(&mut self, rule: RangedRule) {
        let Some(word) = self.used.iter().position(|&word| word != u64::MAX) else { return };
        let bit = word * 64 + self.used[word].trailing_ones() as usize;
        if word >= self.words {
            self.words = (word + 1).next_power_of_two();
            for table in &mut self.tables {
                *table = Arc::new(table.widened(self.words));
            }
        }
        let RangeBlock { tables, words, .. } = self;
        let exact = rule.ranges(|field, ranges| {
            let index = tables.iter().position(|table| table.field == field).unwrap_or_else(|| {
                tables.push(Arc::new(RangeTable::new(field, *words)));
                tables.len() - 1
            });
            Arc::make_mut(&mut tables[index]).insert(bit, ranges);
        });
        self.used[word] |= 1 << (bit % 64);
        self.open[word] = self.open[word] & !(1 << (bit % 64)) | u64::from(!exact) << (bit % 64);
        if bit < self.rules.len() {
            self.slots[bit] = rule.slot;
            self.rules[bit] = rule;
        } else {
            self.slots.push(rule.slot);
            self.rules.push(rule);
        }
    }

    /// The place of a rule.
    pub(super) fn position(&self, slot: RuleSlot) -> Option<usize> {
        let places = self.slots.iter().enumerate().filter(|place| *place.1 == slot);
        places.map(|place| place.0).find(|bit| self.used[bit / 64] >> (bit % 64) & 1 == 1)
    }

    /// Removes the rule at a place.
    pub(super) fn remove(&mut self, bit: usize) {
        self.used[bit / 64] &= !(1 << (bit % 64));
        let RangeBlock { tables, rules, .. } = self;
        rules[bit].ranges(|field, ranges| {
            let Some(index) = tables.iter().position(|table| table.field == field) else { return };
            if Arc::make_mut(&mut tables[index]).remove(bit, ranges) {
                tables.swap_remove(index);
            }
        });
    }

    /// Calls `hit` with each of at most `B` keys and each rule that holds for it.
    #[inline]
    pub(super) fn find<'a, 'b: 'a, const B: usize>(
        &self,
        level: SimdLevel,
        lanes: &[Column],
        keys: &[u8],
        subject: &impl Fn(u8) -> CheckedPacket<'a, 'b>,
        options: &mut LazyOptions,
        hit: &mut impl FnMut(u8, RuleSlot),
    ) {
        match self.words {
            1 => self.find_in::<1, B>(level, lanes, keys, subject, options, hit),
            2 => self.find_in::<2, B>(level, lanes, keys, subject, options, hit),
            4 => self.find_in::<4, B>(level, lanes, keys, subject, options, hit),
            _ => self.find_in::<8, B>(level, lanes, keys, subject, options, hit),
        }
    }

    #[inline]
    fn find_in<'a, 'b: 'a, const W: usize, const B: usize>(
        &self,
        level: SimdLevel,
        lanes: &[Column],
        keys: &[u8],
        subject: &impl Fn(u8) -> CheckedPacket<'a, 'b>,
        options: &mut LazyOptions,
        hit: &mut impl FnMut(u8, RuleSlot),
    ) {
        let mut candidates = Candidates { words: [[0; W]; B], full: [0; FULL] };
        level.run(TableLookup { block: self, lanes, keys, candidates: &mut candidates });
        for (index, &full) in candidates.full.iter().enumerate() {
            let mut full = full;
            while full != 0 {
                let place = index * 64 + full.trailing_zeros() as usize;
                let (index, word) = (place / W % B, place % W);
                let (key, mut bits) = (keys[index], candidates.words[index][word]);
                while bits != 0 {
                    let place = word * 64 + bits.trailing_zeros() as usize;
                    let closed = bits & bits.wrapping_neg() & self.open[word] == 0;
                    if closed || self.rules[place].checks_hold(&subject(key), options) {
                        hit(key, self.slots[place]);
                    }
                    bits &= bits - 1;
                }
                full &= full - 1;
            }
        }
    }
}

/// The rules that the tables leave, for some keys.
struct Candidates<const W: usize, const B: usize> {
    words: [[u64; W]; B],
    /// A bit for each word of each key: whether the word is not 0.
    full: [u64; FULL],
}

/// Looking up some keys in the tables.
struct TableLookup<'a, const W: usize, const B: usize> {
    block: &'a RangeBlock,
    lanes: &'a [Column],
    keys: &'a [u8],
    candidates: &'a mut Candidates<W, B>,
}

impl<const W: usize, const B: usize> Kernel for TableLookup<'_, W, B> {
    #[inline(always)]
    fn run(self) {
        let TableLookup { block, lanes, keys, candidates } = self;
        let mut rows = [[0; B]; GROUP];
        for tables in block.tables.chunks(GROUP) {
            for (table, rows) in tables.iter().zip(&mut rows) {
                table.look_up(lanes, keys, rows);
            }
            for (key, words) in candidates.words[..keys.len()].iter_mut().enumerate() {
                let mut ruled_out = *words;
                for (table, rows) in tables.iter().zip(&rows) {
                    let row = table.row::<W>(rows[key]);
                    for i in 0..W {
                        ruled_out[i] |= row[i];
                    }
                }
                *words = ruled_out;
            }
        }
        for (key, words) in candidates.words[..keys.len()].iter_mut().enumerate() {
            let mut full = [0; LINE];
            for i in 0..W {
                words[i] = block.used[i] & !words[i];
                full[i] = u8::from(words[i] != 0);
            }
            candidates.full[key * W / 64 % FULL] |= bits_of(full) << (key * W % 64);
        }
    }
}

/// A bit for each byte, of which each is 0 or 1.
#[inline(always)]
fn bits_of(bytes: [u8; LINE]) -> u64 {
    u64::from_le_bytes(bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56
}
