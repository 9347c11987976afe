//! What the deciding nodes tell the rewriting ones: which job each buffer has.
//!
//! VPP keeps the order of buffers between two nodes, so that a note is found at the head of its queue. A buffer's own room for such
//! notes lies in a part of it that nothing else on a packet's way reads.

use mmb_engine::RewriteTicket;
use std::collections::VecDeque;

/// Notes that there is room for ahead of any.
const ROOM: usize = 4096;

/// One deciding node's notes.
type TicketQueue = VecDeque<(u32, Option<RewriteTicket>)>;

/// The notes that one rewriting node will read.
pub(super) struct PendingQueue {
    /// By what decided: packets that came in, and those that other threads handed over.
    queues: [TicketQueue; 2],
}

impl PendingQueue {
    pub(super) fn new() -> PendingQueue {
        PendingQueue { queues: [VecDeque::with_capacity(ROOM), VecDeque::with_capacity(ROOM)] }
    }

    /// Those of one deciding node.
    #[inline(always)]
    pub(super) fn of(&mut self, handed: bool) -> &mut TicketQueue {
        &mut self.queues[usize::from(handed)]
    }

    /// The job that a buffer came with, or that it has none; `None` if nothing is known of it.
    #[inline(always)]
    pub(super) fn take(&mut self, buffer: u32) -> Option<Option<RewriteTicket>> {
        let mut known = None;
        for queue in &mut self.queues {
            if queue.front().is_some_and(|(noted, _)| *noted == buffer) {
                known = queue.pop_front();
                break;
            }
        }
        known.map(|(_, ticket)| ticket)
    }

    /// Puts back what was taken last.
    pub(super) fn put_back(&mut self, buffer: u32, ticket: RewriteTicket) {
        self.queues[0].push_front((buffer, Some(ticket)));
    }

    /// These buffers will not come.
    pub(super) fn forget(&mut self, buffers: &[u32]) {
        for queue in &mut self.queues {
            queue.retain(|(noted, _)| !buffers.contains(noted));
        }
    }

    /// No buffer will come any more that there is a note of.
    pub(super) fn clear(&mut self) {
        self.queues.iter_mut().for_each(VecDeque::clear);
    }
}
