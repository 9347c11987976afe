//! Tickets for packets that a host rewrites later, in a stage of its own.
//!
//! A vector's pending rewrites are parked as a batch, without copying. A ticket consists of a batch and a
//! packet's index in it.

use super::work::RewriteWork;
use crate::verdict::VECTOR;
use mmb_base::{Id, IdPool, id_types};
use std::num::NonZeroU32;

/// Batches that are allocated in advance. More are allocated if a host leaves more outstanding.
const PARKED_BATCHES: usize = 4;

id_types! {
    /// A batch. Valid until all of its tickets are redeemed.
    pub(super) struct BatchId;
}

/// The pending rewrite of a packet: see [`Worker::decide`](crate::Worker::decide).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RewriteTicket(NonZeroU32);

impl RewriteTicket {
    /// The ticket as a number above 0, to be kept with a packet.
    #[inline]
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// The ticket with a number that [`RewriteTicket::number`] returned; `None` for 0.
    #[inline]
    pub fn from_number(number: u32) -> Option<RewriteTicket> {
        NonZeroU32::new(number).map(RewriteTicket)
    }

    /// The ticket of a packet of a batch. There are fewer than 2^24 batches.
    #[inline]
    pub(super) fn new(batch: BatchId, packet: u8) -> Option<RewriteTicket> {
        RewriteTicket::from_number(batch.number() * VECTOR as u32 + u32::from(packet))
    }

    #[inline]
    pub(super) fn batch(self) -> Option<BatchId> {
        BatchId::new(self.0.get() / VECTOR as u32)
    }

    #[inline]
    pub(super) fn packet(self) -> usize {
        self.0.get() as usize % VECTOR
    }
}

/// Outstanding batches, all decided under one snapshot.
#[derive(Default)]
pub(super) struct TicketBatches {
    pub(super) ids: IdPool<BatchId>,
    /// All batches that were used so far or allocated in advance.
    batches: Vec<TicketBatch>,
}

/// The pending rewrites of one vector.
pub(super) struct TicketBatch {
    pub(super) work: RewriteWork,
    pub(super) undone: usize,
}

impl TicketBatch {
    fn new() -> TicketBatch {
        TicketBatch { work: RewriteWork::new(), undone: 0 }
    }
}

impl TicketBatches {
    pub(super) fn new() -> TicketBatches {
        let batches = (0..PARKED_BATCHES).map(|_| TicketBatch::new()).collect();
        TicketBatches { ids: IdPool::default(), batches }
    }

    /// Takes a batch without tickets.
    pub(super) fn take(&mut self) -> BatchId {
        let id = self.ids.take();
        if index(id) >= self.batches.len() {
            self.batches.push(TicketBatch::new());
        }
        id
    }

    pub(super) fn get_mut(&mut self, id: BatchId) -> Option<&mut TicketBatch> {
        self.batches.get_mut(index(id))
    }

    /// Discards all tickets.
    pub(super) fn clear(&mut self) {
        self.batches.iter_mut().for_each(|batch| batch.undone = 0);
        self.ids.clear();
    }
}

/// The index of a batch. Unlike a slab, `batches` has no unused entry 0: a batch is large.
fn index(id: BatchId) -> usize {
    id.index() - 1
}
