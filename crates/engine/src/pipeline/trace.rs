//! Packet traces: the verdict on a single packet and its reasons.

use crate::conntrack::Endpoints;
use mmb_base::Id;
use mmb_conn::{ConnId, Connection, Direction};
use mmb_policy::RuleId;

/// The most rules that a trace names.
const MAX_NAMED_RULES: usize = 16;

/// The rules and the connection that determined a packet's verdict.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketTrace {
    pub(super) rules: [u32; MAX_NAMED_RULES],
    /// The number of rules that applied. The trace names the first ones.
    pub count: u32,
    /// The rule that decides by `accept`, `drop` or `reject`: the one with the best priority, and among those
    /// of equal priority an `accept`. Rules that drop a percentage are left out. Rules with a limit that do
    /// not accept are left out too, unless the packet was dropped because it exceeded a limit.
    pub decisive: Option<RuleId>,
    /// The packet's connection.
    pub connection: Option<TracedConnection>,
    /// Rules follow the bytes of its connection, and the packet reached the streams stage.
    pub is_streamed: bool,
}

/// The connection of a traced packet.
#[derive(Clone, Copy, Debug)]
pub struct TracedConnection {
    /// The connection's number at its worker.
    pub id: u32,
    /// The packet created the connection.
    pub is_new: bool,
    /// The packet goes towards the initiator.
    pub is_reply: bool,
    /// The name of the connection's state after the packet.
    pub state: &'static str,
    /// The IP protocol.
    pub proto: u8,
    /// The endpoints of the initiator's packets as they arrive.
    pub arrived: Endpoints,
    /// The endpoints of the same packets as they leave.
    pub sent: Endpoints,
}

impl PacketTrace {
    /// The first rules that applied, in order.
    pub fn rules(&self) -> impl Iterator<Item = RuleId> + '_ {
        self.rules.iter().take(self.count as usize).map(|&id| RuleId(id))
    }
}

impl TracedConnection {
    pub(super) fn new(
        (id, direction, connection): (ConnId, Direction, Connection),
        is_new: bool,
    ) -> TracedConnection {
        let [forward, reply] = connection.tuples();
        TracedConnection {
            id: id.number(),
            is_new,
            state: connection.state.name(),
            sent: Endpoints::from_tuple(&reply.reversed()),
            is_reply: direction == Direction::Reply,
            proto: forward.proto,
            arrived: Endpoints::from_tuple(&forward),
        }
    }
}
