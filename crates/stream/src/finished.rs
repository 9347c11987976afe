//! Streams whose directions have both ended: only constants are left of them.

use crate::edit::side::EditSide;
use crate::id::StreamId;
use crate::limits::AckSpace;
use crate::segment::{Segment, flag};
use crate::side::{Level, Side};
use crate::table::StreamTable;
use crate::tcp::MAX_WINDOW;

/// What remains of a stream after its ends have acknowledged each other's FIN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FinishedStream {
    /// For each direction: what to add to the sender's sequence numbers to get the receiver's.
    pub shifts: [u32; 2],
    /// Where the directions end.
    pub ends: FinishedEnds,
}

/// The number after the FIN of each guarded or edited direction, in the sender's sequence space. The receiver
/// has all bytes before this number and accepts nothing from it on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FinishedEnds([Option<u32>; 2]);

impl FinishedEnds {
    /// Whether some direction is guarded.
    pub fn are_guarded(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// Whether a segment of a direction carries nothing that its receiver does not have.
    pub fn pass(&self, direction: usize, segment: &Segment) -> bool {
        if !self.are_guarded() || segment.has(flag::RST) {
            return true;
        }
        if segment.has(flag::SYN) {
            // A bare SYN passes: a closed receiver answers it, and a waiting receiver acknowledges what it
            // expects (RFC 5961 section 4). A SYN-ACK would start a connection that nobody guards.
            return !segment.has(flag::ACK) && segment.payload == 0;
        }
        let Some(end) = self.0[direction & 1] else { return true };
        let occupied = segment.payload + u32::from(segment.has(flag::FIN));
        // A retransmission lies at most one window before the end.
        u64::from(end.wrapping_sub(segment.seq.wrapping_add(occupied))) <= MAX_WINDOW
    }
}

impl StreamTable {
    /// Returns what remains of a TCP stream, or `None` while the stream itself is needed. A stream is needed
    /// while something is buffered, held or left to generate. It is also needed until each guarded or edited
    /// direction has ended and is acknowledged up to its end. A watched direction may be in any state.
    pub fn finished(&self, id: StreamId) -> Option<FinishedStream> {
        let stream = &self.streams[id];
        if self.ack_space != AckSpace::Wire {
            return None;
        }
        let edits = stream.edit.map(|edit| &self.edit.streams[edit].sides);
        let (shifts, mut ends) = (self.constant_shifts(id)?, [None; 2]);
        for (direction, side) in stream.sides.iter().enumerate() {
            if !side.is_guarded() {
                continue;
            }
            let fin = side.fin().filter(|fin| *fin == side.rcv_nxt)?;
            let is_done = match (side.level, edits) {
                (Level::Edit, Some(edits)) => {
                    let other = 1 - direction;
                    edits[direction].is_done(side, (&stream.sides[other], edits[other].header_values.mss))
                }
                _ => side.snd_una > fin && side.buffered() == 0 && side.out_of_order.is_none(),
            };
            ends[direction] = Some(side.seq(fin + 1)).filter(|_| is_done);
            ends[direction]?;
        }
        Some(FinishedStream { shifts, ends: FinishedEnds(ends) })
    }
}

impl EditSide {
    /// Whether the receiver has acknowledged all output and the FIN, and no packet is left to generate.
    fn is_done(&self, own: &Side, (other, receiver_mss): (&Side, Option<u16>)) -> bool {
        self.snd_una > self.out_end
            && own.last_ack_sent().is_some()
            && self.next_packet(own, other, receiver_mss).is_none()
            && !self.has_early_acked(own)
    }
}
