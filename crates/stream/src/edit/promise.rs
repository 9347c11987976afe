//! Held bytes are acknowledged to their sender.
//!
//! A sender that gets no acknowledgment for what is held may have no leave to send the rest of a match: Nagle's algorithm waits for it (RFC 9293
//! section 3.7.4), a retransmission timeout leaves one segment in flight (RFC 5681 section 3.1), and the ten segments of a slow start are soon
//! sent. So, when the receiver has acknowledged all output before them, held bytes are acknowledged: they are *promised*. They are in order, so that
//! SACK does not come into it, and at most [`MOST_HELD`](super::side::MOST_HELD).
//!
//! What was promised its sender does not send again. As long as its receiver has not acknowledged the output of it, it is sent again from here:
//! when [`RETRY_MS`] have passed without progress, and after twice the time each time, up to [`LONGEST`]. A receiver without room is asked for it
//! every [`ANSWERED`] polls. After [`MOST_POLLS`] the connection is over: both ends are to be reset.
//!
//! Nothing is promised where acknowledgments are those of the original bytes (`AckSpace::Original`): there nobody waits for them.

use super::map::EditLists;
use super::side::EditSide;
use crate::side::Side;

/// The least time between two packets that are sent again for a promise.
pub(crate) const RETRY_MS: u64 = 200;

/// So often a direction is looked at, [`RETRY_MS`] apart, before its receiver is given up: for 100 s (RFC 9293 section 3.8.3), with 35 packets.
const MOST_POLLS: u16 = 500;

/// The most polls between two packets that are sent again: 3.2 s.
const LONGEST: u16 = 16;

/// A receiver that answers that it has no room is not given up, and asked again when it was looked at as often once more: after 3 s.
const ANSWERED: u16 = LONGEST;

impl EditSide {
    /// Whether the receiver has not acknowledged all that was acknowledged to the sender.
    pub(crate) fn is_promising(&self, side: &Side) -> bool {
        self.promised > side.acked
    }

    /// Whether there is output that is promised and not acknowledged: nothing is to be sent again of what is held.
    pub(crate) fn owes_promised(&self, side: &Side) -> bool {
        self.is_promising(side) && self.acked < self.out_next
    }

    /// The input that is acknowledged to the sender.
    pub(crate) fn told_acked(&self, side: &Side) -> u64 {
        side.acked.max(self.promised)
    }

    /// The input that may be acknowledged to the sender when the receiver has acknowledged output up to `out`.
    pub(crate) fn promised_at(&self, side: &Side, lists: &EditLists, out: u64) -> u64 {
        let is_all = out == self.out_next && self.sent == out && !self.has_ended && self.promises;
        let held = if is_all && self.held.len() > 0 { side.next } else { 0 };
        self.acked_input(side, lists, out).max(self.promised).max(held)
    }

    /// Promises what is held, if the receiver has acknowledged all before it.
    pub(crate) fn promise(&mut self, side: &Side, lists: &EditLists) {
        let told = self.promised_at(side, lists, self.acked);
        if told > side.acked {
            self.promised = told;
        }
    }

    /// The receiver has made progress, or has told that it has no room.
    pub(crate) fn note_answer(&mut self, is_progress: bool) {
        if is_progress {
            self.polls = 0;
        } else if self.noted.edge <= self.sent_data() {
            self.polls = self.polls.min(ANSWERED);
        }
    }

    /// Queues what a receiver has not acknowledged for so long. Returns whether the promise holds still.
    pub(crate) fn poll(&mut self, receiver_mss: Option<u16>) -> bool {
        if self.acked >= self.out_next {
            // What was promised is held.
            self.polls = 0;
            return true;
        }
        self.polls += 1;
        if self.polls.is_power_of_two() && self.polls < LONGEST || self.polls.is_multiple_of(LONGEST) {
            self.credit = self.credit.max(1);
            let end = self.sent_data().min(self.limit());
            match self.acked < end {
                true => {
                    self.again.add(self.acked, end.min(self.acked + self.noted.most_payload(receiver_mss)))
                }
                false => self.owes_probe = true,
            }
        }
        self.polls < MOST_POLLS
    }
}
