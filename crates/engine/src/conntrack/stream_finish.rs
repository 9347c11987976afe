//! Frees the streams of connections that are closed or reset. The connections themselves stay in state
//! time-wait or reset for minutes.
//!
//! After both ends have closed a connection, only retransmissions of bytes that their receiver already has
//! may still arrive. If edits have shifted sequence numbers by a constant, the shift becomes part of the
//! connection's own translation. [`FinishedEnds`](mmb_stream::FinishedEnds) decides which packets pass. After
//! a reset, no packet of a guarded connection passes.

use super::stream_ref::StreamRef;
use super::tracking::Conntrack;
use mmb_conn::{ConnId, ConnState, Direction};
use mmb_stream::FinishedStream;

impl Conntrack {
    /// Notes the stream of a connection that may have closed with a packet of this vector.
    #[inline]
    pub(super) fn note_closed(&mut self, member: ConnId, stream: StreamRef) {
        let closed = &mut self.state.streams.closed;
        let is_over = matches!(self.table.state(member), ConnState::TimeWait | ConnState::Reset);
        if is_over && closed.len() < closed.capacity() {
            closed.push((member, stream));
        }
    }

    /// Frees the streams of closed connections. Runs between two vectors, because the packets of one vector
    /// are translated with the state at its start.
    pub(super) fn finish_streams(&mut self) {
        while let Some((member, stream)) = self.state.streams.closed.pop() {
            if self.table.is_live(member) {
                self.finish_stream(member, stream);
            }
        }
    }

    fn finish_stream(&mut self, member: ConnId, stream: StreamRef) {
        let state = &mut self.state;
        let Some(extension) = self.table.ids(member).extension else { return };
        if state.extensions.get(extension).stream != Some(stream) {
            return;
        }
        let Some(id) = state.streams.live(stream) else { return };
        let Some(stream_id) = state.streams.followed[id].stream else { return };
        let is_reset = self.table.state(member) == ConnState::Reset;
        let finished = state.streams.table.finished(stream_id);
        if state.streams.followed[id].digests && (is_reset || finished.is_some()) {
            state.send_digests(&self.table.get(member));
        }
        match finished {
            _ if is_reset => state.streams.reset(id, stream_id),
            Some(FinishedStream { shifts, ends }) => {
                state.extensions.shift(extension, shifts);
                state.streams.finish(id, ends);
            }
            None => return,
        }
        for direction in [Direction::Forward, Direction::Reply] {
            self.table.clear_verdict(member, direction);
        }
    }
}
