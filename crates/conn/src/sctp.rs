//! SCTP tracking by a middlebox: states from the chunks of both ends, verification tags from their INITs
//! (RFC 9260).
//!
//! Each end chooses the tag that packets to it must carry, and announces the tag in its INIT or INIT ACK.
//! Packets with another tag are invalid (section 8.5), so that an off-path attacker can hardly change an
//! association's state. In an association that was picked up, the first packet of each direction sets the tag
//! of the direction. An end that restarts sends an INIT in an existing association (section 5.2.2). An
//! off-path attacker could start that handshake too, so it does not refresh the timeout. The tags of the
//! restart become valid when the cookie is returned under the answering end's new tag, which only a receiver
//! of the INIT ACK knows.
//!
//! The states are those of TCP, with the same meaning. INIT, INIT ACK and COOKIE ACK correspond to SYN,
//! SYN-ACK and the acknowledgement of the SYN-ACK. SHUTDOWN, SHUTDOWN ACK and SHUTDOWN COMPLETE end an
//! association as FINs do, and ABORT as a RST does.

use crate::tcp::{ACKED, SENT};
use crate::{ConnState, ConnTracker, Direction, Invalid, TrackOutcome};
use mmb_policy::settings::Pickup;

/// The fields of an SCTP packet that tracking uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SctpChunks {
    /// The verification tag.
    pub tag: u32,
    /// The initiate tag of its INIT or INIT ACK.
    pub initiate_tag: u32,
    /// The kinds of its chunks, bits of [`chunk`].
    pub kinds: u16,
    /// Number of chunks that were parsed.
    pub count: u8,
    /// Its ABORT or SHUTDOWN COMPLETE has the T bit. Then its tag is the tag of packets to its sender:
    /// the sender did not know the receiver's tag.
    pub reflected: bool,
}

/// Kinds of chunks, as bits.
pub mod chunk {
    /// Begins an association.
    pub const INIT: u16 = 1;
    /// Answers an INIT.
    pub const INIT_ACK: u16 = 1 << 1;
    /// Ends the association at once.
    pub const ABORT: u16 = 1 << 2;
    /// No more data from the sender.
    pub const SHUTDOWN: u16 = 1 << 3;
    /// Answers a SHUTDOWN.
    pub const SHUTDOWN_ACK: u16 = 1 << 4;
    /// The association is closed.
    pub const SHUTDOWN_COMPLETE: u16 = 1 << 5;
    /// Returns an INIT ACK's cookie.
    pub const COOKIE_ECHO: u16 = 1 << 6;
    /// The association is open.
    pub const COOKIE_ACK: u16 = 1 << 7;
}
use chunk::{ABORT, COOKIE_ACK, COOKIE_ECHO, INIT, INIT_ACK, SHUTDOWN, SHUTDOWN_ACK, SHUTDOWN_COMPLETE};

/// The maximum number of chunks of a packet that are parsed. Control chunks come before data (RFC 9260
/// section 6.10).
const MAX_CHUNKS: u8 = 16;

impl SctpChunks {
    /// Parses a packet, which may be truncated. `None` if the packet ends before its tag.
    pub fn read(packet: &[u8]) -> Option<SctpChunks> {
        const HEADER: usize = 12;
        let tag = u32::from_be_bytes(*packet.get(4..)?.first_chunk()?);
        let mut chunks = SctpChunks { tag, ..SctpChunks::default() };
        let mut rest = packet.get(HEADER..).unwrap_or_default();
        while chunks.count < MAX_CHUNKS
            && let Some(&[kind, flags, a, b]) = rest.first_chunk()
        {
            chunks.count += 1;
            let bit = match kind {
                // DATA or I-DATA: no relevant chunk follows.
                0 | 64 => break,
                1 => INIT,
                2 => INIT_ACK,
                6 => ABORT,
                7 => SHUTDOWN,
                8 => SHUTDOWN_ACK,
                10 => COOKIE_ECHO,
                11 => COOKIE_ACK,
                14 => SHUTDOWN_COMPLETE,
                _ => 0,
            };
            chunks.kinds |= bit;
            if bit & (INIT | INIT_ACK) != 0 {
                let tag = rest.get(4..).and_then(<[u8]>::first_chunk);
                chunks.initiate_tag = tag.map_or(0, |tag| u32::from_be_bytes(*tag));
            }
            if bit & (ABORT | SHUTDOWN_COMPLETE) != 0 {
                chunks.reflected = flags & 1 != 0;
            }
            let len = usize::from(u16::from_be_bytes([a, b]));
            if len < 4 {
                // Receivers interpret the rest differently, so the packet counts as one without chunks.
                chunks.count = 0;
                break;
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        Some(chunks)
    }

    /// Whether it has a chunk of one of these kinds.
    pub fn has(&self, kinds: u16) -> bool {
        self.kinds & kinds != 0
    }

    /// The fault of a packet that no end sends; `None` for a correct packet. A packet must have a chunk,
    /// exclusive chunks must be alone (RFC 9260 section 6.10), and the tags must match the chunks.
    fn fault(&self) -> Option<Invalid> {
        let alone = self.has(INIT | INIT_ACK | SHUTDOWN_COMPLETE);
        if self.count == 0 || alone && self.count > 1 {
            return Some(Invalid::BadFlags);
        }
        let names_end = !self.has(INIT | INIT_ACK) || self.initiate_tag != 0;
        // Only an INIT carries the tag 0 (section 8.5.1).
        (!names_end || (self.tag == 0) != self.has(INIT)).then_some(Invalid::BadTag)
    }
}

const FORWARD: usize = Direction::Forward as usize;
const REPLY: usize = Direction::Reply as usize;
const BAD_TAG: TrackOutcome = TrackOutcome::Invalid(Invalid::BadTag);

/// Flag of a direction: an unconfirmed INIT requests that packets of this direction carry the tag in
/// `window`. At most one direction has this flag.
const REQUESTED: u8 = 0x40;

/// The fields of a tracker of an association, for each direction:
///
/// - `snd_nxt` is the tag that packets of the direction carry, if `SENT` is set.
/// - `ack` is their tag after a restart, if `ACKED` is set. An INIT ACK has confirmed it.
/// - `window` (of both directions together) is the tag that an unconfirmed INIT requests for the direction
///   with `REQUESTED`. It is stored separately, so that a forged INIT without an answer cannot replace a
///   confirmed tag.
impl ConnTracker {
    /// Starts tracking with the first packet that was seen.
    ///
    /// # Errors
    /// The packet cannot begin an association: it is invalid; it has no INIT and `pickup` is strict; or its
    /// chunks answer or end an association.
    pub(crate) fn associate(
        chunks: &SctpChunks,
        pickup: Pickup,
    ) -> Result<(ConnTracker, ConnState), Invalid> {
        const NO_BEGINNING: u16 = INIT_ACK | ABORT | SHUTDOWN | SHUTDOWN_ACK | SHUTDOWN_COMPLETE | COOKIE_ACK;
        if let Some(fault) = chunks.fault() {
            return Err(fault);
        }
        let mut tracker = ConnTracker::default();
        if chunks.has(INIT) {
            tracker.set_tag(REPLY, chunks.initiate_tag);
            return Ok((tracker, ConnState::SynSent));
        }
        if pickup == Pickup::Strict || chunks.has(NO_BEGINNING) {
            return Err(Invalid::NotSyn);
        }
        tracker.set_tag(FORWARD, chunks.tag);
        Ok((tracker, ConnState::Unreplied))
    }

    /// Checks a packet of an association in a state, and tracks it if it is valid.
    pub(crate) fn chunks(
        &mut self,
        state: ConnState,
        direction: Direction,
        chunks: &SctpChunks,
    ) -> TrackOutcome {
        let (sender, receiver) = (direction as usize, 1 - direction as usize);
        if let Some(fault) = chunks.fault() {
            return TrackOutcome::Invalid(fault);
        }
        if chunks.has(INIT) {
            return self.init(state, receiver, chunks);
        }
        if chunks.has(ABORT | SHUTDOWN_COMPLETE) {
            return self.end(state, sender, chunks);
        }
        let restarts = self.pending(sender) == Some(chunks.tag)
            || chunks.has(INIT_ACK) && self.requested(sender) == Some(chunks.tag);
        if self.tag(sender).is_some_and(|tag| tag != chunks.tag) && !restarts {
            return BAD_TAG;
        }
        let is_opening = matches!(state, ConnState::SynSent | ConnState::SynReceived);
        if chunks.has(INIT_ACK) {
            return self.init_ack(state, (sender, receiver), chunks, restarts);
        }
        if restarts && self.tag(sender) != Some(chunks.tag) {
            let peer = self.pending(receiver);
            // Only a returned cookie shows that its sender received the INIT ACK.
            if chunks.has(COOKIE_ECHO) && (peer.is_some() || is_opening) {
                self.set_tag(sender, chunks.tag);
                peer.into_iter().for_each(|tag| self.set_tag(receiver, tag));
                return transition(
                    state,
                    if is_opening { ConnState::SynReceived } else { ConnState::Established },
                );
            }
            // In an association that was picked up, the first packet of each direction sets the tag, whatever
            // the packet is.
            if self.tag(sender).is_some() {
                return BAD_TAG;
            }
        }
        self.set_tag(sender, chunks.tag);
        let next = match state {
            ConnState::TimeWait | ConnState::Reset => state,
            ConnState::SynSent | ConnState::SynReceived if chunks.has(COOKIE_ACK) => ConnState::Established,
            ConnState::SynSent if sender == REPLY => ConnState::SynReceived,
            ConnState::Unreplied if sender == FORWARD => state,
            ConnState::SynSent | ConnState::SynReceived => state,
            _ if chunks.has(SHUTDOWN_ACK) => ConnState::Closing,
            ConnState::Unreplied | ConnState::Established if chunks.has(SHUTDOWN) => ConnState::FinWait,
            ConnState::Unreplied => ConnState::Established,
            _ => state,
        };
        transition(state, next)
    }

    /// An INIT in an association. It is a retransmission, both ends start at once (section 5.2.1), or an end
    /// restarts.
    fn init(&mut self, state: ConnState, receiver: usize, chunks: &SctpChunks) -> TrackOutcome {
        match state {
            ConnState::TimeWait | ConnState::Reset => return TrackOutcome::Reopens,
            ConnState::SynSent if receiver == REPLY => self.set_tag(receiver, chunks.initiate_tag),
            // Both ends start at once, an end restarts, or the INIT is forged. Later packets of the peer
            // decide.
            _ => {
                self.request(receiver, chunks.initiate_tag);
                if self.tag(receiver) != Some(chunks.initiate_tag) {
                    return TrackOutcome::Noted;
                }
            }
        }
        TrackOutcome::Stays
    }

    fn init_ack(
        &mut self,
        state: ConnState,
        (sender, receiver): (usize, usize),
        chunks: &SctpChunks,
        restarts: bool,
    ) -> TrackOutcome {
        match state {
            ConnState::SynSent | ConnState::SynReceived if self.tag(sender) == Some(chunks.tag) => {
                match self.tag(receiver) {
                    // Each retransmitted INIT may be answered with another tag. The cookie shows which tag is
                    // valid.
                    Some(known) if known != chunks.initiate_tag => {
                        self.set_pending(receiver, chunks.initiate_tag)
                    }
                    Some(_) | None => self.set_tag(receiver, chunks.initiate_tag),
                }
                transition(state, if sender == REPLY { ConnState::SynReceived } else { state })
            }
            _ if restarts => {
                self.set_pending(sender, chunks.tag);
                self.set_pending(receiver, chunks.initiate_tag);
                TrackOutcome::Noted
            }
            _ if self.tag(sender).is_some() => TrackOutcome::Stays,
            _ => BAD_TAG,
        }
    }

    /// An ABORT or a SHUTDOWN COMPLETE. It carries the tag of its direction or, if reflected, that of the
    /// other direction (section 8.5.1 B and C). If that tag is unknown, the packet is invalid.
    fn end(&mut self, state: ConnState, sender: usize, chunks: &SctpChunks) -> TrackOutcome {
        let side = if chunks.reflected { 1 - sender } else { sender };
        let is_answered = self.pending(1 - side).is_some();
        if is_answered && self.pending(side) == Some(chunks.tag) && self.tag(side) != Some(chunks.tag) {
            // The packet concerns the restart, not the existing association.
            return TrackOutcome::Noted;
        }
        if self.tag(side) != Some(chunks.tag) {
            return BAD_TAG;
        }
        match state {
            ConnState::TimeWait | ConnState::Reset => TrackOutcome::Stays,
            _ if chunks.has(ABORT) => TrackOutcome::Moves(ConnState::Reset),
            ConnState::FinWait | ConnState::Closing => TrackOutcome::Moves(ConnState::TimeWait),
            _ => TrackOutcome::Stays,
        }
    }

    /// Whether the sender of a direction may have sent a packet that an ICMP error quotes (section 10). Such
    /// a packet carries the direction's tag, or it is an INIT whose initiate tag is a tag of the other
    /// direction. `quoted` is the available part of the packet.
    pub fn may_have_sent(&self, sender: Direction, quoted: &[u8]) -> bool {
        let (sender, receiver) = (sender as usize, 1 - sender as usize);
        let Some(chunks) = SctpChunks::read(quoted) else { return false };
        let is_known = |side: usize, tag: u32| {
            [self.tag(side), self.pending(side), self.requested(side)].contains(&Some(tag))
        };
        match chunks.tag {
            0 => chunks.has(INIT) && is_known(receiver, chunks.initiate_tag),
            // The tag of an unconfirmed INIT may be forged, so it is not accepted here.
            tag => {
                self.tag(sender) == Some(tag)
                    || self.pending(sender) == Some(tag) && self.pending(receiver).is_some()
            }
        }
    }

    /// Whether this is the tracking state of an association, and not of a TCP connection.
    pub fn is_association(&self) -> bool {
        let (window, flags) = (self.window, self.end_flags);
        let requested = flags.iter().filter(|flags| **flags & REQUESTED != 0).count();
        requested == usize::from(window != [0; 2])
            && flags.iter().all(|flags| flags & !(SENT | ACKED | REQUESTED) == 0)
    }

    fn tag(&self, side: usize) -> Option<u32> {
        (self.end_flags[side] & SENT != 0).then_some(self.snd_nxt[side])
    }

    fn pending(&self, side: usize) -> Option<u32> {
        (self.end_flags[side] & ACKED != 0).then_some(self.ack[side])
    }

    fn requested(&self, side: usize) -> Option<u32> {
        let [high, low] = self.window;
        (self.end_flags[side] & REQUESTED != 0).then_some(u32::from(high) << 16 | u32::from(low))
    }

    /// Records an unconfirmed INIT, which requests that a direction's packets carry this nonzero tag.
    fn request(&mut self, side: usize, tag: u32) {
        self.end_flags = self.end_flags.map(|flags| flags & !REQUESTED);
        self.end_flags[side] |= REQUESTED;
        self.window = [(tag >> 16) as u16, tag as u16];
    }

    /// Sets the tag of a direction's packets. The tag is no longer pending.
    fn set_tag(&mut self, side: usize, tag: u32) {
        self.snd_nxt[side] = tag;
        self.end_flags[side] |= SENT;
        if self.ack[side] == tag {
            (self.ack[side], self.end_flags[side]) = (0, self.end_flags[side] & !ACKED);
        }
    }

    /// Sets the tag that a direction's packets will carry if a restart completes.
    fn set_pending(&mut self, side: usize, tag: u32) {
        self.ack[side] = tag;
        self.end_flags[side] |= ACKED;
    }
}

fn transition(state: ConnState, next: ConnState) -> TrackOutcome {
    if next == state { TrackOutcome::Stays } else { TrackOutcome::Moves(next) }
}

#[cfg(test)]
mod tests;
