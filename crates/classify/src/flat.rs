//! Rules of tuples too small for a table: every one is compared with every key, many keys at a time.

use crate::keys::Column;
use crate::simd::{Equal, Level};
use crate::table::LaneMask;

/// The most entries of a tuple here; with more, a table is cheaper.
pub(crate) const MOST_OF_A_TUPLE: usize = 12;
/// The most entries in all.
pub(crate) const MOST: usize = 96;

/// One entry.
#[derive(Clone, Debug)]
struct Row {
    mask: LaneMask,
    key: LaneMask,
    terms: Vec<Equal>,
    value: u32,
}

/// The entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flat {
    rows: Vec<Row>,
}

impl Flat {
    fn place(&self, mask: &LaneMask, key: &LaneMask) -> Option<usize> {
        self.rows.iter().position(|row| row.key == *key && row.mask == *mask)
    }

    /// The value of a key of the tuple `mask`.
    pub(crate) fn value(&self, mask: &LaneMask, key: &LaneMask) -> Option<u32> {
        self.place(mask, key).map(|at| self.rows[at].value)
    }

    /// Adds a key, or gives it another value.
    pub(crate) fn set(&mut self, mask: &LaneMask, key: &LaneMask, value: u32) {
        if let Some(at) = self.place(mask, key) {
            self.rows[at].value = value;
            return;
        }
        let lanes = (0..).zip(mask.iter().zip(key)).filter(|(_, (mask, _))| **mask != 0);
        let terms = lanes.map(|(lane, (&mask, &value))| Equal { lane, mask, value }).collect();
        self.rows.push(Row { mask: *mask, key: *key, terms, value });
    }

    /// Removes a key; returns the value that it had.
    pub(crate) fn remove(&mut self, mask: &LaneMask, key: &LaneMask) -> Option<u32> {
        self.place(mask, key).map(|at| self.rows.remove(at).value)
    }

    /// Keys and values of a tuple.
    pub(crate) fn entries(&self, mask: &LaneMask) -> impl Iterator<Item = (LaneMask, u32)> {
        self.rows.iter().filter(move |row| row.mask == *mask).map(|row| (row.key, row.value))
    }

    /// Entries in all.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Calls `hit` with key and value wherever one of the first `len` keys has an entry.
    #[inline]
    pub(crate) fn find(&self, level: Level, lanes: &[Column], len: usize, mut hit: impl FnMut(u8, u32)) {
        for row in &self.rows {
            for (word, mut bits) in level.equal(lanes, len, &row.terms).into_iter().enumerate() {
                while bits != 0 {
                    hit((word * 64) as u8 + bits.trailing_zeros() as u8, row.value);
                    bits &= bits - 1;
                }
            }
        }
    }
}
