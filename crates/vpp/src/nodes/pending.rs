//! The queue from the deciding nodes to the rewriting one: each buffer's rewrite ticket.
//!
//! VPP keeps the order of buffers between two nodes, so that a buffer's ticket is at the head of its queue. The tickets are not in the
//! buffers, since their room for such data is in a cache line that no other node on a packet's path reads.

use crate::sys::BufferIndex;
use mmb_engine::RewriteTicket;
use std::collections::VecDeque;

/// The number of tickets that are allocated in advance.
const ROOM: usize = 4096;

/// The tickets of one deciding node; `None` for a packet that only keeps the order.
type TicketQueue = VecDeque<(BufferIndex, Option<RewriteTicket>)>;

/// The tickets for one rewriting node.
pub(super) struct PendingQueue {
    /// By deciding node: that of received packets, and that of packets that other threads handed over.
    queues: [TicketQueue; 2],
}

impl PendingQueue {
    pub(super) fn new() -> PendingQueue {
        PendingQueue { queues: [VecDeque::with_capacity(ROOM), VecDeque::with_capacity(ROOM)] }
    }

    /// The queue of one deciding node.
    #[inline(always)]
    pub(super) fn of(&mut self, handed: bool) -> &mut TicketQueue {
        &mut self.queues[usize::from(handed)]
    }

    /// Takes a buffer's entry: its ticket, or that it has none. `None` if the buffer has no entry.
    #[inline(always)]
    pub(super) fn take(&mut self, buffer: BufferIndex) -> Option<Option<RewriteTicket>> {
        let mut entry = None;
        for queue in &mut self.queues {
            if queue.front().is_some_and(|(queued, _)| *queued == buffer) {
                entry = queue.pop_front();
                break;
            }
        }
        entry.map(|(_, ticket)| ticket)
    }

    /// Puts the ticket back that was taken last.
    pub(super) fn put_back(&mut self, buffer: BufferIndex, ticket: RewriteTicket) {
        self.queues[0].push_front((buffer, Some(ticket)));
    }

    /// Removes the entries of buffers that will not come.
    pub(super) fn forget(&mut self, buffers: &[BufferIndex]) {
        for queue in &mut self.queues {
            queue.retain(|(queued, _)| !buffers.contains(queued));
        }
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        self.queues.iter_mut().for_each(VecDeque::clear);
    }
}
