//! Which connection ends for a new one where the table is full.
//!
//! In this order, the one that was idle longest first:
//!
//! 1. Connections that are over (TIME-WAIT, reset).
//! 2. *Probation*: what nobody has answered.
//! 3. *Answered*: TCP that the other end has answered and the first one has not acknowledged (SYN-RECEIVED), so that a flood that nobody
//!    answers does not end it.
//! 4. *Protected*: half-open connections whose first packet came again half a second later or more, in the table or after they
//!    were evicted (`ghosts`).
//!
//! Neither answered nor protected ones hold more than a part of the room that half-open connections have; beyond it they
//! go before those on probation. So each kind of flood (not answered, answered by a server that the handshake never reaches, or sent
//! twice) lives on its own part, and takes no time from the others. What both ends want (established, closing, replied) is never
//! ended for another.
//!
//! What holds, where R of the places are for half-open connections and F first packets of made-up tuples come in a second:
//!
//! - While R / F is longer than the other end takes to answer, everybody gets through at once: with 300,000 a second and 100 ms,
//!   from R = 30,000 on.
//! - With less room, a first packet is forgotten before it is answered. The client sends it again, one second later where it is TCP
//!   (RFC 6298), and then has a place among the protected, where the flood is not: it gets through after that second.
//! - A sender who sends each made-up packet again half a second later or more competes with those that came again, for a quarter of R.
//!   Who comes for the first time loses nothing by that; who has to come again may have to wait until it ends.
//!
//! Where memory ends before `conn max` does, the table is full as soon.
//!
//! Nobody can choose who goes: age decides, and what is remembered of whom is found by a keyed hash.

use super::ConnectionTable;
use crate::wheel::{ANSWERED, HALF_OPEN, OVER, PROBATION, PROTECTED};
use crate::{CloseReason, Connection, InsertError};
use std::ops::Range;

/// How many connections may end for a new one: more than one, so that a table shrinks when its bound was lowered.
const EVICTED: usize = 4;

/// The part of half-open connections' room that answered ones have, and protected ones, one in so many.
const ANSWERED_PART: usize = 2;
const PROTECTED_PART: usize = 4;

/// So many they may be in any case: in a small room, order alone counts.
const FEW: usize = 16;

/// How long a system without memory is not asked for more: a packet does not wait for an answer that was just given.
const ASK_AGAIN_MS: u64 = 1000;

impl ConnectionTable {
    /// Makes room for one connection.
    pub(super) fn make_room(
        &mut self,
        closed: &mut dyn FnMut(&Connection, CloseReason),
    ) -> Result<(), InsertError> {
        let (max, full) = self.bound();
        for _ in 0..EVICTED {
            if self.len < max {
                return Ok(());
            }
            let victim = self.victim().ok_or(full)?;
            let connection = self.slab.at(victim);
            if connection.state.is_half_open() {
                let hash = self.hasher.hash(&connection.tuple(crate::Direction::Forward));
                self.ghosts.remember(hash, self.now_ms);
            }
            self.end(victim, CloseReason::Evicted, closed);
        }
        if self.len < max { Ok(()) } else { Err(full) }
    }

    /// How many there may be now, and what it is called that there are no more.
    fn bound(&mut self) -> (usize, InsertError) {
        self.enough = self.enough.filter(|(_, until_ms)| self.now_ms < *until_ms);
        match self.enough {
            Some((enough, _)) if enough < self.max => (enough, InsertError::NoMemory),
            _ => (self.max, InsertError::Full),
        }
    }

    /// Memory ran out: until it is asked for again, as many connections as there are is all that there may be.
    pub(super) fn no_memory(&mut self) -> InsertError {
        self.enough = Some((self.len, self.now_ms + ASK_AGAIN_MS));
        InsertError::NoMemory
    }

    /// Whom a new connection ends.
    fn victim(&self) -> Option<u32> {
        self.oldest(OVER)
            .or_else(|| self.oldest_beyond(ANSWERED, ANSWERED_PART))
            .or_else(|| self.oldest_beyond(PROTECTED, PROTECTED_PART))
            .or_else(|| self.oldest(PROBATION))
            .or_else(|| self.oldest(ANSWERED))
            .or_else(|| self.oldest(PROTECTED))
    }

    /// The oldest of some orders if these hold more than one in `part` of what is half open.
    fn oldest_beyond(&self, orders: Range<u8>, part: usize) -> Option<u32> {
        let most = (self.queues.len(HALF_OPEN) / part).max(FEW);
        if self.queues.len(orders.clone()) > most { self.oldest(orders) } else { None }
    }

    /// Of the first ones of some orders, the one that was idle longest.
    fn oldest(&self, mut orders: Range<u8>) -> Option<u32> {
        let firsts = orders.by_ref().filter_map(|order| self.queues.first(order));
        firsts.max_by_key(|place| self.slab.at(*place).idle_ms(self.now_ms))
    }
}
