//! Packet traces: the outcome of a single packet and its reasons.

use super::Pipeline;
use crate::compiled::Snapshot;
use crate::connections::Endpoints;
use crate::conntrack::FlowState;
use mmb_conn::Direction;
use mmb_policy::RuleId;

/// The most rules that a trace names.
const NAMED: usize = 16;

/// The rules and the connection that determined a packet's verdict.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketTrace {
    rules: [u32; NAMED],
    /// How many rules applied, of which the first ones are named.
    pub count: u32,
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
    /// Traces a packet of the vector that was decided on last. `concerned`: connections were looked up.
    pub(super) fn trace(&mut self, snapshot: &Snapshot, at: usize, concerned: bool) -> PacketTrace {
        let mut trace = PacketTrace::default();
        self.matched.clear();
        if !concerned {
            self.matched.extend_from_slice(self.scratch.handles(at));
        } else {
            let flow_state = self.conntrack.initial(at);
            match self.conntrack.cached(at) {
                plan if plan != 0 => self.matched.extend_from_slice(self.conntrack.cache.rules(plan)),
                _ => self.collect_matched(snapshot, at, flow_state, self.conntrack.initial_ct_state(at)),
            }
            trace.connection = self.traced_connection(at, flow_state);
        }
        self.matched.sort_unstable_by_key(|&slot| snapshot.actions.at(slot as usize).rank());
        trace.count = self.matched.len() as u32;
        for (place, &slot) in trace.rules.iter_mut().zip(&self.matched) {
            *place = snapshot.actions.at(slot as usize).id();
        }
        trace
    }

    fn traced_connection(&self, at: usize, flow_state: FlowState) -> Option<TracedConnection> {
        let table = &self.conntrack.table;
        match flow_state {
            FlowState::Untracked
            | FlowState::Invalid(_)
            | FlowState::OtherWorker(_)
            | FlowState::Refused(_)
            | FlowState::Held(_) => return None,
            FlowState::New | FlowState::Existing(..) | FlowState::Fragment(..) | FlowState::Error(..) => {}
        }
        // The packet may have created a connection.
        let (id, direction) = table.find(&self.conntrack.tuple(at)?)?;
        let [forward, _] = table.get(id).tuples();
        Some(TracedConnection {
            id: id.number(),
            is_reply: direction == Direction::Reply,
            proto: forward.proto,
            arrived: Endpoints::of(&forward),
        })
    }
}
