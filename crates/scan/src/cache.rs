//! A cache of compiled sets by their patterns, so that each list of patterns is compiled once.
//!
//! Purpose: a set is a pure function of its patterns. A dry run, the change that follows it and its rollback need the
//! same sets. [`SetSource`] looks for a set in a [`SetCache`]. If the set is not there, it is compiled or refused: a
//! thread that must not wait for the compiler uses only sets that another thread has compiled before.
//!
//! Life-cycle: one cache for an engine, shared by the threads that compile. The cache keeps every set that is used
//! elsewhere too. Of the others it keeps the most recently used, about [`MAX_UNUSED_BYTES`] bytes of each kind.

use crate::edit::EditPatterns;
use crate::error::PatternError;
use crate::job::DatabaseCompiler;
use crate::pattern::Pattern;
use crate::set::{PatternSet, SetDigest};
use mmb_base::lock;
use std::collections::HashMap;
use std::sync::Mutex;

/// The approximate limit, in bytes, of the sets of one kind that only the cache refers to.
pub const MAX_UNUSED_BYTES: usize = 32 << 20;
/// Bytes that become free when sets are dropped: the memory of the process goes up and down by no more.
const ROOM: usize = MAX_UNUSED_BYTES / 64;
/// Bytes of a set without its patterns.
const BASE_BYTES: usize = 4 << 10;
/// About the bytes of a set for each byte of its patterns.
const EACH_BYTE: usize = 16;

/// Compiled sets.
#[derive(Debug, Default)]
pub struct SetCache {
    sets: Mutex<Kept<PatternSet>>,
    edits: Mutex<Kept<EditPatterns>>,
}

/// A source of sets: a cache and, for sets that it lacks, a compiler.
#[derive(Clone, Copy)]
pub struct SetSource<'c> {
    cache: &'c SetCache,
    compiler: Option<&'c dyn DatabaseCompiler>,
}

impl<'c> SetSource<'c> {
    /// Takes sets from the cache only. Others are refused with [`PatternError::NotCompiled`].
    pub fn known(cache: &'c SetCache) -> SetSource<'c> {
        SetSource { cache, compiler: None }
    }

    /// Takes sets from the cache. Others are compiled and added to it.
    pub fn compiling(cache: &'c SetCache, compiler: &'c dyn DatabaseCompiler) -> SetSource<'c> {
        SetSource { cache, compiler: Some(compiler) }
    }

    /// The set of these patterns.
    ///
    /// # Errors
    /// As [`PatternSet::compile`]; [`PatternError::NotCompiled`] without a compiler, if the cache lacks the set.
    pub fn set(&self, patterns: &[Pattern]) -> Result<PatternSet, PatternError> {
        self.find(&self.cache.sets, patterns, |compiler| PatternSet::compile_by(patterns, compiler))
    }

    /// The patterns of an edit.
    ///
    /// # Errors
    /// As [`EditPatterns::compile`]; [`PatternError::NotCompiled`] without a compiler, if the cache lacks the patterns.
    pub fn edits(&self, patterns: &[Pattern]) -> Result<EditPatterns, PatternError> {
        self.find(&self.cache.edits, patterns, |_| EditPatterns::compile(patterns))
    }

    /// The cache is not locked during a compilation: other threads must not wait for it.
    fn find<S: Shared>(
        &self,
        kept: &Mutex<Kept<S>>,
        patterns: &[Pattern],
        compile: impl FnOnce(&dyn DatabaseCompiler) -> Result<S, PatternError>,
    ) -> Result<S, PatternError> {
        let digest = PatternSet::digest_of(patterns);
        if let Some(set) = lock(kept).get(digest) {
            return Ok(set);
        }
        let set = compile(self.compiler.ok_or(PatternError::NotCompiled)?)?;
        let bytes = patterns.iter().map(|pattern| pattern.len() * EACH_BYTE).sum::<usize>() + BASE_BYTES;
        lock(kept).insert(digest, &set, bytes + set.own_bytes());
        Ok(set)
    }
}

/// A reference-counted set.
trait Shared: Clone {
    /// Whether another clone exists.
    fn is_used(&self) -> bool;

    /// Bytes that do not depend on the length of the patterns.
    fn own_bytes(&self) -> usize;
}

impl Shared for PatternSet {
    fn is_used(&self) -> bool {
        self.is_shared()
    }

    fn own_bytes(&self) -> usize {
        self.database_bytes()
    }
}

impl Shared for EditPatterns {
    fn is_used(&self) -> bool {
        self.is_shared()
    }

    fn own_bytes(&self) -> usize {
        0
    }
}

/// Sets of one kind.
#[derive(Debug)]
struct Kept<S> {
    sets: HashMap<SetDigest, KeptSet<S>>,
    /// The number of the last use.
    uses: u64,
    /// The bytes of all sets.
    bytes: usize,
    /// When all sets take more bytes than this, unused sets are looked for.
    look_at: usize,
}

#[derive(Debug)]
struct KeptSet<S> {
    set: S,
    bytes: usize,
    last_use: u64,
}

impl<S> Default for Kept<S> {
    fn default() -> Kept<S> {
        Kept { sets: HashMap::new(), uses: 0, bytes: 0, look_at: MAX_UNUSED_BYTES }
    }
}

impl<S: Shared> Kept<S> {
    fn get(&mut self, digest: SetDigest) -> Option<S> {
        self.uses += 1;
        let kept = self.sets.get_mut(&digest)?;
        kept.last_use = self.uses;
        Some(kept.set.clone())
    }

    fn insert(&mut self, digest: SetDigest, set: &S, bytes: usize) {
        self.uses += 1;
        self.bytes += bytes;
        let kept = KeptSet { set: set.clone(), bytes, last_use: self.uses };
        if let Some(before) = self.sets.insert(digest, kept) {
            self.bytes -= before.bytes;
        }
        if self.bytes > self.look_at {
            self.evict();
        }
    }

    /// Drops the least recently used of the unused sets, until the unused sets take a little less than [`MAX_UNUSED_BYTES`].
    fn evict(&mut self) {
        let unused = self.sets.iter().filter(|(_, kept)| !kept.set.is_used());
        let mut unused: Vec<_> = unused.map(|(digest, kept)| (kept.last_use, *digest, kept.bytes)).collect();
        unused.sort_unstable_by_key(|(last_use, ..)| std::cmp::Reverse(*last_use));
        let mut left = MAX_UNUSED_BYTES - ROOM;
        for (_, digest, bytes) in unused {
            match left.checked_sub(bytes) {
                Some(rest) => left = rest,
                None => {
                    left = 0;
                    self.sets.remove(&digest);
                    self.bytes -= bytes;
                }
            }
        }
        // Each search goes through all sets: with many in use, there are fewer searches.
        self.look_at = self.bytes + ROOM.max(self.bytes / 128);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{CompileJob, CompiledJob, InProcess, JobFailure};
    use std::cell::Cell;

    /// Counts what it compiles.
    #[derive(Default)]
    struct Counting(Cell<usize>);

    impl DatabaseCompiler for Counting {
        fn compile(&self, job: &CompileJob) -> Result<CompiledJob, JobFailure> {
            self.0.set(self.0.get() + 1);
            InProcess.compile(job)
        }
    }

    fn patterns(number: usize) -> Vec<Pattern> {
        vec![Pattern::text(0, format!("text {number}")), Pattern::regex(1, format!("a+{number}"))]
    }

    #[cfg(vectorscan)]
    #[test]
    fn the_same_patterns_are_compiled_once() {
        let (cache, compiler) = (SetCache::default(), Counting::default());
        let source = SetSource::compiling(&cache, &compiler);
        let known = SetSource::known(&cache);
        assert_eq!(known.set(&patterns(1)).err(), Some(PatternError::NotCompiled));
        let first = source.set(&patterns(1)).expect("patterns that can be searched for");
        let again = [source.set(&patterns(1)), known.set(&patterns(1))];
        assert!(again.into_iter().all(|again| again.is_ok_and(|again| again.is(&first))));
        assert_eq!(compiler.0.get(), 1);
        assert_eq!(known.set(&patterns(2)).err(), Some(PatternError::NotCompiled));
        assert_eq!(known.edits(&patterns(1)).err(), Some(PatternError::NotCompiled));
    }

    #[test]
    fn sets_in_use_stay_and_others_are_bounded() {
        let (cache, compiler) = (SetCache::default(), Counting::default());
        let source = SetSource::compiling(&cache, &compiler);
        let text = |number: usize| vec![Pattern::text(0, format!("{number:02048}"))];
        let used: Vec<_> = (0..500).map(|number| source.set(&text(number)).expect("a text")).collect();
        for number in 500..3000 {
            source.set(&text(number)).expect("a text");
        }
        let known = SetSource::known(&cache);
        assert!((0..500).all(|number| known.set(&text(number)).is_ok()), "those in use");
        assert!(known.set(&text(2999)).is_ok(), "the last one");
        let kept = (500..3000).filter(|number| known.set(&text(*number)).is_ok()).count();
        assert!(kept * 2048 * EACH_BYTE <= MAX_UNUSED_BYTES, "{kept} unused sets are kept");
        drop(used);
    }
}
