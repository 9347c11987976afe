//! Out-of-order bytes: they arrived before the bytes that precede them.

use crate::rope::{ChunkPool, Rope};
use arrayvec::ArrayVec;
use std::ops::Range;

/// The most ranges in one direction.
pub(crate) const MAX_RANGES: usize = 64;

/// Contiguous bytes.
#[derive(Clone, Copy, Debug, Default)]
struct OutOfOrderRange {
    start: u64,
    bytes: Rope,
}

impl OutOfOrderRange {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// The out-of-order bytes of one direction: ranges in order, which do not overlap.
#[derive(Debug, Default)]
pub(crate) struct OutOfOrderBytes {
    ranges: ArrayVec<OutOfOrderRange, MAX_RANGES>,
    bytes: usize,
}

impl OutOfOrderBytes {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// The bounds of the first range that ends after `offset`.
    pub(crate) fn first_ending_after(&self, offset: u64) -> Option<Range<u64>> {
        let range = self.ranges.iter().find(|range| range.end() > offset)?;
        Some(range.start..range.end())
    }

    /// All ranges, in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().map(|range| range.start..range.end())
    }

    /// The bytes of the range at `offset`, from `offset` on, at most `count`.
    pub(crate) fn slices<'p>(
        &'p self,
        pool: &'p ChunkPool,
        offset: u64,
        count: usize,
    ) -> impl Iterator<Item = &'p [u8]> + 'p {
        let range = self.ranges.iter().find(|range| range.start <= offset && offset < range.end());
        range
            .into_iter()
            .flat_map(move |range| range.bytes.slices(pool, (offset - range.start) as usize, count))
    }

    /// Adds the bytes that are not buffered yet; the first copy wins. `max_bytes` bounds the bytes of all
    /// ranges. Returns false if some bytes found no room; the bytes before them were added.
    pub(crate) fn add(&mut self, pool: &mut ChunkPool, start: u64, bytes: &[u8], max_bytes: usize) -> bool {
        let (mut offset, end) = (start, start + bytes.len() as u64);
        while offset < end {
            let (gap_end, resume) = match self.first_ending_after(offset) {
                Some(range) => (range.start.clamp(offset, end), range.end),
                None => (end, end),
            };
            if offset < gap_end {
                let new = &bytes[(offset - start) as usize..(gap_end - start) as usize];
                if self.bytes + new.len() > max_bytes || !self.insert(pool, offset, new) {
                    return false;
                }
                self.bytes += new.len();
            }
            offset = resume;
        }
        true
    }

    /// Adds bytes that overlap no range: at the end of a range, or as a new range.
    fn insert(&mut self, pool: &mut ChunkPool, start: u64, bytes: &[u8]) -> bool {
        let index = self.ranges.iter().position(|range| range.start > start).unwrap_or(self.ranges.len());
        if let Some(previous) = index.checked_sub(1).map(|previous| &mut self.ranges[previous])
            && previous.end() == start
        {
            return previous.bytes.push(pool, bytes);
        }
        if self.ranges.is_full() {
            return false;
        }
        let mut range = OutOfOrderRange { start, bytes: Rope::default() };
        let has_room = range.bytes.push(pool, bytes);
        if has_room {
            self.ranges.insert(index, range);
        }
        has_room
    }

    /// Removes all bytes before an offset.
    pub(crate) fn remove_before(&mut self, pool: &mut ChunkPool, offset: u64) {
        while let Some(range) = self.ranges.first_mut()
            && range.start < offset
        {
            let count = (offset - range.start).min(range.bytes.len() as u64);
            range.bytes.pop(pool, count as usize);
            range.start += count;
            self.bytes -= count as usize;
            if range.bytes.len() > 0 {
                return;
            }
            self.ranges.remove(0);
        }
    }

    /// Removes all bytes.
    pub(crate) fn clear(&mut self, pool: &mut ChunkPool) {
        self.remove_before(pool, u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_first_copy_of_each_byte_wins(
            pieces in prop::collection::vec((0..3000u64, 1..800usize, any::<u8>()), 1..60), cut in 0..3000u64,
        ) {
            let mut pool = ChunkPool::new(1 << 20).unwrap();
            let (mut out_of_order, mut model) = (OutOfOrderBytes::default(), BTreeMap::new());
            for (at, count, byte) in pieces {
                prop_assert!(out_of_order.add(&mut pool, at, &vec![byte; count], usize::MAX) || out_of_order.ranges.is_full());
                if out_of_order.ranges.is_full() {
                    break;
                }
                (at..at + count as u64).for_each(|at| { model.entry(at).or_insert(byte); });
            }
            out_of_order.remove_before(&mut pool, cut);
            model.retain(|at, _| *at >= cut || out_of_order.ranges.is_full());
            if !out_of_order.ranges.is_full() {
                prop_assert_eq!(out_of_order.len(), model.len());
                let mut offset = 0;
                let mut all = BTreeMap::new();
                while let Some(range) = out_of_order.first_ending_after(offset) {
                    let start = range.start.max(offset);
                    let bytes = out_of_order.slices(&pool, start, usize::MAX).flatten().copied();
                    all.extend((start..).zip(bytes));
                    offset = range.end;
                }
                prop_assert_eq!(all, model);
            }
            out_of_order.clear(&mut pool);
            prop_assert_eq!((pool.taken(), out_of_order.len()), (0, 0));
        }
    }

    #[test]
    fn ranges_are_bounded() {
        let mut pool = ChunkPool::new(1 << 20).unwrap();
        let mut out_of_order = OutOfOrderBytes::default();
        assert!((0..MAX_RANGES as u64).all(|number| out_of_order.add(&mut pool, 10 * number, b"x", 1000)));
        assert!(!out_of_order.add(&mut pool, 5, b"x", 1000), "a range too many");
        assert!(out_of_order.add(&mut pool, 10, b"xy", 1000), "the end of a range");
        assert!(!out_of_order.add(&mut pool, 12, &[0; 8], 70), "bytes too many");
    }
}
