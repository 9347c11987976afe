//! Packet traces: the outcome of a single packet and its reasons.

use crate::conntrack::Endpoints;
use mmb_base::Id;
use mmb_conn::{ConnId, Connection, Direction};
use mmb_policy::RuleId;

/// The most rules that a trace names.
const NAMED: usize = 16;

/// The rules and the connection that determined a packet's verdict.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketTrace {
    pub(super) rules: [u32; NAMED],
    /// How many rules applied, of which the first ones are named.
    pub count: u32,
    /// The rule that decides by `accept`, `drop` or `reject`: of the best priority, of several an `accept`. Rules that drop a percentage or what exceeds a limit are left out.
    pub decisive: Option<RuleId>,
    /// Its connection.
    pub connection: Option<TracedConnection>,
    /// Rules follow the bytes of its connection, and it came to them.
    pub is_streamed: bool,
}

/// The connection of a traced packet.
#[derive(Clone, Copy, Debug)]
pub struct TracedConnection {
    /// The connection's number at its worker.
    pub id: u32,
    /// The packet made it.
    pub is_new: bool,
    /// The packet goes towards the initiator.
    pub is_reply: bool,
    /// The name of its state behind the packet.
    pub state: &'static str,
    /// The IP protocol.
    pub proto: u8,
    /// The initiator's packets as they arrive.
    pub arrived: Endpoints,
    /// The same packets as they leave.
    pub sent: Endpoints,
}

impl PacketTrace {
    /// The first rules that applied, in order.
    pub fn rules(&self) -> impl Iterator<Item = RuleId> + '_ {
        self.rules.iter().take(self.count as usize).map(|&id| RuleId(id))
    }
}

impl TracedConnection {
    pub(super) fn of(
        (id, direction, connection): (ConnId, Direction, Connection),
        is_new: bool,
    ) -> TracedConnection {
        let [forward, reply] = connection.tuples();
        TracedConnection {
            id: id.number(),
            is_new,
            state: connection.state.name(),
            sent: Endpoints::of(&reply.reversed()),
            is_reply: direction == Direction::Reply,
            proto: forward.proto,
            arrived: Endpoints::of(&forward),
        }
    }
}
