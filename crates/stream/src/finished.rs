//! Streams of which both directions have ended: what is left of them are constants.

use crate::edit::side::EditSide;
use crate::id::StreamId;
use crate::limits::AckSpace;
use crate::side::{Level, Side};
use crate::table::{Stream, StreamTable, VICTIMS};

/// A half-open stream is given up for others when it has waited for so long.
const HALF_OPEN_S: u32 = 1;

/// What is left of a stream whose ends have acknowledged each other's FIN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FinishedStream {
    /// What has to be added to the numbers of each direction to have those that its receiver counts.
    pub shifts: [u32; 2],
    /// The number behind the FIN of each direction that is guarded or edited, as its sender counts: its receiver takes nothing from there on, and has all
    /// before it.
    pub ends: [Option<u32>; 2],
}

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

    /// If there are as many streams as may be: of some whose initiator's SYN has no answer yet, the one that has waited for longest. The caller gives
    /// its connection up, so that others find room.
    pub fn half_open(&mut self, now_ms: u64) -> Option<StreamId> {
        if self.streams.len() < self.limits.streams {
            return None;
        }
        let mut found: Option<(u32, StreamId)> = None;
        for _ in 0..VICTIMS.min(self.streams.highest()) {
            let Some((id, idle_s)) = self.next_victim(now_ms) else { continue };
            let Stream { sides, owner, .. } = &self.streams[id];
            let is_half_open = *owner != 0 && sides[0].has_begun && !sides[1].has_begun;
            if is_half_open && idle_s >= HALF_OPEN_S && found.is_none_or(|(longest, _)| idle_s > longest) {
                found = Some((idle_s, id));
            }
        }
        found.map(|(_, id)| id)
    }

    /// What is left of a stream of TCP of which nothing is kept, held or to be made, and whose directions that are guarded or edited have ended and are
    /// acknowledged to their end; `None` for others. A direction that is watched may be anywhere.
    pub fn finished(&self, id: StreamId) -> Option<FinishedStream> {
        let stream = &self.streams[id];
        if self.acks != AckSpace::Wire {
            return None;
        }
        let edits = stream.edit.map(|edit| &self.edit.streams[edit].sides);
        let mut finished = FinishedStream { shifts: self.constant_shifts(id)?, ends: [None; 2] };
        for (direction, side) in stream.sides.iter().enumerate() {
            if !side.is_guarded() {
                continue;
            }
            let fin = side.fin().filter(|fin| *fin == side.next)?;
            let is_done = match (side.level, edits) {
                (Level::Edit, Some(edits)) => {
                    let other = 1 - direction;
                    edits[direction].is_done(side, (&stream.sides[other], edits[other].mss))
                }
                _ => side.acked > fin && side.kept() == 0 && side.early.is_none(),
            };
            finished.ends[direction] = Some(side.seq(fin + 1)).filter(|_| is_done);
            finished.ends[direction]?;
        }
        Some(finished)
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
