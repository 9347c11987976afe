//! A connection between two daemons: everything that restores it, but its place in a table.

use super::extension::Extension;
use mmb_conn::{Connection, ConnectionSnapshot};
use mmb_policy::RuleId;

/// A connection on its way from one daemon to the next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SavedConnection {
    pub(crate) connection: ConnectionSnapshot,
    pub(crate) extra: Extension,
    /// The rules that created it.
    pub(crate) rules: Vec<RuleId>,
}

impl SavedConnection {
    pub(crate) fn of(
        connection: &Connection,
        now_ms: u64,
        extra: Extension,
        rules: Vec<RuleId>,
    ) -> SavedConnection {
        SavedConnection { connection: connection.snapshot(now_ms), extra, rules }
    }
}
