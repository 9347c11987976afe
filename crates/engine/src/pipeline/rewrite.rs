//! Issues tickets for a vector's rewrites, and rewrites packets by them.

use super::forward::forward;
use super::state::Pipeline;
use super::tickets::{BatchId, RewriteTicket, TicketBatch};
use super::work::RewriteWork;
use crate::cells::Stage;
use crate::compiled::Snapshot;
use crate::verdict::{Cycles, VECTOR, Verdict};
use mmb_packet::Packet;

impl Pipeline {
    /// Whether tickets are outstanding. They refer to the snapshot under which they were issued.
    pub(crate) fn has_tickets(&self) -> bool {
        !self.tickets.ids.is_empty()
    }

    /// Discards tickets that will not be redeemed.
    pub(crate) fn discard_tickets(&mut self) {
        if self.has_tickets() {
            self.tickets.clear();
        }
    }

    /// Issues the tickets of the vector. Returns the batch in which the pending rewrites must be parked;
    /// `None` without tickets. `tickets` is as long as the vector.
    pub(super) fn issue_tickets(&mut self, tickets: &mut [Option<RewriteTicket>]) -> Option<BatchId> {
        tickets.fill(None);
        let RewriteWork { transforms, rewrites, .. } = &self.work;
        if transforms.is_empty() && rewrites.is_empty() {
            return None;
        }
        let batch = self.tickets.take();
        let packets = transforms.iter().map(|transform| transform.packet);
        for packet in packets.chain(rewrites.iter().map(|rewrite| rewrite.packet)) {
            tickets[usize::from(packet)] = RewriteTicket::new(batch, packet);
        }
        Some(batch)
    }

    /// Parks the vector's pending rewrites in a batch.
    pub(super) fn park(&mut self, batch: BatchId, tickets: &[Option<RewriteTicket>]) {
        let room = self.work.listed.capacity();
        let Some(batch) = self.tickets.get_mut(batch) else { return };
        batch.undone = tickets.iter().filter(|ticket| ticket.is_some()).count();
        std::mem::swap(&mut self.work, &mut batch.work);
        self.work.clear();
        self.work.listed.reserve(room);
    }

    /// Rewrites a vector of packets by their tickets. `tickets` and `verdicts` are as long as `packets`.
    pub(crate) fn rewrite_by_tickets(
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
            if let Some(id) = run[0].batch()
                && let Some(batch) = held.get_mut(id).filter(|batch| batch.undone > 0)
            {
                self.run_batch(snapshot, batch, &mut packets[done..end], run, &mut verdicts[done..end]);
                if batch.undone == 0 {
                    held.ids.free(id);
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
        batch: &mut TicketBatch,
        packets: &mut [Packet<'_>],
        tickets: &[RewriteTicket],
        verdicts: &mut [Verdict],
    ) {
        // Indexed by the packets' indices when they were decided on.
        let mut places = [u16::MAX; VECTOR];
        for (index, ticket) in (0..).zip(tickets) {
            places[ticket.packet()] = index;
        }
        let place = |packet: u8| match places[usize::from(packet)] {
            u16::MAX => None,
            index => Some(usize::from(index)),
        };
        batch.work.apply(snapshot, packets, (&mut self.editor, &mut self.not_applied), place);
        let layouts = tickets.iter().map(|ticket| &batch.work.layouts[ticket.packet()]);
        forward(snapshot, (&*self.cells, &mut self.drops), packets, layouts, verdicts, |_| false);
        batch.undone = batch.undone.saturating_sub(tickets.len());
    }
}
