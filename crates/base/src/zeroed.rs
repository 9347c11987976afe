//! Words in large memory that is zero at first and touched only as it is used.

use crate::huge_pool::{HUGE_PAGE, advise_pages};
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Bytes of the smallest page of any architecture.
const SMALL_PAGE: usize = 4096;
/// Bytes of a cache line.
const CACHE_LINE: usize = 64;

/// A fixed number of words, zero at first, from the beginning of a cache line on. The kernel gives their memory page by page as they are used;
/// of a huge page or more it is asked to use huge pages.
pub struct ZeroedWords {
    /// The words, and spare ones around them.
    memory: Vec<u32>,
    first: usize,
    len: usize,
}

impl ZeroedWords {
    /// So many words.
    pub fn new(len: usize) -> ZeroedWords {
        let is_large = len * size_of::<u32>() >= HUGE_PAGE;
        let align = if is_large { HUGE_PAGE } else { CACHE_LINE };
        // The allocator takes large zeroed memory from the kernel, which has not touched it.
        let memory = vec![0; len + align / size_of::<u32>()];
        let first = memory.as_ptr().align_offset(align).min(align / size_of::<u32>());
        if is_large {
            advise_pages(&memory[first..first + len]);
        }
        ZeroedWords { memory, first, len }
    }

    /// Has the kernel give all of the memory now. What was written stays.
    pub fn populate(&mut self) {
        for page in self.chunks_mut(SMALL_PAGE / size_of::<u32>()) {
            let word = &mut page[0];
            // SAFETY: it is borrowed. A volatile write of the same value is still a write to the page.
            unsafe { std::ptr::from_mut(word).write_volatile(*word) };
        }
    }
}

impl Deref for ZeroedWords {
    type Target = [u32];

    #[inline(always)]
    fn deref(&self) -> &[u32] {
        &self.memory[self.first..self.first + self.len]
    }
}

impl DerefMut for ZeroedWords {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u32] {
        &mut self.memory[self.first..self.first + self.len]
    }
}

impl fmt::Debug for ZeroedWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} words", self.len)
    }
}

/// A fixed number of words that threads share, zero at first, from the beginning of a cache line on. The kernel gives
/// their memory page by page as they are used.
pub struct ZeroedAtomics {
    /// The words, and spare ones around them.
    memory: Box<[AtomicU64]>,
    first: usize,
    len: usize,
}

impl ZeroedAtomics {
    /// So many words.
    pub fn new(len: usize) -> ZeroedAtomics {
        let spare = CACHE_LINE / size_of::<AtomicU64>();
        let layout = Layout::array::<AtomicU64>(len + spare).expect("a length that fits the address space");
        // SAFETY: the layout has a size.
        let Some(words) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        let words = NonNull::slice_from_raw_parts(words.cast::<AtomicU64>(), len + spare);
        // SAFETY: the memory was allocated with the layout of this slice, and zero is a valid atomic word.
        let memory = unsafe { Box::from_raw(words.as_ptr()) };
        let first = memory.as_ptr().align_offset(CACHE_LINE).min(spare);
        ZeroedAtomics { memory, first, len }
    }
}

impl Deref for ZeroedAtomics {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        &self.memory[self.first..self.first + self.len]
    }
}

impl fmt::Debug for ZeroedAtomics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} atomic words", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn atomic_words_are_zero_and_aligned() {
        for len in [1, 100, 1 << 18] {
            let words = ZeroedAtomics::new(len);
            assert!(words.len() == len && words.iter().all(|word| word.load(Relaxed) == 0));
            assert_eq!(words.as_ptr().align_offset(CACHE_LINE), 0);
        }
    }

    #[test]
    fn words_are_zero_aligned_and_kept() {
        for len in [1, 100, 1 << 20] {
            let mut words = ZeroedWords::new(len);
            assert!(words.len() == len && words.iter().all(|word| *word == 0));
            assert_eq!(words.as_ptr().align_offset(CACHE_LINE), 0);
            words[len - 1] = 7;
            words.populate();
            assert!(words[len - 1] == 7 && words[..len - 1].iter().all(|word| *word == 0));
        }
    }
}
