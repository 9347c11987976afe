//! Resolves the accept, drop and reject targets of the rules that apply to a packet.

use crate::compiled::{Action, RuleVerdict, Snapshot};
use crate::random::DropRandom;
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_policy::rule::{DropRate, Prio};

/// Resolves the rules that a packet matched, in order.
#[inline(never)]
pub(super) fn resolve_in_order(
    snapshot: &Snapshot,
    slots: &mut [RuleSlot],
    random: &mut DropRandom,
) -> VerdictResolver {
    let action = |slot: RuleSlot| snapshot.actions.at(slot.index());
    slots.sort_unstable_by_key(|&slot| action(slot).rank());
    let mut resolver = VerdictResolver::default();
    for &mut slot in slots {
        resolver.resolve(slot, action(slot), || Some(random.draw()));
    }
    resolver
}

/// The rule that drops a packet: of its rules with drop or reject, the first by priority and id. To be called only for a packet that its rules drop, none of
/// them by a percentage.
#[inline(never)]
pub(super) fn first_that_drops(snapshot: &Snapshot, slots: &[RuleSlot]) -> Option<RuleSlot> {
    let action = |slot: RuleSlot| snapshot.actions.at(slot.index());
    let drop = slots.iter().copied().filter(|&slot| action(slot).rule_verdict().drops());
    drop.min_by_key(|&slot| action(slot).rank())
}

/// The combined accept, drop and reject targets of a packet's rules. The rule with the best priority decides; accept wins a tie. A rule that drops
/// a percentage, and does not drop this packet, does not count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VerdictResolver {
    decided: Option<Decision>,
}

/// The verdict of the best rules so far.
#[derive(Clone, Copy, Debug)]
struct Decision {
    drops: bool,
    prio: Prio,
    /// The first rule of this priority.
    first: RuleSlot,
}

impl VerdictResolver {
    /// Adds a rule. Returns false if that takes a random number, which `draw` did not provide.
    #[inline]
    pub(super) fn resolve(
        &mut self,
        slot: RuleSlot,
        action: &Action,
        draw: impl FnOnce() -> Option<u32>,
    ) -> bool {
        let drops = match action.rule_verdict() {
            RuleVerdict::None => return true,
            RuleVerdict::Accept => false,
            // No draw for `drop` without a percentage.
            RuleVerdict::Drop(rate) if rate == DropRate::ALL => true,
            RuleVerdict::Reject(_) => true,
            RuleVerdict::Drop(rate) => match draw() {
                Some(drawn) if drawn < rate.0 => true,
                Some(_) => return true,
                None => return false,
            },
        };
        match &mut self.decided {
            Some(best) if best.prio == action.prio => best.drops &= drops,
            Some(best) if best.prio < action.prio => {}
            decided => *decided = Some(Decision { drops, prio: action.prio, first: slot }),
        }
        true
    }

    /// The slot of the rule that drops the packet, if one does, and the rules were added in order.
    #[inline]
    pub(super) fn dropped_by(self) -> Option<RuleSlot> {
        self.decided.filter(|decision| decision.drops).map(|decision| decision.first)
    }
}
