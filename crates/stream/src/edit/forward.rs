//! Output that the current packet carries.

use super::context::EditContext;
use super::map::EditLists;
use super::receive::OutputKind;
use super::side::EditSide;
use crate::segment::{EditedPayload, EditedSegment, Outcome, Segment, StreamVerdict, flag};
use crate::side::Side;
use crate::tcp::{ByteRange, TcpContext};

/// Output that the current packet carries.
#[derive(Clone, Copy)]
struct CarriedOutput {
    start: u64,
    end: u64,
    /// The packet is a retransmission.
    is_retransmission: bool,
}

impl EditSide {
    /// Selects the output for a packet whose bytes lie in `range`. Bytes before `old_next` were taken
    /// earlier. For a retransmission, that is the output of the same bytes, from the first one that the
    /// receiver has not acknowledged. Otherwise, it is the next output. The packet carries at most
    /// `max_payload` bytes, and none after `limit`. Packets are generated for the rest.
    fn select_output(
        &mut self,
        side: &Side,
        lists: &EditLists,
        (range, old_next): (ByteRange, u64),
        (limit, max_payload): (u64, u64),
    ) -> CarriedOutput {
        let input = range.start.max(side.snd_una.cast_signed()).cast_unsigned();
        let sent = self.sent_end();
        let is_retransmission = !range.is_empty() && input < old_next;
        let (start, wanted_end) = match is_retransmission {
            true => {
                let input_end = range.end.max(0).cast_unsigned().min(self.decided);
                let start = self.map.output_floor(lists, input.min(self.decided)).max(self.snd_una).min(sent);
                let wanted_end = self.map.output_ceil(lists, input_end).max(start);
                // A retransmission of the last output also carries the output after it.
                (start, if wanted_end >= sent { self.out_end } else { wanted_end })
            }
            false => (sent, self.out_end),
        };
        let end = wanted_end.min(limit).min(start + max_payload).max(start);
        if is_retransmission {
            self.retransmit.add(end, wanted_end.min(sent));
        }
        self.snd_nxt = self.snd_nxt.max(end);
        CarriedOutput { start, end, is_retransmission }
    }

    /// Whether a segment with output up to `end` carries the FIN, which then counts as sent. A segment
    /// without bytes repeats a FIN only if its sender repeats it, and never one that the receiver has.
    fn forward_fin(&mut self, segment: &Segment, end: u64, len: u64) -> bool {
        let is_due = !self.has_sent_fin() || len > 0 || segment.has(flag::FIN);
        let is_new = self.snd_una <= self.out_end && end == self.out_end && self.sent_end() == end;
        let carries_fin = self.has_ended && is_due && is_new;
        if carries_fin {
            self.snd_nxt = self.out_end + 1;
        }
        carries_fin
    }
}

impl TcpContext<'_> {
    /// Selects what the current packet carries. Packets are generated for the rest.
    pub(crate) fn forward(
        &mut self,
        segment: &Segment,
        range: ByteRange,
        (old_next, output): (u64, OutputKind),
    ) -> EditedSegment {
        let is_open = self.theirs.has_begun;
        let Some(EditContext { lists, ours: edit, theirs, .. }) = &mut self.edit else {
            return EditedSegment::default();
        };
        let acked = edit.acked_to_sender(self.ours).cast_signed();
        let edited = EditedSegment { seq: self.ours.seq(edit.snd_nxt), ..EditedSegment::default() };
        if output == OutputKind::Same {
            edit.snd_nxt = edit.out_end;
            let len = u64::from(segment.payload);
            return EditedSegment { has_fin: edit.forward_fin(segment, edit.out_end, len), ..edited };
        }
        // A SYN carries the first output or none. It carries none if its sender puts no data into it.
        let is_syn = segment.has(flag::SYN);
        if is_syn && (range.is_empty() || edit.snd_una > 0) {
            let payload = EditedPayload::Buffered { offset: edit.snd_una, len: 0 };
            return EditedSegment { payload, has_fin: edit.forward_fin(segment, 0, 0), ..edited };
        }
        // Before the receiver's SYN, its window is unknown.
        let limit = if is_open { edit.send_limit() } else { edit.out_end };
        let max_payload = edit.header_values.max_payload_of(segment, theirs.header_values.mss);
        let CarriedOutput { start, end, is_retransmission } =
            edit.select_output(self.ours, lists, (range, old_next), (limit, max_payload));
        let len = end - start;
        let has_fin = edit.forward_fin(segment, end, len);
        // Bytes that the receiver has, that are undecided or that find no room bring no output. The packet
        // then only makes the receiver send its acknowledgment and window.
        let has_input = !range.is_empty() || segment.has(flag::FIN);
        let is_blocked = has_input && range.start <= old_next.cast_signed() && edit.sent_end() < edit.out_end;
        let is_known = range.start < acked && range.end <= acked;
        let is_probe = len == 0 && !has_fin && (is_known || is_retransmission || is_blocked);
        let offset = match (len, has_fin) {
            (0, true) => edit.out_end,
            (0, false) if is_probe => edit.snd_una.wrapping_sub(1),
            (0, false) => edit.snd_nxt,
            _ => start,
        };
        EditedSegment {
            seq: self.ours.seq(offset),
            payload: EditedPayload::Buffered { offset: start, len: len as usize },
            has_fin,
            is_probe,
            ..edited
        }
    }

    /// The outcome for a segment of a stream with edits: its numbers, and whether it is forwarded at all.
    /// `previous_ack` is the highest acknowledgment number that its sender had sent before.
    pub(crate) fn finish_edited(
        &mut self,
        (segment, mapped): (&Segment, &Segment),
        mut outcome: Outcome,
        edited: Option<EditedSegment>,
        previous_ack: Option<u32>,
    ) -> Outcome {
        let is_edited = edited.is_some();
        let edited = EditedSegment { ack: mapped.ack, ..edited.unwrap_or(EditedSegment::same(segment)) };
        let Some(EditContext { ours, .. }) = &mut self.edit else { return outcome };
        let has_payload = match edited.payload {
            EditedPayload::Same => segment.payload > 0,
            EditedPayload::Buffered { len, .. } => len > 0,
        };
        let carries = has_payload || edited.has_fin || edited.is_probe || segment.has(flag::SYN);
        let is_new = self.ours.last_ack_sent() != previous_ack
            || outcome.window.unwrap_or(segment.window) != ours.header_values.window
            || segment.has_sack;
        // A segment without output is forwarded if its acknowledgment or window is new, or if it is a
        // duplicate acknowledgment. It is absorbed if the stream has taken its bytes, or if it acknowledges
        // more output but no more input.
        let has_input = segment.payload > 0 || segment.has(flag::FIN);
        let is_empty = !carries && !is_new && (has_input && is_edited || self.is_partial);
        if is_empty && !segment.has(flag::RST) {
            ours.has_ce_mark |= segment.has_ce_mark;
            outcome.verdict = StreamVerdict::Absorb;
            return outcome;
        }
        outcome.edited = Some(edited);
        outcome
    }
}
