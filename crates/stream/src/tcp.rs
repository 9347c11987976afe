//! Takes one segment of a TCP connection.
//!
//! The checks have the order of RFC 9293 section 3.10.7.4 and RFC 7323 section 5.3, as far as they apply to a
//! middlebox. A segment that no receiver would accept must not become the first copy of its bytes.

use crate::edit::context::{EditContext, PlainContext};
use crate::limits::{AckSpace, StreamLimits, Urgent};
use crate::rope::ChunkPool;
use crate::segment::{EditedSegment, Outcome, Segment, StreamDrop, StreamVerdict, flag};
use crate::side::{Level, NotTaken, OutOfOrderTable, Reader, Side};

/// The largest window scale (RFC 7323 section 2.3).
const MAX_SCALE: u8 = 14;

/// The largest window (RFC 7323 section 2.3).
pub(crate) const MAX_WINDOW: u64 = 1 << 30;
/// Acknowledgments up to this many bytes before the last one are not too old, however small the window is.
const MIN_WINDOW: u64 = 1 << 16;

/// The state for taking a segment. The sender's direction is `ours`, the receiver's is `theirs`.
pub(crate) struct TcpContext<'t> {
    pub(crate) limits: &'t StreamLimits,
    pub(crate) pool: &'t mut ChunkPool,
    pub(crate) out_of_order: &'t mut OutOfOrderTable,
    pub(crate) ours: &'t mut Side,
    pub(crate) theirs: &'t mut Side,
    /// The edit state of a stream with edits that is not plain.
    pub(crate) edit: Option<EditContext<'t>>,
    /// Converts a plain stream to an edited one.
    pub(crate) plain: Option<PlainContext<'t>>,
    /// Little payload memory is left.
    pub(crate) is_short: bool,
    pub(crate) now_ms: u64,
    /// The output offset that the segment acknowledges, if the other direction is edited.
    pub(crate) acked_output: Option<i64>,
    /// The segment acknowledges more output than before, but no more input.
    pub(crate) is_partial: bool,
}

/// The offsets of a segment's bytes.
#[derive(Clone, Copy)]
pub(crate) struct ByteRange {
    pub(crate) start: i64,
    pub(crate) end: i64,
}

impl ByteRange {
    pub(crate) fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether this is the byte of a window probe (RFC 9293 section 3.8.6.1), which may lie beyond the window
    /// edge.
    fn is_probe(self, window_edge: i64) -> bool {
        self.end - self.start == 1 && self.start <= window_edge
    }
}

impl TcpContext<'_> {
    /// Takes a segment; see [`StreamTable::take`](crate::StreamTable::take).
    pub(crate) fn take(&mut self, segment: &Segment, payload: &mut [u8], reader: &mut Reader<'_>) -> Outcome {
        if segment.is_corrupt {
            return self.refuse(StreamDrop::BadChecksum);
        }
        let mut edited = None;
        if self.edit.is_none() && self.plain.is_none() {
            return self.take_sound(segment, payload, reader, &mut edited);
        }
        let mapped = self.ack_to_input(segment);
        let previous_ack = self.ours.last_ack_sent();
        let mut outcome = self.take_sound(&mapped, payload, reader, &mut edited);
        if outcome.verdict == StreamVerdict::Pass && self.edit.is_some() {
            outcome = self.finish_edited((segment, &mapped), outcome, edited, previous_ack);
        }
        match outcome.verdict {
            StreamVerdict::Pass | StreamVerdict::Absorb => self.record_header_values(&mapped, outcome.window),
            // The acknowledgment of the dropped segment was taken. Packets that are generated from now on
            // carry that acknowledgment, so they need its window too.
            StreamVerdict::Drop(StreamDrop::NoRoom) => {
                let window = self.clamp_window(&mapped);
                self.record_header_values(&mapped, window);
            }
            StreamVerdict::Drop(_) => {}
        }
        outcome
    }

    /// Takes a segment whose checksum is right. `segment.ack` is in input sequence space. For an edited
    /// direction, `edited` receives the segment to send.
    fn take_sound(
        &mut self,
        segment: &Segment,
        payload: &mut [u8],
        reader: &mut Reader<'_>,
        edited: &mut Option<EditedSegment>,
    ) -> Outcome {
        if segment.has(flag::RST) {
            *edited = self.reset_edited(segment);
            return Outcome::PASS;
        }
        if segment.has(flag::SYN) {
            return self.take_syn(segment, payload, reader, edited);
        }
        if !segment.has(flag::ACK) {
            return self.refuse(StreamDrop::OutOfWindow);
        }
        if !self.ours.has_begun {
            // If either direction is guarded, tracking starts only at a SYN. Otherwise a host that still uses
            // the previous connection could answer for the new one. A bare acknowledgment passes: the host
            // may answer the SYN with a number of the previous connection, and the other end answers that
            // with a RST (RFC 9293 section 3.5.1).
            if self.ours.is_guarded() || self.theirs.is_guarded() {
                let has_content = !payload.is_empty() || segment.has(flag::FIN | flag::URG);
                return if has_content { Outcome::drop(StreamDrop::OutOfWindow) } else { Outcome::PASS };
            }
            self.ours.begin(segment.seq);
        }
        let start = self.ours.offset(segment.seq);
        let range = ByteRange { start, end: start + payload.len() as i64 };
        let is_old = self.ours.is_old(segment.timestamps, self.now_ms);
        // An old duplicate carries no new data, but the receiver's D-SACK (RFC 2883) reports the reordering
        // to the sender.
        let is_duplicate =
            self.ours.is_guarded() && !range.is_empty() && range.end <= self.ours.rcv_nxt.cast_signed();
        if is_old && !is_duplicate || !self.acknowledges_what_was_sent(segment) {
            return self.refuse(StreamDrop::OutOfWindow);
        }
        if !self.is_in_window(segment, range) {
            return self.refuse(StreamDrop::OutOfWindow);
        }
        if self.is_urgent(segment, Urgent::Drop) {
            return Outcome::drop(StreamDrop::Urgent);
        }
        let mut outcome = Outcome { clear_urgent: self.is_urgent(segment, Urgent::Clear), ..Outcome::PASS };
        // A segment updates the timestamp only if it begins at or before the last acknowledgment and does not
        // lie before the window (RFC 7323 section 4.3). Segments after the last acknowledgment may arrive in
        // another order.
        let is_new = range.end + i64::from(range.is_empty()) > self.ours.rcv_nxt.cast_signed();
        let acked = self.edit.as_ref().map_or(self.ours.snd_una, |edit| edit.ours.acked_to_sender(self.ours));
        let updates_timestamp = is_new && range.start <= acked.cast_signed();
        if updates_timestamp && !is_old {
            self.ours.record_timestamp(segment.timestamps, self.now_ms);
        }
        if !is_old && self.take_acknowledgment(segment, reader).is_err() {
            return Outcome::drop(StreamDrop::Stopped);
        }
        outcome.window = self.clamp_window(segment);
        let changed = match self.ours.level {
            Level::Edit if self.plain.is_some() => {
                self.take_plain(segment, range, payload, reader).map(|taken| {
                    *edited = taken;
                    false
                })
            }
            Level::Edit => self.take_edited(segment, range, payload, reader).map(|taken| {
                *edited = Some(taken);
                false
            }),
            Level::None | Level::Watch | Level::Guard => self.take_payload(range, payload, reader),
        };
        match changed {
            Ok(is_changed) => outcome.is_changed = is_changed,
            Err(why) => return Outcome::drop(why),
        }
        self.record_forwarded(segment, range);
        outcome
    }

    /// Drops a segment that no receiver accepts, if either direction is guarded. Otherwise the segment
    /// passes, and changes no state.
    fn refuse(&self, reason: StreamDrop) -> Outcome {
        let is_guarded = self.ours.is_guarded() || self.theirs.is_guarded();
        if is_guarded { Outcome::drop(reason) } else { Outcome::PASS }
    }

    /// Takes a SYN, perhaps with data (RFC 7413). A guard takes the data at once: if the responder refuses
    /// the data, the initiator retransmits the same bytes. A watcher waits for what the SYN-ACK acknowledges.
    fn take_syn(
        &mut self,
        segment: &Segment,
        payload: &mut [u8],
        reader: &mut Reader<'_>,
        edited: &mut Option<EditedSegment>,
    ) -> Outcome {
        if self.is_urgent(segment, Urgent::Drop) {
            return Outcome::drop(StreamDrop::Urgent);
        }
        let base = segment.seq.wrapping_add(1);
        if self.ours.refuses(base) {
            return Outcome::drop(StreamDrop::OutOfWindow);
        }
        let is_other = self.ours.has_begun && self.ours.offset(base) != 0;
        if is_other {
            // The initial sequence number differs: the connection restarts, or an attacker guesses. An end
            // that has a connection answers a SYN with its acknowledgment and takes nothing of the SYN (RFC
            // 5961 section 4). The answer informs an end that has lost the connection, so a SYN without data
            // passes. An end that has not answered yet may accept this SYN. If bytes of another SYN were
            // already scanned, that end would never get those bytes, so this SYN is refused.
            if self.ours.rcv_nxt > 0 || self.theirs.has_begun {
                let is_harmless = self.theirs.has_begun && payload.is_empty() && !segment.has(flag::ACK);
                return if is_harmless { Outcome::PASS } else { self.refuse(StreamDrop::OutOfWindow) };
            }
            self.clear_out_of_order();
            self.ours.restart(self.pool, base);
            self.restart_edit();
        }
        let range = ByteRange { start: 0, end: payload.len() as i64 };
        // With data, the SYN-ACK would not show which of the SYNs it answers.
        let is_unclear = self.ours.has_renumbered && !payload.is_empty();
        if self.ours.is_guarded() && (is_unclear || !self.agrees_with_fin(segment, range)) {
            return Outcome::drop(StreamDrop::OutOfWindow);
        }
        let is_first = !self.ours.has_begun;
        if segment.has(flag::ACK) && !self.answers_syn(segment) {
            if is_first && payload.is_empty() && !segment.has(flag::FIN) && !self.theirs.has_renumbered {
                // The initiator answers such a SYN-ACK with a RST (RFC 9293 section 3.10.7.3) and keeps its
                // state. Filters against SYN floods use this to verify the source address.
                return Outcome::PASS;
            }
            if !is_first || self.ours.is_guarded() || self.theirs.is_guarded() {
                return self.refuse(StreamDrop::OutOfWindow);
            }
            // The responder answers a different SYN than the one that the watcher saw.
            clear_out_of_order(self.pool, self.out_of_order, self.theirs);
            self.theirs.restart(self.pool, segment.ack);
        }
        if is_first || is_other {
            self.ours.begin(base);
            self.ours.has_syn = true;
            self.ours.scale = segment.scale.map(|scale| scale.min(MAX_SCALE));
            self.ours.record_timestamp(segment.timestamps, self.now_ms);
        }
        let is_guarded = self.ours.is_guarded() || self.theirs.is_guarded();
        let mut outcome = Outcome {
            blank_multipath: segment.is_multipath && is_guarded,
            clear_urgent: self.is_urgent(segment, Urgent::Clear),
            ..Outcome::PASS
        };
        if segment.has(flag::ACK) {
            if self.take_acknowledgment(segment, reader).is_err() {
                return Outcome::drop(StreamDrop::Stopped);
            }
            // Data of the SYN that the SYN-ACK does not acknowledge were not accepted.
            if is_first && !self.theirs.is_guarded() {
                clear_out_of_order(self.pool, self.out_of_order, self.theirs);
            }
        }
        outcome.window = self.clamp_window(segment);
        let taken = match self.ours.level {
            // After the handshake, data of a SYN are not taken.
            Level::Watch if is_first || is_other || !self.theirs.has_begun => {
                self.add_out_of_order(range, payload);
                Ok(false)
            }
            Level::Watch => Ok(false),
            Level::None | Level::Guard => self.take_payload(range, payload, reader),
            Level::Edit => self.take_edited(segment, range, payload, reader).map(|taken| {
                *edited = Some(EditedSegment { seq: segment.seq, ..taken });
                false
            }),
        };
        match taken {
            Ok(is_changed) => outcome.is_changed = is_changed,
            Err(why) => return Outcome::drop(why),
        }
        self.record_forwarded(segment, range);
        outcome
    }

    /// Whether a segment of a guarded direction has urgent data, and `setting` is the configured treatment.
    fn is_urgent(&self, segment: &Segment, setting: Urgent) -> bool {
        segment.has(flag::URG) && self.ours.is_guarded() && self.limits.urgent == setting
    }

    /// Whether a SYN-ACK answers the SYN that was seen last. If not, the ends count the bytes from another
    /// number.
    fn answers_syn(&self, segment: &Segment) -> bool {
        let answered = self.theirs.offset(segment.ack);
        let max = self.theirs.end().max(self.theirs.snd_nxt).cast_signed();
        !self.theirs.has_begun || (0..=max).contains(&answered) && self.acknowledges_what_was_sent(segment)
    }

    /// Whether a segment acknowledges only what was sent, and is not too old (RFC 5961 section 5.2). A guard
    /// knows all bytes that its receiver can have.
    fn acknowledges_what_was_sent(&self, segment: &Segment) -> bool {
        let theirs = &*self.theirs;
        if !theirs.has_begun {
            // If `ours` is guarded, its sender continues only after its SYN was answered.
            return !self.ours.is_guarded() || segment.has(flag::SYN);
        }
        let acked = theirs.offset(segment.ack);
        let (max, window) = match theirs.level {
            Level::None => return true,
            Level::Watch => (theirs.snd_nxt, MAX_WINDOW),
            Level::Edit if self.edit.is_some() => {
                return self.acknowledges_output(self.limits.window.max(MIN_WINDOW)).unwrap_or(true);
            }
            // The receiver acknowledges the original bytes, some of which may not have been seen.
            Level::Edit if self.plain.as_ref().is_some_and(|plain| plain.ack_space == AckSpace::Original) => {
                return true;
            }
            Level::Guard | Level::Edit => (theirs.end(), self.limits.window.max(MIN_WINDOW)),
        };
        acked <= max.cast_signed() && acked >= theirs.snd_una.cast_signed() - window.cast_signed()
    }

    /// Whether a receiver may accept the bytes and the FIN of a segment. A watcher checks only the offsets of
    /// the bytes, and only if the windows are known.
    fn is_in_window(&self, segment: &Segment, range: ByteRange) -> bool {
        match self.ours.level {
            Level::None => true,
            Level::Watch if self.ours.has_syn && self.theirs.has_syn => {
                let edge = self.ours.window_edge.cast_signed();
                range.end <= edge || range.start < edge || range.is_probe(edge) || range.is_empty()
            }
            Level::Watch => true,
            Level::Guard | Level::Edit => self.is_in_guarded_window(segment, range),
        }
    }

    fn is_in_guarded_window(&self, segment: &Segment, range: ByteRange) -> bool {
        let Side { window_edge, snd_nxt, .. } = *self.ours;
        // Before the first byte, only the byte of a keep-alive is valid, with the sequence number of the SYN
        // (RFC 9293 section 3.8.4).
        if range.start < -1 || (range.start == -1 && range.end > 0) {
            return false;
        }
        // An acknowledgment may follow a FIN at the window edge, and that FIN may be lost.
        let max = if range.is_empty() { window_edge.max(snd_nxt) + 1 } else { window_edge };
        if range.end > max.cast_signed() && !range.is_probe(window_edge.cast_signed()) {
            return false;
        }
        self.agrees_with_fin(segment, range)
    }

    /// Whether a segment agrees with the end of the direction. Its bytes must lie before the FIN. Its own FIN
    /// must have the offset of the known FIN, or follow all bytes if none is known.
    fn agrees_with_fin(&self, segment: &Segment, range: ByteRange) -> bool {
        let Side { rcv_nxt, snd_nxt, .. } = *self.ours;
        let has_fin = segment.has(flag::FIN);
        match self.ours.fin() {
            Some(_) if (range.is_empty() && !has_fin) || self.is_keep_alive_after_fin(range) => true,
            Some(fin) => range.end <= fin.cast_signed() && (!has_fin || range.end == fin.cast_signed()),
            None => !has_fin || (range.end >= rcv_nxt.cast_signed() && range.end >= snd_nxt.cast_signed()),
        }
    }

    /// Whether this is a keep-alive whose byte has the offset of a FIN that the receiver has acknowledged.
    pub(crate) fn is_keep_alive_after_fin(&self, range: ByteRange) -> bool {
        let ours = &*self.ours;
        ours.fin().is_some_and(|fin| {
            ours.snd_una > fin && range.start == fin.cast_signed() && range.end == range.start + 1
        })
    }

    /// Takes the acknowledgment number of a segment, and frees the acknowledged bytes. A watcher scans the
    /// bytes that were acknowledged, and skips those that were not seen.
    fn take_acknowledgment(&mut self, segment: &Segment, reader: &mut Reader<'_>) -> Result<(), NotTaken> {
        self.ours.record_ack_sent(segment.ack);
        if self.theirs.level == Level::Edit && self.edit.is_some() {
            self.take_output_acknowledgment();
            return Ok(());
        }
        let theirs = &mut *self.theirs;
        if !theirs.has_begun {
            return Ok(());
        }
        let acked = theirs.offset(segment.ack).max(0).cast_unsigned();
        if theirs.level == Level::Watch {
            // If the receiver acknowledges bytes after a FIN, it has not accepted that FIN.
            theirs.set_fin(theirs.fin().filter(|fin| acked <= fin + 1));
            let end = acked.min(theirs.fin().unwrap_or(u64::MAX));
            if end > theirs.rcv_nxt {
                let out_of_order =
                    theirs.out_of_order.map(|out_of_order| &mut self.out_of_order[out_of_order]);
                let caught_up =
                    theirs.catch_up(self.pool, out_of_order, end, !segment.has(flag::SYN), reader);
                free_out_of_order(self.out_of_order, theirs);
                caught_up?;
            }
        }
        theirs.acknowledge(self.pool, acked.min(theirs.end()));
        Ok(())
    }

    /// Clamps the window that the receiver advertises to the bytes that mmb buffers. Returns the new window
    /// field if it changes.
    fn clamp_window(&mut self, segment: &Segment) -> Option<u16> {
        let scale = match (self.ours.scale, self.theirs.scale) {
            (Some(scale), Some(_)) if !segment.has(flag::SYN) => scale,
            _ => 0,
        };
        let edited_edge = self.take_window(segment, scale);
        let theirs = &mut *self.theirs;
        let acked = match segment.has(flag::ACK) && theirs.has_begun {
            true => theirs.offset(segment.ack).max(0).cast_unsigned(),
            false => 0,
        };
        let max = theirs.max_window_edge(if self.is_short { 0 } else { self.limits.window });
        if let Some(room) = edited_edge {
            // Rounded down, as by every end that scales its windows (RFC 7323 section 2.4).
            theirs.window_edge = theirs.window_edge.max(room.min(max));
            return Some((theirs.window_edge.saturating_sub(acked) >> scale).min(u64::from(u16::MAX)) as u16);
        }
        let offered = acked + (u64::from(segment.window) << scale);
        let advertised_edge = theirs.window_edge;
        if !theirs.is_guarded() || offered <= max {
            theirs.window_edge = advertised_edge.max(offered);
            return None;
        }
        // The advertised edge is rounded up, so that it does not move left. Under guard, that is not more
        // than the receiver has offered. An acknowledgment that others have overtaken is rounded down: the
        // sender ignores its window (RFC 9293 section 3.10.7.4). If it were rounded up too, each one could
        // move the edge to the right.
        let advertised_window = advertised_edge.saturating_sub(acked);
        let min_window = match acked < theirs.snd_una {
            true => advertised_window >> scale,
            false => advertised_window.div_ceil(1 << scale),
        };
        let window =
            (max.min(offered).saturating_sub(acked) >> scale).max(min_window).min(u64::from(u16::MAX));
        theirs.window_edge = advertised_edge.max(acked + (window << scale));
        Some(window as u16)
    }

    /// Takes the payload of a direction that is not edited. Returns whether the payload was changed.
    fn take_payload(
        &mut self,
        ByteRange { start, end }: ByteRange,
        payload: &mut [u8],
        reader: &mut Reader<'_>,
    ) -> Result<bool, StreamDrop> {
        if payload.is_empty() || self.is_keep_alive_after_fin(ByteRange { start, end }) {
            return Ok(false);
        }
        if self.ours.level == Level::None {
            self.ours.rcv_nxt = self.ours.rcv_nxt.max(end.max(0).cast_unsigned());
            return Ok(false);
        }
        let next = self.ours.rcv_nxt.cast_signed();
        let is_out_of_order = start > next;
        if start < next {
            self.ours.counts.retransmitted += (end.min(next) - start).cast_unsigned();
        }
        self.ours.counts.out_of_order += u32::from(is_out_of_order);
        let is_changed = self.ours.is_guarded() && (start < next || self.ours.out_of_order.is_some()) && {
            let out_of_order = self.ours.out_of_order.map(|out_of_order| &self.out_of_order[out_of_order]);
            self.ours.overwrite(self.pool, out_of_order, start, payload)
        };
        if is_out_of_order {
            let has_room = self.add_out_of_order(ByteRange { start, end }, payload);
            return if has_room || !self.ours.is_guarded() {
                Ok(is_changed)
            } else {
                Err(StreamDrop::NoRoom)
            };
        }
        if end <= next {
            return Ok(is_changed);
        }
        let out_of_order = self.ours.out_of_order.map(|out_of_order| &mut self.out_of_order[out_of_order]);
        let taken = self.ours.take(self.pool, out_of_order, (start, payload), reader);
        free_out_of_order(self.out_of_order, self.ours);
        match taken {
            Ok(()) => Ok(is_changed),
            Err(NotTaken::NoRoom) => Err(StreamDrop::NoRoom),
            Err(NotTaken::Stopped) => Err(StreamDrop::Stopped),
        }
    }

    /// Buffers bytes after a hole. Returns whether all of them found room.
    pub(crate) fn add_out_of_order(&mut self, ByteRange { start, .. }: ByteRange, payload: &[u8]) -> bool {
        if payload.is_empty() {
            return true;
        }
        // The last eighth of the memory is reserved for bytes that fill holes. Otherwise out-of-order bytes
        // could fill all memory, and none of them could ever become in order.
        if self.is_short {
            return false;
        }
        let out_of_order = match self.ours.out_of_order {
            Some(out_of_order) => out_of_order,
            None => {
                if self.out_of_order.try_reserve().is_err() {
                    return false;
                }
                let out_of_order = self.out_of_order.insert_reusing(|before| before);
                self.ours.out_of_order = Some(out_of_order);
                out_of_order
            }
        };
        let start = start.max(0).cast_unsigned();
        let has_room = self.out_of_order[out_of_order].add(self.pool, start, payload, self.limits.reorder);
        free_out_of_order(self.out_of_order, self.ours);
        has_room
    }

    pub(crate) fn clear_out_of_order(&mut self) {
        clear_out_of_order(self.pool, self.out_of_order, self.ours);
    }

    /// Records that a segment is forwarded.
    fn record_forwarded(&mut self, segment: &Segment, ByteRange { start, end }: ByteRange) {
        let ours = &mut *self.ours;
        let end = end.max(0).cast_unsigned();
        let has_fin = segment.has(flag::FIN);
        if has_fin && ours.fin().is_none() {
            ours.set_fin(Some(end));
        }
        // A segment without bytes does not count: its number may lie after a FIN that was lost.
        if segment.has(flag::SYN) || has_fin || start < end.cast_signed() {
            ours.snd_nxt = ours.snd_nxt.max(end + u64::from(has_fin));
        }
        if start <= ours.forwarded.max(ours.snd_una).cast_signed() {
            ours.forwarded = ours.rcv_nxt;
        }
    }
}

/// Frees the record of out-of-order bytes if it is empty.
pub(crate) fn free_out_of_order(table: &mut OutOfOrderTable, side: &mut Side) {
    if let Some(out_of_order) = side.out_of_order.filter(|out_of_order| table[*out_of_order].is_empty()) {
        table.free(out_of_order);
        side.out_of_order = None;
    }
}

/// Discards the out-of-order bytes of a direction.
fn clear_out_of_order(pool: &mut ChunkPool, table: &mut OutOfOrderTable, side: &mut Side) {
    if let Some(out_of_order) = side.out_of_order {
        table[out_of_order].clear(pool);
        free_out_of_order(table, side);
    }
}
