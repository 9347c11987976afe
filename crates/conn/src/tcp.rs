//! TCP tracking by a middlebox: states from the flags of both ends, windows from what each end announced to
//! the other.
//!
//! The method is from van Rooij, *Real Stateful TCP Packet Filtering in IP Filter* (SANE 2000). For each end,
//! the tracker records the highest sequence number that it sent, the highest that it acknowledged, and the
//! largest window that it announced. A segment is in window if it satisfies all of these conditions:
//!
//! - It begins no further than the other end's acknowledgement plus the other end's window.
//! - It ends at most one window before the highest number that its sender has sent.
//! - It acknowledges data that the other end did send.
//!
//! Other segments change nothing, so that an off-path attacker can hardly change a connection's state
//! (RFC 5961). A RST must also have exactly the number that its receiver expects. Flag combinations that no
//! end sends are invalid too.
//!
//! The policy decides whether invalid segments pass (`set conn invalid`). Some segments are
//! [noted](TrackOutcome::Noted), as in Linux's conntrack (`TCP_CONNTRACK_IGNORE`). By these segments, the
//! ends find out that only one of them still has a connection (RFC 5961 section 4, RFC 9293 sections 3.5.1
//! and 3.10.7.3):
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
        self.window_scale.unwrap_or(0).min(MAX_SCALE)
    }
}

/// The effect of a packet on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackOutcome {
    /// The connection changes to this state.
    Moves(ConnState),
    /// The connection stays in its state.
    Stays,
    /// The connection stays in its state. An off-path sender may have caused the packet, so it passes and is
    /// counted, but does not refresh the timeout.
    Noted,
    /// Invalid: it changes nothing.
    Invalid(Invalid),
    /// The connection is closed, and this packet begins a new connection. The old entry ends; a new entry may
    /// be created.
    Reopens,
}

const OUT_OF_WINDOW: TrackOutcome = TrackOutcome::Invalid(Invalid::OutOfWindow);

/// Whether an end sends this combination of flags: one of those that Linux accepts (`tcp_valid_flags` in
/// nf_conntrack_proto_tcp.c). PSH and the flags of congestion control may accompany all of them.
fn are_valid(flags: u8) -> bool {
    const VALID: [u8; 9] =
        [SYN, SYN | URG, SYN | ACK, RST, RST | ACK, FIN | ACK, FIN | ACK | URG, ACK, ACK | URG];
    const BITS: u64 = {
        let (mut bits, mut index) = (0, 0);
        while index < VALID.len() {
            bits |= 1 << VALID[index];
            index += 1;
        }
        bits
    };
    BITS >> (flags & (FIN | SYN | RST | ACK | URG)) & 1 == 1
}

/// RFC 7323 section 2.3: larger shifts are treated as this one.
const MAX_SCALE: u8 = 14;

/// The maximum age of acknowledgements is at least this number of octets, however small windows are (van
/// Rooij's constant).
const MIN_ACK_WINDOW: u32 = 66_000;

/// Flags of an end: the bits of its window scale.
const SCALE: u8 = 0x0f;
/// Flag of an end: `snd_nxt` is valid. It is what the end sent or, if no segment of this end was seen, what
/// the other end acknowledged.
pub(crate) const SENT: u8 = 0x10;
/// Flag of an end: `ack` is valid.
pub(crate) const ACKED: u8 = 0x20;
/// Flag of an end: its FIN was seen, and `snd_nxt` is after it.
const FINISHED: u8 = 0x40;
/// Flag of an end, until the handshake is over: its SYN carried data, which need not be acknowledged with the
/// SYN (RFC 7413).
const EARLY_DATA: u8 = 0x80;
/// Flag of the responder, in SYN-SENT: its answer to the SYN had the acknowledgement `ack`, which does not
/// acknowledge the SYN.
const CHALLENGED: u8 = 0x40;
/// Flag of the initiator, once the handshake is over: the sequence numbers of both ends are replaced, see
/// [`ConnTracker::resume`].
const RESUMES: u8 = 0x80;

/// The tracking state of both ends of a TCP connection or an SCTP association (`sctp`); the initiator's
/// first.
///
/// Packed, since a connection's record has 22 bytes for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed(2))]
pub struct ConnTracker {
    /// The number after the highest number that the end sent.
    pub(crate) snd_nxt: [u32; 2],
    /// The highest number that the end acknowledged.
    pub(crate) ack: [u32; 2],
    /// The largest window that the end announced, shifted right by its scale.
    pub(crate) window: [u16; 2],
    /// Window scale and flags of the end.
    pub(crate) end_flags: [u8; 2],
}

const FORWARD: usize = Direction::Forward as usize;
const REPLY: usize = Direction::Reply as usize;

impl ConnTracker {
    /// Starts tracking with the first segment that was seen.
    ///
    /// # Errors
    /// The segment cannot begin a connection:
    ///
    /// - It is not a SYN, and `pickup` is strict.
    /// - It is a RST, a FIN or a SYN-ACK, which do not show how the stream continues. Linux's conntrack
    ///   accepts none of them either.
    /// - Its combination of flags is invalid.
    pub fn open(segment: &TcpSegment, pickup: Pickup) -> Result<(ConnTracker, ConnState), Invalid> {
        match (segment.flags & (SYN | ACK | RST | FIN), pickup) {
            (SYN, _) => {
                let mut tracker = ConnTracker::default();
                tracker.record_syn(FORWARD, segment);
                Ok((tracker, ConnState::SynSent))
            }
            (_, Pickup::Strict) => Err(Invalid::NotSyn),
            _ if !are_valid(segment.flags) => Err(Invalid::BadFlags),
            (ACK, Pickup::Loose) => Ok((ConnTracker::picked_up(segment), ConnState::Unreplied)),
            (_, Pickup::Loose) => Err(Invalid::NotSyn),
        }
    }

    /// The tracker as bytes for a state file.
    pub fn to_bytes(self) -> [u8; 22] {
        let mut bytes = [0; 22];
        for side in [FORWARD, REPLY] {
            bytes[4 * side..][..4].copy_from_slice(&self.snd_nxt[side].to_be_bytes());
            bytes[8 + 4 * side..][..4].copy_from_slice(&self.ack[side].to_be_bytes());
            bytes[16 + 2 * side..][..2].copy_from_slice(&self.window[side].to_be_bytes());
            bytes[20 + side] = self.end_flags[side];
        }
        bytes
    }

    /// Reverses [`ConnTracker::to_bytes`].
    pub fn from_bytes(bytes: [u8; 22]) -> ConnTracker {
        let long = |offset: usize| {
            u32::from_be_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
        };
        let short = |offset: usize| u16::from_be_bytes([bytes[offset], bytes[offset + 1]]);
        let end_flags = |offset: usize| bytes[offset] & !SCALE | (bytes[offset] & SCALE).min(MAX_SCALE);
        ConnTracker {
            snd_nxt: [long(0), long(4)],
            ack: [long(8), long(12)],
            window: [short(16), short(18)],
            end_flags: [end_flags(20), end_flags(21)],
        }
    }

    /// The window scale and the flags of an end.
    pub(crate) fn scale_and_flags(&self, side: usize) -> (u8, u8) {
        (self.end_flags[side] & SCALE, self.end_flags[side] & !SCALE)
    }

    /// A tracker without any information, which accepts the first segment of each end.
    pub(crate) fn blank() -> ConnTracker {
        ConnTracker { end_flags: [MAX_SCALE; 2], ..ConnTracker::default() }
    }

    /// The tracker of a connection in mid-flow. The window scales are unknown, and assumed to be the largest.
    fn picked_up(segment: &TcpSegment) -> ConnTracker {
        let mut tracker = ConnTracker::blank();
        tracker.record(FORWARD, segment);
        tracker.snd_nxt[REPLY] = segment.ack;
        tracker.set_flag(REPLY, SENT);
        tracker
    }

    /// Tracks an ordinary segment: one without SYN, FIN or RST, of an established connection, or of an
    /// unreplied one from its initiator, while neither end has finished. Such a segment does not change the
    /// connection's state.
    ///
    /// Returns false for any other segment, and for one out of window. Then nothing has changed, and
    /// [`ConnTracker::segment`] decides.
    #[inline(always)]
    pub(crate) fn track_ordinary(&mut self, direction: Direction, segment: impl Fn() -> TcpSegment) -> bool {
        const BOTH_KNOWN: u16 = u16::from_ne_bytes([SENT | ACKED; 2]);
        const FLAGS: u16 = u16::from_ne_bytes([!SCALE; 2]);
        if u16::from_ne_bytes(self.end_flags) & FLAGS != BOTH_KNOWN {
            return self.track_ordinary_slow(direction, segment);
        }
        // Does what `is_in_window` and `record` do, with few branches.
        let (sender, receiver, segment) = (direction as usize, 1 - direction as usize, segment());
        let (end, expected) = (Seq(self.snd_nxt[sender]), Seq(self.ack[receiver]));
        let announced = self.announced(receiver);
        let ends = Seq(segment.seq) + segment.payload;
        let (ack, before) = (Seq(segment.ack), Seq(self.ack[sender]));
        let window = self.window[sender].max(segment.window);
        let age = (u32::from(window) << (self.end_flags[sender] & SCALE)).max(MIN_ACK_WINDOW);
        let is_ordinary = (segment.flags & (SYN | FIN | RST | ACK) == ACK)
            & ((ends.distance(end - announced) >= -1) | (ends.distance(expected) >= -1))
            & (Seq(segment.seq).distance(expected) <= announced as i32)
            & (self.snd_nxt[receiver].wrapping_sub(segment.ack) <= age);
        if is_ordinary {
            self.snd_nxt[sender] = if ends.after(end) { ends.0 } else { end.0 };
            self.ack[sender] = if ack.after(before) { ack.0 } else { before.0 };
            self.window[sender] = window;
        }
        is_ordinary
    }

    /// [`ConnTracker::track_ordinary`] for a connection of which some numbers are not known, or of which an
    /// end has finished.
    #[inline(never)]
    fn track_ordinary_slow(&mut self, direction: Direction, segment: impl Fn() -> TcpSegment) -> bool {
        let (sender, segment) = (direction as usize, segment());
        let is_ordinary = segment.flags & (SYN | FIN | RST | ACK) == ACK
            && (self.end_flags[0] | self.end_flags[1]) & (FINISHED | RESUMES) == 0
            && self.is_in_window(sender, &segment);
        if is_ordinary {
            self.advance_snd_nxt(sender, segment.end());
            self.record_ack(sender, &segment);
        }
        is_ordinary
    }

    /// Checks a segment of a connection in a state, and tracks it if it is valid.
    pub fn segment(&mut self, state: ConnState, direction: Direction, segment: &TcpSegment) -> TrackOutcome {
        let sender = direction as usize;
        if !are_valid(segment.flags) {
            return TrackOutcome::Invalid(Invalid::BadFlags);
        }
        if segment.has(RST) {
            return self.reset(state, sender, segment);
        }
        if segment.has(SYN) {
            let answers = segment.has(ACK);
            return if answers {
                self.syn_ack(state, sender, segment)
            } else {
                self.syn(state, sender, segment)
            };
        }
        match state {
            ConnState::SynSent => self.segment_before_syn_ack(sender, segment),
            _ if self.resumes(state) => self.resume(state, direction, segment),
            _ if !self.is_in_window(sender, segment) => OUT_OF_WINDOW,
            _ => {
                self.record(sender, segment);
                self.transition(state, sender)
            }
        }
    }

    /// Tracks a segment out of window of a connection whose sequence numbers may have advanced unseen
    /// (`ConnectionTable::is_stale`). From then on, each segment with an acknowledgement replaces the
    /// numbers of its end, until the numbers of both ends agree.
    ///
    /// An off-path sender can set the numbers of one end, but the end's next segment replaces them.
    /// Meanwhile, neither a RST nor a FIN with these numbers ends the connection; a FIN counts as data.
    pub(crate) fn resume(
        &mut self,
        state: ConnState,
        direction: Direction,
        segment: &TcpSegment,
    ) -> TrackOutcome {
        let sender = direction as usize;
        if !is_past_handshake(state) || segment.flags & (SYN | RST | ACK) != ACK {
            return OUT_OF_WINDOW;
        }
        if !self.resumes(state) {
            self.end_flags = self.end_flags.map(|flags| flags & SCALE);
            self.set_flag(FORWARD, RESUMES);
        }
        self.snd_nxt[sender] = segment.end().0;
        self.ack[sender] = segment.ack;
        self.window[sender] = self.window[sender].max(segment.window);
        self.set_flag(sender, SENT | ACKED);
        let known = SENT | ACKED;
        let agrees = |side: usize| {
            let age = self.announced(side).max(MIN_ACK_WINDOW);
            self.end_flags[side] & known == known && self.acknowledges(1 - side, self.ack[side], age)
        };
        if agrees(FORWARD) && agrees(REPLY) {
            self.end_flags[FORWARD] &= !RESUMES;
        }
        TrackOutcome::Stays
    }

    fn resumes(&self, state: ConnState) -> bool {
        is_past_handshake(state) && self.has_flag(FORWARD, RESUMES)
    }

    /// RFC 5961 section 3.2: a RST is accepted only with the number that its receiver expects. That is the
    /// receiver's last acknowledgement or, if this is still in flight, the highest number that the sender has
    /// sent. In SYN-SENT, a RST of the responder must acknowledge the SYN (RFC 9293 section 3.5.2). A RST by
    /// which the initiator answers a challenge ends the responder's old connection, not the new one: the
    /// initiator then retransmits its SYN.
    fn reset(&self, state: ConnState, sender: usize, segment: &TcpSegment) -> TrackOutcome {
        let receiver = 1 - sender;
        let awaited = match state {
            ConnState::SynSent if sender == REPLY => {
                segment.has(ACK) && segment.ack == self.snd_nxt[receiver]
            }
            ConnState::SynSent
                if self.has_flag(receiver, CHALLENGED) && segment.seq == self.ack[receiver] =>
            {
                return TrackOutcome::Noted;
            }
            _ => {
                (self.has_flag(sender, SENT) && segment.seq == self.snd_nxt[sender])
                    || (self.has_flag(receiver, ACKED) && segment.seq == self.ack[receiver])
            }
        };
        match state {
            _ if !awaited || self.resumes(state) => OUT_OF_WINDOW,
            // TIME-WAIT must not be shortened (RFC 1337).
            ConnState::TimeWait | ConnState::Reset => TrackOutcome::Stays,
            _ => TrackOutcome::Moves(ConnState::Reset),
        }
    }

    /// A SYN without ACK. If it does not belong to the existing connection, it changes nothing. A receiver
    /// that still has the connection answers with an acknowledgement. Only a genuine sender of the SYN
    /// answers that with a RST (RFC 5961 section 4).
    fn syn(&mut self, state: ConnState, sender: usize, segment: &TcpSegment) -> TrackOutcome {
        match (state, sender) {
            // No end has the connection any more, or an end in TIME-WAIT decides by its own rules (RFC 6191,
            // RFC 9293 section 3.10.7.4).
            (ConnState::TimeWait | ConnState::Reset, _) => TrackOutcome::Reopens,
            // The connection was picked up from a segment that was not answered, perhaps of a closed
            // connection: no end is known to have it.
            (ConnState::Unreplied, _) => TrackOutcome::Reopens,
            // The SYN was retransmitted, or the initiator has lost its earlier attempt.
            (ConnState::SynSent, FORWARD) => {
                self.record_syn(sender, segment);
                TrackOutcome::Stays
            }
            // Simultaneous open (RFC 9293 section 3.5, figure 7).
            (ConnState::SynSent, _) => {
                self.record_syn(sender, segment);
                TrackOutcome::Moves(ConnState::SynReceived)
            }
            (ConnState::SynReceived, _) if self.snd_nxt[sender] == segment.end().0 => TrackOutcome::Stays,
            // The initiator has restarted.
            (_, FORWARD) => TrackOutcome::Noted,
            _ => OUT_OF_WINDOW,
        }
    }

    fn syn_ack(&mut self, state: ConnState, sender: usize, segment: &TcpSegment) -> TrackOutcome {
        let receiver = 1 - sender;
        match (state, sender) {
            (ConnState::SynSent, REPLY) => {
                let early_data = if self.has_flag(receiver, EARLY_DATA) { u32::from(u16::MAX) } else { 0 };
                if !self.acknowledges(receiver, segment.ack, early_data) {
                    return self.challenge(segment);
                }
                self.record_syn(sender, segment);
                self.agree_on_scales(segment);
                self.record_ack(sender, segment);
                TrackOutcome::Moves(ConnState::SynReceived)
            }
            (ConnState::SynSent, _) => OUT_OF_WINDOW,
            // The sender knows the number of the initiator's SYN, which it acknowledges. The sender of an
            // earlier SYN from this side may not have known it, so this SYN-ACK replaces that SYN.
            (ConnState::SynReceived, REPLY)
                if segment.ack == self.snd_nxt[receiver] && !self.is_in_window(sender, segment) =>
            {
                self.record_syn(sender, segment);
                self.agree_on_scales(segment);
                self.record_ack(sender, segment);
                self.transition(state, sender)
            }
            // The segment may answer a SYN that was noted. Then the responder has lost the connection too,
            // and begins another one.
            (_, REPLY) if !self.is_in_window(sender, segment) => TrackOutcome::Noted,
            _ if !self.is_in_window(sender, segment) => OUT_OF_WINDOW,
            (ConnState::SynReceived, _) => {
                self.agree_on_scales(segment);
                self.record_ack(sender, segment);
                self.transition(state, sender)
            }
            _ => {
                self.record(sender, segment);
                self.transition(state, sender)
            }
        }
    }

    /// A segment without SYN or RST while the SYN is unreplied. From the initiator, it shows that the replies
    /// take another path. From the responder, it belongs to an earlier connection (RFC 9293 section 3.5.1,
    /// figure 9).
    fn segment_before_syn_ack(&mut self, sender: usize, segment: &TcpSegment) -> TrackOutcome {
        if sender == REPLY {
            return if segment.has(FIN) { OUT_OF_WINDOW } else { self.challenge(segment) };
        }
        let begins = Seq(segment.seq);
        if begins.within(Seq(self.snd_nxt[sender]) - MIN_ACK_WINDOW, 2 * MIN_ACK_WINDOW) {
            self.advance_snd_nxt(sender, segment.end());
            return TrackOutcome::Stays;
        }
        OUT_OF_WINDOW
    }

    /// The responder's answer does not accept the SYN. The initiator replies with a RST whose sequence number
    /// is the acknowledged number (RFC 9293 section 3.10.7.3).
    fn challenge(&mut self, segment: &TcpSegment) -> TrackOutcome {
        self.ack[REPLY] = segment.ack;
        self.set_flag(REPLY, CHALLENGED);
        TrackOutcome::Noted
    }

    /// Whether the responder of a connection in SYN-SENT has answered the SYN without accepting it.
    pub(crate) fn is_challenged(&self) -> bool {
        self.has_flag(REPLY, CHALLENGED)
    }

    /// The state of a connection after a segment that was tracked.
    fn transition(&mut self, state: ConnState, sender: usize) -> TrackOutcome {
        let receiver = 1 - sender;
        if state == ConnState::SynReceived {
            self.end_flags = self.end_flags.map(|flags| flags & !EARLY_DATA);
        }
        let answered = match state {
            ConnState::SynReceived => self.has_flag(sender, ACKED) && self.has_flag(receiver, ACKED),
            ConnState::Unreplied => sender == REPLY,
            ConnState::TimeWait | ConnState::Reset => false,
            _ => true,
        };
        if !answered {
            return TrackOutcome::Stays;
        }
        let all_acked =
            self.ack[sender] == self.snd_nxt[receiver] && self.ack[receiver] == self.snd_nxt[sender];
        let next = match (self.has_flag(sender, FINISHED), self.has_flag(receiver, FINISHED)) {
            (false, false) => ConnState::Established,
            (true, true) if all_acked => ConnState::TimeWait,
            (true, true) => ConnState::Closing,
            _ => ConnState::FinWait,
        };
        if next == state { TrackOutcome::Stays } else { TrackOutcome::Moves(next) }
    }

    /// Records that an end has sent `len` bytes from `seq` on, in a segment that was in window. If `seq` is
    /// beyond the receiver's window, nothing is recorded.
    pub(crate) fn extend_sent(&mut self, direction: Direction, seq: u32, len: u32) {
        let (sender, receiver) = (direction as usize, 1 - direction as usize);
        let expected = if self.has_flag(receiver, ACKED) { self.ack[receiver] } else { self.snd_nxt[sender] };
        let far = Seq(seq).distance(Seq(expected));
        if self.has_flag(sender, SENT) && far <= self.announced(receiver) as i32 {
            self.advance_snd_nxt(sender, Seq(seq) + len);
        }
    }

    /// Whether a segment is in the window of its sender and its receiver. Unknown bounds are not checked.
    #[inline(always)]
    fn is_in_window(&self, sender: usize, segment: &TcpSegment) -> bool {
        let receiver = 1 - sender;
        let announced = self.announced(receiver);
        if self.has_flag(sender, SENT) {
            let end = Seq(self.snd_nxt[sender]);
            let expected = if self.has_flag(receiver, ACKED) { Seq(self.ack[receiver]) } else { end };
            // Unacknowledged data may be retransmitted, and a keep-alive is one byte below it (RFC 1122
            // section 4.2.3.6).
            let ends = segment.end();
            if ends.distance(end - announced) < -1 && ends.distance(expected) < -1 {
                return false;
            }
            if Seq(segment.seq).distance(expected) > announced as i32 {
                return false;
            }
        } else if self.has_flag(receiver, ACKED) {
            let far = Seq(segment.seq).distance(Seq(self.ack[receiver])).unsigned_abs();
            if far > announced.max(MIN_ACK_WINDOW) {
                return false;
            }
        }
        let announces =
            self.announced(sender).max(u32::from(segment.window) << (self.end_flags[sender] & SCALE));
        self.acknowledges(receiver, segment.ack, announces.max(MIN_ACK_WINDOW))
    }

    /// Whether a number acknowledges what an end sent, and is at most `age` octets below the end's highest
    /// number.
    fn acknowledges(&self, data_sender: usize, ack: u32, age: u32) -> bool {
        let behind = Seq(self.snd_nxt[data_sender]).distance(Seq(ack));
        !self.has_flag(data_sender, SENT) || (0..=age as i32).contains(&behind)
    }

    /// The largest window that an end announced, in octets: less than 2^30.
    fn announced(&self, side: usize) -> u32 {
        u32::from(self.window[side]) << (self.end_flags[side] & SCALE)
    }

    fn has_flag(&self, side: usize, flag: u8) -> bool {
        self.end_flags[side] & flag != 0
    }

    fn set_flag(&mut self, side: usize, flag: u8) {
        self.end_flags[side] |= flag;
    }

    /// Starts an end's state from its SYN. The window of a SYN is never scaled.
    fn record_syn(&mut self, side: usize, segment: &TcpSegment) {
        let scale = segment.scale();
        self.snd_nxt[side] = segment.end().0;
        self.window[side] = shifted(segment.window, scale);
        let early_data = if segment.payload > 0 { EARLY_DATA } else { 0 };
        self.end_flags[side] = (self.end_flags[side] & ACKED) | scale | SENT | early_data;
    }

    /// Windows are scaled only if both SYNs have the option (RFC 7323 section 2.2). A SYN-ACK without the
    /// option leaves both ends unscaled.
    fn agree_on_scales(&mut self, answer: &TcpSegment) {
        if answer.window_scale.is_some() {
            return;
        }
        for side in [FORWARD, REPLY] {
            self.window[side] = self.announced(side).min(u32::from(u16::MAX)) as u16;
            self.end_flags[side] &= !SCALE;
        }
    }

    /// Tracks a valid segment.
    fn record(&mut self, sender: usize, segment: &TcpSegment) {
        let end = segment.end();
        let beyond = !self.has_flag(sender, SENT) || end.after(Seq(self.snd_nxt[sender]));
        self.advance_snd_nxt(sender, end);
        if segment.has(FIN) && end == Seq(self.snd_nxt[sender]) {
            self.set_flag(sender, FINISHED);
        } else if beyond {
            // No end sends data after its FIN, so the earlier FIN was not from this end.
            self.end_flags[sender] &= !FINISHED;
        }
        self.record_ack(sender, segment);
    }

    #[inline(always)]
    fn advance_snd_nxt(&mut self, sender: usize, end: Seq) {
        if !self.has_flag(sender, SENT) || end.after(Seq(self.snd_nxt[sender])) {
            self.snd_nxt[sender] = end.0;
            self.set_flag(sender, SENT);
        }
    }

    #[inline(always)]
    fn record_ack(&mut self, sender: usize, segment: &TcpSegment) {
        if !segment.has(ACK) {
            return;
        }
        if !self.has_flag(sender, ACKED) || Seq(segment.ack).after(Seq(self.ack[sender])) {
            self.ack[sender] = segment.ack;
            self.set_flag(sender, ACKED);
        }
        let window = if segment.has(SYN) {
            shifted(segment.window, self.end_flags[sender] & SCALE)
        } else {
            segment.window
        };
        self.window[sender] = self.window[sender].max(window);
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
