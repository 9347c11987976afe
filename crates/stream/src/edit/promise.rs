//! Promises: mmb acknowledges held bytes to their sender.
//!
//! Without an acknowledgment of held bytes, the sender may not be allowed to send the rest of a match:
//!
//! - Nagle's algorithm waits for the acknowledgment (RFC 9293 section 3.7.4).
//! - After a retransmission timeout, only one segment is in flight (RFC 5681 section 3.1).
//! - The ten segments of a slow start are soon sent.
//!
//! Therefore mmb acknowledges held bytes once the receiver has acknowledged all output before them. These
//! bytes are *promised*. They are in order, so SACK does not apply, and there are at most
//! [`MOST_HELD`](super::side::MOST_HELD) of them.
//!
//! The sender does not retransmit promised bytes. mmb retransmits their output until the receiver
//! acknowledges it: after [`RETRY_MS`] without progress, then after twice the time each time, up to
//! [`LONGEST`] polls. A receiver without room gets a window probe every [`ANSWERED`] polls. After
//! [`MOST_POLLS`] the connection is over: both ends are to be reset.
//!
//! Nothing is promised if receivers acknowledge the original bytes (`AckSpace::Original`): no sender waits
//! for an acknowledgment there.

use super::map::EditLists;
use super::side::EditSide;
use crate::side::Side;

/// The least time between two retransmissions for a promise.
pub(crate) const RETRY_MS: u64 = 200;

/// The most polls of a direction, [`RETRY_MS`] apart, before the connection is over: 100 s (RFC 9293 section
/// 3.8.3), with 35 packets.
const MOST_POLLS: u16 = 500;

/// The most polls between two retransmissions: 3.2 s.
const LONGEST: u16 = 16;

/// A receiver that answers that it has no room does not end the connection. The count of polls returns to
/// this value, so the next probe follows after as many polls: after 3 s.
const ANSWERED: u16 = LONGEST;

impl EditSide {
    /// Whether input was acknowledged to the sender that the receiver has not acknowledged.
    pub(crate) fn is_promising(&self, side: &Side) -> bool {
        self.promised > side.acked
    }

    /// Whether promised bytes have output that is not acknowledged. Held bytes have no output to retransmit
    /// yet.
    pub(crate) fn owes_promised(&self, side: &Side) -> bool {
        self.is_promising(side) && self.acked < self.out_next
    }

    /// End of the input that is acknowledged to the sender.
    pub(crate) fn told_acked(&self, side: &Side) -> u64 {
        side.acked.max(self.promised)
    }

    /// End of the input that may be acknowledged to the sender when the receiver has acknowledged output up
    /// to `out`.
    pub(crate) fn promised_at(&self, side: &Side, lists: &EditLists, out: u64) -> u64 {
        let is_all = out == self.out_next && self.sent == out && !self.has_ended && self.promises;
        let held = if is_all && self.held.len() > 0 { side.next } else { 0 };
        self.acked_input(side, lists, out).max(self.promised).max(held)
    }

    /// Promises the held bytes, if the receiver has acknowledged all output before them.
    pub(crate) fn promise(&mut self, side: &Side, lists: &EditLists) {
        let told = self.promised_at(side, lists, self.acked);
        if told > side.acked {
            self.promised = told;
        }
    }

    /// Records that the receiver has made progress, or has answered that it has no room.
    pub(crate) fn note_answer(&mut self, is_progress: bool) {
        if is_progress {
            self.polls = 0;
        } else if self.noted.edge <= self.sent_data() {
            self.polls = self.polls.min(ANSWERED);
        }
    }

    /// Queues a retransmission or a window probe, if the receiver has not acknowledged output for long
    /// enough. Returns false after [`MOST_POLLS`] polls without an answer.
    pub(crate) fn poll(&mut self, receiver_mss: Option<u16>) -> bool {
        if self.acked >= self.out_next {
            // The promised bytes are held.
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
