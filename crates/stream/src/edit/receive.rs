//! Takes the payload and the FIN of segments that arrive in edited directions.

use super::context::{EditContext, PlainContext};
use super::decide::Decider;
use super::header_values::HeaderValues;
use super::map::EditLists;
use super::side::{CREDIT, EditSide, MAX_DUPLICATE_ACKS};
use crate::reader::StreamReader;
use crate::segment::{EditedSegment, Segment, StreamDrop, flag};
use crate::side::{Level, Side};
use crate::tcp::{ByteRange, TcpContext, free_out_of_order};

/// How the output of a segment relates to its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputKind {
    /// The payload passes unchanged.
    Same,
    /// Any other case.
    Other,
}

impl TcpContext<'_> {
    /// Takes the payload and the FIN of a segment of an edited direction. Returns the segment to send.
    pub(crate) fn take_edited(
        &mut self,
        segment: &Segment,
        range: ByteRange,
        payload: &[u8],
        reader: &mut dyn StreamReader,
    ) -> Result<EditedSegment, StreamDrop> {
        if let Some(EditContext { ours, .. }) = &mut self.edit {
            ours.header_values.record_payload(payload.len());
        }
        let old_next = self.ours.rcv_nxt;
        let output = self.take_input(segment, range, payload, reader)?;
        self.end_input(segment, range, reader)?;
        Ok(self.forward(segment, range, (old_next, output)))
    }

    fn decider(&mut self) -> Option<Decider<'_>> {
        let EditContext { lists, ours, scratch, .. } = self.edit.as_mut()?;
        let (side, pool, now_ms) = (&mut *self.ours, &mut *self.pool, self.now_ms);
        Some(Decider { side, edit: ours, pool, lists, scratch, now_ms, datagrams: None })
    }

    /// Takes the bytes of a payload.
    fn take_input(
        &mut self,
        segment: &Segment,
        range: ByteRange,
        payload: &[u8],
        reader: &mut dyn StreamReader,
    ) -> Result<OutputKind, StreamDrop> {
        let next = self.ours.rcv_nxt.cast_signed();
        if payload.is_empty() || self.is_keep_alive_after_fin(range) || range.start < 0 {
            return Ok(OutputKind::Other);
        }
        if range.start < next {
            self.ours.counts.retransmitted += (range.end.min(next) - range.start).cast_unsigned();
        }
        if range.end <= next {
            return Ok(OutputKind::Other);
        }
        // Output may be longer than input, so it needs free space.
        if self.is_full() {
            // A retransmission still passes. Otherwise nothing would be acknowledged, and no room would
            // become free.
            return if range.start < next { Ok(OutputKind::Other) } else { Err(StreamDrop::NoRoom) };
        }
        if range.start > next {
            return self.take_out_of_order(segment, range, payload).map(|()| OutputKind::Other);
        }
        let Some(edit) = &self.edit else { return Err(StreamDrop::Broken) };
        let is_caught_up = edit.ours.held.len() == 0
            && edit.ours.snd_nxt == edit.ours.out_end
            && self.ours.out_of_order.is_none()
            && range.start == next;
        let (out_end, edits) = (edit.ours.out_end, edit.ours.edits);
        let Some(mut decider) = self.decider() else { return Err(StreamDrop::Broken) };
        let asked = decider.question();
        decider.decide(&payload[(next - range.start) as usize..], asked, reader)?;
        if self.ours.out_of_order.is_some() {
            self.drain_out_of_order(reader)?;
        }
        let Some(edit) = &self.edit else { return Err(StreamDrop::Broken) };
        let is_same = is_caught_up
            && edit.ours.edits == edits
            && edit.ours.out_end == out_end + payload.len() as u64
            && (edit.ours.out_end <= edit.ours.send_limit() || !self.theirs.has_begun);
        Ok(if is_same { OutputKind::Same } else { OutputKind::Other })
    }

    /// Whether no space is left for more output.
    pub(crate) fn is_full(&self) -> bool {
        let buffered = self.edit.as_ref().map_or(self.ours.buffered(), |edit| edit.ours.buffered.len());
        self.pool.chunks() - self.pool.taken() < (self.pool.chunks() / 16).max(1)
            || buffered as u64 >= 2 * self.limits.window
    }

    /// Buffers bytes after a hole. mmb reports the hole to the sender with duplicate acknowledgments: the
    /// receiver does not get these bytes, so it sends none.
    fn take_out_of_order(
        &mut self,
        segment: &Segment,
        range: ByteRange,
        payload: &[u8],
    ) -> Result<(), StreamDrop> {
        self.ours.counts.out_of_order += 1;
        if !self.add_out_of_order(range, payload) {
            return Err(StreamDrop::NoRoom);
        }
        let Some(EditContext { ours, .. }) = &mut self.edit else { return Ok(()) };
        (ours.has_ce_mark, ours.latest_out_of_order) =
            (ours.has_ce_mark | segment.has_ce_mark, range.start.cast_unsigned());
        match ours.is_all_acked() {
            true => ours.duplicate_acks = ours.duplicate_acks.saturating_add(1),
            false => {
                ours.deferred_duplicate_acks = (ours.deferred_duplicate_acks + 1).min(MAX_DUPLICATE_ACKS)
            }
        }
        Ok(())
    }

    /// Takes the out-of-order bytes that are in order now.
    fn drain_out_of_order(&mut self, reader: &mut dyn StreamReader) -> Result<(), StreamDrop> {
        while let Some(id) = self.ours.out_of_order {
            if self.is_full() {
                // The sender keeps these bytes until they are acknowledged, although SACK has reported them
                // (RFC 2018 section 8).
                self.clear_out_of_order();
                return Ok(());
            }
            let Some(EditContext { lists, ours: edit, scratch, .. }) = &mut self.edit else { return Ok(()) };
            let (side, pool, now_ms) = (&mut *self.ours, &mut *self.pool, self.now_ms);
            let taken = Decider { side, edit, pool, lists, scratch, now_ms, datagrams: None }
                .decide_out_of_order(&mut self.out_of_order[id], reader);
            free_out_of_order(self.out_of_order, self.ours);
            if self.ours.out_of_order.is_none() {
                // The hole is filled, so the sender needs no more duplicate acknowledgments. The held bytes
                // could wait for the hole until now, so their time starts now.
                (edit.duplicate_acks, edit.deferred_duplicate_acks) = (0, 0);
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
        range: ByteRange,
        reader: &mut dyn StreamReader,
    ) -> Result<(), StreamDrop> {
        if segment.has(flag::FIN) && self.ours.fin().is_none() {
            self.ours.set_fin(Some(range.end.max(0).cast_unsigned()));
        }
        let is_due = self.ours.fin() == Some(self.ours.rcv_nxt);
        match self.decider().filter(|decider| is_due && !decider.edit.has_ended) {
            Some(mut decider) => decider.end(reader),
            None => Ok(()),
        }
    }

    /// Records the header values of a segment, for generated packets.
    pub(crate) fn record_header_values(&mut self, segment: &Segment, window: Option<u16>) {
        let window = window.unwrap_or(segment.window);
        let direction = self.ours.direction();
        match (&mut self.edit, &mut self.plain) {
            (Some(EditContext { ours, .. }), _) => ours.header_values.record(self.ours, segment, window),
            (None, Some(PlainContext { table, header_values, .. })) => {
                table.header_values[*header_values][direction].record(self.ours, segment, window);
            }
            (None, None) => {}
        }
    }

    /// Resets the edit state before any byte was taken. A FIN may have been taken.
    pub(crate) fn restart_edit(&mut self) {
        if let Some(EditContext { lists, ours, .. }) = &mut self.edit {
            ours.clear(self.pool, lists);
            let EditSide { links, max_buffered, allows_early_acks, .. } = **ours;
            **ours = EditSide { links, max_buffered, allows_early_acks, ..EditSide::default() };
        }
    }

    /// Determines what is due to either end after a segment was taken. Returns whether nothing is due.
    pub(crate) fn update_due(&mut self) -> bool {
        let last_acks = [self.theirs.last_ack_sent(), self.ours.last_ack_sent()];
        let Some(EditContext { lists, ours, theirs, .. }) = &mut self.edit else { return true };
        ours.update_ack_due(self.ours, lists, last_acks[0]);
        theirs.update_ack_due(self.theirs, lists, last_acks[1]);
        (ours.credit, theirs.credit) = (CREDIT, CREDIT);
        ours.assert_sound(self.ours, lists);
        theirs.assert_sound(self.theirs, lists);
        ours.is_quiet(self.ours) && theirs.is_quiet(self.theirs)
    }
}

impl EditSide {
    /// Whether the sender needs no acknowledgment other than those of its receiver: the usual state.
    #[inline]
    fn needs_no_ack(&self, side: &Side) -> bool {
        let has_held = self.held.len() > 0 || self.has_early_acked(side);
        !(has_held | self.has_ended)
            && self.map.constant_shift() == Some(self.snd_una.wrapping_sub(side.snd_una))
    }

    /// Determines whether mmb must acknowledge input to the sender by itself. It must if the receiver sends
    /// no acknowledgment that covers the input: all output of the input is acknowledged already, or the input
    /// has no output. `last_ack_sent` is the highest acknowledgment number that was sent to the sender.
    pub(crate) fn update_ack_due(
        &mut self,
        side: &mut Side,
        lists: &mut EditLists,
        last_ack_sent: Option<u32>,
    ) {
        if side.level != Level::Edit {
            return;
        }
        if self.needs_no_ack(side) && last_ack_sent == Some(side.seq(side.snd_una)) {
            self.is_ack_due = false;
            return;
        }
        let acked = self.acked_input(side, lists, self.snd_una);
        side.snd_una = side.snd_una.max(acked);
        self.ack_early(side, lists);
        let acked = self.acked_to_sender(side);
        let is_behind = last_ack_sent
            .is_none_or(|last_ack_sent| side.seq(acked).wrapping_sub(last_ack_sent).cast_signed() > 0);
        self.is_ack_due = is_behind && acked > 0;
        self.map.acknowledge(lists, self.snd_una);
    }
}

impl HeaderValues {
    /// Records the header values of an end's segment, if its receiver accepts the segment as far as mmb can
    /// see. `window` is the window field of the forwarded segment.
    fn record(&mut self, own: &Side, segment: &Segment, window: u16) {
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
            self.link_payload = segment.max_payload;
        }
        if is_syn {
            self.sack_permitted = segment.sack_permitted;
            self.mss = segment.mss.or(self.mss);
            // The window of a SYN is not scaled; the windows of generated packets are.
            self.window = window >> own.scale.unwrap_or(0);
        } else if own.last_ack_sent() == Some(segment.ack) {
            self.window = window;
        }
    }
}
