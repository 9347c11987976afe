//! Expiry queues of connections.
//!
//! Each connection is in one queue. Connections that may be evicted (closed or half-open) are in *eviction
//! lists*, each of one kind of connections, with the most recently used one at the end. So the first
//! connection of a list is both the next to expire and the first to be evicted. The table decides which kind
//! is evicted first (`table/room.rs`). Other connections are in the *wheel*, after Varghese and Lauck (SOSP
//! 1987, scheme 6): a queue for each of the next 4096 seconds or so. Packets do not move connections in the
//! wheel. When a slot comes up, a connection that was used since then moves to a later slot.
//!
//! Queues are doubly linked through the records, so that removing a connection touches two neighbours.

use crate::ghosts::RETRANSMITTED_AFTER_MS;
use crate::links::{Previous, QueueLinks};
use crate::slab::ConnectionSlab;
use crate::timeouts::column;
use crate::{ConnId, ConnState, Direction};
use std::ops::Range;

/// Milliseconds of a slot, as a shift.
const SLOT_SHIFT: u32 = 10;

/// Milliseconds of a slot: the maximum delay of a timeout.
pub const SLOT_MS: u64 = 1 << SLOT_SHIFT;

/// The number of slots of the wheel. A connection that times out after the farthest slot is in that slot, and
/// is rechecked when the slot comes up.
const SLOTS: u64 = 4096;

/// The maximum number of slots that one call passes. These are all slots, since checking an empty one takes a
/// nanosecond.
pub(crate) const STEPS: usize = SLOTS as usize;

/// The number of eviction lists. All connections in a list have the same timeout.
pub(crate) const EVICTION_LISTS: usize = 11;

/// The queue number of connections in the wheel.
const WHEEL: u8 = EVICTION_LISTS as u8;

/// Eviction lists of unreplied connections whose first packet was not retransmitted, by protocol. They are
/// the probationary segment of a segmented LRU (Karedla et al., 1994).
pub(crate) const PROBATION: Range<u8> = 0..4;
/// The eviction list of TCP connections that the responder has answered and the initiator has not
/// acknowledged.
pub(crate) const ANSWERED: Range<u8> = 4..5;
/// Eviction lists of half-open connections whose first packet was retransmitted as a client does, by
/// protocol. They are the protected segment.
pub(crate) const PROTECTED: Range<u8> = 5..9;
/// All half-open connections.
pub(crate) const HALF_OPEN: Range<u8> = PROBATION.start..PROTECTED.end;
/// Eviction lists of closed connections.
pub(crate) const CLOSED: Range<u8> = 9..11;

/// The queue of a connection: an eviction list, or the wheel.
#[inline]
fn expiry_queue(proto: u8, state: ConnState, is_protected: bool) -> u8 {
    match state {
        ConnState::TimeWait => CLOSED.start,
        ConnState::Reset => CLOSED.start + 1,
        ConnState::SynReceived if !is_protected => ANSWERED.start,
        ConnState::SynSent | ConnState::SynReceived | ConnState::Unreplied => {
            let lists = if is_protected { PROTECTED } else { PROBATION };
            lists.start + column(proto)
        }
        ConnState::Established | ConnState::FinWait | ConnState::Closing | ConnState::Replied => WHEEL,
    }
}

/// Where the last search of each eviction list for a reclaimable outside port stopped. The next search
/// continues there, so that unsuitable connections at the front of a list do not hide those after them.
#[derive(Clone, Debug, Default)]
pub struct ReclaimCursor(pub(crate) [Option<ConnId>; EVICTION_LISTS]);

/// The queues of a table.
#[derive(Debug)]
pub(crate) struct ExpiryQueues {
    /// First the eviction lists, then the slots.
    heads: Vec<Option<ConnId>>,
    tails: [Option<ConnId>; EVICTION_LISTS],
    /// The length of each eviction list.
    lengths: [usize; EVICTION_LISTS],
    /// The next slot to come up, counted from time zero.
    slot: u64,
}

impl ExpiryQueues {
    pub(crate) fn new() -> ExpiryQueues {
        ExpiryQueues {
            heads: vec![None; EVICTION_LISTS + SLOTS as usize],
            tails: [None; EVICTION_LISTS],
            lengths: [0; EVICTION_LISTS],
            slot: 0,
        }
    }

    /// Number of connections in some eviction lists.
    #[inline]
    pub(crate) fn len(&self, lists: Range<u8>) -> usize {
        self.lengths[usize::from(lists.start)..usize::from(lists.end)].iter().sum()
    }

    /// Number of half-open connections.
    pub(crate) fn half_open(&self) -> usize {
        self.len(HALF_OPEN)
    }

    /// The first connection of an eviction list, unless it is empty.
    #[inline]
    pub(crate) fn first(&self, list: u8) -> Option<ConnId> {
        self.heads[list as usize]
    }

    /// Adds a connection that is in no queue: to the end of its eviction list, or to the slot of `ends_ms` in
    /// the wheel. A half-open connection may be protected.
    pub(crate) fn join(&mut self, slab: &mut ConnectionSlab, id: ConnId, ends_ms: u64, is_protected: bool) {
        let line = slab.line(id);
        let queue = expiry_queue(line.proto, line.state(), is_protected);
        slab.cold_mut(id).queue = queue;
        if queue == WHEEL {
            // A slot comes up at its first millisecond. Rounding up prevents a check that is too early.
            let wanted = ends_ms.div_ceil(SLOT_MS);
            let slot = wanted.clamp(self.slot, self.slot + SLOTS - 1);
            return self.push_front(slab, id, slot);
        }
        let last = self.tails[queue as usize].replace(id);
        let previous = last.map_or(Previous::head(queue.into()), Previous::record);
        slab.cold_mut(id).links = QueueLinks { previous, next: None };
        match last {
            None => self.heads[queue as usize] = Some(id),
            Some(last) => slab.cold_mut(last).links.next = Some(id),
        }
        self.lengths[queue as usize] += 1;
    }

    fn push_front(&mut self, slab: &mut ConnectionSlab, id: ConnId, slot: u64) {
        let queue = EVICTION_LISTS + (slot % SLOTS) as usize;
        let next = self.heads[queue].replace(id);
        slab.cold_mut(id).links = QueueLinks { previous: Previous::head(queue), next };
        if let Some(next) = next {
            slab.cold_mut(next).links.previous = Previous::record(id);
        }
    }

    /// Removes a connection from its queue.
    pub(crate) fn leave(&mut self, slab: &mut ConnectionSlab, id: ConnId) {
        let record = slab.cold(id);
        let (QueueLinks { previous, next }, queue) = (record.links, record.queue);
        match previous.id() {
            Some(previous) => slab.cold_mut(previous).links.next = next,
            None => self.heads[previous.queue()] = next,
        }
        if let Some(next) = next {
            slab.cold_mut(next).links.previous = previous;
        } else if queue != WHEEL {
            self.tails[queue as usize] = previous.id();
        }
        if queue != WHEEL {
            self.lengths[queue as usize] -= 1;
        }
    }

    /// Moves a connection in an eviction list to the end of the list, after a valid packet. A half-open
    /// connection becomes protected if the packet comes as late as a client's retransmission.
    #[inline]
    pub(crate) fn refresh(
        &mut self,
        slab: &mut ConnectionSlab,
        id: ConnId,
        direction: Direction,
        now_ms: u64,
    ) {
        if slab.cold(id).queue != WHEEL {
            self.refresh_in_list(slab, id, direction, now_ms);
        }
    }

    fn refresh_in_list(&mut self, slab: &mut ConnectionSlab, id: ConnId, direction: Direction, now_ms: u64) {
        let record = slab.cold(id);
        let was_protected = PROTECTED.contains(&record.queue);
        let is_retransmitted =
            direction == Direction::Forward && slab.age_ms(id, now_ms) >= RETRANSMITTED_AFTER_MS;
        let is_protected = was_protected || is_retransmitted && HALF_OPEN.contains(&record.queue);
        if is_protected != was_protected || record.links.next.is_some() {
            self.leave(slab, id);
            self.join(slab, id, 0, is_protected);
        }
    }

    /// Whether a connection is half-open and protected.
    pub(crate) fn is_protected(slab: &ConnectionSlab, id: ConnId) -> bool {
        PROTECTED.contains(&slab.cold(id).queue)
    }

    /// Whether a connection is in the wheel.
    pub(crate) fn is_in_wheel(slab: &ConnectionSlab, id: ConnId) -> bool {
        slab.cold(id).queue == WHEEL
    }

    /// Bytes in use.
    pub(crate) fn memory(&self) -> usize {
        self.heads.capacity() * size_of::<Option<ConnId>>()
    }

    /// The next connection of the slots that came up, if any. `steps` limits how many slots are
    /// passed. The caller must remove the connection from its queue.
    pub(crate) fn due(&mut self, now_ms: u64, steps: &mut usize) -> Option<ConnId> {
        let now = now_ms >> SLOT_SHIFT;
        // One round is enough, however late the wheel is: it visits all slots, and each connection is
        // in one of them.
        self.slot = self.slot.max((now + 1).saturating_sub(SLOTS));
        while self.slot <= now {
            let head = self.heads[EVICTION_LISTS + (self.slot % SLOTS) as usize];
            if head.is_some() {
                return head;
            }
            if *steps == 0 {
                return None;
            }
            *steps -= 1;
            self.slot += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto;

    impl ExpiryQueues {
        /// Walks all queues, and returns how many connections they contain.
        pub(crate) fn walk(&self, slab: &ConnectionSlab) -> usize {
            let mut all = 0;
            for (queue, head) in self.heads.iter().enumerate() {
                let (mut previous, mut place, mut waiting) = (Previous::head(queue), *head, 0);
                while let Some(id) = place {
                    let connection = slab.live(id).expect("only connections wait");
                    let record = slab.cold(id);
                    assert_eq!(usize::from(record.queue), queue.min(EVICTION_LISTS));
                    let is_protected = ExpiryQueues::is_protected(slab, id);
                    assert_eq!(
                        record.queue,
                        expiry_queue(connection.proto(), connection.state, is_protected)
                    );
                    assert_eq!(record.links.previous, previous);
                    (previous, place) = (Previous::record(id), record.links.next);
                    waiting += 1;
                }
                if queue < EVICTION_LISTS {
                    assert_eq!(self.tails[queue], previous.id());
                    assert_eq!(self.lengths[queue], waiting);
                }
                all += waiting;
            }
            all
        }
    }

    #[test]
    fn connections_that_may_be_evicted_are_in_an_order() {
        for proto in [proto::TCP, proto::UDP, proto::ICMP, proto::ICMP6, 47] {
            for state in ConnState::ALL {
                for is_protected in [false, true] {
                    let queue = expiry_queue(proto, state, is_protected);
                    assert_eq!(HALF_OPEN.contains(&queue), state.is_half_open());
                    assert_eq!(CLOSED.contains(&queue), state.is_closed());
                    assert_eq!(PROTECTED.contains(&queue), state.is_half_open() && is_protected);
                    assert_eq!(ANSWERED.contains(&queue), state == ConnState::SynReceived && !is_protected);
                }
            }
        }
    }
}
