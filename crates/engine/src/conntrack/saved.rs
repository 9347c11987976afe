//! A connection between two daemons: everything that restores it, but its place in a table.

use super::extension::ConnectionExtension;
use super::info::ConnectionInfo;
use mmb_conn::{CloseReason, Connection, ConnectionSnapshot, Tuple};
use mmb_policy::RuleId;

/// The longest age that a connection can have, in milliseconds: the range of its timestamps.
pub(super) const LONGEST_AGE_MS: u64 = 1 << 36;
/// The longest time since its last packet.
pub(super) const LONGEST_IDLE_MS: u64 = u32::MAX as u64;

/// A connection on its way from one daemon to the next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SavedConnection {
    pub(crate) connection: ConnectionSnapshot,
    pub(crate) extension: ConnectionExtension,
    /// It must not go on.
    pub(crate) over: Option<SavedEnd>,
    /// The rules that it has: those in force when it was saved, or their successors, by id.
    pub(crate) rules: Vec<RuleId>,
}

/// How the packets of a connection are treated that must not go on: its ends would misunderstand each other, or a rule had ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SavedEnd {
    /// They are dropped and answered with a RST.
    Answered,
    /// They are dropped.
    Silent,
}

impl SavedConnection {
    pub(crate) fn of(
        connection: &Connection,
        now_ms: u64,
        extension: ConnectionExtension,
        over: Option<SavedEnd>,
        rules: Vec<RuleId>,
    ) -> SavedConnection {
        SavedConnection { connection: connection.snapshot(now_ms), extension, over, rules }
    }

    /// The tuples of what NAT translated: as it arrived, and as it was sent. Of a connection that a helper expected that is the end of its
    /// responder, as if that had begun it.
    pub(crate) fn translated(&self) -> [Tuple; 2] {
        let [arrived, reply] = self.connection.tuples;
        match self.connection.is_expected {
            true => [reply, arrived.reversed()],
            false => [arrived, reply.reversed()],
        }
    }

    pub(crate) fn left_out(&self, reason: &'static str) -> LeftOutConnection {
        LeftOutConnection {
            info: ConnectionInfo::of_saved(&self.connection, self.rules.iter().copied().collect()),
            reason,
        }
    }
}

/// A connection of a state that was not restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutConnection {
    /// The connection as it would have been restored, with the downtime in its ages; its rules have the ids of the state.
    pub info: ConnectionInfo,
    /// The reason: the name of a [`DropReason`](crate::DropReason), such as `nat-clash` if another connection has the tuples or the connection exists already, or
    /// `conn-full` if the table has no room; [`LeftOutConnection::TIMEOUT`] or [`LeftOutConnection::NO_PORT`].
    pub reason: &'static str,
}

impl LeftOutConnection {
    /// It has timed out since it was saved.
    pub const TIMEOUT: &'static str = CloseReason::Timeout.name();
    /// One of its ports is gone, or its ports are not of one wire any more.
    pub const NO_PORT: &'static str = "no-port";
}
