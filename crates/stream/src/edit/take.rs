//! Payload and FIN of segments of edited directions.

use super::decide::Decider;
use super::map::EditLists;
use super::noted::Noted;
use super::pair::{EditTake, PlainTake};
use super::side::{CREDIT, EditSide, MOST_OWED};
use crate::reader::StreamReader;
use crate::segment::{EditedSegment, Segment, StreamDrop, flag};
use crate::side::{Level, Side};
use crate::tcp::{Place, TcpTake, free_early};

/// How the output of a segment relates to its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Production {
    /// The payload passes unchanged.
    Same,
    /// Any other case.
    Other,
}

impl TcpTake<'_> {
    /// Takes the payload and the FIN of a segment of an edited direction. Returns the segment to send.
    pub(crate) fn take_edited(
        &mut self,
        segment: &Segment,
        place: Place,
        payload: &[u8],
        reader: &mut dyn StreamReader,
    ) -> Result<EditedSegment, StreamDrop> {
        if let Some(EditTake { ours, .. }) = &mut self.edit {
            ours.noted.note_payload(payload.len());
        }
        let before = self.ours.next;
        let production = self.take_input(segment, place, payload, reader)?;
        self.end_input(segment, place, reader)?;
        Ok(self.let_go(segment, place, (before, production)))
    }

    fn decider(&mut self) -> Option<Decider<'_>> {
        let EditTake { lists, ours, scratch, .. } = self.edit.as_mut()?;
        let (side, pool, now_ms) = (&mut *self.ours, &mut *self.pool, self.now_ms);
        Some(Decider { side, edit: ours, pool, lists, scratch, now_ms, datagrams: None })
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
        // Output may be longer than input, so there must be room for it.
        if self.is_full() {
            // A retransmission still passes. Otherwise nothing would be acknowledged, and no room would
            // become free.
            return if place.at < next { Ok(Production::Other) } else { Err(StreamDrop::NoRoom) };
        }
        if place.at > next {
            return self.take_early(segment, place, payload).map(|()| Production::Other);
        }
        let Some(edit) = &self.edit else { return Err(StreamDrop::Broken) };
        let is_caught_up = edit.ours.held.len() == 0
            && edit.ours.sent == edit.ours.out_next
            && self.ours.early.is_none()
            && place.at == next;
        let (out, edits) = (edit.ours.out_next, edit.ours.edits);
        let Some(mut decider) = self.decider() else { return Err(StreamDrop::Broken) };
        let asked = decider.question();
        decider.decide(&payload[(next - place.at) as usize..], asked, reader)?;
        if self.ours.early.is_some() {
            self.take_what_was_early(reader)?;
        }
        let Some(edit) = &self.edit else { return Err(StreamDrop::Broken) };
        let is_same = is_caught_up
            && edit.ours.edits == edits
            && edit.ours.out_next == out + payload.len() as u64
            && (edit.ours.out_next <= edit.ours.limit() || !self.theirs.has_begun);
        Ok(if is_same { Production::Same } else { Production::Other })
    }

    /// Whether there is no room for more output.
    pub(crate) fn is_full(&self) -> bool {
        let kept = self.edit.as_ref().map_or(self.ours.kept(), |edit| edit.ours.kept.len());
        self.pool.chunks() - self.pool.taken() < (self.pool.chunks() / 16).max(1)
            || kept as u64 >= 2 * self.limits.window
    }

    /// Buffers bytes after a hole. mmb reports the hole to the sender with duplicate acknowledgments: the
    /// receiver does not get these bytes, so it sends none.
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

    /// Takes the out-of-order bytes that are in order now.
    fn take_what_was_early(&mut self, reader: &mut dyn StreamReader) -> Result<(), StreamDrop> {
        while let Some(id) = self.ours.early {
            if self.is_full() {
                // The sender keeps these bytes until they are acknowledged, although SACK has reported them
                // (RFC 2018 section 8).
                self.clear_early();
                return Ok(());
            }
            let Some(EditTake { lists, ours: edit, scratch, .. }) = &mut self.edit else { return Ok(()) };
            let (side, pool, now_ms) = (&mut *self.ours, &mut *self.pool, self.now_ms);
            let taken = Decider { side, edit, pool, lists, scratch, now_ms, datagrams: None }
                .decide_early(&mut self.early[id], reader);
            free_early(self.early, self.ours);
            if self.ours.early.is_none() {
                // The hole is filled, so the sender needs no more duplicate acknowledgments. The held bytes
                // could wait for the hole until now, so their time starts now.
                (edit.duplicates, edit.owed) = (0, 0);
                edit.held_since_ms = now_ms;
            }
            if !taken? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Ends the output after all bytes before the FIN were taken.
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
        match self.decider().filter(|decider| is_due && !decider.edit.has_ended) {
            Some(mut decider) => decider.end(reader),
            None => Ok(()),
        }
    }

    /// Records the header values of a segment, for generated packets.
    pub(crate) fn note_segment(&mut self, segment: &Segment, window: Option<u16>) {
        let window = window.unwrap_or(segment.window);
        let direction = self.ours.direction();
        match (&mut self.edit, &mut self.plain) {
            (Some(EditTake { ours, .. }), _) => ours.noted.note(self.ours, segment, window),
            (None, Some(PlainTake { table, notes, .. })) => {
                table.notes[*notes][direction].note(self.ours, segment, window);
            }
            (None, None) => {}
        }
    }

    /// Resets the edit state before any byte was taken. A FIN may have been taken.
    pub(crate) fn begin_edit_anew(&mut self) {
        if let Some(EditTake { lists, ours, .. }) = &mut self.edit {
            ours.clear(self.pool, lists);
            let EditSide { links, most_kept, promises, .. } = **ours;
            **ours = EditSide { links, most_kept, promises, ..EditSide::default() };
        }
    }

    /// Determines what is due to either end after a segment was taken. Returns whether nothing is due.
    pub(crate) fn settle(&mut self) -> bool {
        let told = [self.theirs.told(), self.ours.told()];
        let Some(EditTake { lists, ours, theirs, .. }) = &mut self.edit else { return true };
        ours.settle(self.ours, lists, told[0]);
        theirs.settle(self.theirs, lists, told[1]);
        (ours.credit, theirs.credit) = (CREDIT, CREDIT);
        ours.assert_sound(self.ours, lists);
        theirs.assert_sound(self.theirs, lists);
        ours.is_quiet(self.ours) && theirs.is_quiet(self.theirs)
    }
}

impl EditSide {
    /// Whether the sender needs no acknowledgment other than those of its receiver: the usual state.
    #[inline]
    fn is_settled(&self, side: &Side) -> bool {
        let holds = self.held.len() > 0 || self.is_promising(side);
        !(holds | self.has_ended) && self.map.constant() == Some(self.acked.wrapping_sub(side.acked))
    }

    /// Determines whether mmb must acknowledge input to the sender by itself. It must if the receiver sends
    /// no acknowledgment that covers the input: all output of the input is acknowledged already, or the input
    /// has no output. `told` is the highest acknowledgment number that was sent to the sender.
    pub(crate) fn settle(&mut self, side: &mut Side, lists: &mut EditLists, told: Option<u32>) {
        if side.level != Level::Edit {
            return;
        }
        if self.is_settled(side) && told == Some(side.seq(side.acked)) {
            self.owes_ack = false;
            return;
        }
        let acked = self.acked_input(side, lists, self.acked);
        side.acked = side.acked.max(acked);
        self.promise(side, lists);
        let acked = self.told_acked(side);
        let is_behind = told.is_none_or(|told| side.seq(acked).wrapping_sub(told).cast_signed() > 0);
        self.owes_ack = is_behind && acked > 0;
        self.map.acknowledge(lists, self.acked);
    }
}

impl Noted {
    /// Records the header values of an end's segment, if its receiver accepts the segment as far as mmb can
    /// see. `window` is the window field of the forwarded segment.
    fn note(&mut self, own: &Side, segment: &Segment, window: u16) {
        let is_syn = segment.has(flag::SYN);
        let is_other = is_syn && own.offset(segment.seq.wrapping_add(1)) != 0;
        if segment.has(flag::RST) || is_other {
            return;
        }
        // This is an old duplicate. The exception is a sender that was silent for weeks: its timestamp may
        // have any value.
        if let (Some([value, _]), Some([last, _])) = (segment.timestamps, self.timestamps)
            && value.wrapping_sub(last).cast_signed() < 0
            && own.timestamp_value() != Some(value)
        {
            return;
        }
        self.timestamps = segment.timestamps.or(self.timestamps);
        if !is_syn && !segment.has_sack {
            self.room = segment.most_payload;
        }
        if is_syn {
            self.knows_sack = segment.knows_sack;
            self.mss = segment.mss.or(self.mss);
            // The window of a SYN is not scaled; the windows of generated packets are.
            self.window = window >> own.scale.unwrap_or(0);
        } else if own.told() == Some(segment.ack) {
            self.window = window;
        }
    }
}
