//! Resolves the accept, drop, reject and limit targets of the rules that apply to a packet.

use super::limits::PacketLimiter;
use crate::compiled::{Action, RuleVerdict, Snapshot};
use crate::random::DropRandom;
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_policy::rule::{DropRate, Prio};

/// Sorts the rules that a packet matched, and resolves them.
#[inline(never)]
pub(super) fn resolve_in_order(
    snapshot: &Snapshot,
    slots: &mut [RuleSlot],
    random: &mut DropRandom,
    limiter: &mut PacketLimiter<'_>,
) -> VerdictResolver {
    let action = |slot: RuleSlot| snapshot.actions.at(slot.index());
    slots.sort_unstable_by_key(|&slot| action(slot).rank());
    if snapshot.limit_rules > 0 && slots.iter().any(|&slot| action(slot).limits()) {
        return resolve_limited(snapshot, slots, random, limiter);
    }
    let mut resolver = VerdictResolver::default();
    for &mut slot in slots {
        resolver.resolve(slot, action(slot), || Some(random.draw()));
    }
    resolver
}

/// Resolves sorted rules of which some have limits. A limit counts a packet only if the limit can still
/// change the verdict: no rule with a better priority decides, and the other rules of the same priority leave
/// the decision open.
#[inline(never)]
pub(super) fn resolve_limited(
    snapshot: &Snapshot,
    slots: &[RuleSlot],
    random: &mut DropRandom,
    limiter: &mut PacketLimiter<'_>,
) -> VerdictResolver {
    let action = |slot: RuleSlot| snapshot.actions.at(slot.index());
    let mut resolver = VerdictResolver::default();
    for rules in slots.chunk_by(|&one, &next| action(one).prio == action(next).prio) {
        for &slot in rules.iter().filter(|&&slot| !action(slot).limits()) {
            resolver.resolve(slot, action(slot), || Some(random.draw()));
        }
        resolver.decided = decide_with_limits(snapshot, rules, limiter, resolver.decided);
        if resolver.decided.is_some() {
            break;
        }
    }
    resolver
}

/// The decision of the rules of one priority on a packet. `others` is the decision of the rules without
/// limits. An accept wins, also the accept of a limit for a packet within it. After that, a drop wins.
fn decide_with_limits(
    snapshot: &Snapshot,
    rules: &[RuleSlot],
    limiter: &mut PacketLimiter<'_>,
    others: Option<Decision>,
) -> Option<Decision> {
    if others.is_some_and(|others| !others.drops) {
        return others;
    }
    let mut apply_limits = |accepts: bool| {
        let mut exceeded = None;
        for &slot in rules {
            let action = snapshot.actions.at(slot.index());
            let RuleVerdict::Limit(kind) = action.rule_verdict() else { continue };
            if kind.accepts != accepts || (exceeded.is_some() && !accepts) {
                continue;
            }
            let decision = |drops| Decision { drops, prio: action.prio, first: slot };
            match limiter.admits(snapshot, slot) {
                true if accepts => return Some(decision(false)),
                true => {}
                false => exceeded = exceeded.or(Some(decision(true))),
            }
        }
        exceeded
    };
    match apply_limits(true) {
        Some(accepted) if !accepted.drops => Some(accepted),
        exceeded => others.or(exceeded).or_else(|| apply_limits(false)),
    }
}

/// The rule that drops a packet: the first by priority and id of its rules with drop or reject. To be called
/// only if the packet's rules drop it, and none of them drops a percentage.
#[inline(never)]
pub(super) fn first_dropping_rule(snapshot: &Snapshot, slots: &[RuleSlot]) -> Option<RuleSlot> {
    let action = |slot: RuleSlot| snapshot.actions.at(slot.index());
    let drop = slots.iter().copied().filter(|&slot| action(slot).rule_verdict().drops());
    drop.min_by_key(|&slot| action(slot).rank())
}

/// The combined accept, drop and reject targets of a packet's rules. The rule with the best priority decides;
/// accept wins a tie. A rule that drops a percentage is ignored if it does not drop this packet.
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
    /// Adds a rule. Returns false if the rule cannot be resolved: it needs a random number, which `draw` did
    /// not provide, or it has a limit, which needs the packet.
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
            // A limit on connections counts only their first packets. For other packets, only its `accept`
            // matters.
            RuleVerdict::Limit(kind) if kind.first_only && !kind.accepts => return true,
            RuleVerdict::Limit(kind) if kind.first_only => false,
            RuleVerdict::Limit(_) => return false,
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

    /// The slot of the rule that drops the packet, if one does. The rules must have been added in order.
    #[inline]
    pub(super) fn dropped_by(self) -> Option<RuleSlot> {
        self.decided.filter(|decision| decision.drops).map(|decision| decision.first)
    }
}
