//! Values in chunks: growing copies none of them.

use crate::supply::Supply;
use crate::{Block, SlabStorage};
use std::collections::TryReserveError;
use std::ptr::NonNull;

/// Values in [blocks](Block) of `N`, a power of two. Memory of a chunk is touched only as it is used.
#[derive(Debug)]
pub struct Chunks<T, const N: usize> {
    /// The first value of each chunk. All chunks but the last one are full.
    firsts: Vec<NonNull<T>>,
    /// Number of values.
    count: usize,
    chunks: Vec<Block<T>>,
    /// The first chunk is in huge pages, as all others are.
    is_large: bool,
    /// The next chunk, which was asked for in the middle of the last one.
    next: Option<Supply<T>>,
}

// SAFETY: its pointers are into the blocks that it owns.
unsafe impl<T: Send, const N: usize> Send for Chunks<T, N> {}
// SAFETY: as above; shared chunks give out shared references only.
unsafe impl<T: Sync, const N: usize> Sync for Chunks<T, N> {}

impl<T, const N: usize> Default for Chunks<T, N> {
    fn default() -> Self {
        Chunks { firsts: Vec::new(), count: 0, chunks: Vec::new(), is_large: true, next: None }
    }
}

impl<T, const N: usize> Chunks<T, N> {
    /// Chunks of at least this size are worth the request.
    const IS_SUPPLIED: bool = N * size_of::<T>() >= 1 << 16;
    const SHIFT: u32 = N.trailing_zeros();
    const IS_POWER_OF_TWO: () = assert!(N.is_power_of_two());

    /// Chunks of which the first one is not in huge pages: for tables most of which stay small.
    pub fn small() -> Self {
        Chunks { is_large: false, ..Chunks::default() }
    }

    /// Removes all values, and keeps the memory.
    pub fn clear(&mut self) {
        self.chunks.iter_mut().for_each(Block::clear);
        self.count = 0;
    }

    /// Where the value at an index is.
    #[inline(always)]
    fn place(&self, index: usize) -> NonNull<T> {
        assert!(index < self.count, "an index of a value");
        // SAFETY: the first `count` values are there, so their chunks are, and have `N` values each or, the last one, as many as remain.
        unsafe { self.firsts.get_unchecked(index >> Self::SHIFT).add(index & (N - 1)) }
    }
}

impl<T: Send + 'static, const N: usize> SlabStorage<T> for Chunks<T, N> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.count
    }

    #[inline(always)]
    fn at(&self, index: usize) -> &T {
        // SAFETY: the value is there, and lives as long as the chunks, which are borrowed.
        unsafe { self.place(index).as_ref() }
    }

    #[inline(always)]
    fn at_mut(&mut self, index: usize) -> &mut T {
        // SAFETY: as above, and they are borrowed by nobody else.
        unsafe { self.place(index).as_mut() }
    }

    fn push(&mut self, value: T) {
        self.try_reserve().expect("memory for a chunk");
        self.chunks[self.count >> Self::SHIFT].push(value);
        self.count += 1;
        if Self::IS_SUPPLIED && self.next.is_none() && self.count == (self.chunks.len() - 1) * N + N / 2 {
            self.next = Supply::request(N);
        }
    }

    fn try_reserve(&mut self) -> Result<(), TryReserveError> {
        const { Self::IS_POWER_OF_TWO };
        if self.count < self.chunks.len() * N {
            return Ok(());
        }
        self.chunks.try_reserve(1)?;
        self.firsts.try_reserve(1)?;
        let is_large = self.is_large || !self.chunks.is_empty();
        let supplied = self.next.take().and_then(|next| next.take());
        let chunk = match supplied {
            Some(chunk) => chunk,
            None if is_large => Block::try_new(N)?,
            None => Block::try_small(N)?,
        };
        self.firsts.push(chunk.first());
        self.chunks.push(chunk);
        Ok(())
    }

    /// Counts the used part of the last chunk.
    fn memory(&self) -> usize {
        self.count * size_of::<T>()
            + self.chunks.capacity() * size_of::<Block<T>>()
            + self.firsts.capacity() * size_of::<NonNull<T>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::start_supplier;
    use std::sync::Arc;

    #[test]
    fn chunks_keep_their_values_as_they_grow_and_drop_them_once() {
        let value = Arc::new(());
        for mut chunks in [Chunks::<(usize, Arc<()>), 64>::default(), Chunks::small()] {
            for number in 0..1000 {
                chunks.try_reserve().expect("memory");
                chunks.push((number, Arc::clone(&value)));
                assert_eq!(chunks.count(), number + 1);
                chunks.at_mut(number / 2).0 = number / 2;
            }
            assert!((0..1000).all(|number| chunks.at(number).0 == number));
            assert_eq!(Arc::strong_count(&value), 1001);
            chunks.clear();
            assert_eq!((chunks.count(), Arc::strong_count(&value)), (0, 1));
            let memory = chunks.firsts.clone();
            (0..1000).for_each(|number| chunks.push((number, Arc::clone(&value))));
            assert_eq!(chunks.firsts, memory, "it was kept");
            assert!((0..1000).all(|number| chunks.at(number).0 == number));
            drop(chunks);
            assert_eq!(Arc::strong_count(&value), 1);
        }
    }

    #[test]
    fn chunks_that_are_supplied_are_like_others() {
        start_supplier(|| ());
        let mut chunks = Chunks::<u64, 8192>::default();
        for number in 0..100_000 {
            chunks.push(number);
            if number % 8192 == 8000 {
                // Time for some of the requests.
                std::thread::yield_now();
            }
        }
        assert!((0..100_000).all(|number| *chunks.at(number) == number as u64));
    }

    #[test]
    #[should_panic(expected = "an index of a value")]
    fn there_is_no_value_after_the_last() {
        let mut chunks = Chunks::<u8, 4>::default();
        (0..5).for_each(|number| chunks.push(number));
        chunks.at(5);
    }
}
