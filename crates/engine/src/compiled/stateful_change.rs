//! The stateful rules that a change of the policy removes or replaces. With them, the control side counts the
//! connections that the change affects.

use mmb_nat::RuleVersion;
use std::collections::HashMap;

/// The stateful rules in force that a change removes or replaces, by their lines.
#[derive(Clone, Debug, Default)]
pub struct StatefulChange(HashMap<RuleVersion, RuleFate>);

/// What a change does to one of these rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleFate {
    /// The rule accepts packets.
    pub(crate) accepts: bool,
    /// Its successor; `None` for a rule that is removed.
    pub(crate) successor: Option<Successor>,
}

/// The rule that replaces another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Successor {
    /// It accepts packets.
    pub(crate) accepts: bool,
    /// It drains.
    pub(crate) drains: bool,
}

/// The numbers of connections that a change of the policy affects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AffectedConnections {
    /// Connections with a rule that is replaced: the successor applies to them.
    pub handed_over: u64,
    /// Connections with a rule that drains from now on: they keep it.
    pub kept: u64,
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

    /// Whether the change removes the rule of this line.
    pub(crate) fn removes(&self, line: RuleVersion) -> bool {
        self.fate(line).is_some_and(|fate| fate.successor.is_none())
    }

    pub(crate) fn fate(&self, line: RuleVersion) -> Option<RuleFate> {
        self.0.get(&line).copied()
    }
}

impl AffectedConnections {
    /// Adds the numbers of other connections.
    pub(crate) fn add(&mut self, more: AffectedConnections) {
        self.handed_over += more.handed_over;
        self.kept += more.kept;
        self.lose_rules += more.lose_rules;
        self.lose_accept += more.lose_accept;
    }
}
