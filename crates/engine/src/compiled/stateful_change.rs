//! The stateful rules that a change of the policy removes or replaces: by them the connections that it affects are counted.

use mmb_conn::nat::RuleVersion;
use std::collections::HashMap;

/// The stateful rules in force that a change removes or replaces, by their lines.
#[derive(Clone, Debug, Default)]
pub struct StatefulChange(HashMap<RuleVersion, RuleFate>);

/// What becomes of one of these rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleFate {
    /// The rule accepts packets.
    pub(crate) accepts: bool,
    /// Whether its successor accepts packets; `None` for a rule that is removed.
    pub(crate) successor_accepts: Option<bool>,
}

/// The numbers of connections that a change of the policy affects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AffectedConnections {
    /// Connections with a rule that is replaced: the successor applies to them.
    pub handed_over: u64,
    /// Connections with a rule that is removed.
    pub lose_rules: u64,
    /// Connections that a rule accepted, and that no stateful rule accepts any more.
    pub lose_accept: u64,
}

impl StatefulChange {
    /// Whether no connection can be affected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert(&mut self, line: RuleVersion, fate: RuleFate) {
        self.0.insert(line, fate);
    }

    pub(crate) fn fate(&self, line: RuleVersion) -> Option<RuleFate> {
        self.0.get(&line).copied()
    }
}

impl AffectedConnections {
    /// Adds the numbers of other connections.
    pub(crate) fn add(&mut self, more: AffectedConnections) {
        self.handed_over += more.handed_over;
        self.lose_rules += more.lose_rules;
        self.lose_accept += more.lose_accept;
    }
}
