//! Tickets for packets that a host rewrites later, in a stage of its own.
//!
//! A vector's pending rewrites are parked as a batch, without copying; a ticket is a batch and a packet's index in it.

use super::work::RewriteWork;
use crate::verdict::VECTOR;
use std::num::NonZeroU32;

/// Batches that are allocated in advance; more are allocated if a host leaves more outstanding.
const PARKED_BATCHES: usize = 4;

/// The pending rewrite of a packet: see [`Worker::decide`](crate::Worker::decide).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RewriteTicket(NonZeroU32);

impl RewriteTicket {
    /// The ticket as a number above 0, to be kept with a packet.
    #[inline]
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// The ticket with a number that [`RewriteTicket::number`] returned; none for 0.
    #[inline]
    pub fn of(number: u32) -> Option<RewriteTicket> {
        NonZeroU32::new(number).map(RewriteTicket)
    }

    #[inline]
    pub(super) fn new(batch: usize, packet: u8) -> RewriteTicket {
        RewriteTicket(NonZeroU32::MIN.saturating_add((batch * VECTOR) as u32 + u32::from(packet)))
    }

    #[inline]
    pub(super) fn batch(self) -> usize {
        (self.0.get() - 1) as usize / VECTOR
    }

    #[inline]
    pub(super) fn packet(self) -> usize {
        (self.0.get() - 1) as usize % VECTOR
    }
}

/// Outstanding batches, all decided under one snapshot.
#[derive(Default)]
pub(super) struct TicketBatches {
    pub(super) batches: Vec<TicketBatch>,
    pub(super) free: Vec<usize>,
}

/// The pending rewrites of one vector.
pub(super) struct TicketBatch {
    pub(super) work: RewriteWork,
    pub(super) undone: usize,
}

impl TicketBatches {
    pub(super) fn new() -> TicketBatches {
        let batch = |_| TicketBatch { work: RewriteWork::new(), undone: 0 };
        TicketBatches {
            batches: (0..PARKED_BATCHES).map(batch).collect(),
            free: (0..PARKED_BATCHES).collect(),
        }
    }
}
