//! Answers packets of a vector, and sends vectors of answers.

use super::forward::l3_len;
use super::state::Pipeline;
use crate::compiled::{Route, RuleVerdict, Snapshot};
use crate::counters::Count;
use crate::verdict::{Cycles, Origin, Verdict};
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_packet::Packet;

impl Pipeline {
    /// Returns the verdict on a packet of the vector that the rule `drop_rule` drops. If the rule rejects, answers
    /// the packet from its bytes as they were received.
    #[inline]
    pub(super) fn dropped_by(
        &mut self,
        snapshot: &Snapshot,
        drop_rule: RuleSlot,
        index: usize,
        packet: &Packet<'_>,
    ) -> Verdict {
        let verdict = snapshot.actions.at(drop_rule.index()).rule_verdict();
        if let RuleVerdict::Reject(reject) = verdict {
            let mtu = snapshot.ingress_mtu(packet.port) as usize;
            self.answers.reject(reject, mtu, packet, &self.work.layouts[index], &mut self.not_applied);
        }
        Verdict::Drop(verdict.drop_reason())
    }

    /// Whether some of these packets, which arrived on one port, may exceed the MTU of their egress port.
    /// False if MTU errors are off.
    #[inline]
    pub(super) fn may_exceed_mtu(snapshot: &Snapshot, route: &Route, packets: &[Packet<'_>]) -> bool {
        let Some((_, mtu)) = route.egress.filter(|_| snapshot.answers.mtu_errors) else { return false };
        packets.iter().any(|packet| packet.len() > packet.link.header_len() + mtu as usize)
    }

    /// Prepares errors for the packets of the vector that exceed the MTU as they were received.
    #[inline(never)]
    pub(super) fn prepare_mtu_errors(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        verdicts: &[Verdict],
    ) {
        for ((index, packet), verdict) in (0..=u8::MAX).zip(packets).zip(verdicts) {
            let layout = &self.work.layouts[usize::from(index)];
            if let Verdict::Send(_) = verdict
                && let Some((_, mtu)) = snapshot.route(packet.port).egress
                && l3_len(packet, layout) > mtu as usize
            {
                let mtus = (mtu, snapshot.ingress_mtu(packet.port) as usize);
                self.answers.prepare_mtu_error(index, mtus, packet, layout);
            }
        }
    }

    /// Sends answers on the ports on which the answered packets arrived.
    pub(super) fn pass_answers(
        &mut self,
        (snapshot, cycles): (&Snapshot, &impl Cycles),
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
        is_tapped: bool,
    ) {
        self.work.clear();
        for (packet, verdict) in packets.iter().zip(verdicts.iter_mut()) {
            *verdict = Verdict::Send(packet.port);
            let count = Count { packets: 1, bytes: packet.len() as u64 };
            self.cells.forwarded(usize::from(packet.port.0), count);
        }
        if is_tapped {
            // Answers match no rules. Without keys, this clears the matches of the previous vector.
            self.keys.clear();
            self.classify(snapshot, cycles, packets);
            self.end_taps(snapshot, (Origin::Answer, false), packets, verdicts);
        }
    }
}
