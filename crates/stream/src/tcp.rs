//! Takes one segment of a TCP connection.
//!
//! The checks have the order of RFC 9293 section 3.10.7.4 and RFC 7323 section 5.3, as far as they apply to a
//! middlebox. A segment that no receiver would accept must not become the first copy of its bytes.

use crate::edit::pair::{EditTake, PlainTake};
use crate::limits::{AckSpace, StreamLimits, Urgent};
use crate::rope::ChunkPool;
use crate::segment::{EditedSegment, Outcome, Segment, StreamDrop, StreamVerdict, flag};
use crate::side::{EarlyTable, Level, NotTaken, Scan, Side};

/// The largest window scale (RFC 7323 section 2.3).
const MOST_SCALE: u8 = 14;

/// The largest window (RFC 7323 section 2.3).
pub(crate) const MOST_WINDOW: u64 = 1 << 30;
/// Acknowledgments up to this many bytes before the last one are not too old, however small the window is.
const LEAST_WINDOW: u64 = 1 << 16;

/// The state for taking a segment. The sender's direction is `ours`, the receiver's is `theirs`.
pub(crate) struct TcpTake<'t> {
    pub(crate) limits: &'t StreamLimits,
    pub(crate) pool: &'t mut ChunkPool,
    pub(crate) early: &'t mut EarlyTable,
    pub(crate) ours: &'t mut Side,
    pub(crate) theirs: &'t mut Side,
    /// The edit state of a stream with edits that is not plain.
    pub(crate) edit: Option<EditTake<'t>>,
    /// Converts a plain stream to an edited one.
    pub(crate) plain: Option<PlainTake<'t>>,
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
pub(crate) struct Place {
    pub(crate) at: i64,
    pub(crate) end: i64,
}

impl Place {
    pub(crate) fn is_empty(self) -> bool {
        self.at == self.end
    }

    /// Whether this is the byte of a window probe (RFC 9293 section 3.8.6.1), which may lie beyond the window
    /// edge.
    fn is_probe(self, edge: i64) -> bool {
        self.end - self.at == 1 && self.at <= edge
    }
}

impl TcpTake<'_> {
    /// Takes a segment; see [`StreamTable::take`](crate::StreamTable::take).
    pub(crate) fn take(&mut self, segment: &Segment, payload: &mut [u8], scan: &mut Scan<'_>) -> Outcome {
        if segment.is_corrupt {
            return self.refuse(StreamDrop::BadChecksum);
        }
        let mut edited = None;
        if self.edit.is_none() && self.plain.is_none() {
            return self.take_sound(segment, payload, scan, &mut edited);
        }
        let mapped = self.in_input(segment);
        let told = self.ours.told();
        let mut outcome = self.take_sound(&mapped, payload, scan, &mut edited);
        if outcome.verdict == StreamVerdict::Pass && self.edit.is_some() {
            outcome = self.finish_edited((segment, &mapped), outcome, edited, told);
        }
        match outcome.verdict {
            StreamVerdict::Pass | StreamVerdict::Absorb => self.note_segment(&mapped, outcome.window),
            // The acknowledgment of the dropped segment was taken. Packets that are generated from now on
            // carry that acknowledgment, so they need its window too.
            StreamVerdict::Drop(StreamDrop::NoRoom) => {
                let window = self.clamp_window(&mapped);
                self.note_segment(&mapped, window);
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
        scan: &mut Scan<'_>,
        edited: &mut Option<EditedSegment>,
    ) -> Outcome {
        if segment.has(flag::RST) {
            *edited = self.reset_edited(segment);
            return Outcome::PASS;
        }
        if segment.has(flag::SYN) {
            return self.take_syn(segment, payload, scan, edited);
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
                let brings = !payload.is_empty() || segment.has(flag::FIN | flag::URG);
                return if brings { Outcome::drop(StreamDrop::OutOfWindow) } else { Outcome::PASS };
            }
            self.ours.begin(segment.seq);
        }
        let at = self.ours.offset(segment.seq);
        let place = Place { at, end: at + payload.len() as i64 };
        let is_old = self.ours.is_old(segment.timestamps, self.now_ms);
        // An old duplicate carries no new data, but the receiver's D-SACK (RFC 2883) reports the reordering
        // to the sender.
        let is_duplicate =
            self.ours.is_guarded() && !place.is_empty() && place.end <= self.ours.next.cast_signed();
        if is_old && !is_duplicate || !self.acknowledges_what_was_sent(segment) {
            return self.refuse(StreamDrop::OutOfWindow);
        }
        if !self.is_in_window(segment, place) {
            return self.refuse(StreamDrop::OutOfWindow);
        }
        if self.is_urgent(segment, Urgent::Drop) {
            return Outcome::drop(StreamDrop::Urgent);
        }
        let mut outcome = Outcome { clear_urgent: self.is_urgent(segment, Urgent::Clear), ..Outcome::PASS };
        // A segment updates the timestamp only if it begins at or before the last acknowledgment and does not
        // lie before the window (RFC 7323 section 4.3). Segments after the last acknowledgment may arrive in
        // another order.
        let is_new = place.end + i64::from(place.is_empty()) > self.ours.next.cast_signed();
        let acked = self.edit.as_ref().map_or(self.ours.acked, |edit| edit.ours.told_acked(self.ours));
        let is_due = is_new && place.at <= acked.cast_signed();
        if is_due && !is_old {
            self.ours.note_timestamp(segment.timestamps, self.now_ms);
        }
        if !is_old && self.take_acknowledgment(segment, scan).is_err() {
            return Outcome::drop(StreamDrop::Stopped);
        }
        outcome.window = self.clamp_window(segment);
        let changed = match self.ours.level {
            Level::Edit if self.plain.is_some() => {
                self.take_plain(segment, place, payload, scan).map(|taken| {
                    *edited = taken;
                    false
                })
            }
            Level::Edit => self.take_edited(segment, place, payload, scan).map(|taken| {
                *edited = Some(taken);
                false
            }),
            Level::None | Level::Watch | Level::Guard => self.take_payload(place, payload, scan),
        };
        match changed {
            Ok(is_changed) => outcome.is_changed = is_changed,
            Err(why) => return Outcome::drop(why),
        }
        self.pass(segment, place);
        outcome
    }

    /// Drops a segment that no receiver accepts, if either direction is guarded. Otherwise the segment
    /// passes, and nothing of it is taken.
    fn refuse(&self, why: StreamDrop) -> Outcome {
        let is_guarded = self.ours.is_guarded() || self.theirs.is_guarded();
        if is_guarded { Outcome::drop(why) } else { Outcome::PASS }
    }

    /// Takes a SYN, perhaps with data (RFC 7413). A guard takes the data at once: if the responder refuses
    /// the data, the initiator retransmits the same bytes. A watcher waits for what the SYN-ACK acknowledges.
    fn take_syn(
        &mut self,
        segment: &Segment,
        payload: &mut [u8],
        scan: &mut Scan<'_>,
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
            if self.ours.next > 0 || self.theirs.has_begun {
                let is_harmless = self.theirs.has_begun && payload.is_empty() && !segment.has(flag::ACK);
                return if is_harmless { Outcome::PASS } else { self.refuse(StreamDrop::OutOfWindow) };
            }
            self.clear_early();
            self.ours.begin_anew(self.pool, base);
            self.begin_edit_anew();
        }
        let place = Place { at: 0, end: payload.len() as i64 };
        // With data, the SYN-ACK would not show which of the SYNs it answers.
        let is_unclear = self.ours.has_renumbered && !payload.is_empty();
        if self.ours.is_guarded() && (is_unclear || !self.agrees_with_fin(segment, place)) {
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
            clear_early(self.pool, self.early, self.theirs);
            self.theirs.begin_anew(self.pool, segment.ack);
        }
        if is_first || is_other {
            self.ours.begin(base);
            self.ours.has_syn = true;
            self.ours.scale = segment.scale.map(|scale| scale.min(MOST_SCALE));
            self.ours.note_timestamp(segment.timestamps, self.now_ms);
        }
        let is_guarded = self.ours.is_guarded() || self.theirs.is_guarded();
        let mut outcome = Outcome {
            blank_multipath: segment.is_multipath && is_guarded,
            clear_urgent: self.is_urgent(segment, Urgent::Clear),
            ..Outcome::PASS
        };
        if segment.has(flag::ACK) {
            if self.take_acknowledgment(segment, scan).is_err() {
                return Outcome::drop(StreamDrop::Stopped);
            }
            // Data of the SYN that the SYN-ACK does not acknowledge were not accepted.
            if is_first && !self.theirs.is_guarded() {
                clear_early(self.pool, self.early, self.theirs);
            }
        }
        outcome.window = self.clamp_window(segment);
        let taken = match self.ours.level {
            // After the handshake, data of a SYN are not taken.
            Level::Watch if is_first || is_other || !self.theirs.has_begun => {
                self.add_early(place, payload);
                Ok(false)
            }
            Level::Watch => Ok(false),
            Level::None | Level::Guard => self.take_payload(place, payload, scan),
            Level::Edit => self.take_edited(segment, place, payload, scan).map(|taken| {
                *edited = Some(EditedSegment { seq: segment.seq, ..taken });
                false
            }),
        };
        match taken {
            Ok(is_changed) => outcome.is_changed = is_changed,
            Err(why) => return Outcome::drop(why),
        }
        self.pass(segment, place);
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
        let most = self.theirs.end().max(self.theirs.sent).cast_signed();
        !self.theirs.has_begun || (0..=most).contains(&answered) && self.acknowledges_what_was_sent(segment)
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
        let (most, window) = match theirs.level {
            Level::None => return true,
            Level::Watch => (theirs.sent, MOST_WINDOW),
            Level::Edit if self.edit.is_some() => {
                return self.acknowledges_output(self.limits.window.max(LEAST_WINDOW)).unwrap_or(true);
            }
            // The receiver acknowledges the original bytes, some of which may not have been seen.
            Level::Edit if self.plain.as_ref().is_some_and(|plain| plain.acks == AckSpace::Original) => {
                return true;
            }
            Level::Guard | Level::Edit => (theirs.end(), self.limits.window.max(LEAST_WINDOW)),
        };
        acked <= most.cast_signed() && acked >= theirs.acked.cast_signed() - window.cast_signed()
    }

    /// Whether a receiver may accept the bytes and the FIN of a segment. A watcher checks only the offsets of
    /// the bytes, and only if the windows are known.
    fn is_in_window(&self, segment: &Segment, place: Place) -> bool {
        match self.ours.level {
            Level::None => true,
            Level::Watch if self.ours.has_syn && self.theirs.has_syn => {
                let edge = self.ours.edge.cast_signed();
                place.end <= edge || place.at < edge || place.is_probe(edge) || place.is_empty()
            }
            Level::Watch => true,
            Level::Guard | Level::Edit => self.is_in_guarded_window(segment, place),
        }
    }

    fn is_in_guarded_window(&self, segment: &Segment, place: Place) -> bool {
        let Side { edge, sent, .. } = *self.ours;
        // Before the first byte, only the byte of a keep-alive is valid, with the sequence number of the SYN
        // (RFC 9293 section 3.8.4).
        if place.at < -1 || (place.at == -1 && place.end > 0) {
            return false;
        }
        // An acknowledgment may follow a FIN at the window edge, and that FIN may be lost.
        let most = if place.is_empty() { edge.max(sent) + 1 } else { edge };
        if place.end > most.cast_signed() && !place.is_probe(edge.cast_signed()) {
            return false;
        }
        self.agrees_with_fin(segment, place)
    }

    /// Whether a segment agrees with the end of the direction. Its bytes must lie before the FIN. Its own FIN
    /// must have the offset of the known FIN, or follow all bytes if none is known.
    fn agrees_with_fin(&self, segment: &Segment, place: Place) -> bool {
        let Side { next, sent, .. } = *self.ours;
        let has_fin = segment.has(flag::FIN);
        match self.ours.fin() {
            Some(_) if (place.is_empty() && !has_fin) || self.is_keep_alive_behind_fin(place) => true,
            Some(fin) => place.end <= fin.cast_signed() && (!has_fin || place.end == fin.cast_signed()),
            None => !has_fin || (place.end >= next.cast_signed() && place.end >= sent.cast_signed()),
        }
    }

    /// Whether this is a keep-alive whose byte has the offset of a FIN that the receiver has acknowledged.
    pub(crate) fn is_keep_alive_behind_fin(&self, place: Place) -> bool {
        let ours = &*self.ours;
        ours.fin()
            .is_some_and(|fin| ours.acked > fin && place.at == fin.cast_signed() && place.end == place.at + 1)
    }

    /// Takes the acknowledgment number of a segment, and frees the acknowledged bytes. A watcher scans the
    /// bytes that were acknowledged, and skips those that were not seen.
    fn take_acknowledgment(&mut self, segment: &Segment, scan: &mut Scan<'_>) -> Result<(), NotTaken> {
        self.ours.tell(segment.ack);
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
            if end > theirs.next {
                let early = theirs.early.map(|early| &mut self.early[early]);
                let caught_up = theirs.catch_up(self.pool, early, end, !segment.has(flag::SYN), scan);
                free_early(self.early, theirs);
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
        let edited_edge = self.window_edge(segment, scale);
        let theirs = &mut *self.theirs;
        let acked = match segment.has(flag::ACK) && theirs.has_begun {
            true => theirs.offset(segment.ack).max(0).cast_unsigned(),
            false => 0,
        };
        let most = theirs.widest(if self.is_short { 0 } else { self.limits.window });
        if let Some(room) = edited_edge {
            // Rounded down, as by every end that scales its windows (RFC 7323 section 2.4).
            theirs.edge = theirs.edge.max(room.min(most));
            return Some((theirs.edge.saturating_sub(acked) >> scale).min(u64::from(u16::MAX)) as u16);
        }
        let offered = acked + (u64::from(segment.window) << scale);
        let told = theirs.edge;
        if !theirs.is_guarded() || offered <= most {
            theirs.edge = told.max(offered);
            return None;
        }
        // The advertised edge is rounded up, so that it does not move left. Under guard, that is not more
        // than the receiver has offered. An acknowledgment that others have overtaken is rounded down: the
        // sender ignores its window (RFC 9293 section 3.10.7.4). If it were rounded up too, each one could
        // move the edge to the right.
        let told_by_this = told.saturating_sub(acked);
        let before = match acked < theirs.acked {
            true => told_by_this >> scale,
            false => told_by_this.div_ceil(1 << scale),
        };
        let window = (most.min(offered).saturating_sub(acked) >> scale).max(before).min(u64::from(u16::MAX));
        theirs.edge = told.max(acked + (window << scale));
        Some(window as u16)
    }

    /// Takes the payload of a direction that is not edited. Returns whether the payload was changed.
    fn take_payload(
        &mut self,
        Place { at, end }: Place,
        payload: &mut [u8],
        scan: &mut Scan<'_>,
    ) -> Result<bool, StreamDrop> {
        if payload.is_empty() || self.is_keep_alive_behind_fin(Place { at, end }) {
            return Ok(false);
        }
        if self.ours.level == Level::None {
            self.ours.next = self.ours.next.max(end.max(0).cast_unsigned());
            return Ok(false);
        }
        let next = self.ours.next.cast_signed();
        let is_early = at > next;
        if at < next {
            self.ours.counts.repeated += (end.min(next) - at).cast_unsigned();
        }
        self.ours.counts.early += u32::from(is_early);
        let is_changed = self.ours.is_guarded() && (at < next || self.ours.early.is_some()) && {
            let early = self.ours.early.map(|early| &self.early[early]);
            self.ours.overwrite(self.pool, early, at, payload)
        };
        if is_early {
            let has_room = self.add_early(Place { at, end }, payload);
            return if has_room || !self.ours.is_guarded() {
                Ok(is_changed)
            } else {
                Err(StreamDrop::NoRoom)
            };
        }
        if end <= next {
            return Ok(is_changed);
        }
        let early = self.ours.early.map(|early| &mut self.early[early]);
        let taken = self.ours.take(self.pool, early, (at, payload), scan);
        free_early(self.early, self.ours);
        match taken {
            Ok(()) => Ok(is_changed),
            Err(NotTaken::NoRoom) => Err(StreamDrop::NoRoom),
            Err(NotTaken::Stopped) => Err(StreamDrop::Stopped),
        }
    }

    /// Buffers bytes after a hole. Returns whether all of them found room.
    pub(crate) fn add_early(&mut self, Place { at, .. }: Place, payload: &[u8]) -> bool {
        if payload.is_empty() {
            return true;
        }
        // The last eighth of the memory is reserved for bytes that fill holes. Otherwise out-of-order bytes
        // could fill all memory, and none of them could ever become in order.
        if self.is_short {
            return false;
        }
        let early = match self.ours.early {
            Some(early) => early,
            None => {
                if self.early.try_reserve().is_err() {
                    return false;
                }
                let early = self.early.insert_reusing(|before| before);
                self.ours.early = Some(early);
                early
            }
        };
        let at = at.max(0).cast_unsigned();
        let has_room = self.early[early].add(self.pool, at, payload, self.limits.reorder);
        free_early(self.early, self.ours);
        has_room
    }

    pub(crate) fn clear_early(&mut self) {
        clear_early(self.pool, self.early, self.ours);
    }

    /// Records that a segment is forwarded.
    fn pass(&mut self, segment: &Segment, Place { at, end }: Place) {
        let ours = &mut *self.ours;
        let end = end.max(0).cast_unsigned();
        let has_fin = segment.has(flag::FIN);
        if has_fin && ours.fin().is_none() {
            ours.set_fin(Some(end));
        }
        // A segment without bytes does not count: its number may lie after a FIN that was lost.
        if segment.has(flag::SYN) || has_fin || at < end.cast_signed() {
            ours.sent = ours.sent.max(end + u64::from(has_fin));
        }
        if at <= ours.passed.max(ours.acked).cast_signed() {
            ours.passed = ours.next;
        }
    }
}

/// Frees the record of out-of-order bytes if it is empty.
pub(crate) fn free_early(table: &mut EarlyTable, side: &mut Side) {
    if let Some(early) = side.early.filter(|early| table[*early].is_empty()) {
        table.free(early);
        side.early = None;
    }
}

/// Discards the out-of-order bytes of a direction.
fn clear_early(pool: &mut ChunkPool, table: &mut EarlyTable, side: &mut Side) {
    if let Some(early) = side.early {
        table[early].clear(pool);
        free_early(table, side);
    }
}
