//! Scanning streams: a worker's memory and the states in it.

use crate::error::PatternError;
use crate::ffi::{Scratch, Stream, StreamMemory};
use crate::pool::{POOL_PAGE, Pool};
use crate::texts::{Pending, TextScan, TextSet};
use crate::{PatternSet, ScanEnd};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The most sets that a scanner uses at a time.
const MAX_SETS: usize = 16;

/// A worker's part of scanning: the working memory of each set that it uses, and the pool of the states of streams.
pub struct Scanner {
    sets: Vec<PreparedSet>,
    memory: Arc<StreamMemory>,
    pool: Pool,
    /// Bytes of the pool.
    pool_bytes: usize,
}

/// A set, with the working memory of one worker for it. It is made on any thread and given to [`Scanner::adopt`].
#[derive(Debug)]
pub struct PreparedSet {
    set: PatternSet,
    scratch: Scratch,
    /// For the texts that are found without Vectorscan.
    pending: Option<Pending>,
}

/// Where a stream stands: what of the patterns of its set is begun at its end. Its memory is in the pool of its scanner, which gets it back by
/// [`Scanner::close`] or, a little later, when the state is dropped on any thread.
#[derive(Debug)]
pub struct ScanState {
    stream: Stream,
}

impl PreparedSet {
    /// Gets the working memory for a set. Allocates some kilobytes.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(set: &PatternSet) -> Result<PreparedSet, PatternError> {
        let own_bytes = set.texts().map_or(0, TextSet::state_bytes);
        let scratch = Scratch::new(set.database(), own_bytes).ok_or(PatternError::NoMemory)?;
        let mut pending = None;
        if set.texts().is_some() {
            pending = Some(Pending::new().ok_or(PatternError::NoMemory)?);
        }
        Ok(PreparedSet { set: set.clone(), scratch, pending })
    }

    /// The set.
    pub fn set(&self) -> &PatternSet {
        &self.set
    }
}

impl Scanner {
    /// Gets the memory for the states of streams: that many bytes, rounded up to whole pages of [`POOL_PAGE`]. See
    /// [`PatternSet::pool_bytes`]. The kernel provides the memory as it is used. A scanner may be made on any thread.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(pool_bytes: usize) -> Result<Scanner, PatternError> {
        let pages = pool_bytes.div_ceil(POOL_PAGE).max(1);
        let memory = StreamMemory::new(pages).ok_or(PatternError::NoMemory)?;
        let count = u32::try_from(pages).map_err(|_| PatternError::NoMemory)?;
        let pool = Pool::new(count).ok_or(PatternError::NoMemory)?;
        let sets = Vec::with_capacity(MAX_SETS);
        Ok(Scanner { sets, memory: Arc::new(memory), pool, pool_bytes: pages * POOL_PAGE })
    }

    /// Bytes of memory that [`Scanner::new`] reserves for a pool of that many bytes.
    pub fn memory_of(pool_bytes: usize) -> u64 {
        Pool::memory_of(pool_bytes)
    }

    /// Bytes of that memory that were used.
    pub fn touched(&self) -> u64 {
        self.pool.touched()
    }

    /// Bytes of its pool.
    pub fn pool_bytes(&self) -> usize {
        self.pool_bytes
    }

    /// Whether states are open that were opened with it.
    pub fn has_states(&self) -> bool {
        self.sets.iter().any(|prepared| prepared.scratch.has_streams())
    }

    /// Makes a set usable, by memory that is got now: not for the packet path. A set that is prepared stays as it is.
    ///
    /// # Errors
    /// There is no memory, or there are 16 sets.
    pub fn prepare(&mut self, set: &PatternSet) -> Result<(), PatternError> {
        if self.index(set).is_some() {
            return Ok(());
        }
        self.adopt(PreparedSet::new(set)?).map_err(|_| PatternError::NoMemory)
    }

    /// Makes a set usable that was prepared elsewhere. Calls no allocator.
    ///
    /// # Errors
    /// Gives it back if the set is prepared here already, or if there are 16 sets.
    pub fn adopt(&mut self, mut prepared: PreparedSet) -> Result<(), PreparedSet> {
        let has_place = self.sets.len() < MAX_SETS && self.index(&prepared.set).is_none();
        if !has_place || !prepared.scratch.bind(&self.memory) {
            return Err(prepared);
        }
        self.sets.push(prepared);
        Ok(())
    }

    /// Gives up a set whose states are all closed, for the caller to drop off the packet path. `None` while there are states of it, here or
    /// dropped a moment ago by another thread, or if the set is not prepared.
    pub fn release(&mut self, set: &PatternSet) -> Option<PreparedSet> {
        let index = self.index(set)?;
        if self.sets[index].scratch.has_streams() {
            return None;
        }
        Some(self.sets.swap_remove(index))
    }

    /// Gives up all sets that `is_kept` does not keep and whose states are closed, as [`Scanner::release`] does.
    pub fn release_unless(
        &mut self,
        is_kept: impl Fn(&PatternSet) -> bool,
        mut on_released: impl FnMut(PreparedSet),
    ) {
        let is_released = |own: &PreparedSet| !is_kept(&own.set) && !own.scratch.has_streams();
        while let Some(index) = self.sets.iter().position(is_released) {
            on_released(self.sets.swap_remove(index));
        }
    }

    /// Whether it has no room for another set.
    pub fn is_full(&self) -> bool {
        self.sets.len() >= MAX_SETS
    }

    /// The sets that are prepared.
    pub fn sets(&self) -> impl Iterator<Item = &PatternSet> {
        self.sets.iter().map(PreparedSet::set)
    }

    /// Number of open states.
    pub fn open_states(&mut self) -> usize {
        self.reclaim();
        self.pool.used()
    }

    /// Begins a stream. `None` if the pool has no room, or if the set is not prepared.
    pub fn open(&mut self, set: &PatternSet) -> Option<ScanState> {
        let index = self.index(set)?;
        self.reclaim();
        let scratch = &self.sets[index].scratch;
        let lines = scratch.stream_lines();
        let line = self.pool.take(lines)?;
        match Stream::open(scratch, line) {
            Some(stream) => {
                let mut state = ScanState { stream };
                state.open_texts();
                Some(state)
            }
            None => {
                self.pool.give(line);
                None
            }
        }
    }

    /// Scans the next bytes of a stream. `on_match` gets the id of each pattern that ends in them and the number of bytes of the stream up to
    /// the end of the match, in ascending order; matches of one end come in any order. If it breaks, the state finds nothing any more. Bytes
    /// of a match may lie in pieces before; an empty piece matches nothing.
    pub fn scan(
        &mut self,
        state: &mut ScanState,
        bytes: &[u8],
        on_match: &mut impl FnMut(u32, u64) -> ControlFlow<()>,
    ) -> ScanEnd {
        let Some(PreparedSet { set, scratch, pending }) = self.prepared_of(state) else {
            return ScanEnd::NotPrepared;
        };
        let (library, texts) = state.stream.parts();
        let (Some(set), Some(pending)) = (set.texts(), pending) else {
            return library.map_or(ScanEnd::AllScanned, |mut library| library.scan(scratch, bytes, on_match));
        };
        let Some(mut texts) = TextScan::new(set, texts, pending, bytes) else { return ScanEnd::Stopped };
        if let Some(mut library) = library {
            let end = library.scan(scratch, bytes, &mut |id, end| {
                texts.tell_until(end, on_match)?;
                on_match(id, end)
            });
            if end != ScanEnd::AllScanned {
                return end;
            }
        }
        if texts.tell_until(u64::MAX, on_match).is_break() {
            return ScanEnd::Stopped;
        }
        texts.finish();
        ScanEnd::AllScanned
    }

    /// Makes a state that of a stream that begins anew.
    pub fn restart(&mut self, state: &mut ScanState) {
        if let (Some(mut library), _) = state.stream.parts() {
            library.restart();
        }
        state.open_texts();
    }

    /// Ends a stream that goes on no further: tells the matches of `$` and `\z`, then closes it.
    pub fn finish(
        &mut self,
        mut state: ScanState,
        on_match: &mut impl FnMut(u32, u64) -> ControlFlow<()>,
    ) -> ScanEnd {
        let end = self.end_of(&mut state, on_match);
        self.close(state);
        end
    }

    /// Tells the matches of `$` and `\z`, which only Vectorscan finds.
    fn end_of(
        &mut self,
        state: &mut ScanState,
        on_match: &mut impl FnMut(u32, u64) -> ControlFlow<()>,
    ) -> ScanEnd {
        let Some(PreparedSet { set, scratch, .. }) = self.prepared_of(state) else {
            return ScanEnd::NotPrepared;
        };
        let (library, texts) = state.stream.parts();
        if set.texts().is_some() && TextScan::is_stopped(texts) {
            return ScanEnd::Stopped;
        }
        library.map_or(ScanEnd::AllScanned, |mut library| library.finish(scratch, on_match))
    }

    /// Ends a stream without a look at `$` and `\z`, and frees its part of the pool.
    pub fn close(&mut self, state: ScanState) {
        drop(state);
        self.reclaim();
    }

    /// Takes back what states that were closed or dropped had of the pool.
    fn reclaim(&mut self) {
        let pool = &mut self.pool;
        self.memory.take_returned(|line| pool.give(line));
    }

    fn index(&self, set: &PatternSet) -> Option<usize> {
        self.sets.iter().position(|prepared| prepared.set.is(set))
    }

    #[inline]
    fn prepared_of(&mut self, state: &ScanState) -> Option<&mut PreparedSet> {
        self.sets.iter_mut().find(|prepared| state.stream.uses(&prepared.scratch))
    }
}

impl ScanState {
    /// Begins the search for texts.
    fn open_texts(&mut self) {
        let (_, texts) = self.stream.parts();
        TextScan::open(texts);
    }
}

impl fmt::Debug for Scanner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Scanner").field("sets", &self.sets).finish_non_exhaustive()
    }
}
