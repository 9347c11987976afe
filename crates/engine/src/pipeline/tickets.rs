//! Tickets for packets that a host rewrites later, in a stage of its own.
//!
//! A vector's pending rewrites are parked as a batch, without copying; a ticket is a batch and a packet's index in it.

use super::work::RewriteWork;
use super::{Pipeline, forward};
use crate::cells::Stage;
use crate::compiled::Snapshot;
use crate::verdict::{Cycles, VECTOR, Verdict};
use mmb_packet::Packet;
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
    fn new(shelf: usize, packet: u8) -> RewriteTicket {
        RewriteTicket(NonZeroU32::MIN.saturating_add((shelf * VECTOR) as u32 + u32::from(packet)))
    }

    #[inline]
    fn batch(self) -> usize {
        (self.0.get() - 1) as usize / VECTOR
    }

    #[inline]
    fn packet(self) -> usize {
        (self.0.get() - 1) as usize % VECTOR
    }
}

/// Outstanding batches, all decided under one snapshot.
#[derive(Default)]
pub(super) struct TicketBatches {
    batches: Vec<TicketBatch>,
    free: Vec<usize>,
}

/// The pending rewrites of one vector.
struct TicketBatch {
    work: RewriteWork,
    undone: usize,
}

impl TicketBatches {
    pub(super) fn new() -> TicketBatches {
        let shelf = |_| TicketBatch { work: RewriteWork::new(), undone: 0 };
        TicketBatches {
            batches: (0..PARKED_BATCHES).map(shelf).collect(),
            free: (0..PARKED_BATCHES).collect(),
        }
    }
}

impl Pipeline {
    /// Whether tickets are outstanding, under the snapshot by which they were decided.
    pub(crate) fn has_tickets(&self) -> bool {
        self.tickets.free.len() < self.tickets.batches.len()
    }

    /// Discards tickets that will not be redeemed.
    pub(crate) fn discard_tickets(&mut self) {
        if self.has_tickets() {
            let TicketBatches { batches: shelves, free } = &mut self.tickets;
            shelves.iter_mut().for_each(|shelf| shelf.undone = 0);
            free.clear();
            free.extend(0..shelves.len());
        }
    }

    /// Issues the tickets of the vector, and returns the batch in which it will be parked, if there are any. `tickets` is as long as the
    /// vector.
    pub(super) fn issue_tickets(&mut self, tickets: &mut [Option<RewriteTicket>]) -> Option<usize> {
        tickets.fill(None);
        let RewriteWork { transforms, rewrites, .. } = &self.work;
        if transforms.is_empty() && rewrites.is_empty() {
            return None;
        }
        let shelf = self.tickets.free.pop().unwrap_or_else(|| {
            self.tickets.batches.push(TicketBatch { work: RewriteWork::new(), undone: 0 });
            self.tickets.batches.len() - 1
        });
        let packets = transforms.iter().map(|transforms| transforms.packet);
        for packet in packets.chain(rewrites.iter().map(|rewrite| rewrite.packet)) {
            tickets[usize::from(packet)] = Some(RewriteTicket::new(shelf, packet));
        }
        Some(shelf)
    }

    /// Parks the vector's pending rewrites in a batch.
    pub(super) fn park(&mut self, shelf: usize, tickets: &[Option<RewriteTicket>]) {
        let room = self.work.listed.capacity();
        let shelf = &mut self.tickets.batches[shelf];
        shelf.undone = tickets.iter().filter(|ticket| ticket.is_some()).count();
        std::mem::swap(&mut self.work, &mut shelf.work);
        self.work.clear();
        self.work.listed.reserve(room);
    }

    /// Rewrites a vector of packets by their tickets. `tickets` and `verdicts` are as long as `packets`.
    pub(crate) fn redeem_tickets(
        &mut self,
        snapshot: &Snapshot,
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        tickets: &[RewriteTicket],
        verdicts: &mut [Verdict],
    ) {
        let start = cycles.now();
        // Moved out of `self` while a batch is borrowed; that copies six words.
        let mut held = std::mem::take(&mut self.tickets);
        let mut done = 0;
        for run in tickets.chunk_by(|a, b| a.batch() == b.batch()) {
            let end = done + run.len();
            if let Some(shelf) = held.batches.get_mut(run[0].batch()).filter(|shelf| shelf.undone > 0) {
                self.run_batch(snapshot, shelf, &mut packets[done..end], run, &mut verdicts[done..end]);
                if shelf.undone == 0 {
                    held.free.push(run[0].batch());
                }
            }
            done = end;
        }
        self.tickets = held;
        self.flush();
        // These packets were counted when they were decided on.
        self.cells.stage(Stage::Rewrite, 0, cycles.now().wrapping_sub(start));
    }

    /// Rewrites packets of one batch.
    fn run_batch(
        &mut self,
        snapshot: &Snapshot,
        shelf: &mut TicketBatch,
        packets: &mut [Packet<'_>],
        tickets: &[RewriteTicket],
        verdicts: &mut [Verdict],
    ) {
        // By the packets' indices when they were decided on.
        let mut places = [u16::MAX; VECTOR];
        for (at, ticket) in (0..).zip(tickets) {
            places[ticket.packet()] = at;
        }
        let place = |packet: u8| match places[usize::from(packet)] {
            u16::MAX => None,
            at => Some(usize::from(at)),
        };
        shelf.work.apply(snapshot, packets, (&mut self.editor, &mut self.not_applied), place);
        let layouts = tickets.iter().map(|ticket| &shelf.work.layouts[ticket.packet()]);
        forward(snapshot, (&*self.cells, &mut self.drops), packets, layouts, verdicts, |_| false);
        shelf.undone = shelf.undone.saturating_sub(tickets.len());
    }
}
