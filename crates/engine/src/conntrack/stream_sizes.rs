//! The memory for the streams of a policy: the sizes of each worker's pools, and an upper bound for all
//! workers.

use super::info::{EDIT_RECORD_BYTES, EDITED_STREAM_BYTES, HTTP_RECORD_BYTES, STREAM_BYTES};
use crate::compiled::StreamPatterns;
use mmb_policy::settings::{StreamSettings, StreamUrgent};
use mmb_scan::{PatternSet, Scanner};
use mmb_stream::{ChunkPool, StreamLimits, Urgent};

/// Working memory of a worker for streams, without pools and records, in bytes.
const FIXED_BYTES: u64 = 2 << 20;

/// The sizes of a worker's pools in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamSizes {
    /// The pool for payload.
    pub(crate) payload: usize,
    /// The pool for the states of searches in plain bytes; 0 without patterns.
    pub(crate) byte_states: usize,
    /// The pool for the states of searches in HTTP messages; 0 without rules on HTTP.
    pub(crate) http_states: usize,
}

/// An upper bound of the memory that the streams of all workers take under a policy, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamNeed {
    /// The policy has rules on streams. Without such rules, streams use no memory.
    pub is_used: bool,
    /// The pools for payload.
    pub payload: u64,
    /// The maximum number of streams.
    pub streams: u64,
    /// Bytes of each stream: its record, and the states of its searches.
    pub each: u64,
    /// The part of `each` that is the record.
    pub record: u64,
    /// Bytes that depend neither on the payload pools nor on the number of streams.
    pub fixed: u64,
    /// Bytes of the pools that a change to the policy allocates. They use address space immediately, and
    /// memory as they are used.
    pub new_pools: u64,
}

/// The memory that the streams of all workers have used so far, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTaken {
    /// The records of streams.
    pub records: u64,
    /// The parts of the pools that were used.
    pub pools: u64,
}

impl StreamSizes {
    /// The sizes for one of `workers` workers.
    pub(crate) fn new(settings: &StreamSettings, patterns: &StreamPatterns, workers: usize) -> StreamSizes {
        let StreamLimits { streams, memory, .. } = stream_limits(settings, workers);
        // Both directions of a stream are searched.
        let states = |set: &PatternSet| set.pool_bytes(2 * streams);
        StreamSizes {
            payload: memory,
            byte_states: patterns.bytes.as_ref().map_or(0, states),
            // Rules on HTTP need a scanner, and so a pool, even if they have no patterns.
            http_states: patterns
                .http
                .as_ref()
                .map_or(0, |rules| rules.sets().map(states).sum::<usize>().max(1)),
        }
    }
}

impl StreamNeed {
    /// The bound for `owning` workers. `sharing` workers share the limits of the policy. `new_pools` are the
    /// bytes of new pools for each worker. `is_used` is false: the caller sets it.
    pub(crate) fn new(
        settings: &StreamSettings,
        patterns: &StreamPatterns,
        [owning, sharing]: [usize; 2],
        new_pools: u64,
    ) -> StreamNeed {
        let sizes = StreamSizes::new(settings, patterns, sharing);
        let streams = stream_limits(settings, sharing).streams.max(1) as u64;
        let states = Scanner::memory_of(sizes.byte_states) + Scanner::memory_of(sizes.http_states);
        let is_edited = patterns.http.is_some() || patterns.has_helpers || !patterns.edits().is_empty();
        let mut record = if is_edited { EDITED_STREAM_BYTES + EDIT_RECORD_BYTES } else { STREAM_BYTES };
        if patterns.http.is_some() {
            record += HTTP_RECORD_BYTES;
        }
        let workers = owning as u64;
        StreamNeed {
            is_used: false,
            payload: ChunkPool::memory_of(sizes.payload) * workers,
            streams: u64::from(settings.max),
            each: record + states.div_ceil(streams),
            record,
            fixed: FIXED_BYTES * workers,
            new_pools: new_pools * workers,
        }
    }

    /// The total in bytes.
    pub fn total(&self) -> u64 {
        self.payload + self.streams * self.each + self.fixed
    }

    /// The bytes of memory that streams may use beyond `taken`.
    pub fn beyond(&self, taken: StreamTaken) -> u64 {
        self.total().saturating_sub(taken.records + taken.pools)
    }

    /// The bytes of address space that streams may use beyond `taken`.
    pub fn space_beyond(&self, taken: StreamTaken) -> u64 {
        self.new_pools + self.fixed + (self.streams * self.record).saturating_sub(taken.records)
    }
}

/// The limits of one of `workers` workers.
pub(super) fn stream_limits(settings: &StreamSettings, workers: usize) -> StreamLimits {
    let StreamSettings { max, memory_mib, window_kib, reorder_kib, hold_ms, urgent, .. } = *settings;
    StreamLimits {
        streams: (max as usize).div_ceil(workers.max(1)),
        memory: ((memory_mib as usize) << 20) / workers.max(1),
        window: u64::from(window_kib) << 10,
        reorder: (reorder_kib as usize) << 10,
        hold_ms,
        urgent: match urgent {
            StreamUrgent::Clear => Urgent::Clear,
            StreamUrgent::Pass => Urgent::Pass,
            StreamUrgent::Drop => Urgent::Drop,
        },
    }
}
