//! Detects connections that both ends have lost.
//!
//! A SYN of the initiator on an existing connection does not change its state. A responder that still has the connection sends a
//! challenge ACK (RFC 5961 section 4.2). A responder that has lost it accepts the SYN with a SYN-ACK. Linux's conntrack then begins a new
//! connection at once (`last_end` in nf_conntrack_proto_tcp.c), so a sender who forges both packets can replace a live connection.
//!
//! This table therefore also waits for the initiator to retransmit its SYN (RFC 6298), and for no other valid packet in between: the
//! challenge ACK of a live responder arrives before the retransmission.
//!
//! The last SYN of a connection is stored in a table of fixed size, indexed by the connection's id. A SYN of another connection may
//! overwrite it; the connection then waits for two more SYNs, or for its timeout.

use crate::ghosts::RETRANSMITTED_AFTER_MS;
use crate::ids::ConnId;
use crate::tcp::TcpSegment;
use mmb_base::Id;

/// Entries of the table, which is allocated with the first one: 24 KiB.
const NOTES: usize = 1024;

/// The last SYN of the initiator on a connection that existed.
#[derive(Clone, Copy, Debug)]
struct NotedSyn {
    id: ConnId,
    seq: u32,
    /// Bytes of data in it, which need not be acknowledged with it (RFC 7413).
    payload: u32,
    noted_ms: u64,
    /// Whether a SYN-ACK of the responder has acknowledged it.
    is_accepted: bool,
}

/// The noted SYNs of a connection table.
#[derive(Debug, Default)]
pub(crate) struct NotedSyns {
    notes: Vec<Option<NotedSyn>>,
}

impl NotedSyns {
    /// Notes a SYN on a connection that had its last valid packet `idle_ms` ago. A retransmission keeps the time of the first one.
    pub(crate) fn note(&mut self, id: ConnId, syn: &TcpSegment, (now_ms, idle_ms): (u64, u64)) {
        let known = self.find(id).filter(|noted| noted.seq == syn.seq);
        if known.is_some_and(|noted| noted.is_current(now_ms, idle_ms)) {
            return;
        }
        if self.notes.is_empty() {
            // Without memory the SYN is not noted: the old connection ends by its timeout.
            if self.notes.try_reserve_exact(NOTES).is_err() {
                return;
            }
            self.notes.resize(NOTES, None);
        }
        let &TcpSegment { seq, payload, .. } = syn;
        let noted = NotedSyn { id, seq, payload, noted_ms: now_ms, is_accepted: false };
        self.notes[id.index() % NOTES] = Some(noted);
    }

    /// Records a SYN-ACK of the responder. Returns whether it acknowledges the noted SYN of its connection.
    pub(crate) fn record_syn_ack(&mut self, id: ConnId, ack: u32) -> bool {
        let noted = self.notes.get_mut(id.index() % NOTES).and_then(Option::as_mut);
        let Some(noted) = noted.filter(|noted| noted.id == id) else { return false };
        let accepts = ack.wrapping_sub(noted.seq.wrapping_add(1)) <= noted.payload;
        noted.is_accepted |= accepts;
        accepts
    }

    /// Whether a SYN is the retransmission of one that was accepted, with nothing valid in between.
    pub(crate) fn is_retransmission(
        &self,
        id: ConnId,
        syn: &TcpSegment,
        (now_ms, idle_ms): (u64, u64),
    ) -> bool {
        self.find(id).is_some_and(|noted| {
            noted.seq == syn.seq
                && noted.is_accepted
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
