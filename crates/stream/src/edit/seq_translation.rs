//! Acknowledgments, windows and RSTs of edited directions: translation between input and output numbers.
//!
//! A number before or after the bytes in flight stays before or after them in the other number space. An old
//! acknowledgment stays old for the sender and is no duplicate of another one. A RST with a number that no
//! receiver accepts (RFC 5961) does not get a number that a receiver accepts.

use super::context::{EditContext, PlainContext};
use super::map::EditLists;
use super::side::EditSide;
use crate::limits::AckSpace;
use crate::segment::{EditedSegment, Segment, flag};
use crate::side::{Level, Side};
use crate::tcp::TcpContext;

impl EditSide {
    /// Right edge of the window for input: the output of the last byte is inside the receiver's window.
    pub(crate) fn input_window_edge(&self) -> u64 {
        // Held bytes do not use up the window yet: their output may be empty.
        let held = if self.is_window_closed() { 0 } else { self.held.len() as u64 };
        (self.decided + held + self.header_values.window_edge).saturating_sub(self.out_end)
    }

    /// The offset of an output sequence number.
    #[inline]
    pub(crate) fn output_offset(&self, side: &Side, seq: u32) -> i64 {
        let ahead = seq.wrapping_sub(side.seq(self.snd_nxt)).cast_signed();
        self.snd_nxt.cast_signed() + i64::from(ahead)
    }

    /// The output offset for an acknowledgment number in input sequence space. At most the output that was
    /// sent.
    fn input_ack_to_output(&self, side: &Side, lists: &EditLists, seq: u32) -> i64 {
        let input = side.offset(seq).max(side.snd_una.cast_signed()).cast_unsigned();
        let output = match side.fin() {
            Some(fin) if self.has_ended && input > fin => self.out_end + 1,
            _ => self.map.output_ceil(lists, input.min(self.decided)),
        };
        output.clamp(self.snd_una, self.snd_nxt).cast_signed()
    }

    /// Number of input bytes that an acknowledgment of output up to `output` acknowledges. It is never lower
    /// than before. The FIN counts as a byte.
    #[inline]
    pub(crate) fn acked_input(&self, side: &Side, lists: &EditLists, output: u64) -> u64 {
        let output = output.max(self.snd_una);
        if self.has_ended && output > self.out_end {
            return side.end();
        }
        self.input_floor(lists, output.min(self.out_end)).max(side.snd_una)
    }

    /// Number of decided input bytes whose output lies before `output` completely.
    #[inline]
    pub(crate) fn input_floor(&self, lists: &EditLists, output: u64) -> u64 {
        self.map.input_floor(lists, output).min(self.decided)
    }

    /// Translates the output offset `output` to an input sequence number.
    pub(crate) fn output_to_input(&self, side: &Side, lists: &EditLists, output: i64) -> u32 {
        let (acked, sent) = (self.snd_una.cast_signed(), self.snd_nxt.cast_signed());
        let offset = match output {
            // The segment belongs to an earlier connection. Its number must not change: the end that used it
            // must recognize it (RFC 9293 section 3.5.1).
            _ if output < 0 && acked == 0 => output,
            _ if output < acked => side.snd_una.cast_signed() - 1,
            _ if output > sent => side.end().cast_signed() + (output - sent),
            _ => self.ackable_input(side, lists, output.cast_unsigned()).cast_signed(),
        };
        side.seq(offset.cast_unsigned())
    }

    /// The output sequence number of a RST at input offset `input`. The sender has sent all input. The
    /// receiver has no more than the output that was sent.
    fn reset_to_output(&self, side: &Side, lists: &EditLists, input: i64) -> u32 {
        let (acked, decided) = (side.snd_una.cast_signed(), self.decided.cast_signed());
        let output = match input {
            _ if input == side.end().cast_signed() => self.snd_nxt.cast_signed(),
            _ if input == decided => self.sent_end().cast_signed(),
            _ if input < acked => self.snd_una.cast_signed() - (acked - input),
            _ if input < decided => match self.map.output_exact(lists, input.cast_unsigned()) {
                Some(output) => output.max(self.snd_una).cast_signed(),
                // No end uses a number inside an edit, so the RST gets a number unexpected by its receiver.
                None => self.snd_nxt.cast_signed() + 1,
            },
            _ => self.snd_nxt.cast_signed() + (input - decided),
        };
        side.seq(output.cast_unsigned())
    }
}

impl TcpContext<'_> {
    /// The output offset that a segment acknowledges, if the acknowledged direction is edited.
    fn acked_output(&self, segment: &Segment) -> Option<i64> {
        let edit = self.edit.as_ref()?;
        if self.theirs.level != Level::Edit || !segment.has(flag::ACK) || !self.theirs.has_begun {
            return None;
        }
        Some(match edit.ack_space {
            AckSpace::Wire => edit.theirs.output_offset(self.theirs, segment.ack),
            AckSpace::Original => edit.theirs.input_ack_to_output(self.theirs, edit.lists, segment.ack),
        })
    }

    /// The segment with its acknowledgment number in input sequence space, if the acknowledged direction is
    /// edited.
    pub(crate) fn ack_to_input(&mut self, segment: &Segment) -> Segment {
        let mut mapped = *segment;
        self.acked_output = self.acked_output(segment);
        if let (Some(output), Some(edit)) = (self.acked_output, &self.edit)
            && edit.ack_space == AckSpace::Wire
        {
            mapped.ack = edit.theirs.output_to_input(self.theirs, edit.lists, output);
        }
        mapped
    }

    /// Whether an acknowledgment covers only output that was sent, and is not too old.
    pub(crate) fn acknowledges_output(&self, window: u64) -> Option<bool> {
        let output = self.acked_output?;
        let edit = self.edit.as_ref()?;
        let (sent, acked) = (edit.theirs.snd_nxt.cast_signed(), edit.theirs.snd_una.cast_signed());
        Some(output <= sent && output >= acked - window.cast_signed())
    }

    /// Takes an acknowledgment of output.
    pub(crate) fn take_output_acknowledgment(&mut self) {
        let (Some(output), Some(edit)) = (self.acked_output, &mut self.edit) else { return };
        let output = output.max(0).cast_unsigned();
        let EditContext { lists, theirs, .. } = edit;
        let (old_snd_una, old_acked) = (theirs.snd_una, theirs.acked_to_sender(self.theirs));
        theirs.acknowledge(self.pool, lists, output);
        let acked = theirs.acked_input(self.theirs, lists, output);
        self.theirs.snd_una = self.theirs.snd_una.max(acked);
        theirs.ack_early(self.theirs, lists);
        self.is_partial = theirs.snd_una > old_snd_una && theirs.acked_to_sender(self.theirs) == old_acked;
        theirs.record_answer(theirs.snd_una > old_snd_una);
        if theirs.is_all_acked() && self.theirs.out_of_order.is_some() {
            theirs.duplicate_acks =
                theirs.duplicate_acks.saturating_add(std::mem::take(&mut theirs.deferred_duplicate_acks));
        }
    }

    /// Right edge of the window to advertise to the sender of edited bytes: the output of the last byte is
    /// inside the receiver's window.
    pub(crate) fn take_window(&mut self, segment: &Segment, scale: u8) -> Option<u64> {
        if self.theirs.level != Level::Edit {
            return None;
        }
        let window = u64::from(segment.window) << scale;
        if let Some(PlainContext { table, header_values, .. }) = &mut self.plain {
            let acked = self.theirs.offset(segment.ack).max(0).cast_unsigned();
            table.header_values[*header_values][self.theirs.direction()].record_window_edge(acked + window);
            return None;
        }
        let output = self.acked_output.unwrap_or(0).max(0).cast_unsigned();
        let theirs = &mut *self.edit.as_mut()?.theirs;
        let was_closed = theirs.is_window_closed();
        theirs.header_values.record_window_edge(output + window);
        if was_closed && !theirs.is_window_closed() {
            theirs.held_since_ms = self.now_ms;
        }
        Some(theirs.input_window_edge())
    }

    /// The numbers of a RST. Bytes that are held or wait are lost with the connection.
    pub(crate) fn reset_edited(&self, segment: &Segment) -> Option<EditedSegment> {
        let edit = self.edit.as_ref().filter(|_| self.ours.level == Level::Edit && self.ours.has_begun)?;
        let input = self.ours.offset(segment.seq);
        Some(EditedSegment {
            seq: edit.ours.reset_to_output(self.ours, edit.lists, input),
            ..EditedSegment::default()
        })
    }
}
