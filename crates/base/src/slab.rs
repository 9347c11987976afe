//! Storage with ids: a slab keeps values, each under an id that is reused once its value is removed.
//!
//! A slab gives out the id that was freed last, and a new one only if none is free. [`Slab::try_reserve`] reserves the memory for the next
//! value and also for freeing every id, so that neither [`Slab::insert`] nor [`Slab::remove`] fails or allocates after it.
//!
//! A slab does not record which ids are in use: an access costs the same as one to a vector. The owner of an id must not use it after it
//! freed it; the place of a freed id holds a default value, or after [`Slab::free`] the old one.

use crate::Id;
use std::collections::TryReserveError;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// Ids of one kind that are in use or free, for tables that keep their values elsewhere.
#[derive(Clone, Debug)]
pub struct IdPool<I> {
    /// The id that was freed last is at the end.
    free: Vec<I>,
    /// The highest number that was ever given out.
    used: u32,
}

impl<I> Default for IdPool<I> {
    fn default() -> Self {
        IdPool { free: Vec::new(), used: 0 }
    }
}

impl<I: Id> IdPool<I> {
    /// Reserves memory for one more id, and for freeing all of them.
    ///
    /// # Errors
    /// There is no memory.
    pub fn try_reserve(&mut self) -> Result<(), TryReserveError> {
        let all = self.used as usize + 1;
        // Without a free id the list is empty.
        if self.free.is_empty() && self.free.capacity() < all { self.free.try_reserve(all) } else { Ok(()) }
    }

    /// Gives out an id: the one that was freed last, or if none is free, the next number.
    ///
    /// # Panics
    /// If 2^32 - 1 ids are in use.
    #[inline]
    pub fn take(&mut self) -> I {
        self.free.pop().unwrap_or_else(|| {
            let id = self.used.checked_add(1).and_then(I::new).expect("fewer than 2^32 entries");
            self.used += 1;
            id
        })
    }

    /// Frees an id.
    #[inline]
    pub fn free(&mut self, id: I) {
        self.free.push(id);
    }

    /// The free ids that are given out next, at most this number.
    #[inline]
    pub fn next_ids(&self, max: usize) -> impl Iterator<Item = I> {
        self.free.iter().rev().take(max).copied()
    }

    /// Frees all ids.
    pub fn clear(&mut self) {
        self.free.clear();
        self.used = 0;
    }

    /// Number of ids in use.
    pub fn len(&self) -> usize {
        self.used as usize - self.free.len()
    }

    /// Whether no id is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The highest number that was ever given out.
    pub fn highest(&self) -> u32 {
        self.used
    }

    /// Bytes in use.
    pub fn memory(&self) -> usize {
        self.free.capacity() * size_of::<I>()
    }
}

/// Storage of a slab's values: a vector, or [`Chunks`](crate::Chunks).
pub trait SlabStorage<T>: Default {
    /// Number of values.
    fn count(&self) -> usize;

    /// The value at an index.
    ///
    /// # Panics
    /// If there is none.
    fn at(&self, index: usize) -> &T;

    /// The value at an index, to be changed.
    ///
    /// # Panics
    /// If there is none.
    fn at_mut(&mut self, index: usize) -> &mut T;

    /// Adds a value.
    ///
    /// # Panics
    /// If there is no memory for it, and [`SlabStorage::try_reserve`] did not come before.
    fn push(&mut self, value: T);

    /// Reserves memory for one more value.
    ///
    /// # Errors
    /// There is no memory.
    fn try_reserve(&mut self) -> Result<(), TryReserveError>;

    /// Bytes in use.
    fn memory(&self) -> usize;
}

impl<T> SlabStorage<T> for Vec<T> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn at(&self, index: usize) -> &T {
        &self[index]
    }

    #[inline(always)]
    fn at_mut(&mut self, index: usize) -> &mut T {
        &mut self[index]
    }

    fn push(&mut self, value: T) {
        Vec::push(self, value);
    }

    fn try_reserve(&mut self) -> Result<(), TryReserveError> {
        Vec::try_reserve(self, 1)
    }

    fn memory(&self) -> usize {
        self.capacity() * size_of::<T>()
    }
}

/// Values by id; see the module. Place 0, which no id names, holds a default value.
#[derive(Debug)]
pub struct Slab<I, T, S = Vec<T>> {
    ids: IdPool<I>,
    values: S,
    value: PhantomData<T>,
}

impl<I, T, S: Default> Default for Slab<I, T, S> {
    fn default() -> Self {
        Slab { ids: IdPool::default(), values: S::default(), value: PhantomData }
    }
}

impl<I: Id, T: Default, S: SlabStorage<T>> Slab<I, T, S> {
    /// Reserves memory for one more value, and for freeing all ids.
    ///
    /// # Errors
    /// There is no memory.
    pub fn try_reserve(&mut self) -> Result<(), TryReserveError> {
        if !self.ids.free.is_empty() {
            return Ok(());
        }
        if self.values.count() == 0 {
            self.values.try_reserve()?;
            self.values.push(T::default());
        }
        self.values.try_reserve()?;
        self.ids.try_reserve()
    }

    /// Stores a value.
    ///
    /// # Panics
    /// If 2^32 - 1 ids are in use.
    #[inline]
    pub fn insert(&mut self, value: T) -> I {
        let id = self.ids.take();
        if id.index() < self.values.count() {
            *self.values.at_mut(id.index()) = value;
        } else {
            self.push(value);
        }
        id
    }

    /// Adds a place for a new id.
    fn push(&mut self, value: T) {
        if self.values.count() == 0 {
            self.values.push(T::default());
        }
        self.values.push(value);
    }

    /// Stores the value that is made of the one that its place held before, whose memory it may reuse.
    ///
    /// # Panics
    /// As [`Slab::insert`].
    pub fn insert_reusing(&mut self, make: impl FnOnce(T) -> T) -> I {
        let id = self.ids.take();
        if id.index() >= self.values.count() {
            self.push(T::default());
        }
        let place = self.values.at_mut(id.index());
        *place = make(std::mem::take(place));
        id
    }

    /// Removes a value.
    pub fn remove(&mut self, id: I) -> T {
        self.ids.free(id);
        std::mem::take(self.values.at_mut(id.index()))
    }

    /// Frees an id. The value stays in its place until the id is reused.
    #[inline]
    pub fn free(&mut self, id: I) {
        self.ids.free(id);
    }

    /// The free ids that values are stored under next, at most this number: for prefetching their places.
    #[inline]
    pub fn next_ids(&self, max: usize) -> impl Iterator<Item = I> {
        self.ids.next_ids(max)
    }

    /// The value of an id; `None` if the id was never given out.
    #[inline]
    pub fn get(&self, id: I) -> Option<&T> {
        (id.index() < self.values.count()).then(|| self.values.at(id.index()))
    }

    /// Number of ids in use.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether no id is in use.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The highest number of an id that was ever given out.
    pub fn highest(&self) -> u32 {
        self.ids.highest()
    }

    /// Bytes in use.
    pub fn memory(&self) -> usize {
        self.values.memory() + self.ids.memory()
    }
}

impl<I: Id, T: Default, S: SlabStorage<T>> Index<I> for Slab<I, T, S> {
    type Output = T;

    #[inline(always)]
    fn index(&self, id: I) -> &T {
        self.values.at(id.index())
    }
}

impl<I: Id, T: Default, S: SlabStorage<T>> IndexMut<I> for Slab<I, T, S> {
    #[inline(always)]
    fn index_mut(&mut self, id: I) -> &mut T {
        self.values.at_mut(id.index())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Chunks;
    use proptest::prelude::*;
    use std::collections::HashMap;

    crate::id_types! {
        /// An id of the tests.
        struct TestId;
    }

    const _: () = assert!(size_of::<Option<TestId>>() == 4);

    /// Runs steps on a slab and on a map: below 6 they insert, at 6 they insert reusing, above they remove or free.
    fn check<S: SlabStorage<String>>(steps: &[(u8, prop::sample::Index)]) -> Result<(), TestCaseError> {
        let mut slab = Slab::<TestId, String, S>::default();
        let (mut map, mut max) = (HashMap::new(), 0);
        for (step, (kind, which)) in steps.iter().enumerate() {
            if *kind <= 6 {
                slab.try_reserve().expect("there is memory");
                let reserved = slab.memory();
                let id = match kind {
                    6 => slab.insert_reusing(|mut old| {
                        old.clear();
                        old + &step.to_string()
                    }),
                    _ => slab.insert(step.to_string()),
                };
                prop_assert!(slab.memory() <= reserved + size_of::<String>());
                prop_assert_eq!(map.insert(id, step.to_string()), None, "no id is given out twice");
            } else if !map.is_empty() {
                let mut ids: Vec<TestId> = map.keys().copied().collect();
                ids.sort_unstable();
                let id = *which.get(&ids);
                let (capacity, value) = (slab.ids.free.capacity(), map.remove(&id));
                match kind {
                    7 => slab.free(id),
                    _ => prop_assert_eq!(Some(slab.remove(id)), value),
                }
                prop_assert_eq!(slab.ids.free.capacity(), capacity, "freeing allocates nothing");
                // The id that was freed last is used first.
                let value = step.to_string();
                prop_assert_eq!(slab.insert(value.clone()), id);
                prop_assert_eq!(slab.remove(id), value);
            }
            max = max.max(map.len());
            prop_assert_eq!((slab.len(), slab.is_empty()), (map.len(), map.is_empty()));
            prop_assert!(slab.highest() as usize <= max);
            for (id, value) in &map {
                prop_assert_eq!(&slab[*id], value);
                prop_assert_eq!(slab.get(*id), Some(value));
            }
        }
        prop_assert_eq!(slab.get(TestId::new(slab.highest() + 1).expect("it is not 0")), None);
        Ok(())
    }

    proptest! {
        #[test]
        fn a_slab_holds_the_same_as_a_map(steps in prop::collection::vec((0..10u8, any::<prop::sample::Index>()), 0..100)) {
            check::<Vec<String>>(&steps)?;
            check::<Chunks<String, 4>>(&steps)?;
        }
    }

    #[test]
    fn values_in_chunks_stay_where_they_are() {
        let mut slab = Slab::<TestId, u64, Chunks<u64, 8>>::default();
        let first = slab.insert(7);
        let place = std::ptr::from_ref(&slab[first]);
        (0..100).for_each(|number| _ = slab.insert(number));
        assert_eq!(std::ptr::from_ref(&slab[first]), place);
        slab[first] += 1;
        assert_eq!((slab[first], slab.len(), slab.highest()), (8, 101, 101));
    }
}
