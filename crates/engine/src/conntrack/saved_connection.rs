//! A connection on its way between two daemons: everything needed to restore it, except its place in a table.

use super::extension::ConnectionExtension;
use super::info::ConnectionInfo;
use mmb_conn::{CloseReason, Connection, ConnectionSnapshot, Tuple};
use mmb_policy::RuleId;

/// The longest age of a connection, in milliseconds: the range of its timestamps.
pub(super) const LONGEST_AGE_MS: u64 = 1 << 36;
/// The longest time since the last packet of a connection, in milliseconds.
pub(super) const LONGEST_IDLE_MS: u64 = u32::MAX as u64;

/// A connection that one daemon saves and another daemon restores.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SavedConnection {
    pub(crate) connection: ConnectionSnapshot,
    pub(crate) extension: ConnectionExtension,
    /// The connection must not continue, and its packets are treated like this.
    pub(crate) end: Option<SavedEnd>,
    /// The ids of its rules: those that were in force when it was saved, or their successors.
    pub(crate) rules: Vec<RuleId>,
}

/// How packets are treated if their connection must not continue: its ends would misunderstand each other, or
/// a rule had ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SavedEnd {
    /// They are dropped and answered with a RST.
    Answered,
    /// They are dropped.
    Silent,
}

impl SavedConnection {
    pub(crate) fn new(
        connection: &Connection,
        now_ms: u64,
        extension: ConnectionExtension,
        end: Option<SavedEnd>,
        rules: Vec<RuleId>,
    ) -> SavedConnection {
        SavedConnection { connection: connection.snapshot(now_ms), extension, end, rules }
    }

    /// The tuples of what NAT translated: as it arrived, and as it was sent. For a connection that a helper
    /// expected, NAT translated the responder, so the tuples are those of a connection from the responder.
    pub(crate) fn translated(&self) -> [Tuple; 2] {
        let [arrived, reply] = self.connection.tuples;
        match self.connection.is_expected {
            true => [reply, arrived.reversed()],
            false => [arrived, reply.reversed()],
        }
    }

    pub(crate) fn left_out(&self, reason: &'static str) -> LeftOutConnection {
        LeftOutConnection {
            info: ConnectionInfo::from_saved(&self.connection, self.rules.iter().copied().collect()),
            reason,
        }
    }
}

/// A connection of a state that was not restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutConnection {
    /// The connection as it would have been restored: its ages include the downtime, and its rules have the
    /// ids of the state.
    pub info: ConnectionInfo,
    /// The reason. It is the name of a [`DropReason`](crate::DropReason), [`LeftOutConnection::TIMEOUT`] or
    /// [`LeftOutConnection::NO_PORT`]. Examples of drop reasons are `nat-clash`, if another connection has
    /// the tuples or the connection already exists, and `conn-full`, if the table has no room.
    pub reason: &'static str,
}

impl LeftOutConnection {
    /// The connection has timed out since it was saved.
    pub const TIMEOUT: &'static str = CloseReason::Timeout.name();
    /// One of the connection's ports no longer exists, or its ports are no longer on one wire.
    pub const NO_PORT: &'static str = "no-port";
}
