//! Applies the limits of rules to packets.

use super::state::Pipeline;
use crate::compiled::{LimitedPacket, Snapshot};
use crate::conntrack::{Conntrack, Ingress, addresses};
use crate::rate::Ticks;
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_conn::Tuple;
use mmb_packet::{Layout, Packet};
use mmb_rewrite::{NotApplied, NotAppliedCounts};

/// A packet to which the limits of rules are applied.
pub(super) struct PacketLimiter<'p> {
    packet: &'p Packet<'p>,
    layout: &'p Layout,
    limited: LimitedPacket,
    /// The ends of its connection, as the first packet has them.
    client_tuple: Option<Tuple>,
    not_applied: &'p mut NotAppliedCounts,
}

impl Pipeline {
    /// Prefetches the entries of the packets' addresses in the limits of the matched rules. `tracked`:
    /// connections were looked up, and per-packet rules were matched separately.
    pub(super) fn prefetch_limits(&self, snapshot: &Snapshot, packets: &[Packet<'_>], tracked: bool) {
        if snapshot.limit_rules == 0 {
            return;
        }
        let all_rules = std::iter::once(&self.scratch);
        for scratch in
            all_rules.chain(snapshot.per_packet.as_ref().filter(|_| tracked).map(|_| &self.per_packet))
        {
            for index in scratch.matched().iter().map(|index| usize::from(*index)) {
                let limits = |slot: &&RuleSlot| snapshot.actions.at(slot.index()).limits();
                for &slot in scratch.slots(index).iter().filter(limits) {
                    let ends =
                        || addresses(packets[index].bytes(), &self.work.layouts[index], Ingress::ANYWHERE);
                    snapshot.limit_rule(slot).into_iter().for_each(|rule| rule.prefetch(ends));
                }
            }
        }
    }
}

impl<'p> PacketLimiter<'p> {
    /// A packet of a connection with these ends, or without a connection. `begins`: the packet begins a
    /// connection, if it is not dropped.
    pub(super) fn new(
        (packet, layout): (&'p Packet<'p>, &'p Layout),
        conntrack: &Conntrack,
        (client_tuple, begins): (Option<Tuple>, bool),
        not_applied: &'p mut NotAppliedCounts,
    ) -> PacketLimiter<'p> {
        let now = Ticks::from_ns(conntrack.now_ns());
        let limited = LimitedPacket { now, bytes: packet.len() as u64, begins };
        PacketLimiter { packet, layout, limited, client_tuple, not_applied }
    }

    /// Whether the packet is within the limit of a rule. If so, the limit counts the packet.
    pub(super) fn admits(&mut self, snapshot: &Snapshot, slot: RuleSlot) -> bool {
        let Some(rule) = snapshot.limit_rule(slot) else { return true };
        let of_connection = snapshot.actions.at(slot.index()).is_stateful();
        let outcome = rule.take(self.limited, || match self.client_tuple.filter(|_| of_connection) {
            Some(ends) => Some(ends),
            None => addresses(self.packet.bytes(), self.layout, Ingress::ANYWHERE),
        });
        if outcome.evicted {
            self.not_applied.count(NotApplied::LimitKeys);
        }
        outcome.fits
    }
}
