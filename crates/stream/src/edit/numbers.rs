//! Acknowledgments, windows and RSTs of edited directions: translation between input and output numbers.
//!
//! A number before or after the bytes in flight stays before or after them in the other number space. An old
//! acknowledgment stays old for the sender and is no duplicate of another one. A RST with a number that no
//! receiver accepts (RFC 5961) does not get a number that a receiver accepts.

use super::map::EditLists;
use super::pair::{EditTake, PlainTake};
use super::side::EditSide;
use crate::limits::AckSpace;
use crate::segment::{EditedSegment, Segment, flag};
use crate::side::{Level, Side};
use crate::tcp::TcpTake;

impl EditSide {
    /// Right edge of the window for input: the output of the last byte is inside the receiver's window.
    pub(crate) fn room_edge(&self) -> u64 {
        // Held bytes do not use up the window yet: their output may be empty.
        let held = if self.is_shut() { 0 } else { self.held.len() as u64 };
        (self.decided + held + self.noted.edge).saturating_sub(self.out_next)
    }

    /// The offset of an output sequence number.
    #[inline]
    pub(crate) fn output_offset(&self, side: &Side, number: u32) -> i64 {
        let ahead = number.wrapping_sub(side.seq(self.sent)).cast_signed();
        self.sent.cast_signed() + i64::from(ahead)
    }

    /// The output offset for an acknowledgment number in input sequence space. At most the output that was
    /// sent.
    fn original_output(&self, side: &Side, lists: &EditLists, number: u32) -> i64 {
        let at = side.offset(number).max(side.acked.cast_signed()).cast_unsigned();
        let out = match side.fin() {
            Some(fin) if self.has_ended && at > fin => self.out_next + 1,
            _ => self.map.output_ceil(lists, at.min(self.decided)),
        };
        out.clamp(self.acked, self.sent).cast_signed()
    }

    /// Number of input bytes that an acknowledgment of output up to `out` acknowledges. It is never lower
    /// than before. The FIN counts as a byte.
    #[inline]
    pub(crate) fn acked_input(&self, side: &Side, lists: &EditLists, out: u64) -> u64 {
        let out = out.max(self.acked);
        if self.has_ended && out > self.out_next {
            return side.end();
        }
        self.input_floor(lists, out.min(self.out_next)).max(side.acked)
    }

    /// Number of decided input bytes whose output lies before `out` completely.
    #[inline]
    pub(crate) fn input_floor(&self, lists: &EditLists, out: u64) -> u64 {
        self.map.input_floor(lists, out).min(self.decided)
    }

    /// Translates the output offset `out` to an input sequence number.
    pub(crate) fn told_input(&self, side: &Side, lists: &EditLists, out: i64) -> u32 {
        let (acked, sent) = (self.acked.cast_signed(), self.sent.cast_signed());
        let offset = match out {
            // The segment belongs to an earlier connection. Its number must not change: the end that used it
            // must recognize it (RFC 9293 section 3.5.1).
            _ if out < 0 && acked == 0 => out,
            _ if out < acked => side.acked.cast_signed() - 1,
            _ if out > sent => side.end().cast_signed() + (out - sent),
            _ => self.promised_at(side, lists, out.cast_unsigned()).cast_signed(),
        };
        side.seq(offset.cast_unsigned())
    }

    /// The output sequence number of a RST at input offset `at`. The sender has sent all input. The receiver
    /// has no more than the output that was sent.
    fn reset_output(&self, side: &Side, lists: &EditLists, at: i64) -> u32 {
        let (acked, decided) = (side.acked.cast_signed(), self.decided.cast_signed());
        let out = match at {
            _ if at == side.end().cast_signed() => self.sent.cast_signed(),
            _ if at == decided => self.sent_data().cast_signed(),
            _ if at < acked => self.acked.cast_signed() - (acked - at),
            _ if at < decided => match self.map.output_at(lists, at.cast_unsigned()) {
                Some(out) => out.max(self.acked).cast_signed(),
                // No end uses a number inside an edit, so the RST gets one that its receiver does not expect.
                None => self.sent.cast_signed() + 1,
            },
            _ => self.sent.cast_signed() + (at - decided),
        };
        side.seq(out.cast_unsigned())
    }
}

impl TcpTake<'_> {
    /// The output offset that a segment acknowledges, if the acknowledged direction is edited.
    fn acked_output(&self, segment: &Segment) -> Option<i64> {
        let edit = self.edit.as_ref()?;
        if self.theirs.level != Level::Edit || !segment.has(flag::ACK) || !self.theirs.has_begun {
            return None;
        }
        Some(match edit.acks {
            AckSpace::Wire => edit.theirs.output_offset(self.theirs, segment.ack),
            AckSpace::Original => edit.theirs.original_output(self.theirs, edit.lists, segment.ack),
        })
    }

    /// The segment with its acknowledgment number in input sequence space, if the acknowledged direction is
    /// edited.
    pub(crate) fn in_input(&mut self, segment: &Segment) -> Segment {
        let mut mapped = *segment;
        self.acked_output = self.acked_output(segment);
        if let (Some(out), Some(edit)) = (self.acked_output, &self.edit)
            && edit.acks == AckSpace::Wire
        {
            mapped.ack = edit.theirs.told_input(self.theirs, edit.lists, out);
        }
        mapped
    }

    /// Whether an acknowledgment covers only output that was sent, and is not too old.
    pub(crate) fn acknowledges_output(&self, window: u64) -> Option<bool> {
        let out = self.acked_output?;
        let edit = self.edit.as_ref()?;
        let (sent, acked) = (edit.theirs.sent.cast_signed(), edit.theirs.acked.cast_signed());
        Some(out <= sent && out >= acked - window.cast_signed())
    }

    /// Takes an acknowledgment of output.
    pub(crate) fn take_output_acknowledgment(&mut self) {
        let (Some(out), Some(edit)) = (self.acked_output, &mut self.edit) else { return };
        let out = out.max(0).cast_unsigned();
        let EditTake { lists, theirs, .. } = edit;
        let (before, told) = (theirs.acked, theirs.told_acked(self.theirs));
        theirs.acknowledge(self.pool, lists, out);
        let acked = theirs.acked_input(self.theirs, lists, out);
        self.theirs.acked = self.theirs.acked.max(acked);
        theirs.promise(self.theirs, lists);
        self.is_partial = theirs.acked > before && theirs.told_acked(self.theirs) == told;
        theirs.note_answer(theirs.acked > before);
        if theirs.is_acked() && self.theirs.early.is_some() {
            theirs.duplicates = theirs.duplicates.saturating_add(std::mem::take(&mut theirs.owed));
        }
    }

    /// Right edge of the window to advertise to the sender of edited bytes: the output of the last byte is
    /// inside the receiver's window.
    pub(crate) fn window_edge(&mut self, segment: &Segment, scale: u8) -> Option<u64> {
        if self.theirs.level != Level::Edit {
            return None;
        }
        let window = u64::from(segment.window) << scale;
        if let Some(PlainTake { table, notes, .. }) = &mut self.plain {
            let acked = self.theirs.offset(segment.ack).max(0).cast_unsigned();
            table.notes[*notes][self.theirs.direction()].note_edge(acked + window);
            return None;
        }
        let out = self.acked_output.unwrap_or(0).max(0).cast_unsigned();
        let theirs = &mut *self.edit.as_mut()?.theirs;
        let was_shut = theirs.is_shut();
        theirs.noted.note_edge(out + window);
        if was_shut && !theirs.is_shut() {
            theirs.held_since_ms = self.now_ms;
        }
        Some(theirs.room_edge())
    }

    /// The numbers of a RST. Bytes that are held or wait are lost with the connection.
    pub(crate) fn reset_edited(&self, segment: &Segment) -> Option<EditedSegment> {
        let edit = self.edit.as_ref().filter(|_| self.ours.level == Level::Edit && self.ours.has_begun)?;
        let at = self.ours.offset(segment.seq);
        Some(EditedSegment {
            seq: edit.ours.reset_output(self.ours, edit.lists, at),
            ..EditedSegment::default()
        })
    }
}
