//! Streams of connections that both ends have closed: they are given up while their connections stay in time-wait for minutes.
//!
//! What may still come are retransmissions of what both ends have. A constant that edits have added to numbers becomes the connection's own; of a
//! direction that was guarded, or edited, the number behind its FIN remains: bytes from there on, and SYN-ACKs, are not passed.

use super::stream_ref::StreamRef;
use super::streams::StreamPhase;
use super::tracking::Conntrack;
use mmb_conn::{ConnId, ConnState, Direction, TcpSegment};
use mmb_stream::{FinishedStream, flag};

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
        if is_reset {
            state.streams.reset(id, of);
            return [Direction::Forward, Direction::Reply]
                .into_iter()
                .for_each(|direction| self.table.forget(member, direction));
        }
        let Some(FinishedStream { shifts, ends }) = finished else { return };
        state.extensions.shift(extension, shifts);
        state.streams.finish(id, ends);
        for direction in [Direction::Forward, Direction::Reply] {
            self.table.forget(member, direction);
        }
    }
}

/// Whether a packet of a stream that has finished brings nothing that its receiver does not have. Of a fragment that is not known.
pub(super) fn is_harmless(phase: &StreamPhase, direction: Direction, segment: Option<&TcpSegment>) -> bool {
    let StreamPhase::Finished(ends @ ([Some(_), _] | [_, Some(_)])) = phase else { return true };
    let Some(segment) = segment else { return false };
    if segment.flags & flag::SYN != 0 {
        // A receiver that is closed answers it, and one that still waits says what it expects (RFC 5961 section 4). An answer would begin a
        // connection that nobody guards.
        return segment.flags & flag::ACK == 0 && segment.payload == 0;
    }
    let Some(end) = ends[direction as usize] else { return true };
    let occupied = segment.payload + u32::from(segment.flags & flag::FIN != 0);
    let left = end.wrapping_sub(segment.seq.wrapping_add(occupied));
    segment.flags & flag::RST != 0 || left <= MOST_WINDOW
}

/// The largest window (RFC 7323 section 2.3): nothing that is sent again lies farther before the end.
const MOST_WINDOW: u32 = 1 << 30;
