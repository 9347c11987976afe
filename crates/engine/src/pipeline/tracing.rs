//! Traces the packets of a vector.

use super::state::Pipeline;
use super::trace::{PacketTrace, TracedConnection};
use crate::compiled::{Action, RuleVerdict, Snapshot};
use crate::conntrack::Traced;
use crate::drop::DropReason;
use crate::verdict::Verdict;
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_policy::RuleId;
use mmb_policy::rule::DropRate;

impl Pipeline {
    /// Traces a packet of the vector that was decided on last, with this verdict. `tracked`: connections were
    /// looked up.
    pub(super) fn trace(
        &mut self,
        snapshot: &Snapshot,
        index: usize,
        tracked: bool,
        verdict: Verdict,
    ) -> PacketTrace {
        let mut trace = PacketTrace::default();
        self.matched.clear();
        if tracked {
            let Traced { assessment, ct_state, cached, connection } = self.conntrack.traced(index);
            let expected = connection.map(|(id, ..)| id).filter(|_| assessment.is_expected());
            trace.connection = connection.map(|traced| TracedConnection::new(traced, assessment.is_new()));
            trace.is_streamed = self.work.streamed.iter().any(|(number, _)| usize::from(*number) == index);
            match cached {
                Some(rules) => {
                    let applies = |slot: &RuleSlot| snapshot.actions.at(slot.index()).matches_ct(ct_state);
                    self.matched.extend_from_slice(rules);
                    self.matched.extend(self.per_packet.slots(index).iter().copied().filter(applies));
                }
                None => self.collect_matched(snapshot, index, &assessment, ct_state),
            }
            if let Some(id) = expected {
                self.matched.extend_from_slice(self.conntrack.rules(snapshot, id));
            }
        } else {
            self.matched.extend_from_slice(self.scratch.slots(index));
        }
        self.matched.sort_unstable_by_key(|&slot| snapshot.actions.at(slot.index()).rank());
        trace.count = self.matched.len() as u32;
        for (id, &slot) in trace.rules.iter_mut().zip(&self.matched) {
            *id = snapshot.actions.at(slot.index()).id();
        }
        let mut rules = self.matched.iter().map(|slot| snapshot.actions.at(slot.index()));
        trace.decisive = match verdict {
            Verdict::Drop(DropReason::RuleLimit) => {
                rules.find(|rule| rule.limits()).map(|rule| RuleId(rule.id()))
            }
            _ => decisive(rules),
        };
        trace
    }
}

/// The rule that decides, of sorted rules: see [`PacketTrace::decisive`].
fn decisive<'a>(rules: impl Iterator<Item = &'a Action> + Clone) -> Option<RuleId> {
    let decide = rules.filter(|rule| match rule.rule_verdict() {
        RuleVerdict::Accept => true,
        RuleVerdict::Drop(rate) => rate == DropRate::ALL,
        RuleVerdict::Reject(_) => true,
        // A limit that does not accept leaves the packets within it to other rules.
        RuleVerdict::Limit(kind) => kind.accepts,
        RuleVerdict::None => false,
    });
    let first = decide.clone().next()?;
    let accept = decide
        .take_while(|rule| rule.prio == first.prio)
        .find(|rule| matches!(rule.rule_verdict(), RuleVerdict::Accept));
    Some(RuleId(accept.unwrap_or(first).id()))
}
