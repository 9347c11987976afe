//! Resolves the accept and drop targets of the rules that apply to a packet.

use crate::compiled::{Action, RuleVerdict, Snapshot};
use crate::random::DropRandom;
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_policy::rule::DropRate;

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
        resolver.resolve(action(slot), || Some(random.draw()));
    }
    resolver
}

/// The combined accept and drop targets of a packet's rules. The rule with the best priority decides; accept wins a tie. A rule that drops
/// a percentage, and does not drop this packet, does not count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VerdictResolver {
    decided: Option<(u32, bool)>,
}

impl VerdictResolver {
    /// Adds a rule. Returns false if that takes a random number, which `draw` did not provide.
    #[inline]
    pub(super) fn resolve(&mut self, action: &Action, draw: impl FnOnce() -> Option<u32>) -> bool {
        let drops = match action.rule_verdict() {
            RuleVerdict::None => return true,
            RuleVerdict::Accept => false,
            // No draw for `drop` without a percentage.
            RuleVerdict::Drop(rate) if rate == DropRate::ALL => true,
            RuleVerdict::Drop(rate) => match draw() {
                Some(drawn) if drawn < rate.0 => true,
                Some(_) => return true,
                None => return false,
            },
        };
        match &mut self.decided {
            Some((prio, decided)) if *prio == action.prio => *decided &= drops,
            Some((prio, _)) if *prio < action.prio => {}
            decided => *decided = Some((action.prio, drops)),
        }
        true
    }

    #[inline]
    pub(super) fn drops(self) -> bool {
        self.decided.is_some_and(|(_, drops)| drops)
    }
}
