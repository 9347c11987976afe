//! SYNs in existing connections whose ends may both have lost them.
//!
//! A SYN of the initiator changes nothing in an existing connection. A responder that still has the connection answers with an
//! acknowledgement in window (RFC 5961 section 4.2), one that has lost it with a SYN-ACK that acknowledges the SYN. Linux's conntrack then
//! begins anew at once (`last_end` in nf_conntrack_proto_tcp.c), so that a sender who forges both packets takes a connection from its ends.
//! Here the initiator must also send its SYN again, as it does if the SYN-ACK does not arrive (RFC 6298), and nothing valid may have come
//! since the first one: the acknowledgement of a responder that is alive comes before that.
//!
//! Notes are stored by the connection's id in a table of fixed size, where later ones replace earlier ones. A connection whose note was
//! replaced waits for the next SYN, or its timeout.

use crate::ghosts::RETRANSMITTED_AFTER_MS;
use crate::{ConnId, TcpSegment};
use mmb_base::Id;

/// Notes of a table: 32 KiB, allocated with the first one.
const NOTES: usize = 1024;

/// The last SYN of a connection that existed.
#[derive(Clone, Copy, Debug)]
struct NotedSyn {
    id: ConnId,
    seq: u32,
    /// Bytes of data in it, which need not be acknowledged with it (RFC 7413).
    payload: u32,
    noted_ms: u64,
    /// Whether a SYN-ACK has acknowledged it.
    is_answered: bool,
}

/// The noted SYNs of a connection table.
#[derive(Debug, Default)]
pub(crate) struct LostEnds {
    notes: Vec<Option<NotedSyn>>,
}

impl LostEnds {
    /// Notes a SYN in an existing connection that had its last valid packet `idle_ms` ago. A repetition keeps the time of the first one.
    pub(crate) fn note(&mut self, id: ConnId, syn: &TcpSegment, (now_ms, idle_ms): (u64, u64)) {
        let repeated = self.find(id).filter(|noted| noted.seq == syn.seq);
        if repeated.is_some_and(|noted| noted.is_current(now_ms, idle_ms)) {
            return;
        }
        if self.notes.is_empty() {
            self.notes = vec![None; NOTES];
        }
        let &TcpSegment { seq, payload, .. } = syn;
        let noted = NotedSyn { id, seq, payload, noted_ms: now_ms, is_answered: false };
        self.notes[id.index() % NOTES] = Some(noted);
    }

    /// Records a SYN-ACK of the responder. Returns whether it acknowledges the noted SYN of its connection.
    pub(crate) fn answer(&mut self, id: ConnId, ack: u32) -> bool {
        let noted = self.notes.get_mut(id.index() % NOTES).and_then(Option::as_mut);
        let Some(noted) = noted.filter(|noted| noted.id == id) else { return false };
        let answers = ack.wrapping_sub(noted.seq.wrapping_add(1)) <= noted.payload;
        noted.is_answered |= answers;
        answers
    }

    /// Whether a SYN is the repetition of one that shows that both ends have lost the connection.
    pub(crate) fn are_shown_by(&self, id: ConnId, syn: &TcpSegment, (now_ms, idle_ms): (u64, u64)) -> bool {
        self.find(id).is_some_and(|noted| {
            noted.seq == syn.seq
                && noted.is_answered
                && noted.is_current(now_ms, idle_ms)
                && now_ms - noted.noted_ms >= RETRANSMITTED_AFTER_MS
        })
    }

    fn find(&self, id: ConnId) -> Option<&NotedSyn> {
        self.notes.get(id.index() % NOTES)?.as_ref().filter(|noted| noted.id == id)
    }
}

impl NotedSyn {
    /// Whether nothing valid has come since: neither of the connection, nor of another one with its id.
    fn is_current(&self, now_ms: u64, idle_ms: u64) -> bool {
        now_ms.checked_sub(self.noted_ms).is_some_and(|since_ms| idle_ms > since_ms)
    }
}
