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
        for &index in self.scratch.matched() {
            let index = usize::from(index);
            for &slot in self.scratch.slots(index) {
                if snapshot.actions.at(slot.index()).logs() {
                    let packet = (&packets[index], &self.work.layouts[index]);
                    self.conntrack.log_packet(snapshot, slot, packet, verdicts[index]);
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
        index: usize,
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
                self.conntrack.log_packet(snapshot, slot, (packet, &self.work.layouts[index]), verdict);
            }
        }
    }
}
