//! An index from hashes to the ids of NAT's tables.

use mmb_base::{Id, prefetch};
use mmb_conn::index::{IndexBucket, IndexKeys, TupleIndex};
use std::marker::PhantomData;

/// Finds ids by the hash of their keys: see [`TupleIndex`].
pub(super) struct IdIndex<I> {
    index: TupleIndex,
    len: usize,
    id: PhantomData<I>,
}

impl<I: Id> IdIndex<I> {
    pub(super) fn new() -> IdIndex<I> {
        IdIndex { index: TupleIndex::new(), len: 0, id: PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes in use.
    pub(super) fn memory(&self) -> usize {
        self.index.memory()
    }

    /// Prefetches the index bucket that the search for a hash reads first.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch::<IndexBucket>(self.index.first(hash));
    }

    /// The likely id of a hash, for prefetching the value with this id.
    #[inline]
    pub(super) fn likely(&self, hash: u64) -> Option<I> {
        id(self.index.first(hash).likely(hash))
    }

    /// The id with a hash for which `is` returns true.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is: impl FnMut(I) -> bool) -> Option<I> {
        self.index.find(hash, |entry| id(entry).is_some_and(&mut is)).and_then(id)
    }

    /// Adds an id that is not in the index. `named` returns the value with an id, and `hash_of` the hash of a
    /// value. Returns false if memory is exhausted, or if too many hashes are equal.
    #[must_use]
    pub(super) fn insert<'t, T: 't>(
        &mut self,
        hash: u64,
        new: I,
        named: impl Fn(I) -> &'t T,
        hash_of: impl Fn(&T) -> u64,
    ) -> bool {
        let keys = IdKeys { named, hash_of, id: PhantomData };
        let is_kept = self.index.insert(hash, entry(new), &keys).is_ok();
        self.len += usize::from(is_kept);
        is_kept
    }

    /// Removes an id that was added with this hash.
    pub(super) fn remove(&mut self, hash: u64, gone: I) {
        self.index.remove(hash, entry(gone));
        self.len -= 1;
    }
}

/// The keys of an index of ids.
struct IdKeys<I, F, G> {
    named: F,
    hash_of: G,
    id: PhantomData<I>,
}

impl<'t, I: Id, T: 't, F: Fn(I) -> &'t T, G: Fn(&T) -> u64> IndexKeys for IdKeys<I, F, G> {
    fn hash(&self, entry: u32) -> u64 {
        id(entry).map_or(0, |id| (self.hash_of)((self.named)(id)))
    }

    #[inline]
    fn prefetch(&self, entry: u32) {
        id(entry).into_iter().for_each(|id| prefetch((self.named)(id)));
    }
}

/// The entry of an id: a number above [`ABSENT`](mmb_conn::index::ABSENT).
#[inline]
fn entry(id: impl Id) -> u32 {
    id.number() + 1
}

#[inline]
fn id<I: Id>(entry: u32) -> Option<I> {
    I::new(entry.saturating_sub(1))
}
