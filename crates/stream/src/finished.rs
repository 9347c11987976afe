//! Streams of which both directions have ended: what is left of them are constants.

use crate::edit::side::EditSide;
use crate::id::StreamId;
use crate::limits::AckSpace;
use crate::segment::{Segment, flag};
use crate::side::{Level, Side};
use crate::table::StreamTable;
use crate::tcp::MOST_WINDOW;

/// What is left of a stream whose ends have acknowledged each other's FIN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FinishedStream {
    /// What has to be added to the numbers of each direction to have those that its receiver counts.
    pub shifts: [u32; 2],
    /// Where its directions end.
    pub ends: FinishedEnds,
}

/// The number behind the FIN of each direction that is guarded or edited, as its sender counts: its receiver takes nothing from there on, and has all
/// before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FinishedEnds([Option<u32>; 2]);

impl FinishedEnds {
    /// Whether some direction is guarded.
    pub fn are_guarded(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// Whether a segment of a direction brings nothing that its receiver does not have.
    pub fn pass(&self, direction: usize, segment: &Segment) -> bool {
        if !self.are_guarded() || segment.has(flag::RST) {
            return true;
        }
        if segment.has(flag::SYN) {
            // A receiver that is closed answers it, and one that still waits says what it expects (RFC 5961 section 4). An answer would begin a
            // connection that nobody guards.
            return !segment.has(flag::ACK) && segment.payload == 0;
        }
        let Some(end) = self.0[direction & 1] else { return true };
        let occupied = segment.payload + u32::from(segment.has(flag::FIN));
        // Nothing that is sent again lies farther before the end than a window.
        u64::from(end.wrapping_sub(segment.seq.wrapping_add(occupied))) <= MOST_WINDOW
    }
}

impl StreamTable {
    /// What is left of a stream of TCP of which nothing is kept, held or to be made, and whose directions that are guarded or edited have ended and are
    /// acknowledged to their end; `None` for others. A direction that is watched may be anywhere.
    pub fn finished(&self, id: StreamId) -> Option<FinishedStream> {
        let stream = &self.streams[id];
        if self.acks != AckSpace::Wire {
            return None;
        }
        let edits = stream.edit.map(|edit| &self.edit.streams[edit].sides);
        let (shifts, mut ends) = (self.constant_shifts(id)?, [None; 2]);
        for (direction, side) in stream.sides.iter().enumerate() {
            if !side.is_guarded() {
                continue;
            }
            let fin = side.fin().filter(|fin| *fin == side.next)?;
            let is_done = match (side.level, edits) {
                (Level::Edit, Some(edits)) => {
                    let other = 1 - direction;
                    edits[direction].is_done(side, (&stream.sides[other], edits[other].noted.mss))
                }
                _ => side.acked > fin && side.kept() == 0 && side.early.is_none(),
            };
            ends[direction] = Some(side.seq(fin + 1)).filter(|_| is_done);
            ends[direction]?;
        }
        Some(FinishedStream { shifts, ends: FinishedEnds(ends) })
    }
}

impl EditSide {
    /// Whether the receiver has acknowledged all output and the FIN, and there is nothing to be made.
    fn is_done(&self, own: &Side, (other, receiver_mss): (&Side, Option<u16>)) -> bool {
        self.acked > self.out_next
            && own.told().is_some()
            && self.work(own, other, receiver_mss).is_none()
            && !self.is_promising(own)
    }
}
