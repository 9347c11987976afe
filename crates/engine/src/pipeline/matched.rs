//! Collects, sorts, resolves and counts the rules that apply to a packet with connection tracking: those that
//! it matched, and those of its connection.

use super::limits::PacketLimiter;
use super::resolver::{VerdictResolver, resolve_limited};
use super::state::Pipeline;
use crate::compiled::Snapshot;
use crate::conntrack::{Assessment, Ingress, addresses};
use crate::counters::Count;
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_packet::Packet;
use mmb_policy::CtState;

impl Pipeline {
    /// Collects in `matched` the slots of the rules that apply to a packet.
    pub(super) fn collect_matched(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        assessment: &Assessment,
        state: CtState,
    ) {
        self.matched.clear();
        let action = |slot: RuleSlot| snapshot.actions.at(slot.index());
        let matched =
            self.scratch.slots(index).iter().copied().filter(|&slot| action(slot).matches_ct(state));
        match assessment.is_new() {
            true => self.matched.extend(matched),
            false => self.matched.extend(matched.filter(|&slot| !action(slot).is_stateful())),
        }
        if let Some(id) = assessment.connection() {
            self.matched.extend_from_slice(self.conntrack.rules(snapshot, id));
        } else if assessment.is_expected() {
            self.matched.extend_from_slice(self.conntrack.expected_rules(snapshot, index));
        }
    }

    /// Sorts and counts the rules in `matched`, and resolves their accept, drop and reject targets. Returns
    /// the rule that drops the packet.
    pub(super) fn resolve_verdict(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        assessment: &Assessment,
        packet: &Packet<'_>,
    ) -> Option<RuleSlot> {
        let dropped_by = self.resolve_matched(snapshot, index, assessment, packet);
        self.count_matched(snapshot, packet, dropped_by);
        dropped_by
    }

    /// Sorts the rules in `matched`, and resolves their accept, drop and reject targets. Returns the rule
    /// that drops the packet.
    #[inline]
    pub(super) fn resolve_matched(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        assessment: &Assessment,
        packet: &Packet<'_>,
    ) -> Option<RuleSlot> {
        self.sort_matched(snapshot);
        let action = |slot: RuleSlot| snapshot.actions.at(slot.index());
        if self.has_limits(snapshot) {
            let Pipeline { conntrack, work, not_applied, random, .. } = self;
            let layout = &work.layouts[index];
            let ends = match assessment.connection() {
                Some(id) => Some(conntrack.client_tuple(id)),
                None if assessment.is_expected() => {
                    addresses(packet.bytes(), layout, Ingress::ANYWHERE).map(|own| own.reversed())
                }
                None => None,
            };
            let connection = (ends, assessment.is_new());
            let mut limiter = PacketLimiter::new((packet, layout), conntrack, connection, not_applied);
            return resolve_limited(snapshot, &self.matched, random, &mut limiter).dropped_by();
        }
        let mut resolver = VerdictResolver::default();
        for &slot in &self.matched {
            resolver.resolve(slot, action(slot), || Some(self.random.draw()));
        }
        resolver.dropped_by()
    }

    /// Whether some of the rules in `matched` have limits.
    #[inline]
    pub(super) fn has_limits(&self, snapshot: &Snapshot) -> bool {
        let limits = |slot: &RuleSlot| snapshot.actions.at(slot.index()).limits();
        snapshot.limit_rules > 0 && self.matched.iter().any(limits)
    }

    /// Sorts the rules in `matched` by rank.
    #[inline]
    pub(super) fn sort_matched(&mut self, snapshot: &Snapshot) {
        let action = |slot: RuleSlot| snapshot.actions.at(slot.index());
        match &mut self.matched[..] {
            [] | [_] => {}
            // Two rules are the most frequent case. They are too few for the call of a sort.
            [first, second] => {
                if action(*first).rank() > action(*second).rank() {
                    std::mem::swap(first, second);
                }
            }
            more => more.sort_unstable_by_key(|&slot| action(slot).rank()),
        }
    }

    /// Counts a packet for the rules in `matched`, and the drop for the rule that drops it.
    #[inline]
    pub(super) fn count_matched(
        &self,
        snapshot: &Snapshot,
        packet: &Packet<'_>,
        dropped_by: Option<RuleSlot>,
    ) {
        let cells = &snapshot.cells[self.worker];
        let count = Count { packets: 1, bytes: packet.len() as u64 };
        self.matched.iter().for_each(|&slot| cells.slot(slot).add(count));
        dropped_by.into_iter().for_each(|slot| cells.dropped(slot).add(count));
    }
}
