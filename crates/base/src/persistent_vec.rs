//! A persistent array: a clone shares everything, a change copies one leaf and the way to it.
//!
//! Two levels above the leaves keep a clone short: an array of a million entries in leaves of 64 is cloned as some 250
//! references. One writer changes its copy and hands clones to readers.

use crate::SharedSlice;
use std::sync::Arc;

/// Leaves of a page.
const PAGE: usize = 64;

/// An array of leaves of `N` entries.
#[derive(Clone, Debug)]
pub struct PersistentVec<T, const N: usize> {
    pages: Vec<Arc<[SharedSlice<T>]>>,
}

impl<T, const N: usize> Default for PersistentVec<T, N> {
    fn default() -> Self {
        PersistentVec { pages: Vec::new() }
    }
}

impl<T: Clone + Default, const N: usize> PersistentVec<T, N> {
    /// The entry of a number that was [`PersistentVec::set`], or that some number of the same page was; the default for those not
    /// set themselves.
    ///
    /// # Panics
    /// If the number is beyond what was ever set.
    #[inline(always)]
    pub fn at(&self, number: usize) -> &T {
        &self.pages[number / N / PAGE][number / N % PAGE][number % N]
    }

    /// The entries of every page that something was set in, by number.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flat_map(|page| page.iter()).flat_map(|leaf| leaf.iter())
    }

    /// Sets an entry; those that lie between it and what was there before are the default.
    pub fn set(&mut self, number: usize, value: T) {
        *self.at_mut(number) = value;
    }

    /// The entry of a number, to be changed; the default if it was never set.
    pub fn at_mut(&mut self, number: usize) -> &mut T {
        let page = number / N / PAGE;
        while self.pages.len() <= page {
            let empty = SharedSlice::from_fn(N, |_| T::default());
            self.pages.push(vec![empty; PAGE].into());
        }
        let page = Arc::make_mut(&mut self.pages[page]);
        &mut page[number / N % PAGE].make_mut()[number % N]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn clones_go_their_own_ways(steps in prop::collection::vec((0..2usize, 0..3000usize, any::<u8>()), 0..60)) {
            let (mut shelves, mut models) = ([(); 2].map(|()| PersistentVec::<u8, 16>::default()), vec![vec![]; 2]);
            for (which, number, value) in steps {
                if value < 8 {
                    shelves[1 - which] = shelves[which].clone();
                    models[1 - which] = models[which].clone();
                }
                if models[which].len() <= number {
                    models[which].resize(number + 1, 0);
                }
                models[which][number] = value;
                if value % 2 == 0 {
                    shelves[which].set(number, value);
                } else {
                    *shelves[which].at_mut(number) = value;
                }
                for (shelf, model) in shelves.iter().zip(&models) {
                    prop_assert!(model.iter().enumerate().all(|(number, value)| shelf.at(number) == value));
                }
            }
        }
    }

    #[test]
    fn a_clone_keeps_what_it_saw() {
        let mut shelf = PersistentVec::<u32, 4>::default();
        (0..2000).for_each(|n| shelf.set(n, n as u32));
        let before = shelf.clone();
        shelf.set(7, 70);
        shelf.set(5000, 1);
        assert_eq!((*before.at(7), *shelf.at(7), *shelf.at(1999), *shelf.at(4000)), (7, 70, 1999, 0));
        // Only what was changed was copied.
        assert!(
            Arc::ptr_eq(&before.pages[1], &shelf.pages[1]) && !Arc::ptr_eq(&before.pages[0], &shelf.pages[0])
        );
    }
}
