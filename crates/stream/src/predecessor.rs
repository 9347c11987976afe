//! Connections of the same two ends that follow each other.

use crate::id::StreamId;
use crate::table::StreamTable;

/// What is known of the connection before, when the same ends begin another one: whoever makes the two of them up must not have the receiver of one
/// take bytes of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Predecessor {
    /// The sequence number of the responder's first byte: a SYN-ACK with it answers the connection before.
    responder: Option<u32>,
    /// The initiator's SYN had data, and no answer was seen: the responder may have them.
    pub has_unanswered_data: bool,
}

impl StreamTable {
    /// What a stream of the same ends that follows has to know, if a direction is guarded.
    pub fn predecessor(&self, id: StreamId) -> Predecessor {
        let [initiator, responder] = &self.streams[id].sides;
        if !(initiator.is_guarded() || responder.is_guarded()) {
            return Predecessor::default();
        }
        let has_unanswered_data = !responder.has_begun && initiator.next > 0;
        Predecessor { responder: responder.known_base(), has_unanswered_data }
    }

    /// A new stream follows another one of the same ends.
    pub fn succeed(&mut self, id: StreamId, before: Predecessor) {
        let [initiator, responder] = &mut self.streams[id].sides;
        if initiator.is_guarded() || responder.is_guarded() {
            before.responder.into_iter().for_each(|base| responder.refuse(base));
        }
    }
}
