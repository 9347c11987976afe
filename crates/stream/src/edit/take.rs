//! Segments of directions that are edited.

use super::map::EditLists;
use super::side::{EditSide, MOST_HELD, MOST_OWED};
use super::sink::{EditSink, Undecided};
use crate::limits::AckSpace;
use crate::rope::ChunkPool;
use crate::segment::{EditedPayload, EditedSegment, Outcome, Segment, StreamDrop, StreamReader, flag};
use crate::side::{Level, Side};
use crate::tcp::{Place, TcpTake, free_early};
use std::ops::ControlFlow;

/// What a segment needs of a stream with edits.
pub(crate) struct EditTake<'t> {
    pub(crate) lists: &'t mut EditLists,
    pub(crate) ours: &'t mut EditSide,
    pub(crate) theirs: &'t mut EditSide,
    /// For undecided bytes in one piece.
    pub(crate) scratch: &'t mut Vec<u8>,
    pub(crate) acks: AckSpace,
}

/// How the output follows from the input of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Production {
    /// The payload goes on as it is.
    Same,
    /// Otherwise.
    Other,
}

/// One direction, while its bytes are decided.
pub(crate) struct Decider<'d> {
    pub(crate) side: &'d mut Side,
    pub(crate) edit: &'d mut EditSide,
    pub(crate) pool: &'d mut ChunkPool,
    pub(crate) lists: &'d mut EditLists,
    pub(crate) scratch: &'d mut Vec<u8>,
    pub(crate) now_ms: u64,
}

impl Decider<'_> {
    /// Takes new bytes, and asks the editor about all undecided ones. `asked` is the question without the bytes.
    pub(crate) fn decide(
        &mut self,
        new: &[u8],
        asked: Undecided<'_>,
        reader: &mut dyn StreamReader,
    ) -> Result<(), StreamDrop> {
        let known = self.edit.held.len();
        // Moved out while it is borrowed.
        let mut scratch = std::mem::take(self.scratch);
        let bytes = match known {
            0 => new,
            _ => {
                scratch.clear();
                self.edit.held.slices(self.pool, 0, known).for_each(|slice| scratch.extend_from_slice(slice));
                scratch.extend_from_slice(new);
                &scratch
            }
        };
        let mut decided = self.ask(Undecided { bytes, known, ..asked }, reader);
        let count = decided.as_ref().map_or(0, |count| *count);
        if decided.is_ok() && bytes.len() - count > MOST_HELD {
            let left = Undecided { bytes: &bytes[count..], known: bytes.len() - count, ..asked };
            decided =
                self.ask(Undecided { waited_ms: Some(u32::MAX), ..left }, reader).map(|more| count + more);
        }
        let decided = decided.and_then(|count| self.hold(count, bytes, new.len()));
        *self.scratch = scratch;
        decided
    }

    /// Asks the editor. Returns the number of bytes about which it has decided.
    fn ask(&mut self, asked: Undecided<'_>, reader: &mut dyn StreamReader) -> Result<usize, StreamDrop> {
        let Decider { edit, pool, lists, .. } = self;
        let undecided = Undecided { offset: edit.decided, ..asked };
        let must_decide = asked.is_end || asked.waited_ms == Some(u32::MAX);
        let mut sink = EditSink {
            pool,
            lists,
            side: edit,
            bytes: asked.bytes,
            count: 0,
            is_broken: false,
            is_changed: false,
        };
        let flow = reader.edit(undecided, &mut sink);
        if must_decide && flow.is_continue() {
            let rest = sink.rest().len();
            sink.pass(rest);
        }
        match (flow, sink.is_broken) {
            (ControlFlow::Break(()), _) => Err(StreamDrop::Stopped),
            (_, true) => Err(StreamDrop::Broken),
            (ControlFlow::Continue(()), false) => Ok(sink.count),
        }
    }

    /// Holds what is not decided: of `bytes`, of which the last `new` are new, all behind the first `count`.
    fn hold(&mut self, count: usize, bytes: &[u8], new: usize) -> Result<(), StreamDrop> {
        let Decider { side, edit, pool, now_ms, .. } = self;
        let known = bytes.len() - new;
        let was_empty = known == 0;
        edit.held.pop(pool, count.min(known));
        let fresh = &bytes[count.max(known)..];
        if !edit.held.push(pool, fresh) {
            return Err(StreamDrop::Broken);
        }
        // What began before goes on to wait; what is undecided behind decided bytes begins to.
        if was_empty || count > 0 {
            edit.held_since_ms = *now_ms;
        }
        side.take_input(&bytes[known..]);
        Ok(())
    }

    /// Ends the input: all is decided, and the FIN follows.
    pub(crate) fn end(&mut self, direction: usize, reader: &mut dyn StreamReader) -> Result<(), StreamDrop> {
        let asked = Undecided { direction, offset: 0, bytes: &[], known: 0, is_end: true, waited_ms: None };
        self.decide(&[], asked, reader)?;
        self.edit.has_ended = true;
        Ok(())
    }
}

impl TcpTake<'_> {
    fn decider(&mut self) -> Option<Decider<'_>> {
        let EditTake { lists, ours, scratch, .. } = self.edit.as_mut()?;
        let (side, pool, now_ms) = (&mut *self.ours, &mut *self.pool, self.now_ms);
        Some(Decider { side, edit: ours, pool, lists, scratch, now_ms })
    }

    /// The output offset that a segment acknowledges, of a direction that is edited.
    fn acked_output(&self, segment: &Segment) -> Option<i64> {
        let edit = self.edit.as_ref()?;
        if self.theirs.level != Level::Edit || !segment.has(flag::ACK) || !self.theirs.has_begun {
            return None;
        }
        match edit.acks {
            AckSpace::Wire => Some(edit.theirs.output_offset(self.theirs, segment.ack)),
            AckSpace::Original => Some(edit.theirs.original_output(self.theirs, edit.lists, segment.ack)),
        }
    }

    /// The segment with an acknowledgment of the sender's own bytes, if these are edited.
    pub(crate) fn in_input(&mut self, segment: &Segment) -> Segment {
        let mut mapped = *segment;
        self.acked_output = self.acked_output(segment);
        if let (Some(out), Some(edit)) = (self.acked_output, &self.edit)
            && edit.acks == AckSpace::Wire
        {
            mapped.ack = self.theirs.seq(edit.theirs.acked_input(self.theirs, edit.lists, out));
        }
        mapped
    }

    /// Whether an acknowledgment is one of what was let go, and not too old.
    pub(crate) fn acknowledges_output(&self, window: u64) -> Option<bool> {
        let out = self.acked_output?;
        let edit = self.edit.as_ref()?;
        let (sent, acked) = (edit.theirs.sent.cast_signed(), edit.theirs.acked.cast_signed());
        Some(out <= sent && out >= acked - window.cast_signed())
    }

    /// Takes the acknowledgment of output.
    pub(crate) fn take_output_acknowledgment(&mut self) {
        let (Some(out), Some(edit)) = (self.acked_output, &mut self.edit) else { return };
        let out = out.max(0).cast_unsigned();
        let EditTake { lists, theirs, .. } = edit;
        let (before, input) = (theirs.acked, self.theirs.acked);
        theirs.acknowledge(self.pool, lists, out);
        let acked = theirs.acked_input(self.theirs, lists, out.cast_signed());
        self.theirs.acked = self.theirs.acked.max(acked);
        self.is_partial = theirs.acked > before && self.theirs.acked == input;
        if theirs.is_acked() && self.theirs.early.is_some() {
            theirs.duplicates = theirs.duplicates.saturating_add(std::mem::take(&mut theirs.owed));
        }
    }

    /// The window that the sender of edited bytes may be told: where the output of the last byte has its place in the receiver's window.
    pub(crate) fn window_edge(&mut self, segment: &Segment, scale: u8) -> Option<u64> {
        let out = self.acked_output.unwrap_or(0).max(0).cast_unsigned();
        let edit = self.edit.as_mut().filter(|_| self.theirs.level == Level::Edit)?;
        let theirs = &mut *edit.theirs;
        theirs.edge = theirs.edge.max(out + (u64::from(segment.window) << scale));
        Some((theirs.decided + theirs.edge).saturating_sub(theirs.out_next))
    }

    /// Records what made packets need of the last segment of an end.
    pub(crate) fn note_segment(&mut self, segment: &Segment, window: Option<u16>, payload: usize) {
        let Some(EditTake { ours, .. }) = &mut self.edit else { return };
        ours.window = window.unwrap_or(segment.window);
        ours.timestamps = segment.timestamps.or(ours.timestamps);
        ours.largest = ours.largest.max(payload.min(usize::from(u16::MAX)) as u16);
        if !segment.has_sack && !segment.has(flag::SYN) {
            ours.most = segment.most_payload;
        }
        if segment.has(flag::SYN) {
            ours.knows_sack = segment.knows_sack;
            ours.mss = segment.mss.or(ours.mss);
        }
    }

    /// Takes the payload and the FIN of a segment of a direction that is edited. Returns how it goes on.
    pub(crate) fn take_edited(
        &mut self,
        segment: &Segment,
        place: Place,
        payload: &[u8],
        reader: &mut dyn StreamReader,
    ) -> Result<EditedSegment, StreamDrop> {
        let before = self.ours.next;
        let production = self.take_input(segment, place, payload, reader)?;
        self.end_input(segment, place, reader)?;
        Ok(self.let_go(segment, place, (before, production)))
    }

    /// Takes the bytes of a payload.
    fn take_input(
        &mut self,
        segment: &Segment,
        place: Place,
        payload: &[u8],
        reader: &mut dyn StreamReader,
    ) -> Result<Production, StreamDrop> {
        let next = self.ours.next.cast_signed();
        if payload.is_empty() || self.is_keep_alive_behind_fin(place) || place.at < 0 {
            return Ok(Production::Other);
        }
        if place.at < next {
            self.ours.counts.repeated += (place.end.min(next) - place.at).cast_unsigned();
        }
        if place.end <= next {
            return Ok(Production::Other);
        }
        let Some(edit) = &self.edit else { return Err(StreamDrop::Broken) };
        // Output may be longer than input: what is taken must find room for it.
        let is_full = self.pool.chunks() - self.pool.taken() < (self.pool.chunks() / 16).max(1)
            || edit.ours.kept.len() as u64 >= 2 * self.limits.window;
        if is_full {
            // Bytes that come again go on: without them nothing would be acknowledged, and no room made.
            return if place.at < next { Ok(Production::Other) } else { Err(StreamDrop::NoRoom) };
        }
        if place.at > next {
            return self.take_early(segment, place, payload).map(|()| Production::Other);
        }
        let was_plain = edit.ours.held.len() == 0
            && edit.ours.sent == edit.ours.out_next
            && self.ours.early.is_none()
            && place.at == next;
        let (out, edits) = (edit.ours.out_next, edit.ours.edits);
        let direction = self.ours.direction();
        let asked = Undecided { direction, offset: 0, bytes: &[], known: 0, is_end: false, waited_ms: None };
        let new = &payload[(next - place.at) as usize..];
        let Some(mut decider) = self.decider() else { return Err(StreamDrop::Broken) };
        decider.decide(new, asked, reader)?;
        self.take_what_was_early(asked, reader)?;
        let Some(edit) = &self.edit else { return Err(StreamDrop::Broken) };
        let is_same = was_plain
            && edit.ours.edits == edits
            && edit.ours.out_next == out + payload.len() as u64
            && (edit.ours.out_next <= edit.ours.limit() || !self.theirs.has_begun);
        Ok(if is_same { Production::Same } else { Production::Other })
    }

    /// Keeps bytes beyond a hole. The sender learns of the hole by duplicate acknowledgments: the receiver, which does not get these bytes, sends
    /// none.
    fn take_early(&mut self, segment: &Segment, place: Place, payload: &[u8]) -> Result<(), StreamDrop> {
        self.ours.counts.early += 1;
        if !self.add_early(place, payload) {
            return Err(StreamDrop::NoRoom);
        }
        let Some(EditTake { ours, .. }) = &mut self.edit else { return Ok(()) };
        (ours.is_marked, ours.latest_early) = (ours.is_marked | segment.is_marked, place.at.cast_unsigned());
        match ours.is_acked() {
            true => ours.duplicates = ours.duplicates.saturating_add(1),
            false => ours.owed = (ours.owed + 1).min(MOST_OWED),
        }
        Ok(())
    }

    /// Takes the early bytes that are in order now.
    fn take_what_was_early(
        &mut self,
        asked: Undecided<'_>,
        reader: &mut dyn StreamReader,
    ) -> Result<(), StreamDrop> {
        let mut copy = [0; 2048];
        while let Some(id) = self.ours.early {
            let next = self.ours.next;
            let early = &mut self.early[id];
            early.remove_before(self.pool, next);
            let range = early.first_behind(next).filter(|range| range.start <= next);
            let Some(range) = range else {
                free_early(self.early, self.ours);
                return Ok(());
            };
            let count = ((range.end - next) as usize).min(copy.len());
            let mut filled = 0;
            for bytes in early.slices(self.pool, next, count) {
                copy[filled..filled + bytes.len()].copy_from_slice(bytes);
                filled += bytes.len();
            }
            // Makes room for the copies that are kept.
            early.remove_before(self.pool, next + count as u64);
            free_early(self.early, self.ours);
            let Some(mut decider) = self.decider() else { return Ok(()) };
            decider.decide(&copy[..filled], asked, reader)?;
        }
        Ok(())
    }

    /// Ends the output when all bytes before the FIN were taken.
    fn end_input(
        &mut self,
        segment: &Segment,
        place: Place,
        reader: &mut dyn StreamReader,
    ) -> Result<(), StreamDrop> {
        if segment.has(flag::FIN) && self.ours.fin().is_none() {
            self.ours.set_fin(Some(place.end.max(0).cast_unsigned()));
        }
        let is_due = self.ours.fin() == Some(self.ours.next);
        let direction = self.ours.direction();
        match self.decider().filter(|decider| is_due && !decider.edit.has_ended) {
            Some(mut decider) => decider.end(direction, reader),
            None => Ok(()),
        }
    }

    /// Decides what the packet at hand carries, and what is to be made.
    fn let_go(
        &mut self,
        segment: &Segment,
        place: Place,
        (before, production): (u64, Production),
    ) -> EditedSegment {
        let acked_input = self.ours.acked;
        let is_open = self.theirs.has_begun;
        let Some(EditTake { lists, ours: edit, theirs, .. }) = &mut self.edit else {
            return EditedSegment::default();
        };
        let receiver_mss = theirs.mss;
        if production == Production::Same {
            let from = edit.sent;
            edit.sent = edit.out_next;
            return EditedSegment {
                seq: self.ours.seq(from),
                payload: EditedPayload::Same,
                has_fin: edit.let_fin_go(segment, segment.payload as usize),
                ..EditedSegment::default()
            };
        }
        // Before the receiver's SYN nothing is known of its window.
        let limit = if is_open { edit.limit() } else { edit.out_next };
        let at = place.at.max(acked_input.cast_signed()).cast_unsigned();
        let is_again = !place.is_empty() && at < before;
        let (from, until) = match is_again {
            true => {
                let end = (place.end.max(0).cast_unsigned()).min(edit.decided);
                let from =
                    edit.map.output_floor(lists, at.min(edit.decided)).clamp(edit.acked, edit.sent_data());
                let until = edit.map.output_ceil(lists, end).clamp(from, edit.out_next);
                (from, if until >= edit.sent_data() { edit.out_next } else { until })
            }
            false => (edit.sent_data(), edit.out_next),
        };
        let to = until.min(limit).min(from + edit.most_payload(receiver_mss)).max(from);
        let again_to = until.min(edit.sent_data());
        if is_again && to < again_to {
            edit.send_again(to, again_to);
        }
        edit.sent = edit.sent.max(to);
        // What the receiver has, or what is undecided, makes it tell what it expects and what its window is.
        let acked = acked_input.cast_signed();
        let is_probe = place.at < acked && place.end <= acked || is_again && to == from;
        let (offset, len) = (from, (to - from) as usize);
        let is_at_end = to == edit.out_next && (from < edit.sent_data() || len > 0 || !is_again);
        let has_fin = is_at_end && !(len == 0 && is_probe) && edit.let_fin_go(segment, len);
        let seq = match (len, has_fin) {
            (0, false) if is_probe => edit.acked.wrapping_sub(1),
            (0, false) => edit.sent,
            (0, true) => edit.out_next,
            _ => offset,
        };
        EditedSegment {
            seq: self.ours.seq(seq),
            payload: EditedPayload::Kept { offset, len },
            has_fin,
            is_probe: len == 0 && is_probe,
            ..EditedSegment::default()
        }
    }

    /// The outcome for a segment of a stream with edits: which numbers it carries, and whether it goes on at all.
    pub(crate) fn finish_edited(
        &mut self,
        (segment, mapped): (&Segment, &Segment),
        mut outcome: Outcome,
        edited: Option<EditedSegment>,
        told: Option<u32>,
    ) -> Outcome {
        let is_edited = edited.is_some();
        let same =
            EditedSegment { seq: segment.seq, has_fin: segment.has(flag::FIN), ..EditedSegment::default() };
        let edited = EditedSegment { ack: mapped.ack, ..edited.unwrap_or(same) };
        let Some(EditTake { ours, .. }) = &mut self.edit else { return outcome };
        let carries = match edited.payload {
            EditedPayload::Same => segment.payload > 0,
            EditedPayload::Kept { len, .. } => len > 0,
        } || edited.has_fin
            || edited.is_probe
            || segment.has(flag::SYN);
        let is_news = self.ours.told() != told
            || outcome.window.unwrap_or(segment.window) != ours.window
            || segment.has_sack;
        // What an end sends without bytes says something only if it is an acknowledgment that says something new, or one that repeats the last.
        let brought = segment.payload > 0 || segment.has(flag::FIN);
        let is_empty = !carries && !is_news && (brought && is_edited || self.is_partial);
        if is_empty {
            ours.is_marked |= segment.is_marked;
            outcome.verdict = crate::segment::StreamVerdict::Absorb;
            return outcome;
        }
        outcome.edited = Some(edited);
        outcome
    }

    /// The numbers of a RST. What is held or waits goes with the connection: its receiver expects what was let go last.
    pub(crate) fn reset_edited(&self, segment: &Segment) -> Option<EditedSegment> {
        let edit = self.edit.as_ref().filter(|_| self.ours.level == Level::Edit && self.ours.has_begun)?;
        let at = self.ours.offset(segment.seq).max(0).cast_unsigned();
        let out = match at < edit.ours.decided {
            true => edit.ours.map.output_floor(edit.lists, at.max(self.ours.acked)),
            false => edit.ours.sent,
        };
        Some(EditedSegment { seq: self.ours.seq(out), ..EditedSegment::default() })
    }

    /// Checks what is due to either end, when a segment was taken. Returns whether packets are to be made.
    pub(crate) fn settle(&mut self) -> bool {
        let is_open = self.theirs.has_begun && self.ours.has_begun;
        let told = [self.theirs.told(), self.ours.told()];
        let Some(EditTake { lists, ours, theirs, .. }) = &mut self.edit else { return false };
        let ours_ready = is_open && ours.settle(self.ours, lists, told[0]);
        let theirs_ready = is_open && theirs.settle(self.theirs, lists, told[1]);
        ours_ready || theirs_ready
    }
}

impl EditSide {
    /// The offset of a number of output.
    pub(crate) fn output_offset(&self, side: &Side, number: u32) -> i64 {
        let ahead = number.wrapping_sub(side.seq(self.sent)).cast_signed();
        self.sent.cast_signed() + i64::from(ahead)
    }

    /// The output that a receiver of the bytes that were sent would acknowledge: no more than was let go.
    fn original_output(&self, side: &Side, lists: &EditLists, number: u32) -> i64 {
        let at = side.offset(number).max(side.acked.cast_signed()).cast_unsigned();
        let out = match side.fin() {
            Some(fin) if self.has_ended && at > fin => self.out_next + 1,
            _ => self.map.output_ceil(lists, at.min(self.decided)),
        };
        out.clamp(self.acked, self.sent).cast_signed()
    }

    /// How many bytes of input a receiver acknowledges that acknowledges output up to `out`: never fewer than before. The FIN counts as a byte.
    pub(crate) fn acked_input(&self, side: &Side, lists: &EditLists, out: i64) -> u64 {
        let out = out.max(self.acked.cast_signed()).cast_unsigned();
        if self.has_ended && out > self.out_next {
            return side.end();
        }
        self.input_floor(lists, out.min(self.out_next)).max(side.acked)
    }

    /// Whether a segment that carries the end of the output carries the FIN, which counts as let go then. Without bytes it repeats no FIN that
    /// its sender does not repeat.
    fn let_fin_go(&mut self, segment: &Segment, len: usize) -> bool {
        let is_due = !self.has_sent_fin() || len > 0 || segment.has(flag::FIN);
        let goes = self.has_ended && is_due && self.sent_data() == self.out_next;
        if goes {
            self.sent = self.out_next + 1;
        }
        goes
    }

    /// Whether packets of this direction are to be made, or an acknowledgment of it. Bytes whose output is all acknowledged, perhaps since there is none,
    /// are acknowledged to the sender, which was told `told`.
    pub(crate) fn settle(&mut self, side: &mut Side, lists: &mut EditLists, told: Option<u32>) -> bool {
        if side.level != Level::Edit {
            return false;
        }
        let acked = self.acked_input(side, lists, self.acked.cast_signed());
        side.acked = side.acked.max(acked);
        let behind = told.is_none_or(|told| side.seq(acked).wrapping_sub(told).cast_signed() > 0);
        self.owes_ack |= behind && acked > 0;
        self.map.acknowledge(lists, self.acked);
        self.has_packets()
    }

    /// Whether packets are to be made.
    pub(crate) fn has_packets(&self) -> bool {
        let limit = self.limit();
        let has_data = self.sent_data() < limit || self.again.0 < self.again.1.min(limit);
        let has_fin = self.has_ended && !self.has_sent_fin() && self.sent_data() == self.out_next;
        has_data || has_fin || self.owes_ack || self.duplicates > 0
    }
}
