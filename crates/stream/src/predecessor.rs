//! Consecutive connections of the same two ends.

use crate::id::StreamId;
use crate::table::StreamTable;

/// What is known of the previous connection when the same ends start another one. A sender who forges both
/// connections must not make the receiver of one take bytes of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Predecessor {
    /// The sequence number of the responder's first byte. A SYN-ACK with this number answers the previous
    /// connection.
    responder: Option<u32>,
    /// The initiator's SYN had data, and no answer was seen: the responder may have these data.
    pub has_unanswered_data: bool,
}

impl StreamTable {
    /// What the next stream of the same ends needs to know about this one, if a direction is guarded.
    pub fn predecessor(&self, id: StreamId) -> Predecessor {
        let [initiator, responder] = &self.streams[id].sides;
        if !(initiator.is_guarded() || responder.is_guarded()) {
            return Predecessor::default();
        }
        let has_unanswered_data = !responder.has_begun && initiator.rcv_nxt > 0;
        Predecessor { responder: responder.known_base(), has_unanswered_data }
    }

    /// Gives a new stream what is known of the previous stream of the same ends.
    pub fn set_predecessor(&mut self, id: StreamId, predecessor: Predecessor) {
        let [initiator, responder] = &mut self.streams[id].sides;
        if initiator.is_guarded() || responder.is_guarded() {
            predecessor.responder.into_iter().for_each(|base| responder.refuse(base));
        }
    }
}
