//! Early acknowledgments: mmb acknowledges held bytes to their sender before the receiver has them (RFC 3135
//! section 3.1.2).
//!
//! Without an acknowledgment of held bytes, the sender may not be allowed to send the rest of a match:
//!
//! - Nagle's algorithm waits for the acknowledgment (RFC 9293 section 3.7.4).
//! - After a retransmission timeout, only one segment is in flight (RFC 5681 section 3.1).
//! - The ten segments of a slow start are soon sent.
//!
//! Therefore mmb acknowledges held bytes once the receiver has acknowledged all output before them. These
//! bytes are *early-acknowledged*. They are in order, so SACK does not apply, and there are at most
//! [`MAX_HELD_BYTES`](super::side::MAX_HELD_BYTES) of them.
//!
//! The sender does not retransmit early-acknowledged bytes. mmb retransmits their output until the receiver
//! acknowledges it: after [`RETRY_MS`] without progress, then after twice the time each time, up to
//! [`MAX_POLL_GAP`] polls. A receiver without room gets a window probe every [`POLLS_AFTER_ANSWER`] polls.
//! After [`MAX_POLLS`] the connection is over: both ends are to be reset.
//!
//! Nothing is acknowledged early if receivers acknowledge the original bytes (`AckSpace::Original`): no
//! sender waits for an acknowledgment there.

use super::map::EditLists;
use super::side::EditSide;
use crate::side::Side;

/// The least time between two retransmissions of early-acknowledged bytes: the interval of polls.
pub(crate) const RETRY_MS: u64 = 200;

/// The most polls of a direction, [`RETRY_MS`] apart, before the connection is over: 100 s (RFC 9293 section
/// 3.8.3), with 35 packets.
const MAX_POLLS: u16 = 500;

/// The most polls between two retransmissions: 3.2 s.
const MAX_POLL_GAP: u16 = 16;

/// A receiver that answers that it has no room does not end the connection. The count of polls returns to
/// this value, so the next probe follows after as many polls: after 3 s.
const POLLS_AFTER_ANSWER: u16 = MAX_POLL_GAP;

impl EditSide {
    /// Whether input was acknowledged to the sender that the receiver has not acknowledged.
    pub(crate) fn has_early_acked(&self, side: &Side) -> bool {
        self.early_acked > side.snd_una
    }

    /// Whether the retransmission timer must run: early-acknowledged bytes have output that is not
    /// acknowledged. Held bytes have no output to retransmit yet.
    pub(crate) fn needs_retransmit_timer(&self, side: &Side) -> bool {
        self.has_early_acked(side) && self.snd_una < self.out_end
    }

    /// End of the input that is acknowledged to the sender.
    pub(crate) fn acked_to_sender(&self, side: &Side) -> u64 {
        side.snd_una.max(self.early_acked)
    }

    /// End of the input that may be acknowledged to the sender when the receiver has acknowledged output up
    /// to `output`.
    pub(crate) fn ackable_input(&self, side: &Side, lists: &EditLists, output: u64) -> u64 {
        let is_all =
            output == self.out_end && self.snd_nxt == output && !self.has_ended && self.allows_early_acks;
        let held = if is_all && self.held.len() > 0 { side.rcv_nxt } else { 0 };
        self.acked_input(side, lists, output).max(self.early_acked).max(held)
    }

    /// Acknowledges the held bytes early, if the receiver has acknowledged all output before them.
    pub(crate) fn ack_early(&mut self, side: &Side, lists: &EditLists) {
        let acked = self.ackable_input(side, lists, self.snd_una);
        if acked > side.snd_una {
            self.early_acked = acked;
        }
    }

    /// Records that the receiver has made progress, or has answered that it has no room.
    pub(crate) fn record_answer(&mut self, is_progress: bool) {
        if is_progress {
            self.polls = 0;
        } else if self.header_values.window_edge <= self.sent_end() {
            self.polls = self.polls.min(POLLS_AFTER_ANSWER);
        }
    }

    /// The retransmission timer has expired. Queues a retransmission or a window probe, if the receiver has
    /// not acknowledged output for long enough. Returns false after [`MAX_POLLS`] polls without an answer.
    pub(crate) fn poll(&mut self, receiver_mss: Option<u16>) -> bool {
        if self.snd_una >= self.out_end {
            // The early-acknowledged bytes are held.
            self.polls = 0;
            return true;
        }
        self.polls += 1;
        if self.polls.is_power_of_two() && self.polls < MAX_POLL_GAP
            || self.polls.is_multiple_of(MAX_POLL_GAP)
        {
            self.credit = self.credit.max(1);
            let end = self.sent_end().min(self.send_limit());
            match self.snd_una < end {
                true => self
                    .retransmit
                    .add(self.snd_una, end.min(self.snd_una + self.header_values.max_payload(receiver_mss))),
                false => self.is_probe_due = true,
            }
        }
        self.polls < MAX_POLLS
    }
}
