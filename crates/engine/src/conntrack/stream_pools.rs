//! The memory for the streams of workers. The control side allocates it and hands it over.
//!
//! Purpose: a policy sizes the pools for payload and for search states, and its patterns need working memory.
//! Packets must not wait for an allocation, and the process must not abort if an allocation fails. Therefore
//! the control side allocates what the workers lack before it publishes a policy ([`StreamPools::allocate`]).
//! If an allocation fails, it refuses the policy.
//!
//! Life-cycle: just before a policy is published, the control side puts the new pools into each worker's
//! [`PoolExchange`]. When the worker picks the policy up, it adopts the pools without calling the allocator,
//! and puts the pools that it no longer uses into the exchange. The control side frees those
//! ([`StreamPools::reclaim`]). After an offer, a worker may still pick up an older snapshot. So each set of
//! patterns carries the generation of the first snapshot that uses it.
//!
//! Who writes: both sides. Each side locks the exchange only while it moves values.

use super::stream_sizes::StreamSizes;
use crate::compiled::StreamPatterns;
use mmb_base::{lock, lock_soon};
use mmb_httpedit::{HttpMemory, HttpRules};
use mmb_scan::{EditScratch, PatternError, PatternSet, PreparedSet, Scanner};
use mmb_stream::{ChunkPool, StreamTable};
use std::sync::{Arc, Mutex, MutexGuard};

/// The most retired pools in an exchange. A worker frees any further pools itself.
const MAX_RETIRED: usize = 64;

/// Where the control side and a worker exchange memory for streams.
#[derive(Debug, Default)]
pub(crate) struct PoolExchange(Mutex<Exchanged>);

/// The content of an exchange.
#[derive(Debug, Default)]
pub(super) struct Exchanged {
    pub(super) offer: StreamOffer,
    pub(super) retired: RetiredPools,
}

/// Memory that the control side has allocated for a worker and that the worker has not adopted yet.
#[derive(Debug, Default)]
pub(super) struct StreamOffer {
    pub(super) payload: Option<ChunkPool>,
    pub(super) bytes: ScanOffer,
    pub(super) http: ScanOffer,
    /// Scanners for server names, by generation. Each has its set of patterns, and room for one search state.
    names: Vec<(u64, NameScanner)>,
    pub(super) http_memory: Option<Box<HttpMemory>>,
    pub(super) edit_scratch: Option<EditScratch>,
}

/// A scanner for server names, and its set of patterns.
pub(super) type NameScanner = (Scanner, PatternSet);

/// A scanner with a larger pool, and prepared sets of patterns with their generations.
#[derive(Debug, Default)]
pub(super) struct ScanOffer {
    scanner: Option<Scanner>,
    sets: Vec<(u64, PreparedSet)>,
}

/// Memory that a worker no longer uses.
#[derive(Debug, Default)]
pub(super) struct RetiredPools {
    pools: Vec<RetiredPool>,
    /// A stream table without streams, to be freed with its records.
    pub(super) table: StreamTable,
}

#[derive(Debug)]
#[expect(dead_code, reason = "they are kept to be dropped by the control side")]
enum RetiredPool {
    Payload(ChunkPool),
    Scanner(Scanner),
    Set(PreparedSet),
    Scratch(EditScratch),
    Rules(Arc<HttpRules>),
}

impl PoolExchange {
    /// Locks the exchange for a worker. The worker spins, because the control side holds the lock only for a
    /// few moves.
    pub(super) fn open(&self) -> MutexGuard<'_, Exchanged> {
        lock_soon(&self.0)
    }
}

impl RetiredPools {
    fn push(&mut self, pool: RetiredPool) {
        // If the list is full, the worker drops the pool here and so frees it.
        if self.pools.len() < self.pools.capacity() {
            self.pools.push(pool);
        }
    }

    pub(super) fn payload(&mut self, pool: ChunkPool) {
        self.push(RetiredPool::Payload(pool));
    }

    pub(super) fn scanner(&mut self, scanner: Scanner) {
        self.push(RetiredPool::Scanner(scanner));
    }

    pub(super) fn set(&mut self, set: PreparedSet) {
        self.push(RetiredPool::Set(set));
    }

    pub(super) fn scratch(&mut self, scratch: EditScratch) {
        self.push(RetiredPool::Scratch(scratch));
    }

    pub(super) fn rules(&mut self, rules: Arc<HttpRules>) {
        self.push(RetiredPool::Rules(rules));
    }
}

impl StreamOffer {
    /// From the scanners for server names that were offered for snapshots up to `generation`: takes one with
    /// the wanted set, and retires all others.
    pub(super) fn take_names(
        &mut self,
        generation: u64,
        wanted: Option<&PatternSet>,
        retired: &mut RetiredPools,
    ) -> Option<NameScanner> {
        let mut taken = None;
        while let Some(index) = self.names.iter().position(|(since, _)| *since <= generation) {
            let (_, (scanner, set)) = self.names.swap_remove(index);
            let is_wanted = wanted.is_some_and(|wanted| wanted.digest() == set.digest());
            match is_wanted && taken.is_none() {
                true => taken = Some((scanner, set)),
                false => retired.scanner(scanner),
            }
        }
        taken
    }

    /// Adds the memory of an earlier offer that the worker has not adopted, unless this offer replaces it. No
    /// worker can pick up a snapshot before generation `oldest` any more, so sets for such snapshots are not
    /// added. Returns what was not added.
    fn keep(&mut self, earlier: StreamOffer, oldest: u64) -> StreamOffer {
        let StreamOffer { payload, bytes, http, mut names, http_memory, edit_scratch } = earlier;
        let mut unused = StreamOffer::default();
        let (is_needed, old) = names.into_iter().partition(|(since, _)| *since >= oldest);
        (names, unused.names) = (is_needed, old);
        self.names.append(&mut names);
        unused.bytes = self.bytes.keep(bytes, oldest);
        unused.http = self.http.keep(http, oldest);
        unused.payload = kept(&mut self.payload, payload);
        unused.http_memory = kept(&mut self.http_memory, http_memory);
        unused.edit_scratch = kept(&mut self.edit_scratch, edit_scratch);
        unused
    }
}

/// Keeps the earlier value if no newer one is offered. Otherwise returns the earlier value.
fn kept<T>(offered: &mut Option<T>, earlier: Option<T>) -> Option<T> {
    match offered {
        Some(_) => earlier,
        None => {
            *offered = earlier;
            None
        }
    }
}

impl ScanOffer {
    /// Whether a scanner is offered.
    pub(super) fn has_scanner(&self) -> bool {
        self.scanner.is_some()
    }

    /// Takes the offered scanner if its pool is larger than the pool of the worker's own scanner. Otherwise
    /// retires it.
    pub(super) fn take_larger(
        &mut self,
        own: Option<&Scanner>,
        retired: &mut RetiredPools,
    ) -> Option<Scanner> {
        let offered = self.scanner.take()?;
        if own.is_some_and(|own| own.pool_bytes() >= offered.pool_bytes()) {
            retired.scanner(offered);
            return None;
        }
        Some(offered)
    }

    /// Passes the sets that were offered for snapshots up to `generation` to `adopt`, and retires the sets
    /// that `adopt` returns.
    pub(super) fn take_sets(
        &mut self,
        generation: u64,
        retired: &mut RetiredPools,
        mut adopt: impl FnMut(PreparedSet) -> Option<PreparedSet>,
    ) {
        while let Some(index) = self.sets.iter().position(|(since, _)| *since <= generation) {
            let (_, set) = self.sets.swap_remove(index);
            adopt(set).into_iter().for_each(|unused| retired.set(unused));
        }
    }

    fn keep(&mut self, mut earlier: ScanOffer, oldest: u64) -> ScanOffer {
        let scanner = kept(&mut self.scanner, earlier.scanner.take());
        let (mut needed, old) = earlier.sets.into_iter().partition(|(since, _)| *since >= oldest);
        self.sets.append(&mut needed);
        ScanOffer { scanner, sets: old }
    }
}

/// The size of the scanner pool, and the sets, that each worker has or was offered.
#[derive(Clone, Debug, Default)]
struct WorkerScanner {
    pool_bytes: usize,
    sets: Vec<PatternSet>,
}

impl WorkerScanner {
    /// Allocates what a worker lacks for these sets and a pool of `pool_bytes`. For a new scanner, all sets
    /// are prepared again.
    fn allocate(
        &self,
        pool_bytes: usize,
        sets: &[PatternSet],
        generation: u64,
    ) -> Result<ScanOffer, PatternError> {
        let is_new = pool_bytes > self.pool_bytes;
        let scanner = if is_new { Some(Scanner::new(pool_bytes)?) } else { None };
        let is_present = |set: &&PatternSet| !is_new && self.sets.iter().any(|own| own.is(set));
        let missing = sets.iter().filter(|set| !is_present(set));
        let sets = missing.map(|set| Ok((generation, PreparedSet::new(set)?)));
        Ok(ScanOffer { scanner, sets: sets.collect::<Result<_, PatternError>>()? })
    }

    fn after(&self, pool_bytes: usize, sets: Vec<PatternSet>) -> WorkerScanner {
        WorkerScanner { pool_bytes: self.pool_bytes.max(pool_bytes), sets }
    }
}

/// The pools that each worker has, or was offered.
#[derive(Clone, Debug, Default)]
struct WorkerPools {
    /// Bytes of the pool for payload.
    payload: Option<usize>,
    bytes: WorkerScanner,
    http: WorkerScanner,
    names: Option<PatternSet>,
    has_http_memory: bool,
    edit_scratch: usize,
}

/// Allocated pools, to be offered with the snapshot of their policy.
#[derive(Debug)]
pub(crate) struct AllocatedPools {
    /// One offer for each worker.
    offers: Vec<StreamOffer>,
    provided: WorkerPools,
}

/// The control side's record of the pools of all workers.
#[derive(Debug, Default)]
pub(crate) struct StreamPools {
    provided: WorkerPools,
    /// Scanners that workers have returned, but whose pools still contain open search states.
    still_used: Vec<Scanner>,
}

impl StreamPools {
    /// Allocates what `workers` workers lack for the streams of a policy. `wanted` is `None` for a policy
    /// without rules on streams.
    ///
    /// # Errors
    /// An allocation failed.
    pub(crate) fn allocate(
        &self,
        wanted: Option<(&StreamSizes, &StreamPatterns)>,
        workers: usize,
        generation: u64,
    ) -> Result<AllocatedPools, PatternError> {
        let Some((sizes, patterns)) = wanted else {
            let offers = (0..workers).map(|_| StreamOffer::default()).collect();
            // A worker without streams returns its pools.
            return Ok(AllocatedPools { offers, provided: WorkerPools::default() });
        };
        let sets = |set: &Option<PatternSet>| set.iter().cloned().collect::<Vec<_>>();
        let bytes = sets(&patterns.bytes);
        let http: Vec<_> = patterns.http.iter().flat_map(|rules| rules.sets()).cloned().collect();
        let scratch = edit_scratch(patterns);
        let provided = WorkerPools {
            payload: Some(sizes.payload),
            bytes: self.provided.bytes.after(sizes.byte_states, bytes),
            http: match &patterns.http {
                Some(_) => self.provided.http.after(sizes.http_states, http),
                // Workers without HTTP rules return their scanners.
                None => WorkerScanner::default(),
            },
            names: patterns.names.clone(),
            has_http_memory: self.provided.has_http_memory || patterns.http.is_some(),
            edit_scratch: self.provided.edit_scratch.max(scratch.memory()),
        };
        let offers = (0..workers).map(|_| self.offer_for(&provided, sizes, patterns, generation));
        Ok(AllocatedPools { offers: offers.collect::<Result<_, _>>()?, provided })
    }

    /// Allocates what one worker lacks.
    fn offer_for(
        &self,
        provided: &WorkerPools,
        sizes: &StreamSizes,
        patterns: &StreamPatterns,
        generation: u64,
    ) -> Result<StreamOffer, PatternError> {
        let previous = &self.provided;
        let mut offer = StreamOffer::default();
        if previous.payload != provided.payload {
            offer.payload = Some(ChunkPool::new(sizes.payload).ok_or(PatternError::NoMemory)?);
        }
        offer.bytes = previous.bytes.allocate(sizes.byte_states, &provided.bytes.sets, generation)?;
        offer.http = previous.http.allocate(sizes.http_states, &provided.http.sets, generation)?;
        if let Some(names) = &provided.names
            && previous.names.as_ref().is_none_or(|previous| previous.digest() != names.digest())
        {
            let mut scanner = Scanner::new(names.pool_bytes(1))?;
            scanner.prepare(names)?;
            offer.names.push((generation, (scanner, names.clone())));
        }
        if provided.has_http_memory && !previous.has_http_memory {
            offer.http_memory = Some(Box::default());
        }
        if provided.edit_scratch > previous.edit_scratch {
            offer.edit_scratch = Some(edit_scratch(patterns));
        }
        Ok(offer)
    }

    /// Offers pools to the workers. No worker uses a snapshot before generation `oldest` any more.
    pub(crate) fn offer<'e>(
        &mut self,
        allocated: AllocatedPools,
        oldest: u64,
        exchanges: impl Iterator<Item = &'e PoolExchange>,
    ) {
        self.provided = allocated.provided;
        for (mut offer, PoolExchange(exchange)) in allocated.offers.into_iter().zip(exchanges) {
            let mut exchanged = lock(exchange);
            let earlier = std::mem::take(&mut exchanged.offer);
            let unused = offer.keep(earlier, oldest);
            exchanged.offer = offer;
            let Exchanged { retired, .. } = &mut *exchanged;
            retired.pools.reserve_exact(MAX_RETIRED.saturating_sub(retired.pools.len()));
            drop(exchanged);
            drop(unused);
        }
    }

    /// Frees the memory that workers have returned, except scanners with open search states.
    pub(crate) fn reclaim<'e>(&mut self, exchanges: impl Iterator<Item = &'e PoolExchange>) {
        for PoolExchange(exchange) in exchanges {
            if lock(exchange).retired.is_empty() {
                continue;
            }
            let mut fresh =
                RetiredPools { pools: Vec::with_capacity(MAX_RETIRED), ..RetiredPools::default() };
            std::mem::swap(&mut lock(exchange).retired, &mut fresh);
            for pool in fresh.pools {
                if let RetiredPool::Scanner(scanner) = pool {
                    self.still_used.push(scanner);
                }
            }
        }
        self.still_used.retain(Scanner::has_states);
    }

    /// The bytes that one worker's pools lack for a policy with these sizes.
    pub(crate) fn missing_bytes(&self, sizes: &StreamSizes) -> u64 {
        let WorkerPools { payload, bytes, http, .. } = &self.provided;
        let mut missing = 0;
        if *payload != Some(sizes.payload) {
            missing += ChunkPool::memory_of(sizes.payload);
        }
        for (states, provided) in [(sizes.byte_states, bytes), (sizes.http_states, http)] {
            if states > provided.pool_bytes {
                missing += Scanner::memory_of(states);
            }
        }
        missing
    }
}

impl RetiredPools {
    fn is_empty(&self) -> bool {
        self.pools.is_empty() && self.table.record_memory() == 0
    }
}

/// The working memory for all edits of a policy.
fn edit_scratch(patterns: &StreamPatterns) -> EditScratch {
    let mut scratch = EditScratch::new();
    patterns.edits().iter().for_each(|edit| scratch.prepare(&edit.patterns));
    patterns.http.iter().flat_map(|rules| rules.edit_patterns()).for_each(|edit| scratch.prepare(edit));
    scratch
}
