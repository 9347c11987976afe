//! Packet traces: the outcome of a single packet and its reasons.

use super::state::Pipeline;
use crate::compiled::{Action, RuleVerdict, Snapshot};
use crate::conntrack::{Endpoints, Traced};
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_conn::{ConnId, Connection, Direction};
use mmb_policy::RuleId;
use mmb_policy::rule::DropRate;

/// The most rules that a trace names.
const NAMED: usize = 16;

/// The rules and the connection that determined a packet's verdict.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketTrace {
    rules: [u32; NAMED],
    /// How many rules applied, of which the first ones are named.
    pub count: u32,
    /// The rule that decides by `accept` or `drop`: of the best priority, of several an `accept`. Rules that drop a percentage are left out.
    pub decisive: Option<RuleId>,
    /// Its connection.
    pub connection: Option<TracedConnection>,
}

/// The connection of a traced packet.
#[derive(Clone, Copy, Debug)]
pub struct TracedConnection {
    /// The connection's number at its worker.
    pub id: u32,
    /// The packet goes towards the initiator.
    pub is_reply: bool,
    /// The IP protocol.
    pub proto: u8,
    /// The initiator's packets as they arrive.
    pub arrived: Endpoints,
}

impl PacketTrace {
    /// The first rules that applied, in order.
    pub fn rules(&self) -> impl Iterator<Item = RuleId> + '_ {
        self.rules.iter().take(self.count as usize).map(|&id| RuleId(id))
    }
}

impl Pipeline {
    /// Traces a packet of the vector that was decided on last. `tracked`: connections were looked up.
    pub(super) fn trace(&mut self, snapshot: &Snapshot, at: usize, tracked: bool) -> PacketTrace {
        let mut trace = PacketTrace::default();
        self.matched.clear();
        if tracked {
            let Traced { assessment, ct_state, cached, connection } = self.conntrack.traced(at);
            trace.connection = connection.map(TracedConnection::of);
            match cached {
                Some(rules) => {
                    let applies = |slot: &RuleSlot| snapshot.actions.at(slot.index()).wants(ct_state);
                    self.matched.extend_from_slice(rules);
                    self.matched.extend(self.per_packet.slots(at).iter().copied().filter(applies));
                }
                None => self.collect_matched(snapshot, at, &assessment, ct_state),
            }
        } else {
            self.matched.extend_from_slice(self.scratch.slots(at));
        }
        self.matched.sort_unstable_by_key(|&slot| snapshot.actions.at(slot.index()).rank());
        trace.count = self.matched.len() as u32;
        for (id, &slot) in trace.rules.iter_mut().zip(&self.matched) {
            *id = snapshot.actions.at(slot.index()).id();
        }
        trace.decisive = decisive(self.matched.iter().map(|slot| snapshot.actions.at(slot.index())));
        trace
    }
}

/// The rule that decides, of rules in order: see [`PacketTrace::decisive`].
fn decisive<'a>(rules: impl Iterator<Item = &'a Action> + Clone) -> Option<RuleId> {
    let decide = rules.filter(|rule| match rule.rule_verdict() {
        RuleVerdict::Accept => true,
        RuleVerdict::Drop(rate) => rate == DropRate::ALL,
        RuleVerdict::None => false,
    });
    let first = decide.clone().next()?;
    let accept = decide
        .take_while(|rule| rule.prio == first.prio)
        .find(|rule| matches!(rule.rule_verdict(), RuleVerdict::Accept));
    Some(RuleId(accept.unwrap_or(first).id()))
}

impl TracedConnection {
    fn of((id, direction, connection): (ConnId, Direction, Connection)) -> TracedConnection {
        let [forward, _] = connection.tuples();
        TracedConnection {
            id: id.number(),
            is_reply: direction == Direction::Reply,
            proto: forward.proto,
            arrived: Endpoints::of(&forward),
        }
    }
}
