//! Out-of-order bytes: they arrived before the bytes in front of them.

use crate::rope::{ChunkPool, Rope};
use arrayvec::ArrayVec;
use std::ops::Range;

/// The most ranges in one direction.
pub(crate) const RANGES: usize = 64;

/// Contiguous bytes.
#[derive(Clone, Copy, Debug, Default)]
struct EarlyRange {
    at: u64,
    bytes: Rope,
}

impl EarlyRange {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }
}

/// The out-of-order bytes of one direction: ranges in order, which do not overlap.
#[derive(Debug, Default)]
pub(crate) struct EarlyBytes {
    ranges: ArrayVec<EarlyRange, RANGES>,
    bytes: usize,
}

impl EarlyBytes {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// The bounds of the first range that ends after `offset`.
    pub(crate) fn first_behind(&self, offset: u64) -> Option<Range<u64>> {
        let range = self.ranges.iter().find(|range| range.end() > offset)?;
        Some(range.at..range.end())
    }

    /// All ranges, in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().map(|range| range.at..range.end())
    }

    /// The bytes of the range at `offset`, from `offset` on, at most `count`.
    pub(crate) fn slices<'p>(
        &'p self,
        pool: &'p ChunkPool,
        offset: u64,
        count: usize,
    ) -> impl Iterator<Item = &'p [u8]> + 'p {
        let range = self.ranges.iter().find(|range| range.at <= offset && offset < range.end());
        range.into_iter().flat_map(move |range| range.bytes.slices(pool, (offset - range.at) as usize, count))
    }

    /// Adds the bytes that are not buffered yet; the first copy wins. `most` bounds the bytes of all ranges.
    /// Returns false if some bytes found no room; the bytes in front of them were added.
    pub(crate) fn add(&mut self, pool: &mut ChunkPool, at: u64, bytes: &[u8], most: usize) -> bool {
        let (mut offset, end) = (at, at + bytes.len() as u64);
        while offset < end {
            let (gap_end, resume) = match self.first_behind(offset) {
                Some(range) => (range.start.clamp(offset, end), range.end),
                None => (end, end),
            };
            if offset < gap_end {
                let new = &bytes[(offset - at) as usize..(gap_end - at) as usize];
                if self.bytes + new.len() > most || !self.insert(pool, offset, new) {
                    return false;
                }
                self.bytes += new.len();
            }
            offset = resume;
        }
        true
    }

    /// Adds bytes that overlap no range: at the end of a range, or as a new range.
    fn insert(&mut self, pool: &mut ChunkPool, at: u64, bytes: &[u8]) -> bool {
        let place = self.ranges.iter().position(|range| range.at > at).unwrap_or(self.ranges.len());
        if let Some(before) = place.checked_sub(1).map(|before| &mut self.ranges[before])
            && before.end() == at
        {
            return before.bytes.push(pool, bytes);
        }
        if self.ranges.is_full() {
            return false;
        }
        let mut range = EarlyRange { at, bytes: Rope::default() };
        let has_room = range.bytes.push(pool, bytes);
        if has_room {
            self.ranges.insert(place, range);
        }
        has_room
    }

    /// Removes all bytes before an offset.
    pub(crate) fn remove_before(&mut self, pool: &mut ChunkPool, offset: u64) {
        while let Some(range) = self.ranges.first_mut()
            && range.at < offset
        {
            let count = (offset - range.at).min(range.bytes.len() as u64);
            range.bytes.pop(pool, count as usize);
            range.at += count;
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
            let (mut early, mut model) = (EarlyBytes::default(), BTreeMap::new());
            for (at, count, byte) in pieces {
                prop_assert!(early.add(&mut pool, at, &vec![byte; count], usize::MAX) || early.ranges.is_full());
                if early.ranges.is_full() {
                    break;
                }
                (at..at + count as u64).for_each(|at| { model.entry(at).or_insert(byte); });
            }
            early.remove_before(&mut pool, cut);
            model.retain(|at, _| *at >= cut || early.ranges.is_full());
            if !early.ranges.is_full() {
                prop_assert_eq!(early.len(), model.len());
                let mut offset = 0;
                let mut all = BTreeMap::new();
                while let Some(range) = early.first_behind(offset) {
                    let start = range.start.max(offset);
                    let bytes = early.slices(&pool, start, usize::MAX).flatten().copied();
                    all.extend((start..).zip(bytes));
                    offset = range.end;
                }
                prop_assert_eq!(all, model);
            }
            early.clear(&mut pool);
            prop_assert_eq!((pool.taken(), early.len()), (0, 0));
        }
    }

    #[test]
    fn ranges_are_bounded() {
        let mut pool = ChunkPool::new(1 << 20).unwrap();
        let mut early = EarlyBytes::default();
        assert!((0..RANGES as u64).all(|number| early.add(&mut pool, 10 * number, b"x", 1000)));
        assert!(!early.add(&mut pool, 5, b"x", 1000), "a range too many");
        assert!(early.add(&mut pool, 10, b"xy", 1000), "the end of a range");
        assert!(!early.add(&mut pool, 12, &[0; 8], 70), "bytes too many");
    }
}
