//! The next packet to generate for a direction, and the invariants of its two states.

use super::map::EditLists;
use super::side::EditSide;
use crate::side::{Level, Side};

/// A packet to generate for a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextPacket {
    /// An acknowledgment to the sender.
    Acknowledgment,
    /// Output between these offsets; at the end of the output, the FIN alone.
    Data(u64, u64),
    /// A window probe to the receiver.
    Probe,
    /// The first datagram in the queue.
    Datagram,
}

impl EditSide {
    /// Whether the direction is in no queue and does not belong in one: the usual state.
    #[inline]
    pub(crate) fn is_quiet(&self, side: &Side) -> bool {
        let is_due = self.is_ack_due | self.is_probe_due | (self.duplicate_acks > 0);
        let sent = self.out_end + u64::from(self.has_ended);
        let is_queued = self.links.iter().any(|links| links.is_queued);
        let has_more = self.retransmit.first().is_some() || !self.datagram_ends.is_empty();
        !(is_due | is_queued | has_more)
            && self.snd_nxt == sent
            && self.held.len() == 0
            && self.early_acked <= side.snd_una
    }

    /// The next packet to generate for a direction: retransmissions come before new output. `own` is the
    /// direction's side. `other` and `receiver_mss` belong to the other end.
    pub(crate) fn next_packet(
        &self,
        own: &Side,
        other: &Side,
        receiver_mss: Option<u16>,
    ) -> Option<NextPacket> {
        if !self.datagram_ends.is_empty() {
            return Some(NextPacket::Datagram);
        }
        // If an end has sent no acknowledgment yet, the packet would carry its first one. The end may never
        // have received the acknowledged bytes.
        if own.level != Level::Edit || own.last_ack_sent().is_none() || other.last_ack_sent().is_none() {
            return None;
        }
        if self.is_ack_due || self.duplicate_acks > 0 {
            return Some(NextPacket::Acknowledgment);
        }
        if self.is_probe_due {
            return Some(NextPacket::Probe);
        }
        if self.credit > 0 {
            let (max_payload, limit) = (self.header_values.max_payload(receiver_mss), self.send_limit());
            let retransmit = self.retransmit.first().filter(|(start, _)| *start < limit);
            let (start, end) = retransmit.unwrap_or((self.sent_end(), limit));
            if start < end.min(limit) {
                return Some(NextPacket::Data(start, end.min(limit).min(start + max_payload)));
            }
        }
        let has_fin = self.has_ended && !self.has_sent_fin() && self.snd_nxt == self.out_end;
        has_fin.then_some(NextPacket::Data(self.out_end, self.out_end))
    }

    /// Asserts what is true between two packets of a stream whose editor has not broken.
    pub(crate) fn assert_sound(&self, side: &Side, lists: &EditLists) {
        if side.level != Level::Edit || !cfg!(debug_assertions) {
            return;
        }
        debug_assert!(
            self.snd_una <= self.snd_nxt && self.snd_nxt <= self.out_end + u64::from(self.has_ended)
        );
        debug_assert_eq!(self.buffered.len() as u64, self.out_end.saturating_sub(self.snd_una));
        debug_assert_eq!(self.decided + self.held.len() as u64, side.rcv_nxt);
        debug_assert!(!self.has_ended || side.fin() == Some(self.decided));
        // No byte of input counts as acknowledged before all of its output is.
        debug_assert!(side.snd_una <= self.decided + u64::from(self.snd_una > self.out_end));
        debug_assert!(self.map.output_ceil(lists, side.snd_una.min(self.decided)) <= self.snd_una);
        debug_assert!(self.early_acked <= side.rcv_nxt);
        debug_assert!(
            self.retransmit.first().is_none_or(|(start, end)| self.snd_una <= start && end <= self.snd_nxt)
        );
        debug_assert_eq!(self.map.output_ceil(lists, self.decided), self.out_end);
        self.map.assert_sound(lists, self.decided, self.out_end);
    }
}
