//! Shared slices: parts of persistent tables.

use crate::huge_pool::{ALIGN, allocate, free};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// A slice that its clones share, as `Arc<[T]>`, in memory for the parts of large tables (`huge_pool`): aligned to a cache line, and in
/// huge pages if there are many of its size. The last clone frees it. A slice without values has no memory.
pub struct SharedSlice<T> {
    /// The values. The count of clones is in the cache line before them.
    first: NonNull<T>,
    len: usize,
    owns: PhantomData<T>,
}

// SAFETY: as `Arc`: clones on several threads give shared references to the values, and any of them may drop them.
unsafe impl<T: Send + Sync> Send for SharedSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for SharedSlice<T> {}

impl<T> SharedSlice<T> {
    /// The bytes of a slice and of its count, rounded to whole cache lines.
    fn bytes(len: usize) -> usize {
        const { assert!(align_of::<T>() <= ALIGN) };
        let values = len.checked_mul(size_of::<T>());
        let all = values.and_then(|values| values.checked_add(ALIGN)?.checked_next_multiple_of(ALIGN));
        all.expect("a size that fits memory")
    }

    /// A slice of so many values, which `value` makes.
    pub fn from_fn(len: usize, mut value: impl FnMut(usize) -> T) -> SharedSlice<T> {
        if len == 0 {
            return SharedSlice::default();
        }
        let memory = allocate(Self::bytes(len));
        // SAFETY: the memory has room for the count and, a cache line later, for the values.
        let first = unsafe {
            memory.cast::<AtomicUsize>().write(AtomicUsize::new(1));
            memory.add(ALIGN).cast::<T>()
        };
        // If making a value panics, the memory is lost, but nothing is freed twice.
        for at in 0..len {
            // SAFETY: as above.
            unsafe { first.add(at).write(value(at)) };
        }
        SharedSlice { first, len, owns: PhantomData }
    }

    /// Whether both are clones of one.
    #[inline]
    pub fn ptr_eq(&self, other: &SharedSlice<T>) -> bool {
        self.first == other.first
    }

    /// The number of clones, if there are values.
    #[inline]
    fn count(&self) -> Option<&AtomicUsize> {
        // SAFETY: the count lies a cache line before the values, and is there as long as a clone is.
        (self.len > 0).then(|| unsafe { self.first.cast::<u8>().sub(ALIGN).cast::<AtomicUsize>().as_ref() })
    }
}

impl<T: Clone> SharedSlice<T> {
    /// The values, to be changed; they are copied first if there are other clones.
    pub fn make_mut(&mut self) -> &mut [T] {
        // A clone of this one cannot be made meanwhile, since it is borrowed. Acquire: what others did with it before they dropped theirs is done.
        if self.count().is_some_and(|count| count.load(Ordering::Acquire) != 1) {
            *self = SharedSlice::from_fn(self.len, |at| self[at].clone());
        }
        // SAFETY: this is the only clone, and it is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl<T> Deref for SharedSlice<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the values are there as long as a clone is.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> Clone for SharedSlice<T> {
    #[inline]
    fn clone(&self) -> SharedSlice<T> {
        // Relaxed, as in `Arc`: whoever clones has a clone. More clones than half of all numbers do not fit memory, unless they are forgotten.
        if self.count().is_some_and(|count| count.fetch_add(1, Ordering::Relaxed) > usize::MAX / 2) {
            std::process::abort();
        }
        SharedSlice { first: self.first, len: self.len, owns: PhantomData }
    }
}

impl<T> Drop for SharedSlice<T> {
    #[inline]
    fn drop(&mut self) {
        // Release, and acquire by the last one: what any clone's thread did with the values comes before they are freed.
        if self.count().is_none_or(|count| count.fetch_sub(1, Ordering::Release) != 1) {
            return;
        }
        fence(Ordering::Acquire);
        // SAFETY: this was the last clone: nobody uses the values any more, and `allocate` returned their memory for this size.
        unsafe {
            std::ptr::drop_in_place(std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.len));
            free(self.first.cast::<u8>().sub(ALIGN), Self::bytes(self.len));
        }
    }
}

/// A slice without values.
impl<T> Default for SharedSlice<T> {
    fn default() -> SharedSlice<T> {
        SharedSlice { first: NonNull::dangling(), len: 0, owns: PhantomData }
    }
}

impl<T> From<Vec<T>> for SharedSlice<T> {
    fn from(values: Vec<T>) -> SharedSlice<T> {
        let mut values = values.into_iter();
        SharedSlice::from_fn(values.len(), |_| values.next().expect("as many as its length says"))
    }
}

impl<T: fmt::Debug> fmt::Debug for SharedSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&**self).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn values_are_shared_copied_on_change_and_dropped_once() {
        let value = Arc::new(7);
        for len in [0, 1, 100, 3000] {
            let slice = SharedSlice::from_fn(len, |_| Arc::clone(&value));
            let mut other = slice.clone();
            assert!(slice.ptr_eq(&other) && slice.len() == len);
            assert_eq!(Arc::strong_count(&value), 1 + len);
            other.make_mut().iter_mut().for_each(|value| *value = Arc::new(8));
            assert_eq!(slice.ptr_eq(&other), len == 0);
            assert!(slice.iter().all(|value| **value == 7) && other.iter().all(|value| **value == 8));
            drop(slice);
            assert_eq!(Arc::strong_count(&value), 1);
            let place = other.as_ptr();
            assert_eq!(other.make_mut().as_ptr(), place, "the only clone is changed where it is");
        }
    }

    #[test]
    fn threads_may_hold_and_drop_clones() {
        let slice: SharedSlice<u64> = (0..5000).collect::<Vec<_>>().into();
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let mut its = slice.clone();
                std::thread::spawn(move || {
                    its.make_mut()[number] = 0;
                    its.iter().sum::<u64>()
                })
            })
            .collect();
        for (number, thread) in (0..).zip(threads) {
            assert_eq!(thread.join().expect("no panic"), 4999 * 5000 / 2 - number);
        }
    }
}
