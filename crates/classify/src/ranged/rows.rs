//! Rows of bits in whole cache lines.

/// Words of a cache line.
pub(super) const LINE: usize = 8;

/// A cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct RowLine([u64; LINE]);

/// Rows of 1, 2, 4 or 8 words, none of which leaves its cache line.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    lines: Vec<RowLine>,
    len: usize,
    words: usize,
}

impl Rows {
    /// One empty row.
    pub(super) fn new(words: usize) -> Rows {
        Rows { lines: vec![RowLine::default()], len: 1, words }
    }

    #[inline(always)]
    pub(super) fn row<const W: usize>(&self, row: usize) -> &[u64; W] {
        let first = row * W;
        &self.lines[first / LINE].0.as_chunks::<W>().0[first % LINE / W]
    }

    fn words(&mut self, row: usize) -> &mut [u64] {
        let first = row * self.words;
        &mut self.lines[first / LINE].0[first % LINE..][..self.words]
    }

    fn copy(&self, row: usize) -> [u64; LINE] {
        let (first, mut copy) = (row * self.words, [0; LINE]);
        copy[..self.words].copy_from_slice(&self.lines[first / LINE].0[first % LINE..][..self.words]);
        copy
    }

    fn store(&mut self, row: usize, words: &[u64; LINE]) {
        let len = self.words;
        self.words(row).copy_from_slice(&words[..len]);
    }

    /// Puts a copy of a row behind it.
    pub(super) fn split(&mut self, row: usize) {
        self.len += 1;
        if self.words == LINE {
            self.lines.insert(row, self.lines[row]);
            return;
        }
        self.lines.resize((self.len * self.words).div_ceil(LINE), RowLine::default());
        for target in (row + 1..self.len).rev() {
            let copy = self.copy(target - 1);
            self.store(target, &copy);
        }
    }

    /// Removes a row.
    pub(super) fn remove(&mut self, row: usize) {
        self.len -= 1;
        if self.words == LINE {
            self.lines.remove(row);
            return;
        }
        for target in row..self.len {
            let copy = self.copy(target + 1);
            self.store(target, &copy);
        }
        self.lines.truncate((self.len * self.words).div_ceil(LINE));
    }

    /// Whether a row is equal to the one before.
    pub(super) fn is_like_before(&self, row: usize) -> bool {
        self.copy(row) == self.copy(row - 1)
    }

    /// Sets or clears a bit of some rows.
    pub(super) fn put(&mut self, rows: std::ops::Range<usize>, bit: usize, set: bool) {
        for row in rows {
            let word = &mut self.words(row)[bit / 64];
            *word = *word & !(1 << (bit % 64)) | u64::from(set) << (bit % 64);
        }
    }

    /// The same rows, wider.
    pub(super) fn widened(&self, words: usize) -> Rows {
        let lines = vec![RowLine::default(); (self.len * words).div_ceil(LINE)];
        let mut rows = Rows { lines, len: self.len, words };
        for row in 0..self.len {
            rows.store(row, &self.copy(row));
        }
        rows
    }
}
