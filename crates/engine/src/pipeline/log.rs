//! Logs the packets that matched rules with `log`, after their verdict is known. Does nothing without a
//! watcher.

use super::state::Pipeline;
use crate::compiled::Snapshot;
use crate::verdict::Verdict;
use mmb_base::Id;
use mmb_packet::Packet;

impl Pipeline {
    /// Logs the packets of a vector that was decided on without connections.
    #[cold]
    #[inline(never)]
    pub(super) fn log_vector(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>], verdicts: &[Verdict]) {
        if !self.conntrack.is_watched() {
            return;
        }
        for &at in self.scratch.matched() {
            let at = usize::from(at);
            for &slot in self.scratch.slots(at) {
                if snapshot.actions.at(slot.index()).logs() {
                    let packet = (&packets[at], &self.work.layouts[at]);
                    self.conntrack.tell_packet(snapshot, slot, packet, verdicts[at]);
                }
            }
        }
    }

    /// Logs a packet to which the rules in `matched` apply. A stateful rule logs it only if it `begins` a
    /// connection.
    #[cold]
    #[inline(never)]
    pub(super) fn log_matched(
        &mut self,
        snapshot: &Snapshot,
        at: usize,
        begins: bool,
        packet: &Packet<'_>,
        verdict: Verdict,
    ) {
        if !self.conntrack.is_watched() {
            return;
        }
        for &slot in &self.matched {
            let action = snapshot.actions.at(slot.index());
            if action.logs() && (begins || !action.is_stateful()) {
                self.conntrack.tell_packet(snapshot, slot, (packet, &self.work.layouts[at]), verdict);
            }
        }
    }
}
