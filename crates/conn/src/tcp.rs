//! TCP tracking by a middlebox: states from the flags of both ends, windows from what each end announced to
//! the other.
//!
//! The method is from van Rooij, *Real Stateful TCP Packet Filtering in IP Filter* (SANE 2000). For each end,
//! the tracker records the highest sequence number that it sent, the highest that it acknowledged, and the
//! largest window that it announced. A segment is in window if all of the following hold:
//!
//! - It begins no further than the other end's acknowledgement plus the other end's window.
//! - It ends no more than one window behind the highest number that its sender has sent.
//! - It acknowledges data that the other end did send.
//!
//! Other segments change nothing, so that an off-path attacker can hardly change a connection's state
//! (RFC 5961). A RST must also have exactly the number that its receiver expects. Flag combinations that no
//! end sends are invalid too.
//!
//! The policy decides whether invalid segments pass (`set conn invalid`). Some segments are
//! [noted](TcpOutcome::Noted), as in Linux's conntrack (`TCP_CONNTRACK_IGNORE`). By these segments, the ends
//! find out that only one of them still has a connection (RFC 5961 section 4, RFC 9293 sections 3.5.1 and
//! 3.10.7.3):
//!
//! - a SYN of the initiator,
//! - the SYN-ACK or the acknowledgement that answers the SYN,
//! - the RST that answers the acknowledgement.

use crate::{ConnState, Direction, Invalid};
use mmb_packet::Seq;
use mmb_policy::settings::Pickup;

mod in_flight;

/// TCP flags, as on the wire.
pub mod flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// The first sequence number.
    pub const SYN: u8 = 0x02;
    /// Resets the connection.
    pub const RST: u8 = 0x04;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer is valid.
    pub const URG: u8 = 0x20;
}
use flags::{ACK, FIN, RST, SYN, URG};

/// The fields of a TCP segment that tracking uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSegment {
    /// CWR to FIN, as on the wire.
    pub flags: u8,
    /// Its sequence number.
    pub seq: u32,
    /// Its acknowledgement number.
    pub ack: u32,
    /// Its window as on the wire, not scaled.
    pub window: u16,
    /// Bytes after the header.
    pub payload: u32,
    /// The shift of a window scale option; only used in a SYN.
    pub window_scale: Option<u8>,
}

impl TcpSegment {
    /// The sequence number after the segment's last one. SYN and FIN take one number each (RFC 9293
    /// section 3.4), the data of a RST takes none.
    fn end(&self) -> Seq {
        if self.has(RST) {
            return Seq(self.seq);
        }
        Seq(self.seq) + self.payload + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn scale(&self) -> u8 {
        self.window_scale.unwrap_or(0).min(LARGEST_SCALE)
    }
}

/// The effect of a packet on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOutcome {
    /// The connection changes to this state.
    Moves(ConnState),
    /// The connection stays in its state.
    Stays,
    /// The connection stays in its state. An off-path sender may have caused the packet, so it passes and is
    /// counted, but does not refresh the timeout.
    Noted,
    /// Invalid: it changes nothing.
    Invalid(Invalid),
    /// The connection is closed, and this packet begins a new one. The old entry ends, and a new one may be
    /// created.
    Reopens,
}

const OUT_OF_WINDOW: TcpOutcome = TcpOutcome::Invalid(Invalid::OutOfWindow);

/// Whether an end sends this combination of flags: one of those that Linux accepts (`tcp_valid_flags` in
/// nf_conntrack_proto_tcp.c). PSH and the flags of congestion control may accompany all of them.
fn are_sent(flags: u8) -> bool {
    const SENT: [u8; 9] =
        [SYN, SYN | URG, SYN | ACK, RST, RST | ACK, FIN | ACK, FIN | ACK | URG, ACK, ACK | URG];
    const BITS: u64 = {
        let (mut bits, mut at) = (0, 0);
        while at < SENT.len() {
            bits |= 1 << SENT[at];
            at += 1;
        }
        bits
    };
    BITS >> (flags & (FIN | SYN | RST | ACK | URG)) & 1 == 1
}

/// RFC 7323 section 2.3: larger shifts are treated as this one.
const LARGEST_SCALE: u8 = 14;

/// The maximum age of acknowledgements is at least this number of octets, however small windows are (van
/// Rooij's constant).
const LEAST_ACK_WINDOW: u32 = 66_000;

/// Notes of an end: the bits of its window scale.
const SCALE: u8 = 0x0f;
/// Note of an end: `end` is valid. It is what the end sent or, if no segment of this end was seen, what the
/// other end acknowledged.
pub(crate) const SENT: u8 = 0x10;
/// Note of an end: `ack` is valid.
pub(crate) const ACKED: u8 = 0x20;
/// Note of an end: its FIN was seen, and `end` is after it.
const FINISHED: u8 = 0x40;
/// Note of an end, until the handshake is over: its SYN carried data, which need not be acknowledged with the
/// SYN (RFC 7413).
const EARLY_DATA: u8 = 0x80;
/// Note of the responder, in SYN-SENT: its answer to the SYN had the acknowledgement `ack`, which does not
/// acknowledge the SYN.
const CHALLENGED: u8 = 0x40;
/// Note of the initiator, once the handshake is over: the sequence numbers of both ends are set again, see
/// [`TcpTracker::resume`].
const RESUMES: u8 = 0x80;

/// The tracking state of both ends of a TCP connection or an SCTP association (`sctp`); the initiator's
/// first.
///
/// Packed, since a connection's record has 22 bytes for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed(2))]
pub struct TcpTracker {
    /// The number after the highest one that the end sent.
    pub(crate) end: [u32; 2],
    /// The highest number that the end acknowledged.
    pub(crate) ack: [u32; 2],
    /// The largest window that the end announced, shifted right by its scale.
    pub(crate) window: [u16; 2],
    /// Window scale and notes of the end.
    pub(crate) notes: [u8; 2],
}

const FORWARD: usize = Direction::Forward as usize;
const REPLY: usize = Direction::Reply as usize;

impl TcpTracker {
    /// Starts tracking with the first segment that was seen.
    ///
    /// # Errors
    /// The segment cannot begin a connection:
    ///
    /// - It is not a SYN, and `pickup` is strict.
    /// - It is a RST, a FIN or a SYN-ACK, which do not show how the stream continues. Linux's conntrack
    ///   accepts none of them either.
    /// - Its combination of flags is invalid.
    pub fn open(segment: &TcpSegment, pickup: Pickup) -> Result<(TcpTracker, ConnState), Invalid> {
        match (segment.flags & (SYN | ACK | RST | FIN), pickup) {
            (SYN, _) => {
                let mut tracker = TcpTracker::default();
                tracker.take_syn(FORWARD, segment);
                Ok((tracker, ConnState::SynSent))
            }
            (_, Pickup::Strict) => Err(Invalid::NotSyn),
            _ if !are_sent(segment.flags) => Err(Invalid::BadFlags),
            (ACK, Pickup::Loose) => Ok((TcpTracker::picked_up(segment), ConnState::Unreplied)),
            (_, Pickup::Loose) => Err(Invalid::NotSyn),
        }
    }

    /// The tracker as bytes for a state file.
    pub fn to_bytes(self) -> [u8; 22] {
        let mut bytes = [0; 22];
        for side in [FORWARD, REPLY] {
            bytes[4 * side..][..4].copy_from_slice(&self.end[side].to_be_bytes());
            bytes[8 + 4 * side..][..4].copy_from_slice(&self.ack[side].to_be_bytes());
            bytes[16 + 2 * side..][..2].copy_from_slice(&self.window[side].to_be_bytes());
            bytes[20 + side] = self.notes[side];
        }
        bytes
    }

    /// Reverses [`TcpTracker::to_bytes`].
    pub fn from_bytes(bytes: [u8; 22]) -> TcpTracker {
        let long = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let short = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let notes = |at: usize| bytes[at] & !SCALE | (bytes[at] & SCALE).min(LARGEST_SCALE);
        TcpTracker {
            end: [long(0), long(4)],
            ack: [long(8), long(12)],
            window: [short(16), short(18)],
            notes: [notes(20), notes(21)],
        }
    }

    /// The window scale and the notes of an end.
    pub(crate) fn notes_of(&self, side: usize) -> (u8, u8) {
        (self.notes[side] & SCALE, self.notes[side] & !SCALE)
    }

    /// A tracker without any information, which accepts the first segment of each end.
    pub(crate) fn blank() -> TcpTracker {
        TcpTracker { notes: [LARGEST_SCALE; 2], ..TcpTracker::default() }
    }

    /// The tracker of a connection in mid-flow. The window scales are unknown, and assumed to be the largest.
    fn picked_up(segment: &TcpSegment) -> TcpTracker {
        let mut tracker = TcpTracker::blank();
        tracker.take(FORWARD, segment);
        tracker.end[REPLY] = segment.ack;
        tracker.note(REPLY, SENT);
        tracker
    }

    /// Tracks an ordinary segment: one without SYN, FIN or RST, of an established connection, or of an
    /// unreplied one from its initiator, while neither end has finished. Such a segment does not change the
    /// connection's state.
    ///
    /// Returns false for any other segment, and for one out of window. Then nothing has changed, and
    /// [`TcpTracker::segment`] decides.
    #[inline(always)]
    pub(crate) fn goes_on(&mut self, direction: Direction, segment: impl Fn() -> TcpSegment) -> bool {
        const BOTH_KNOWN: u16 = u16::from_ne_bytes([SENT | ACKED; 2]);
        const NOTES: u16 = u16::from_ne_bytes([!SCALE; 2]);
        if u16::from_ne_bytes(self.notes) & NOTES != BOTH_KNOWN {
            return self.goes_on_half_known(direction, segment);
        }
        // Does what `is_in_window` and `take` do, with few branches.
        let (from, to, segment) = (direction as usize, 1 - direction as usize, segment());
        let (end, expected) = (Seq(self.end[from]), Seq(self.ack[to]));
        let announced = self.announced(to);
        let ends = Seq(segment.seq) + segment.payload;
        let (ack, before) = (Seq(segment.ack), Seq(self.ack[from]));
        let window = self.window[from].max(segment.window);
        let age = (u32::from(window) << (self.notes[from] & SCALE)).max(LEAST_ACK_WINDOW);
        let goes_on = (segment.flags & (SYN | FIN | RST | ACK) == ACK)
            & ((ends.distance(end - announced) >= -1) | (ends.distance(expected) >= -1))
            & (Seq(segment.seq).distance(expected) <= announced as i32)
            & (self.end[to].wrapping_sub(segment.ack) <= age);
        if goes_on {
            self.end[from] = if ends.after(end) { ends.0 } else { end.0 };
            self.ack[from] = if ack.after(before) { ack.0 } else { before.0 };
            self.window[from] = window;
        }
        goes_on
    }

    /// [`TcpTracker::goes_on`] for a connection of which some numbers are not known, or of which an end has
    /// finished.
    #[inline(never)]
    fn goes_on_half_known(&mut self, direction: Direction, segment: impl Fn() -> TcpSegment) -> bool {
        let (from, segment) = (direction as usize, segment());
        let goes_on = segment.flags & (SYN | FIN | RST | ACK) == ACK
            && (self.notes[0] | self.notes[1]) & (FINISHED | RESUMES) == 0
            && self.is_in_window(from, &segment);
        if goes_on {
            self.push_end(from, segment.end());
            self.take_ack(from, &segment);
        }
        goes_on
    }

    /// Checks a segment of a connection in a state, and tracks it if it is valid.
    pub fn segment(&mut self, state: ConnState, direction: Direction, segment: &TcpSegment) -> TcpOutcome {
        let from = direction as usize;
        if !are_sent(segment.flags) {
            return TcpOutcome::Invalid(Invalid::BadFlags);
        }
        if segment.has(RST) {
            return self.reset(state, from, segment);
        }
        if segment.has(SYN) {
            let answers = segment.has(ACK);
            return if answers { self.syn_ack(state, from, segment) } else { self.syn(state, from, segment) };
        }
        match state {
            ConnState::SynSent => self.early(from, segment),
            _ if self.resumes(state) => self.resume(state, direction, segment),
            _ if !self.is_in_window(from, segment) => OUT_OF_WINDOW,
            _ => {
                self.take(from, segment);
                self.moved(state, from)
            }
        }
    }

    /// Tracks a segment out of window of a connection whose sequence numbers may have advanced unseen
    /// (`ConnectionTable::is_stale`). From then on, each segment with an acknowledgement sets the numbers of
    /// its end again, until the numbers of both ends agree.
    ///
    /// An off-path sender can set the numbers of one end, but the end's next segment replaces them.
    /// Meanwhile, neither a RST nor a FIN with these numbers ends the connection; a FIN counts as data.
    pub(crate) fn resume(
        &mut self,
        state: ConnState,
        direction: Direction,
        segment: &TcpSegment,
    ) -> TcpOutcome {
        let from = direction as usize;
        if !is_past_handshake(state) || segment.flags & (SYN | RST | ACK) != ACK {
            return OUT_OF_WINDOW;
        }
        if !self.resumes(state) {
            self.notes = self.notes.map(|notes| notes & SCALE);
            self.note(FORWARD, RESUMES);
        }
        self.end[from] = segment.end().0;
        self.ack[from] = segment.ack;
        self.window[from] = self.window[from].max(segment.window);
        self.note(from, SENT | ACKED);
        let known = SENT | ACKED;
        let agrees = |side: usize| {
            let age = self.announced(side).max(LEAST_ACK_WINDOW);
            self.notes[side] & known == known && self.acknowledges(1 - side, self.ack[side], age)
        };
        if agrees(FORWARD) && agrees(REPLY) {
            self.notes[FORWARD] &= !RESUMES;
        }
        TcpOutcome::Stays
    }

    fn resumes(&self, state: ConnState) -> bool {
        is_past_handshake(state) && self.is(FORWARD, RESUMES)
    }

    /// RFC 5961 section 3.2: a RST is accepted only with the number that its receiver expects. That is the
    /// receiver's last acknowledgement or, if this is still in flight, the highest number that the sender has
    /// sent. In SYN-SENT, a RST of the responder must acknowledge the SYN (RFC 9293 section 3.5.2). A RST by
    /// which the initiator answers a challenge ends the responder's old connection, not the new one: the
    /// initiator then retransmits its SYN.
    fn reset(&self, state: ConnState, from: usize, segment: &TcpSegment) -> TcpOutcome {
        let to = 1 - from;
        let awaited = match state {
            ConnState::SynSent if from == REPLY => segment.has(ACK) && segment.ack == self.end[to],
            ConnState::SynSent if self.is(to, CHALLENGED) && segment.seq == self.ack[to] => {
                return TcpOutcome::Noted;
            }
            _ => {
                (self.is(from, SENT) && segment.seq == self.end[from])
                    || (self.is(to, ACKED) && segment.seq == self.ack[to])
            }
        };
        match state {
            _ if !awaited || self.resumes(state) => OUT_OF_WINDOW,
            // TIME-WAIT must not be shortened (RFC 1337).
            ConnState::TimeWait | ConnState::Reset => TcpOutcome::Stays,
            _ => TcpOutcome::Moves(ConnState::Reset),
        }
    }

    /// A SYN without ACK. If it does not belong to the existing connection, it changes nothing. A receiver
    /// that still has the connection answers with an acknowledgement. Only a genuine sender of the SYN
    /// answers that with a RST (RFC 5961 section 4).
    fn syn(&mut self, state: ConnState, from: usize, segment: &TcpSegment) -> TcpOutcome {
        match (state, from) {
            // No end has the connection any more, or an end in TIME-WAIT decides by its own rules (RFC 6191,
            // RFC 9293 section 3.10.7.4).
            (ConnState::TimeWait | ConnState::Reset, _) => TcpOutcome::Reopens,
            // The connection was picked up from a segment that was not answered, perhaps of a closed
            // connection: no end is known to have it.
            (ConnState::Unreplied, _) => TcpOutcome::Reopens,
            // The SYN was retransmitted, or the initiator has lost its earlier attempt.
            (ConnState::SynSent, FORWARD) => {
                self.take_syn(from, segment);
                TcpOutcome::Stays
            }
            // Simultaneous open (RFC 9293 section 3.5, figure 7).
            (ConnState::SynSent, _) => {
                self.take_syn(from, segment);
                TcpOutcome::Moves(ConnState::SynReceived)
            }
            (ConnState::SynReceived, _) if self.end[from] == segment.end().0 => TcpOutcome::Stays,
            // The initiator has restarted.
            (_, FORWARD) => TcpOutcome::Noted,
            _ => OUT_OF_WINDOW,
        }
    }

    fn syn_ack(&mut self, state: ConnState, from: usize, segment: &TcpSegment) -> TcpOutcome {
        let to = 1 - from;
        match (state, from) {
            (ConnState::SynSent, REPLY) => {
                let early_data = if self.is(to, EARLY_DATA) { u32::from(u16::MAX) } else { 0 };
                if !self.acknowledges(to, segment.ack, early_data) {
                    return self.challenge(segment);
                }
                self.take_syn(from, segment);
                self.agree_on_scales(segment);
                self.take_ack(from, segment);
                TcpOutcome::Moves(ConnState::SynReceived)
            }
            (ConnState::SynSent, _) => OUT_OF_WINDOW,
            // The sender knows the number of the initiator's SYN, which it acknowledges. The sender of an
            // earlier SYN from this side may not have known it, so this SYN-ACK replaces that SYN.
            (ConnState::SynReceived, REPLY)
                if segment.ack == self.end[to] && !self.is_in_window(from, segment) =>
            {
                self.take_syn(from, segment);
                self.agree_on_scales(segment);
                self.take_ack(from, segment);
                self.moved(state, from)
            }
            // The segment may answer a SYN that was noted. Then the responder has lost the connection too,
            // and begins another one.
            (_, REPLY) if !self.is_in_window(from, segment) => TcpOutcome::Noted,
            _ if !self.is_in_window(from, segment) => OUT_OF_WINDOW,
            (ConnState::SynReceived, _) => {
                self.agree_on_scales(segment);
                self.take_ack(from, segment);
                self.moved(state, from)
            }
            _ => {
                self.take(from, segment);
                self.moved(state, from)
            }
        }
    }

    /// A segment without SYN or RST while the SYN is unreplied. From the initiator, it shows that the replies
    /// take another path. From the responder, it belongs to an earlier connection (RFC 9293 section 3.5.1,
    /// figure 9).
    fn early(&mut self, from: usize, segment: &TcpSegment) -> TcpOutcome {
        if from == REPLY {
            return if segment.has(FIN) { OUT_OF_WINDOW } else { self.challenge(segment) };
        }
        let begins = Seq(segment.seq);
        if begins.within(Seq(self.end[from]) - LEAST_ACK_WINDOW, 2 * LEAST_ACK_WINDOW) {
            self.push_end(from, segment.end());
            return TcpOutcome::Stays;
        }
        OUT_OF_WINDOW
    }

    /// The responder's answer does not accept the SYN. The initiator replies with a RST whose sequence number
    /// is the acknowledged number (RFC 9293 section 3.10.7.3).
    fn challenge(&mut self, segment: &TcpSegment) -> TcpOutcome {
        self.ack[REPLY] = segment.ack;
        self.note(REPLY, CHALLENGED);
        TcpOutcome::Noted
    }

    /// Whether the responder of a connection in SYN-SENT has answered the SYN without accepting it.
    pub(crate) fn is_challenged(&self) -> bool {
        self.is(REPLY, CHALLENGED)
    }

    /// The state of a connection after a segment that was tracked.
    fn moved(&mut self, state: ConnState, from: usize) -> TcpOutcome {
        let to = 1 - from;
        if state == ConnState::SynReceived {
            self.notes = self.notes.map(|notes| notes & !EARLY_DATA);
        }
        let answered = match state {
            ConnState::SynReceived => self.is(from, ACKED) && self.is(to, ACKED),
            ConnState::Unreplied => from == REPLY,
            ConnState::TimeWait | ConnState::Reset => false,
            _ => true,
        };
        if !answered {
            return TcpOutcome::Stays;
        }
        let all_acked = self.ack[from] == self.end[to] && self.ack[to] == self.end[from];
        let next = match (self.is(from, FINISHED), self.is(to, FINISHED)) {
            (false, false) => ConnState::Established,
            (true, true) if all_acked => ConnState::TimeWait,
            (true, true) => ConnState::Closing,
            _ => ConnState::FinWait,
        };
        if next == state { TcpOutcome::Stays } else { TcpOutcome::Moves(next) }
    }

    /// Records that an end has sent `len` bytes from `seq` on, in a segment that was in window. If `seq` is
    /// beyond the receiver's window, nothing is recorded.
    pub(crate) fn extend_sent(&mut self, direction: Direction, seq: u32, len: u32) {
        let (from, to) = (direction as usize, 1 - direction as usize);
        let expected = if self.is(to, ACKED) { self.ack[to] } else { self.end[from] };
        let far = Seq(seq).distance(Seq(expected));
        if self.is(from, SENT) && far <= self.announced(to) as i32 {
            self.push_end(from, Seq(seq) + len);
        }
    }

    /// Whether a segment is in the window of its sender and its receiver. Unknown bounds are not checked.
    #[inline(always)]
    fn is_in_window(&self, from: usize, segment: &TcpSegment) -> bool {
        let to = 1 - from;
        let announced = self.announced(to);
        if self.is(from, SENT) {
            let end = Seq(self.end[from]);
            let expected = if self.is(to, ACKED) { Seq(self.ack[to]) } else { end };
            // Unacknowledged data may be retransmitted, and a keep-alive is one byte below it (RFC 1122
            // section 4.2.3.6).
            let ends = segment.end();
            if ends.distance(end - announced) < -1 && ends.distance(expected) < -1 {
                return false;
            }
            if Seq(segment.seq).distance(expected) > announced as i32 {
                return false;
            }
        } else if self.is(to, ACKED) {
            let far = Seq(segment.seq).distance(Seq(self.ack[to])).unsigned_abs();
            if far > announced.max(LEAST_ACK_WINDOW) {
                return false;
            }
        }
        let announces = self.announced(from).max(u32::from(segment.window) << (self.notes[from] & SCALE));
        self.acknowledges(to, segment.ack, announces.max(LEAST_ACK_WINDOW))
    }

    /// Whether a number acknowledges what an end sent, and is at most `age` octets behind the end's highest
    /// number.
    fn acknowledges(&self, to: usize, ack: u32, age: u32) -> bool {
        let behind = Seq(self.end[to]).distance(Seq(ack));
        !self.is(to, SENT) || (0..=age as i32).contains(&behind)
    }

    /// The largest window that an end announced, in octets: less than 2^30.
    fn announced(&self, side: usize) -> u32 {
        u32::from(self.window[side]) << (self.notes[side] & SCALE)
    }

    fn is(&self, side: usize, note: u8) -> bool {
        self.notes[side] & note != 0
    }

    fn note(&mut self, side: usize, note: u8) {
        self.notes[side] |= note;
    }

    /// Starts an end's state from its SYN. The window of a SYN is never scaled.
    fn take_syn(&mut self, side: usize, segment: &TcpSegment) {
        let scale = segment.scale();
        self.end[side] = segment.end().0;
        self.window[side] = shifted(segment.window, scale);
        let early_data = if segment.payload > 0 { EARLY_DATA } else { 0 };
        self.notes[side] = (self.notes[side] & ACKED) | scale | SENT | early_data;
    }

    /// Windows are scaled only if both SYNs have the option (RFC 7323 section 2.2). A SYN-ACK without the
    /// option leaves both ends unscaled.
    fn agree_on_scales(&mut self, answer: &TcpSegment) {
        if answer.window_scale.is_some() {
            return;
        }
        for side in [FORWARD, REPLY] {
            self.window[side] = self.announced(side).min(u32::from(u16::MAX)) as u16;
            self.notes[side] &= !SCALE;
        }
    }

    /// Tracks a valid segment.
    fn take(&mut self, from: usize, segment: &TcpSegment) {
        let end = segment.end();
        let beyond = !self.is(from, SENT) || end.after(Seq(self.end[from]));
        self.push_end(from, end);
        if segment.has(FIN) && end == Seq(self.end[from]) {
            self.note(from, FINISHED);
        } else if beyond {
            // No end sends data after its FIN, so the earlier FIN was not from this end.
            self.notes[from] &= !FINISHED;
        }
        self.take_ack(from, segment);
    }

    #[inline(always)]
    fn push_end(&mut self, from: usize, end: Seq) {
        if !self.is(from, SENT) || end.after(Seq(self.end[from])) {
            self.end[from] = end.0;
            self.note(from, SENT);
        }
    }

    #[inline(always)]
    fn take_ack(&mut self, from: usize, segment: &TcpSegment) {
        if !segment.has(ACK) {
            return;
        }
        if !self.is(from, ACKED) || Seq(segment.ack).after(Seq(self.ack[from])) {
            self.ack[from] = segment.ack;
            self.note(from, ACKED);
        }
        let window =
            if segment.has(SYN) { shifted(segment.window, self.notes[from] & SCALE) } else { segment.window };
        self.window[from] = self.window[from].max(window);
    }
}

/// Whether both ends have confirmed the connection, and not both have confirmed its end.
fn is_past_handshake(state: ConnState) -> bool {
    matches!(state, ConnState::Established | ConnState::FinWait | ConnState::Closing)
}

/// The window of a SYN, shifted as in later segments and rounded up.
fn shifted(window: u16, scale: u8) -> u16 {
    u32::from(window).div_ceil(1 << scale) as u16
}

#[cfg(test)]
mod tests;
