//! Rules that never decide, because another rule matches all of their packets and has the better verdict.
//!
//! Rules are compared in pairs: a rule whose packets several better rules match only together is not found. What is found is certain.

use crate::check::conflict::Conjunction;
use mmb_policy::rule::{DropRate, Rule, RuleId, Target};
use mmb_policy::{CtStates, RuleStore};

/// The cost of a whole comparison of two rules, in those of a brief one.
const WHOLE: u64 = 32;

/// A rule that never decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowedRule {
    /// The rule.
    pub id: RuleId,
    /// The rule that decides instead.
    pub by: RuleId,
}

/// A rule with a verdict.
struct Decider {
    rule: Rule,
    id: RuleId,
    accepts: bool,
    packets: Conjunction,
    states: CtStates,
}

impl Decider {
    fn new(rule: Rule) -> Option<Decider> {
        let is_verdict = |target: &&Target| {
            matches!(target, Target::Accept | Target::Drop(_) | Target::Reject(_) | Target::Limit(_))
        };
        rule.targets.iter().find(is_verdict)?;
        let accepts = rule.targets.contains(&Target::Accept);
        // It decides by the bytes of connections.
        if rule.stream_matches().next().is_some() {
            return None;
        }
        let packets = Conjunction::of(&rule.matches);
        Some(Decider {
            id: rule.id?,
            accepts,
            packets,
            states: CtStates::asked_by(rule.matches.iter()),
            rule,
        })
    }

    /// The order in which the rules that match a packet decide: by priority, `accept` before `drop`, then by id.
    fn rank(&self) -> (u32, bool, RuleId) {
        (self.rule.prio, !self.accepts, self.id)
    }

    /// Whether it decides whenever it matches and no better rule does. A stateful rule also applies to packets that do not match it, and
    /// not to all that do.
    fn always_decides(&self) -> bool {
        // What is in a named set changes, and no policy is made anew for it.
        let is_certain = !self.rule.stateful && self.rule.sets().next().is_none();
        let drops = |target: &Target| matches!(target, Target::Drop(DropRate::ALL) | Target::Reject(_));
        // What exceeds a limit is dropped, and what does not passes on.
        let limits = self.rule.targets.iter().any(|target| matches!(target, Target::Limit(_)));
        is_certain && !limits && (self.accepts || self.rule.targets.iter().any(drops))
    }

    /// Whether every packet of a worse rule matches this one.
    fn shadows(&self, worse: &Decider) -> bool {
        // A stateful rule applies to connections, which do not begin if their first packets are dropped.
        let decides_first = !worse.rule.stateful || !self.accepts;
        let unmatched = self.states.unwanted() & !worse.states.unwanted();
        decides_first && unmatched == 0 && worse.packets.implies(&self.packets)
    }
}

/// Returns the rules of a policy that never decide, by id, with one of the rules that decide instead: of those with the fewest
/// constraints. The search ends after a number of comparisons, `budget`, so that it is complete only for policies of so many pairs of rules.
pub fn shadowed(rules: &RuleStore, budget: u64) -> Vec<ShadowedRule> {
    if (rules.len() as u64).saturating_mul(2) > budget {
        return Vec::new();
    }
    let mut deciders: Vec<Decider> = rules.iter().filter_map(Decider::new).collect();
    deciders.sort_by_key(Decider::rank);
    let mut broadest: Vec<usize> = (0..deciders.len()).filter(|&at| deciders[at].always_decides()).collect();
    broadest.sort_by_key(|&at| (deciders[at].rule.matches.len(), at));
    let mut left = budget;
    let mut found = Vec::new();
    for (at, worse) in deciders.iter().enumerate() {
        let by =
            broadest.iter().filter(|&&better| better < at).map(|&better| &deciders[better]).find(|better| {
                let may = better.packets.may_be_implied_by(&worse.packets);
                let cost = if may { WHOLE } else { 1 };
                let is_affordable = left >= cost;
                left = left.saturating_sub(cost);
                may && is_affordable && better.shadows(worse)
            });
        found.extend(by.map(|by| ShadowedRule { id: worse.id, by: by.id }));
        if left == 0 {
            break;
        }
    }
    found.sort_by_key(|shadowed| shadowed.id);
    found
}
