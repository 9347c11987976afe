//! Streams of connections that are over: they are given up while their connections stay in time-wait, or reset, for minutes.
//!
//! What may still come of a connection that both ends have closed are retransmissions of what both have. A constant that edits have added to numbers
//! becomes the connection's own; [`FinishedEnds`](mmb_stream::FinishedEnds) tells what passes. Of one that was reset nothing passes any more, if it was guarded.

use super::stream_ref::StreamRef;
use super::tracking::Conntrack;
use mmb_conn::{ConnId, ConnState, Direction};
use mmb_stream::FinishedStream;

impl Conntrack {
    /// Notes that the stream of a connection may be over with a packet of this vector.
    #[inline]
    pub(super) fn note_closed(&mut self, member: ConnId, stream: StreamRef) {
        let closed = &mut self.state.streams.closed;
        let is_over = matches!(self.table.state(member), ConnState::TimeWait | ConnState::Reset);
        if is_over && closed.len() < closed.capacity() {
            closed.push((member, stream));
        }
    }

    /// Gives up the streams that are over, between two vectors: the packets of one were translated by what was true at its begin.
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
        let Some(of) = state.streams.followed[id].stream else { return };
        let is_reset = self.table.state(member) == ConnState::Reset;
        let finished = state.streams.table.finished(of);
        if state.streams.followed[id].digests && (is_reset || finished.is_some()) {
            state.tell_digests(&self.table.get(member));
        }
        match finished {
            _ if is_reset => state.streams.reset(id, of),
            Some(FinishedStream { shifts, ends }) => {
                state.extensions.shift(extension, shifts);
                state.streams.finish(id, ends);
            }
            None => return,
        }
        for direction in [Direction::Forward, Direction::Reply] {
            self.table.forget(member, direction);
        }
    }
}
