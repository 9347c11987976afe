//! What packets say of their connection: whether they begin one, whether they are believed, and which state follows.

use super::ConnectionTable;
use crate::wheel::ExpiryQueues;
use crate::{
    ConnId, ConnState, Direction, Invalid, TcpOutcome, TcpSegment, TcpTracker, TrackedHeader, flags, proto,
};
use mmb_packet::checksum::Soundness;
use mmb_policy::policy::Pickup;

impl ConnectionTable {
    /// What is known of a connection that begins with this packet.
    pub(super) fn begin(
        &self,
        proto: u8,
        signal: Option<&TrackedHeader>,
    ) -> Result<(TcpTracker, ConnState), Invalid> {
        match (proto, signal) {
            (_, Some(signal)) => begin(signal, self.pickup),
            (proto::TCP | proto::SCTP, None) if self.pickup == Pickup::Strict => Err(Invalid::NotSyn),
            (proto::SCTP, None) => Err(Invalid::BadTag),
            _ => Ok((TcpTracker::blank(), ConnState::Unreplied)),
        }
    }

    /// Why [`ConnectionTable::insert`] would refuse a packet, whatever its tuple.
    #[inline]
    pub fn cannot_begin(&self, signal: &TrackedHeader) -> Option<Invalid> {
        begin(signal, self.pickup).err()
    }

    /// Counts a packet of a connection and follows what it says. What is not believed is not counted and does not keep a connection
    /// alive; likewise what reopens a connection, and what comes after its time. What is [`TcpOutcome::Noted`] is counted only.
    ///
    /// # Panics
    /// If the connection has ended: whoever keeps numbers across calls that may end connections asks again.
    pub fn touch(
        &mut self,
        id: ConnId,
        direction: Direction,
        now_ms: u64,
        bytes: usize,
        signal: Option<&TrackedHeader>,
    ) -> TcpOutcome {
        self.touch_if_sound(id, direction, (now_ms, bytes), signal, || Soundness::Right)
    }

    /// [`ConnectionTable::touch`] of most packets: those of an established connection that goes on. Their checksums do not matter, since they change no
    /// state. `segment` is `None` for protocols other than TCP. Returns false, and changes nothing, if a packet is not such a one, or is not
    /// believed.
    ///
    /// # Panics
    /// As [`ConnectionTable::touch`].
    #[inline]
    pub fn touch_if_goes_on(
        &mut self,
        id: ConnId,
        direction: Direction,
        (now_ms, bytes): (u64, usize),
        segment: Option<&TcpSegment>,
    ) -> bool {
        self.now_ms = self.now_ms.max(now_ms);
        let connection = self.slab.at_mut(id.0);
        let goes_on = connection.expires_ms(self.now_ms, &self.limits) > 0
            && match (connection.state, segment) {
                (ConnState::Established, Some(segment)) => connection.tracker.goes_on(direction, segment),
                // Neither TCP nor SCTP is ever in this state.
                (ConnState::Replied, None) => true,
                _ => false,
            };
        if goes_on {
            connection.count(direction, bytes);
            connection.last_ms = self.now_ms as u32;
        }
        goes_on
    }

    /// [`ConnectionTable::touch`] of a packet whose checksum may be wrong: `soundness` is asked if the packet would change the connection's
    /// state. Where nobody can tell, the packet counts and keeps the connection alive, and the state stays.
    ///
    /// # Panics
    /// As [`ConnectionTable::touch`].
    #[inline]
    pub fn touch_if_sound(
        &mut self,
        id: ConnId,
        direction: Direction,
        (now_ms, bytes): (u64, usize),
        signal: Option<&TrackedHeader>,
        soundness: impl FnOnce() -> Soundness,
    ) -> TcpOutcome {
        self.now_ms = self.now_ms.max(now_ms);
        let connection = self.slab.at_mut(id.0);
        let about =
            (connection.proto(), connection.state, connection.expires_ms(self.now_ms, &self.limits) == 0);
        let judged = judge(&mut connection.tracker, about, direction, signal, soundness);
        if let TcpOutcome::Reopens | TcpOutcome::Invalid(_) = judged {
            return judged;
        }
        connection.count(direction, bytes);
        if judged == TcpOutcome::Noted {
            return judged;
        }
        connection.last_ms = self.now_ms as u32;
        match judged {
            TcpOutcome::Moves(next) => self.moves(id, next),
            _ => self.queues.used(&mut self.slab, id.0, direction, self.now_ms),
        }
        judged
    }

    /// An end of a TCP connection has sent bytes from a number on, without a header of their own: those of a segment that was believed.
    ///
    /// # Panics
    /// As [`ConnectionTable::touch`].
    pub fn extend_sent(&mut self, id: ConnId, direction: Direction, seq: u32, len: u32) {
        self.slab.at_mut(id.0).tracker.extend_sent(direction, seq, len);
    }

    /// Counts a packet that passes and changes nothing: it is not believed, or has nothing to believe it by.
    ///
    /// # Panics
    /// As [`ConnectionTable::touch`].
    pub fn count_invalid(&mut self, id: ConnId, direction: Direction, bytes: usize) {
        self.slab.at_mut(id.0).count(direction, bytes);
    }

    /// What [`ConnectionTable::touch_if_sound`] would say.
    pub fn judge(
        &self,
        id: ConnId,
        direction: Direction,
        now_ms: u64,
        signal: Option<&TrackedHeader>,
        soundness: impl FnOnce() -> Soundness,
    ) -> TcpOutcome {
        let connection = self.slab.at(id.0);
        let is_up = connection.expires_ms(now_ms.max(self.now_ms), &self.limits) == 0;
        let about = (connection.proto(), connection.state, is_up);
        judge(&mut connection.tracker(), about, direction, signal, soundness)
    }

    /// Whether a connection stays, however many others want its room, until it is idle for too long: both ends want it, and its
    /// time is not over.
    #[inline]
    pub fn is_lasting(&self, id: ConnId, now_ms: u64) -> bool {
        let connection = self.slab.at(id.0);
        let state = connection.state;
        !state.is_half_open() && !state.is_closed() && connection.expires_ms(now_ms, &self.limits) > 0
    }

    /// Puts a connection in another state, and in the queue of that.
    fn moves(&mut self, id: ConnId, next: ConnState) {
        let is_protected = ExpiryQueues::is_protected(&self.slab, id.0);
        self.queues.leave(&mut self.slab, id.0);
        let connection = self.slab.at_mut(id.0);
        connection.state = next;
        let ends_ms = self.now_ms + self.expires_ms(id, self.now_ms);
        self.queues.join(&mut self.slab, id.0, ends_ms, is_protected);
    }
}

/// What is known of a connection by its first packet.
#[inline]
fn begin(signal: &TrackedHeader, pickup: Pickup) -> Result<(TcpTracker, ConnState), Invalid> {
    match signal {
        TrackedHeader::Tcp(segment) => TcpTracker::open(segment, pickup),
        TrackedHeader::Sctp(chunks) => TcpTracker::associate(chunks, pickup),
    }
}

/// What a packet says of a connection of this protocol and state, whose time may be up. The tracker follows it if it is believed. Its
/// checksum counts only if it would change the state, or what is known of where an end begins or ends its numbers, as a SYN and a FIN do: its
/// receiver drops it then. Where nobody can tell, the state and the tags of an association stay; the numbers of TCP are followed as those
/// of any data, a FIN's as one byte more of them.
#[inline]
fn judge(
    tracker: &mut TcpTracker,
    (proto, state, is_up): (u8, ConnState, bool),
    direction: Direction,
    signal: Option<&TrackedHeader>,
    soundness: impl FnOnce() -> Soundness,
) -> TcpOutcome {
    let before = *tracker;
    let judged = match signal {
        _ if is_up => TcpOutcome::Reopens,
        Some(TrackedHeader::Tcp(segment)) => tracker.segment(state, direction, segment),
        Some(TrackedHeader::Sctp(chunks)) => tracker.chunks(state, direction, chunks),
        // Without a tag there is nothing to believe it by.
        None if proto == proto::SCTP => TcpOutcome::Invalid(Invalid::BadTag),
        None => answered(proto, state, direction),
    };
    let weighs = match judged {
        TcpOutcome::Moves(_) | TcpOutcome::Reopens => true,
        TcpOutcome::Stays | TcpOutcome::Noted => {
            let counts = |segment: &TcpSegment| segment.flags & (flags::SYN | flags::FIN) != 0;
            signal.is_some_and(|signal| signal.segment().is_none_or(counts)) && *tracker != before
        }
        TcpOutcome::Invalid(_) => false,
    };
    let soundness = if weighs { soundness() } else { Soundness::Right };
    let judged = match (soundness, judged) {
        (Soundness::Right, _) | (Soundness::Unknown, TcpOutcome::Reopens | TcpOutcome::Noted) => judged,
        (Soundness::Wrong, _) => TcpOutcome::Invalid(Invalid::BadChecksum),
        (Soundness::Unknown, _) => TcpOutcome::Stays,
    };
    let unknown = soundness == Soundness::Unknown;
    let segment = signal.and_then(TrackedHeader::segment);
    let ends = segment.filter(|segment| segment.flags & flags::FIN != 0);
    if matches!(judged, TcpOutcome::Reopens | TcpOutcome::Invalid(_))
        || unknown && (segment.is_none() || ends.is_some())
    {
        *tracker = before;
    }
    if let (TcpOutcome::Stays, true, Some(last)) = (judged, unknown, ends) {
        let data = TcpSegment { flags: last.flags & !flags::FIN, payload: last.payload + 1, ..*last };
        tracker.segment(state, direction, &data);
    }
    judged
}

/// What a packet without a header that is tracked does.
fn answered(proto: u8, state: ConnState, direction: Direction) -> TcpOutcome {
    match (state, direction, proto) {
        (ConnState::Unreplied, Direction::Reply, proto::TCP) => TcpOutcome::Moves(ConnState::Established),
        (ConnState::Unreplied, Direction::Reply, _) => TcpOutcome::Moves(ConnState::Replied),
        _ => TcpOutcome::Stays,
    }
}
