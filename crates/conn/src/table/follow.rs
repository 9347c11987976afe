//! State tracking: which packets may begin a connection, which are valid, and which state follows.

use super::ConnectionTable;
use crate::record::FlowLine;
use crate::wheel::ExpiryQueues;
use crate::{
    ConnId, ConnState, ConnTracker, Direction, Invalid, TcpSegment, TrackOutcome, TrackedHeader, flags, proto,
};
use mmb_base::VECTOR;
use mmb_packet::checksum::Soundness;
use mmb_policy::settings::Pickup;

/// The precision of the eviction lists of unreplied connections, as a shift of milliseconds: 128 ms.
/// Otherwise connections that send in one direction only, such as RTP or syslog, would move to the end of
/// their list with each packet.
pub(super) const EVICTION_TICK_SHIFT: u32 = 7;

/// After this time without a valid packet, the sequence numbers of a TCP connection may have advanced unseen.
const SILENCE_MS: u64 = 60_000;

impl ConnectionTable {
    /// The tracking state of a connection that begins with this packet.
    pub(super) fn begin(
        &self,
        proto: u8,
        header: Option<&TrackedHeader>,
    ) -> Result<(ConnTracker, ConnState), Invalid> {
        match (proto, header) {
            (_, Some(header)) => begin(header, self.pickup),
            (proto::TCP | proto::SCTP, None) if self.pickup == Pickup::Strict => Err(Invalid::NotSyn),
            (proto::SCTP, None) => Err(Invalid::BadTag),
            _ => Ok((ConnTracker::blank(), ConnState::Unreplied)),
        }
    }

    /// Why [`ConnectionTable::insert`] would refuse a packet, whatever its tuple.
    #[inline]
    pub fn cannot_begin(&self, header: &TrackedHeader) -> Option<Invalid> {
        begin(header, self.pickup).err()
    }

    /// Counts a packet of a connection and tracks its state. Invalid packets, packets that reopen a
    /// connection, and packets after its timeout are not counted and do not refresh the timeout.
    /// [`TrackOutcome::Noted`] packets are only counted.
    ///
    /// # Panics
    /// If the connection has ended: a caller that keeps ids across calls that may end connections must look
    /// them up again.
    pub fn touch(
        &mut self,
        id: ConnId,
        direction: Direction,
        now_ms: u64,
        bytes: usize,
        header: Option<&TrackedHeader>,
    ) -> TrackOutcome {
        self.touch_if_sound(id, direction, (now_ms, bytes), header, || Soundness::Right)
    }

    /// [`ConnectionTable::touch`] for the common case: a packet of a live connection that changes no state,
    /// so that its checksum is irrelevant. `segment` is `None` for protocols other than TCP. Returns false,
    /// and changes nothing, for any other packet or an invalid one.
    ///
    /// # Panics
    /// As [`ConnectionTable::touch`].
    #[inline]
    pub fn touch_if_ordinary(
        &mut self,
        id: ConnId,
        direction: Direction,
        (now_ms, bytes): (u64, usize),
        segment: Option<&TcpSegment>,
    ) -> bool {
        self.now_ms = self.now_ms.max(now_ms);
        let is_live = self.expires_ms(id, self.now_ms) > 0;
        let line = self.slab.line_mut(id);
        let is_ordinary = is_live
            && match (line.state(), segment) {
                (ConnState::Established, Some(segment)) => {
                    line.tracker.track_ordinary(direction, || *segment)
                }
                // Neither TCP nor SCTP is ever in this state.
                (ConnState::Replied, None) => true,
                // A packet changes the connection's place in its eviction list at most once per tick.
                (ConnState::Unreplied, segment) if direction == Direction::Forward => {
                    let same_tick =
                        line.last_ms >> EVICTION_TICK_SHIFT == (self.now_ms as u32) >> EVICTION_TICK_SHIFT;
                    same_tick
                        && match segment {
                            Some(segment) => line.tracker.track_ordinary(direction, || *segment),
                            None => !matches!(line.proto, proto::TCP | proto::SCTP),
                        }
                }
                _ => false,
            };
        if is_ordinary {
            line.last_ms = self.now_ms as u32;
            self.slab.cold_mut(id).add(direction, 1, bytes as u64);
        }
        is_ordinary
    }

    /// [`ConnectionTable::touch`] for a packet whose checksum may be wrong. `soundness` is called if the
    /// packet would change the connection's state. If the checksum is unknown, the packet is counted and
    /// refreshes the timeout, but the state stays.
    ///
    /// # Panics
    /// As [`ConnectionTable::touch`].
    #[inline]
    pub fn touch_if_sound(
        &mut self,
        id: ConnId,
        direction: Direction,
        (now_ms, bytes): (u64, usize),
        header: Option<&TrackedHeader>,
        soundness: impl FnOnce() -> Soundness,
    ) -> TrackOutcome {
        self.now_ms = self.now_ms.max(now_ms);
        let context = self.track_context(id, self.now_ms);
        let outcome = track(&mut self.slab.line_mut(id).tracker, context, direction, header, soundness);
        if let TrackOutcome::Reopens | TrackOutcome::Invalid(_) = outcome {
            return outcome;
        }
        self.slab.cold_mut(id).add(direction, 1, bytes as u64);
        if outcome == TrackOutcome::Noted {
            return outcome;
        }
        self.slab.line_mut(id).last_ms = self.now_ms as u32;
        match outcome {
            TrackOutcome::Moves(next) => self.change_state(id, next),
            _ => self.queues.refresh(&mut self.slab, id, direction, self.now_ms),
        }
        outcome
    }

    /// Records that packets which this host generated have reset a TCP connection.
    ///
    /// # Panics
    /// As [`ConnectionTable::touch`].
    pub fn reset(&mut self, id: ConnId) {
        if self.proto(id) == proto::TCP && !self.state(id).is_closed() {
            self.change_state(id, ConnState::Reset);
        }
    }

    /// Records that an end of a TCP connection has sent `len` bytes from `seq` on, in fragments of a segment
    /// that was in window.
    ///
    /// # Panics
    /// As [`ConnectionTable::touch`].
    pub fn extend_sent(&mut self, id: ConnId, direction: Direction, seq: u32, len: u32) {
        self.slab.line_mut(id).tracker.extend_sent(direction, seq, len);
    }

    /// Counts a packet that passes without an effect on the state: it is invalid, or cannot be checked.
    ///
    /// # Panics
    /// As [`ConnectionTable::touch`].
    pub fn count_invalid(&mut self, id: ConnId, direction: Direction, bytes: usize) {
        self.slab.cold_mut(id).add(direction, 1, bytes as u64);
    }

    /// The outcome that [`ConnectionTable::touch_if_sound`] would return. Changes nothing.
    pub fn preview(
        &self,
        id: ConnId,
        direction: Direction,
        now_ms: u64,
        header: Option<&TrackedHeader>,
        soundness: impl FnOnce() -> Soundness,
    ) -> TrackOutcome {
        let context = self.track_context(id, now_ms.max(self.now_ms));
        track(&mut { self.slab.line(id).tracker }, context, direction, header, soundness)
    }

    /// Whether the responder of a TCP connection has answered its SYN without accepting it: see
    /// [`TrackOutcome::Noted`].
    ///
    /// # Panics
    /// As [`ConnectionTable::touch`].
    pub fn is_challenged(&self, id: ConnId) -> bool {
        let line = self.slab.line(id);
        line.proto == proto::TCP && line.state() == ConnState::SynSent && line.tracker.is_challenged()
    }

    fn track_context(&self, id: ConnId, now_ms: u64) -> TrackContext {
        let line = self.slab.line(id);
        TrackContext {
            proto: line.proto,
            state: line.state(),
            has_timed_out: self.expires_ms(id, now_ms) == 0,
            is_stale: self.is_stale(line, now_ms),
        }
    }

    /// Whether packets of a connection may have been missed since its last valid one.
    fn is_stale(&self, line: &FlowLine, now_ms: u64) -> bool {
        let missed = self.resync_ms.map_or(SILENCE_MS, |resync_ms| now_ms.saturating_sub(resync_ms));
        line.idle_ms(now_ms) > missed.min(SILENCE_MS)
    }

    /// Whether a connection cannot be evicted and has not timed out: both ends have confirmed it.
    #[inline]
    pub fn is_lasting(&self, id: ConnId, now_ms: u64) -> bool {
        let state = self.state(id);
        !state.is_half_open() && !state.is_closed() && self.expires_ms(id, now_ms) > 0
    }

    /// Whether a connection is unreplied and has not timed out, and the table has room for a new connection
    /// for each packet of a vector. Such a connection outlasts the vector, unless another connection takes
    /// its port.
    #[inline]
    pub fn is_unreplied_and_safe(&self, id: ConnId, now_ms: u64) -> bool {
        self.state(id) == ConnState::Unreplied
            && self.expires_ms(id, now_ms) > 0
            && self.has_room_for_a_vector()
    }

    /// Whether a new connection for each packet of a vector would evict none.
    #[inline]
    pub(super) fn has_room_for_a_vector(&self) -> bool {
        self.len + VECTOR <= self.allocation_limit.map_or(self.max, |(limit, _)| limit.min(self.max))
    }

    /// Moves a connection to another state, and to its queue.
    fn change_state(&mut self, id: ConnId, next: ConnState) {
        let is_protected = ExpiryQueues::is_protected(&self.slab, id);
        self.queues.leave(&mut self.slab, id);
        self.slab.line_mut(id).set_state(next);
        let ends_ms = self.now_ms + self.expires_ms(id, self.now_ms);
        self.queues.join(&mut self.slab, id, ends_ms, is_protected);
    }
}

/// The tracking state of a connection that begins with this packet.
#[inline]
fn begin(header: &TrackedHeader, pickup: Pickup) -> Result<(ConnTracker, ConnState), Invalid> {
    match header {
        TrackedHeader::Tcp(segment) => ConnTracker::open(segment, pickup),
        TrackedHeader::Sctp(chunks) => ConnTracker::associate(chunks, pickup),
    }
}

/// The properties of a connection, besides its tracker, on which the outcome of a packet depends.
struct TrackContext {
    proto: u8,
    state: ConnState,
    has_timed_out: bool,
    is_stale: bool,
}

/// The outcome of a packet for a connection. The tracker is updated if the packet is valid.
///
/// The checksum matters in three cases, in which a receiver drops a packet with a wrong checksum:
///
/// - The packet would change the state.
/// - It would change the first or last sequence number of an end (SYN, FIN).
/// - It would only be noted.
///
/// If the checksum is unknown, the state and the tags of an association stay unchanged. TCP sequence numbers
/// are tracked as for data, with a FIN as one more byte.
#[inline]
fn track(
    tracker: &mut ConnTracker,
    TrackContext { proto, state, has_timed_out, is_stale }: TrackContext,
    direction: Direction,
    header: Option<&TrackedHeader>,
    soundness: impl FnOnce() -> Soundness,
) -> TrackOutcome {
    let before = *tracker;
    let outcome = match header {
        _ if has_timed_out => TrackOutcome::Reopens,
        Some(TrackedHeader::Tcp(segment)) => match tracker.segment(state, direction, segment) {
            TrackOutcome::Invalid(Invalid::OutOfWindow) if is_stale => {
                tracker.resume(state, direction, segment)
            }
            outcome => outcome,
        },
        Some(TrackedHeader::Sctp(chunks)) => tracker.chunks(state, direction, chunks),
        // Without a tag the packet cannot be checked.
        None if proto == proto::SCTP => TrackOutcome::Invalid(Invalid::BadTag),
        None => answered(proto, state, direction),
    };
    let matters = match outcome {
        TrackOutcome::Moves(_) | TrackOutcome::Reopens => true,
        TrackOutcome::Noted if proto == proto::TCP => true,
        TrackOutcome::Stays | TrackOutcome::Noted => {
            let counts = |segment: &TcpSegment| segment.flags & (flags::SYN | flags::FIN) != 0;
            header.is_some_and(|header| header.segment().is_none_or(counts)) && *tracker != before
        }
        TrackOutcome::Invalid(_) => false,
    };
    let soundness = if matters { soundness() } else { Soundness::Right };
    let outcome = match (soundness, outcome) {
        (Soundness::Right, _) | (Soundness::Unknown, TrackOutcome::Reopens | TrackOutcome::Noted) => outcome,
        (Soundness::Wrong, _) => TrackOutcome::Invalid(Invalid::BadChecksum),
        (Soundness::Unknown, _) => TrackOutcome::Stays,
    };
    let unknown = soundness == Soundness::Unknown;
    let segment = header.and_then(TrackedHeader::segment);
    let ends = segment.filter(|segment| segment.flags & flags::FIN != 0);
    if matches!(outcome, TrackOutcome::Reopens | TrackOutcome::Invalid(_))
        || unknown && (segment.is_none() || ends.is_some())
    {
        *tracker = before;
    }
    if let (TrackOutcome::Stays, true, Some(last)) = (outcome, unknown, ends) {
        let data = TcpSegment { flags: last.flags & !flags::FIN, payload: last.payload + 1, ..*last };
        tracker.segment(state, direction, &data);
    }
    outcome
}

/// The effect of a packet without a tracked header.
fn answered(proto: u8, state: ConnState, direction: Direction) -> TrackOutcome {
    match (state, direction, proto) {
        (ConnState::Unreplied, Direction::Reply, proto::TCP) => TrackOutcome::Moves(ConnState::Established),
        (ConnState::Unreplied, Direction::Reply, _) => TrackOutcome::Moves(ConnState::Replied),
        _ => TrackOutcome::Stays,
    }
}
