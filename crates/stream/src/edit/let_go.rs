//! Output that the current packet carries.

use super::map::EditLists;
use super::pair::EditTake;
use super::side::EditSide;
use super::take::Production;
use crate::segment::{EditedPayload, EditedSegment, Outcome, Segment, StreamVerdict, flag};
use crate::side::Side;
use crate::tcp::{Place, TcpTake};

/// Output that the current packet carries.
#[derive(Clone, Copy)]
struct Carried {
    from: u64,
    to: u64,
    /// The packet is a retransmission.
    is_again: bool,
}

impl EditSide {
    /// Selects the output for a packet whose bytes lie at `place`. Bytes before `before` were taken earlier.
    /// For a retransmission, that is the output of the same bytes, from the first one that the receiver has
    /// not acknowledged. Otherwise, it is the next output. The packet carries at most `most` bytes, and none
    /// after `limit`. Packets are generated for the rest.
    fn carry(
        &mut self,
        side: &Side,
        lists: &EditLists,
        (place, before): (Place, u64),
        (limit, most): (u64, u64),
    ) -> Carried {
        let at = place.at.max(side.acked.cast_signed()).cast_unsigned();
        let sent = self.sent_data();
        let is_again = !place.is_empty() && at < before;
        let (from, until) = match is_again {
            true => {
                let end = place.end.max(0).cast_unsigned().min(self.decided);
                let from = self.map.output_floor(lists, at.min(self.decided)).max(self.acked).min(sent);
                let until = self.map.output_ceil(lists, end).max(from);
                // A retransmission of the last output also carries the output after it.
                (from, if until >= sent { self.out_next } else { until })
            }
            false => (sent, self.out_next),
        };
        let to = until.min(limit).min(from + most).max(from);
        if is_again {
            self.again.add(to, until.min(sent));
        }
        self.sent = self.sent.max(to);
        Carried { from, to, is_again }
    }

    /// Whether a segment with output up to `to` carries the FIN, which then counts as sent. A segment without
    /// bytes repeats a FIN only if its sender repeats it, and never one that the receiver has.
    fn let_fin_go(&mut self, segment: &Segment, to: u64, len: u64) -> bool {
        let is_due = !self.has_sent_fin() || len > 0 || segment.has(flag::FIN);
        let is_new = self.acked <= self.out_next && to == self.out_next && self.sent_data() == to;
        let goes = self.has_ended && is_due && is_new;
        if goes {
            self.sent = self.out_next + 1;
        }
        goes
    }
}

impl TcpTake<'_> {
    /// Selects what the current packet carries. Packets are generated for the rest.
    pub(crate) fn let_go(
        &mut self,
        segment: &Segment,
        place: Place,
        (before, production): (u64, Production),
    ) -> EditedSegment {
        let is_open = self.theirs.has_begun;
        let Some(EditTake { lists, ours: edit, theirs, .. }) = &mut self.edit else {
            return EditedSegment::default();
        };
        let acked = edit.told_acked(self.ours).cast_signed();
        let edited = EditedSegment { seq: self.ours.seq(edit.sent), ..EditedSegment::default() };
        if production == Production::Same {
            edit.sent = edit.out_next;
            let len = u64::from(segment.payload);
            return EditedSegment { has_fin: edit.let_fin_go(segment, edit.out_next, len), ..edited };
        }
        // A SYN carries the first output or none. It carries none if its sender puts no data into it.
        let is_syn = segment.has(flag::SYN);
        if is_syn && (place.is_empty() || edit.acked > 0) {
            let payload = EditedPayload::Kept { offset: edit.acked, len: 0 };
            return EditedSegment { payload, has_fin: edit.let_fin_go(segment, 0, 0), ..edited };
        }
        // Before the receiver's SYN, its window is unknown.
        let limit = if is_open { edit.limit() } else { edit.out_next };
        let most = edit.noted.most_payload_of(segment, theirs.noted.mss);
        let Carried { from, to, is_again } = edit.carry(self.ours, lists, (place, before), (limit, most));
        let len = to - from;
        let has_fin = edit.let_fin_go(segment, to, len);
        // Bytes that the receiver has, that are undecided or that find no room bring no output. The packet
        // then only makes the receiver send its acknowledgment and window.
        let brought = !place.is_empty() || segment.has(flag::FIN);
        let is_shut = brought && place.at <= before.cast_signed() && edit.sent_data() < edit.out_next;
        let is_known = place.at < acked && place.end <= acked;
        let is_probe = len == 0 && !has_fin && (is_known || is_again || is_shut);
        let number = match (len, has_fin) {
            (0, true) => edit.out_next,
            (0, false) if is_probe => edit.acked.wrapping_sub(1),
            (0, false) => edit.sent,
            _ => from,
        };
        EditedSegment {
            seq: self.ours.seq(number),
            payload: EditedPayload::Kept { offset: from, len: len as usize },
            has_fin,
            is_probe,
            ..edited
        }
    }

    /// The outcome for a segment of a stream with edits: its numbers, and whether it is forwarded at all.
    /// `told` is the highest acknowledgment number that its sender had sent before.
    pub(crate) fn finish_edited(
        &mut self,
        (segment, mapped): (&Segment, &Segment),
        mut outcome: Outcome,
        edited: Option<EditedSegment>,
        told: Option<u32>,
    ) -> Outcome {
        let is_edited = edited.is_some();
        let edited = EditedSegment { ack: mapped.ack, ..edited.unwrap_or(EditedSegment::same(segment)) };
        let Some(EditTake { ours, .. }) = &mut self.edit else { return outcome };
        let has_payload = match edited.payload {
            EditedPayload::Same => segment.payload > 0,
            EditedPayload::Kept { len, .. } => len > 0,
        };
        let carries = has_payload || edited.has_fin || edited.is_probe || segment.has(flag::SYN);
        let is_news = self.ours.told() != told
            || outcome.window.unwrap_or(segment.window) != ours.noted.window
            || segment.has_sack;
        // A segment without output is forwarded if its acknowledgment or window is new, or if it is a
        // duplicate acknowledgment. It is absorbed if the stream has taken its bytes, or if it acknowledges
        // more output but no more input.
        let brought = segment.payload > 0 || segment.has(flag::FIN);
        let is_empty = !carries && !is_news && (brought && is_edited || self.is_partial);
        if is_empty && !segment.has(flag::RST) {
            ours.is_marked |= segment.is_marked;
            outcome.verdict = StreamVerdict::Absorb;
            return outcome;
        }
        outcome.edited = Some(edited);
        outcome
    }
}
