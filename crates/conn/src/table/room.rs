//! Eviction: which connection ends for a new one when the table is full.
//!
//! In this order, the longest idle first:
//!
//! 1. Closed connections (TIME-WAIT, reset).
//! 2. *Probation*: unreplied connections.
//! 3. *Answered*: TCP connections that the responder has answered and the initiator has not acknowledged
//!    (SYN-RECEIVED). A flood of unreplied connections does not evict them.
//! 4. *Protected*: half-open connections whose first packet was retransmitted half a second later or more, in
//!    the table or after they were evicted (`ghosts`).
//!
//! Answered and protected connections each have only a part of the slots of half-open connections. Beyond
//! that part, they are evicted before those on probation. So each kind of flood has its own part, and does
//! not shorten the time of the other kinds. The kinds of floods are: unreplied; answered by a server whose
//! replies are lost; and sent twice. Connections that both ends have confirmed (established, closing,
//! replied) are never evicted.
//!
//! With R slots for half-open connections and F first packets of made-up tuples per second, the following
//! applies:
//!
//! - While R / F is longer than the time that the responder takes to answer, every connection succeeds at
//!   once. With 300,000 per second and 100 ms, this is so from R = 30,000 on.
//! - With fewer slots, a connection is evicted before it is answered. The client retransmits its first
//!   packet, after one second for TCP (RFC 6298). Then it has a protected slot, which the flood does not
//!   reach, and succeeds.
//! - A sender that retransmits each made-up packet half a second later or more competes with retransmitting
//!   clients for a quarter of R. Clients that succeed at once are not affected. Clients that must retransmit
//!   may have to wait until the flood ends.
//!
//! If memory is exhausted before `conn max` is reached, the table counts as full.
//!
//! A sender cannot choose which connection is evicted: age decides, and evicted connections are recorded by a
//! keyed hash.

use super::ConnectionTable;
use crate::owner::{CLOSE_BATCH, STEPS, TableOwner};
use crate::wheel::{ANSWERED, CLOSED, HALF_OPEN, PROBATION, PROTECTED};
use crate::{CloseReason, ConnId, Direction, InsertError};
use arrayvec::ArrayVec;
use mmb_base::prefetch;
use std::ops::Range;

/// The maximum number of connections that are evicted for a new one. It is more than one, so that a table
/// shrinks after its limit was lowered.
const EVICTED: usize = 4;

/// The parts of the half-open slots for answered and for protected connections: one in this number.
const ANSWERED_PART: usize = 2;
const PROTECTED_PART: usize = 4;

/// The minimum size of these parts. In a small table, only the order of eviction matters.
const MIN_PART: usize = 16;

/// After an allocation failed, none is tried for this time, so that packets do not wait for repeated
/// failures.
const RETRY_AFTER_MS: u64 = 1000;

impl ConnectionTable {
    /// Makes room for one connection.
    pub(super) fn make_room(&mut self, owner: &mut impl TableOwner) -> Result<(), InsertError> {
        let (max, full) = self.bound();
        for _ in 0..EVICTED {
            if self.len < max {
                return Ok(());
            }
            let victim = self.victim().ok_or(full)?;
            if self.state(victim).is_half_open() {
                let hash = self.hasher.hash(&self.slab.tuple(victim, Direction::Forward));
                self.ghosts.insert(hash, self.now_ms);
            }
            self.end(victim, CloseReason::Evicted, owner);
        }
        if self.len < max { Ok(()) } else { Err(full) }
    }

    /// The current limit, and the error when it is reached.
    fn bound(&mut self) -> (usize, InsertError) {
        self.allocation_limit = self.allocation_limit.filter(|(_, until_ms)| self.now_ms < *until_ms);
        match self.allocation_limit {
            Some((limit, _)) if limit < self.max => (limit, InsertError::NoMemory),
            _ => (self.max, InsertError::Full),
        }
    }

    /// Records that memory ran out. The current number of connections is the limit until allocation is
    /// retried.
    pub(super) fn no_memory(&mut self) -> InsertError {
        self.allocation_limit = Some((self.len, self.now_ms + RETRY_AFTER_MS));
        InsertError::NoMemory
    }

    /// Prefetches what the eviction of the next `count` connections reads, at most [`CLOSE_BATCH`] of them,
    /// if they are all in one eviction list.
    #[inline(never)]
    pub(super) fn prefetch_victims(&self, count: usize, owner: &impl TableOwner) {
        let mut victims = ArrayVec::<ConnId, CLOSE_BATCH>::new();
        let mut next = self.victim();
        while let Some(id) = next.filter(|_| victims.len() < count.min(CLOSE_BATCH)) {
            victims.push(id);
            self.slab.prefetch(id);
            next = self.slab.cold(id).links.next;
        }
        for id in &victims {
            let [forward, reply] =
                Direction::ALL.map(|direction| self.hasher.hash(&self.slab.tuple(*id, direction)));
            prefetch(self.index.first(forward));
            prefetch(self.index.first(reply));
            self.ghosts.prefetch(forward);
        }
        for step in 0..STEPS {
            owner.prefetch(step, &mut victims.iter().map(|id| (*id, *self.ids(*id))));
        }
    }

    /// The connection to evict for a new one.
    fn victim(&self) -> Option<ConnId> {
        self.oldest(CLOSED)
            .or_else(|| self.oldest_beyond(ANSWERED, ANSWERED_PART))
            .or_else(|| self.oldest_beyond(PROTECTED, PROTECTED_PART))
            .or_else(|| self.oldest(PROBATION))
            .or_else(|| self.oldest(ANSWERED))
            .or_else(|| self.oldest(PROTECTED))
    }

    /// The oldest connection of some eviction lists, if these have more than one in `part` of the half-open
    /// connections.
    fn oldest_beyond(&self, lists: Range<u8>, part: usize) -> Option<ConnId> {
        let max = (self.queues.len(HALF_OPEN) / part).max(MIN_PART);
        if self.queues.len(lists.clone()) > max { self.oldest(lists) } else { None }
    }

    /// The longest idle of the first connections of some eviction lists.
    fn oldest(&self, mut lists: Range<u8>) -> Option<ConnId> {
        let firsts = lists.by_ref().filter_map(|list| self.queues.first(list));
        firsts.max_by_key(|id| self.slab.line(*id).idle_ms(self.now_ms))
    }
}
