//! SCTP as a middlebox sees it: states from the chunks of both ends, verification tags from their INITs (RFC 9260).
//!
//! Each end chooses the tag that packets to it must carry, and tells it in its INIT or INIT ACK; what carries another one is not believed
//! (section 8.5), so that who sees neither end's packets can hardly move an association. Of an association that was picked up, the tag of
//! each direction is that of its first packet. An end that restarts sends an INIT into an association that is there (section 5.2.2): the tags
//! of that handshake, which anybody could begin and which therefore keeps nothing alive, count once the answering end's cookie comes back under its new tag, which only who saw the INIT ACK knows.
//!
//! The states are those of TCP whose meaning they have: INIT, INIT ACK and COOKIE ACK are what SYN, SYN-ACK and the acknowledgment of
//! that are; SHUTDOWN, SHUTDOWN ACK and SHUTDOWN COMPLETE end an association as FINs do, ABORT as a RST does.

use crate::tcp::{ACKED, SENT};
use crate::{Direction, Invalid, Judged, State, Tracker};
use mmb_policy::policy::Pickup;

/// What tracking needs to know of an SCTP packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// The verification tag.
    pub tag: u32,
    /// The initiate tag of its INIT or INIT ACK.
    pub initiate_tag: u32,
    /// The kinds of its chunks, bits of [`chunk`].
    pub kinds: u16,
    /// How many chunks were looked at.
    pub count: u8,
    /// Its ABORT or SHUTDOWN COMPLETE has the T bit: the tag is the sender's own, since it knew no other.
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
    /// Answers that.
    pub const SHUTDOWN_ACK: u16 = 1 << 4;
    /// The association is over.
    pub const SHUTDOWN_COMPLETE: u16 = 1 << 5;
    /// Brings an INIT ACK's cookie back.
    pub const COOKIE_ECHO: u16 = 1 << 6;
    /// The association is open.
    pub const COOKIE_ACK: u16 = 1 << 7;
}
use chunk::{ABORT, COOKIE_ACK, COOKIE_ECHO, INIT, INIT_ACK, SHUTDOWN, SHUTDOWN_ACK, SHUTDOWN_COMPLETE};

/// The most chunks of one packet that are looked at. Control chunks come before data (RFC 9260 section 6.10).
const MOST_CHUNKS: u8 = 16;

impl Chunks {
    /// Reads a packet, of which the end may be missing. `None` if it has no tag.
    pub fn read(packet: &[u8]) -> Option<Chunks> {
        const HEADER: usize = 12;
        let tag = u32::from_be_bytes(*packet.get(4..)?.first_chunk()?);
        let mut chunks = Chunks { tag, ..Chunks::default() };
        let mut rest = packet.get(HEADER..).unwrap_or_default();
        while chunks.count < MOST_CHUNKS
            && let Some(&[kind, flags, a, b]) = rest.first_chunk()
        {
            chunks.count += 1;
            let bit = match kind {
                // Data, in either form: nothing that counts follows.
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
                // Receivers do not agree on what follows: it is as a packet without chunks.
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

    /// Whether an end sends it: at least one chunk, and those alone that must be alone (RFC 9260 section 6.10), with what they must say.
    fn fault(&self) -> Option<Invalid> {
        let alone = self.has(INIT | INIT_ACK | SHUTDOWN_COMPLETE);
        if self.count == 0 || alone && self.count > 1 {
            return Some(Invalid::BadFlags);
        }
        let names_end = !self.has(INIT | INIT_ACK) || self.initiate_tag != 0;
        // Only an INIT has no tag to carry (section 8.5.1).
        (!names_end || (self.tag == 0) != self.has(INIT)).then_some(Invalid::BadTag)
    }
}

const FORWARD: usize = Direction::Forward as usize;
const REPLY: usize = Direction::Reply as usize;
const BAD_TAG: Judged = Judged::Invalid(Invalid::BadTag);

/// Of a direction: an INIT asks that its packets carry the tag that `window` holds. At most one of both has it.
const ASKED: u8 = 0x40;

/// Of each direction, `end` is the tag that its packets carry, if `SENT` is noted; `ack` the one that a restart brings, with `ACKED`: an
/// INIT ACK has confirmed it. What an INIT alone says is kept apart from that (`ASKED`), so that nobody replaces it who is not answered.
impl Tracker {
    /// Begins with the first packet that was seen.
    ///
    /// # Errors
    /// No association begins so: only with an INIT where `pickup` is strict; with chunks that answer or end one.
    pub(crate) fn associate(chunks: &Chunks, pickup: Pickup) -> Result<(Tracker, State), Invalid> {
        const NO_BEGINNING: u16 = INIT_ACK | ABORT | SHUTDOWN | SHUTDOWN_ACK | SHUTDOWN_COMPLETE | COOKIE_ACK;
        if let Some(fault) = chunks.fault() {
            return Err(fault);
        }
        let mut tracker = Tracker::default();
        if chunks.has(INIT) {
            tracker.learn(REPLY, chunks.initiate_tag);
            return Ok((tracker, State::SynSent));
        }
        if pickup == Pickup::Strict || chunks.has(NO_BEGINNING) {
            return Err(Invalid::NotSyn);
        }
        tracker.learn(FORWARD, chunks.tag);
        Ok((tracker, State::Unreplied))
    }

    /// Judges a packet of an association in a state, and follows it if it is believed.
    pub(crate) fn chunks(&mut self, state: State, direction: Direction, chunks: &Chunks) -> Judged {
        let (from, to) = (direction as usize, 1 - direction as usize);
        if let Some(fault) = chunks.fault() {
            return Judged::Invalid(fault);
        }
        if chunks.has(INIT) {
            return self.init(state, to, chunks);
        }
        if chunks.has(ABORT | SHUTDOWN_COMPLETE) {
            return self.end(state, from, chunks);
        }
        let restarts = self.pending(from) == Some(chunks.tag)
            || chunks.has(INIT_ACK) && self.asked(from) == Some(chunks.tag);
        if self.tag(from).is_some_and(|tag| tag != chunks.tag) && !restarts {
            return BAD_TAG;
        }
        let is_opening = matches!(state, State::SynSent | State::SynReceived);
        if chunks.has(INIT_ACK) {
            return self.init_ack(state, (from, to), chunks, restarts);
        }
        if restarts && self.tag(from) != Some(chunks.tag) {
            let peer = self.pending(to);
            // Only the cookie's way back shows that its sender saw the answer.
            if chunks.has(COOKIE_ECHO) && (peer.is_some() || is_opening) {
                self.learn(from, chunks.tag);
                peer.into_iter().for_each(|tag| self.learn(to, tag));
                return moves(state, if is_opening { State::SynReceived } else { State::Established });
            }
            // Of an association that was picked up, the first packet of each direction tells the tag, whatever it is.
            if self.tag(from).is_some() {
                return BAD_TAG;
            }
        }
        self.learn(from, chunks.tag);
        let next = match state {
            State::TimeWait | State::Reset => state,
            State::SynSent | State::SynReceived if chunks.has(COOKIE_ACK) => State::Established,
            State::SynSent if from == REPLY => State::SynReceived,
            State::Unreplied if from == FORWARD => state,
            State::SynSent | State::SynReceived => state,
            _ if chunks.has(SHUTDOWN_ACK) => State::Closing,
            State::Unreplied | State::Established if chunks.has(SHUTDOWN) => State::FinWait,
            State::Unreplied => State::Established,
            _ => state,
        };
        moves(state, next)
    }

    /// An INIT in an association: sent again, from both ends at once (section 5.2.1), or from one that restarts.
    fn init(&mut self, state: State, to: usize, chunks: &Chunks) -> Judged {
        match state {
            State::TimeWait | State::Reset => return Judged::Reopens,
            State::SynSent if to == REPLY => self.learn(to, chunks.initiate_tag),
            // Of both ends at once, of one that restarts, or of somebody who guesses: the peer's packets tell.
            _ => {
                self.ask(to, chunks.initiate_tag);
                if self.tag(to) != Some(chunks.initiate_tag) {
                    return Judged::Noted;
                }
            }
        }
        Judged::Stays
    }

    fn init_ack(
        &mut self,
        state: State,
        (from, to): (usize, usize),
        chunks: &Chunks,
        restarts: bool,
    ) -> Judged {
        match state {
            State::SynSent | State::SynReceived if self.tag(from) == Some(chunks.tag) => {
                match self.tag(to) {
                    // Each INIT that was sent again may be answered with another tag: the cookie tells which one counts.
                    Some(known) if known != chunks.initiate_tag => self.expect(to, chunks.initiate_tag),
                    Some(_) | None => self.learn(to, chunks.initiate_tag),
                }
                moves(state, if from == REPLY { State::SynReceived } else { state })
            }
            _ if restarts => {
                self.expect(from, chunks.tag);
                self.expect(to, chunks.initiate_tag);
                Judged::Noted
            }
            _ if self.tag(from).is_some() => Judged::Stays,
            _ => BAD_TAG,
        }
    }

    /// An ABORT or a SHUTDOWN COMPLETE: with the tag of its direction, or reflected with the other one (section 8.5.1 B and C). Without a tag
    /// to compare with, nobody ends an association.
    fn end(&mut self, state: State, from: usize, chunks: &Chunks) -> Judged {
        let side = if chunks.reflected { 1 - from } else { from };
        let is_answered = self.pending(1 - side).is_some();
        if is_answered && self.pending(side) == Some(chunks.tag) && self.tag(side) != Some(chunks.tag) {
            // About the restart, not about what is there.
            return Judged::Noted;
        }
        if self.tag(side) != Some(chunks.tag) {
            return BAD_TAG;
        }
        match state {
            State::TimeWait | State::Reset => Judged::Stays,
            _ if chunks.has(ABORT) => Judged::Moves(State::Reset),
            State::FinWait | State::Closing => Judged::Moves(State::TimeWait),
            _ => Judged::Stays,
        }
    }

    /// Whether the end that sends in a direction may have sent a packet that an ICMP error quotes (section 10): it carries the direction's
    /// tag, or is an INIT whose initiate tag is the one that its receiver must use. `quoted` is as much of the packet as there is.
    pub fn may_have_sent(&self, sender: Direction, quoted: &[u8]) -> bool {
        let (from, to) = (sender as usize, 1 - sender as usize);
        let Some(chunks) = Chunks::read(quoted) else { return false };
        let is_known = |side: usize, tag: u32| {
            [self.tag(side), self.pending(side), self.asked(side)].contains(&Some(tag))
        };
        match chunks.tag {
            0 => chunks.has(INIT) && is_known(to, chunks.initiate_tag),
            // An INIT alone, which anybody may have sent, makes no tag known.
            tag => {
                self.tag(from) == Some(tag) || self.pending(from) == Some(tag) && self.pending(to).is_some()
            }
        }
    }

    /// Whether it can be what is known of an association, and of no TCP connection.
    pub fn is_of_association(&self) -> bool {
        let (window, notes) = (self.window, self.notes);
        let asked = notes.iter().filter(|notes| **notes & ASKED != 0).count();
        asked == usize::from(window != [0; 2])
            && notes.iter().all(|notes| notes & !(SENT | ACKED | ASKED) == 0)
    }

    fn tag(&self, side: usize) -> Option<u32> {
        (self.notes[side] & SENT != 0).then_some(self.end[side])
    }

    fn pending(&self, side: usize) -> Option<u32> {
        (self.notes[side] & ACKED != 0).then_some(self.ack[side])
    }

    fn asked(&self, side: usize) -> Option<u32> {
        let [high, low] = self.window;
        (self.notes[side] & ASKED != 0).then_some(u32::from(high) << 16 | u32::from(low))
    }

    /// An INIT, which may be anybody's, asks that a direction's packets carry this tag, which is not 0.
    fn ask(&mut self, side: usize, tag: u32) {
        self.notes = self.notes.map(|notes| notes & !ASKED);
        self.notes[side] |= ASKED;
        self.window = [(tag >> 16) as u16, tag as u16];
    }

    /// A direction's packets carry this tag, and no other one is expected.
    fn learn(&mut self, side: usize, tag: u32) {
        self.end[side] = tag;
        self.notes[side] |= SENT;
        if self.ack[side] == tag {
            (self.ack[side], self.notes[side]) = (0, self.notes[side] & !ACKED);
        }
    }

    /// A direction's packets will carry this tag if a restart comes about.
    fn expect(&mut self, side: usize, tag: u32) {
        self.ack[side] = tag;
        self.notes[side] |= ACKED;
    }
}

fn moves(state: State, next: State) -> Judged {
    if next == state { Judged::Stays } else { Judged::Moves(next) }
}

#[cfg(test)]
mod tests;
