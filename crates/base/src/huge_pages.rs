//! Memory in huge pages.

use crate::huge_pool::{HUGE_PAGE, advise};
use std::collections::TryReserveError;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes of the smallest page of any architecture.
const SMALL_PAGE: usize = 4096;

/// A place for a huge page.
#[repr(C, align(0x20_0000))]
struct HugePage([u8; HUGE_PAGE]);

/// Values in one piece of memory, of which there is a fixed number at most. Memory of at least a huge page is aligned to one, and the kernel is
/// asked to use huge pages for it: random reads of large tables then seldom wait for a page table. It is touched as values are added.
pub struct Block<T> {
    /// The first `len` values are there.
    first: NonNull<T>,
    len: usize,
    capacity: usize,
    _memory: BlockMemory<T>,
}

/// The memory of a block: the spare capacity of an empty vector.
#[expect(dead_code, reason = "it is held to be freed")]
enum BlockMemory<T> {
    Small(Vec<T>),
    Large(Vec<HugePage>),
}

// SAFETY: a block owns its values, as a vector does.
unsafe impl<T: Send> Send for Block<T> {}
// SAFETY: as above; a shared block gives out shared references only.
unsafe impl<T: Sync> Sync for Block<T> {}

impl<T> Block<T> {
    /// An empty block for `capacity` values.
    ///
    /// # Errors
    /// There is no memory.
    pub fn try_new(capacity: usize) -> Result<Block<T>, TryReserveError> {
        let bytes = capacity.saturating_mul(size_of::<T>());
        if bytes < HUGE_PAGE || align_of::<T>() > HUGE_PAGE {
            return Block::try_small(capacity);
        }
        let mut memory = Vec::<HugePage>::new();
        memory.try_reserve_exact(bytes.div_ceil(HUGE_PAGE))?;
        let first = memory.as_mut_ptr();
        advise(first.cast());
        for page in 1..bytes.div_ceil(HUGE_PAGE) {
            advise(first.wrapping_add(page).cast());
        }
        let first = NonNull::new(first.cast()).unwrap_or(NonNull::dangling());
        Ok(Block { first, len: 0, capacity, _memory: BlockMemory::Large(memory) })
    }

    /// [`Block::try_new`] without huge pages.
    ///
    /// # Errors
    /// There is no memory.
    pub fn try_small(capacity: usize) -> Result<Block<T>, TryReserveError> {
        let mut memory = Vec::<T>::new();
        memory.try_reserve_exact(capacity)?;
        let first = NonNull::new(memory.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Ok(Block { first, len: 0, capacity, _memory: BlockMemory::Small(memory) })
    }

    /// Adds a value.
    ///
    /// # Panics
    /// If there are as many as may be.
    pub fn push(&mut self, value: T) {
        assert!(self.len < self.capacity, "a block has a fixed number of values");
        // SAFETY: its memory has room for `capacity` values, is aligned for them, and is used by nothing else.
        unsafe { self.first.add(self.len).write(value) };
        self.len += 1;
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        let len = std::mem::take(&mut self.len);
        // SAFETY: these values were there, and nobody will use them again.
        unsafe { std::ptr::drop_in_place(std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), len)) };
    }

    /// Writes to all pages of an empty block, so that the kernel gives it all of its memory now.
    pub(crate) fn populate(&mut self) {
        if self.len > 0 {
            return;
        }
        let bytes = self.first.cast::<u8>();
        for at in (0..self.capacity * size_of::<T>()).step_by(SMALL_PAGE) {
            // SAFETY: the memory has room for `capacity` values, of which none is there yet.
            unsafe { bytes.add(at).write_volatile(0) };
        }
    }

    /// The most values that it may have.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Where its first value is or will be; it stays there for as long as the block exists.
    pub(crate) fn first(&self) -> NonNull<T> {
        self.first
    }
}

/// A block for no values.
impl<T> Default for Block<T> {
    fn default() -> Block<T> {
        Block { first: NonNull::dangling(), len: 0, capacity: 0, _memory: BlockMemory::Small(Vec::new()) }
    }
}

impl<T> Deref for Block<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` values are there.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Block<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and they are borrowed by nobody else.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl<T> Drop for Block<T> {
    fn drop(&mut self) {
        // SAFETY: the values are dropped once, since the vector that has their memory is empty.
        unsafe { std::ptr::drop_in_place::<[T]>(&mut **self) };
    }
}

impl<T: fmt::Debug> fmt::Debug for Block<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&**self).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn a_block_keeps_its_values_and_drops_them_once() {
        for capacity in [1, 1000, 700_000] {
            let value = Rc::new(());
            let mut block: Block<(usize, Rc<()>)> = Block::try_new(capacity).expect("memory");
            assert_eq!((block.len(), block.capacity()), (0, capacity));
            (0..capacity).for_each(|number| block.push((number, Rc::clone(&value))));
            assert!((0..capacity).all(|number| block[number].0 == number));
            block[capacity - 1].0 = 7;
            assert_eq!(block[capacity - 1].0, 7);
            assert_eq!(Rc::strong_count(&value), capacity + 1);
            drop(block);
            assert_eq!(Rc::strong_count(&value), 1);
        }
    }

    #[test]
    #[should_panic(expected = "a fixed number of values")]
    fn a_full_block_takes_no_more() {
        let mut block = Block::try_new(2).expect("memory");
        (0..3).for_each(|number| block.push(number));
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        assert!(Block::<u64>::try_new(usize::MAX / 8).is_err() && Block::<u64>::try_new(usize::MAX).is_err());
    }
}
