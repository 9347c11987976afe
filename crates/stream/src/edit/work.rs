//! The next packet to generate for a direction, and the invariants of its two states.

use super::map::EditLists;
use super::side::EditSide;
use crate::side::{Level, Side};

/// A packet to generate for a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
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
        let owes = self.owes_ack | self.owes_probe | (self.duplicates > 0);
        let sent = self.out_next + u64::from(self.has_ended);
        let is_queued = self.links.iter().any(|links| links.is_in);
        let is_again = self.again.first().is_some() || !self.ends.is_empty();
        !(owes | is_queued | is_again)
            && self.sent == sent
            && self.held.len() == 0
            && self.promised <= side.acked
    }

    /// The next packet to generate for a direction: retransmissions come before new output. `own` is the
    /// direction's side. `other` and `receiver_mss` belong to the other end.
    pub(crate) fn work(&self, own: &Side, other: &Side, receiver_mss: Option<u16>) -> Option<Work> {
        if !self.ends.is_empty() {
            return Some(Work::Datagram);
        }
        // If an end has sent no acknowledgment yet, the packet would carry its first one. The end may never
        // have received the acknowledged bytes.
        if own.level != Level::Edit || own.told().is_none() || other.told().is_none() {
            return None;
        }
        if self.owes_ack || self.duplicates > 0 {
            return Some(Work::Acknowledgment);
        }
        if self.owes_probe {
            return Some(Work::Probe);
        }
        if self.credit > 0 {
            let (most, limit) = (self.noted.most_payload(receiver_mss), self.limit());
            let again = self.again.first().filter(|(from, _)| *from < limit);
            let (from, to) = again.unwrap_or((self.sent_data(), limit));
            if from < to.min(limit) {
                return Some(Work::Data(from, to.min(limit).min(from + most)));
            }
        }
        let has_fin = self.has_ended && !self.has_sent_fin() && self.sent == self.out_next;
        has_fin.then_some(Work::Data(self.out_next, self.out_next))
    }

    /// Asserts what is true between two packets of a stream whose editor has not broken.
    pub(crate) fn assert_sound(&self, side: &Side, lists: &EditLists) {
        if side.level != Level::Edit || !cfg!(debug_assertions) {
            return;
        }
        debug_assert!(self.acked <= self.sent && self.sent <= self.out_next + u64::from(self.has_ended));
        debug_assert_eq!(self.kept.len() as u64, self.out_next.saturating_sub(self.acked));
        debug_assert_eq!(self.decided + self.held.len() as u64, side.next);
        debug_assert!(!self.has_ended || side.fin() == Some(self.decided));
        // No byte of input counts as acknowledged before all of its output is.
        debug_assert!(side.acked <= self.decided + u64::from(self.acked > self.out_next));
        debug_assert!(self.map.output_ceil(lists, side.acked.min(self.decided)) <= self.acked);
        debug_assert!(self.promised <= side.next);
        debug_assert!(self.again.first().is_none_or(|(from, to)| self.acked <= from && to <= self.sent));
        debug_assert_eq!(self.map.output_ceil(lists, self.decided), self.out_next);
        self.map.assert_sound(lists, self.decided, self.out_next);
    }
}
