//! A connection between two daemons: everything that restores it, but its place in a table.

use super::extension::ConnectionExtension;
use super::info::ConnectionInfo;
use super::tasks::LeftOut;
use mmb_conn::{Connection, ConnectionSnapshot};
use mmb_policy::RuleId;

/// A connection on its way from one daemon to the next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SavedConnection {
    pub(crate) connection: ConnectionSnapshot,
    pub(crate) extension: ConnectionExtension,
    /// The rules that created it.
    pub(crate) rules: Vec<RuleId>,
}

impl SavedConnection {
    pub(crate) fn of(
        connection: &Connection,
        now_ms: u64,
        extension: ConnectionExtension,
        rules: Vec<RuleId>,
    ) -> SavedConnection {
        SavedConnection { connection: connection.snapshot(now_ms), extension, rules }
    }

    pub(crate) fn left_out(&self, reason: &'static str) -> LeftOut {
        LeftOut {
            info: ConnectionInfo::of_saved(&self.connection, self.rules.iter().copied().collect()),
            reason,
        }
    }
}
