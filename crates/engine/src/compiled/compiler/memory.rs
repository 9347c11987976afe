//! The memory that a change of the policy needs.

use super::super::limit_rule::limit_of;
use super::super::stateful::server_bytes;
use super::{PolicyCompiler, id};
use mmb_classify::extra_bytes;
use mmb_policy::rules::RuleChange;
use mmb_policy::{Policy, Rule, RuleStore};

impl PolicyCompiler {
    /// See [`Engine::extra_bytes`](crate::Engine::extra_bytes).
    pub(crate) fn extra_bytes(&self, before: &Policy, after: &Policy) -> u64 {
        let indexes = 1 + u64::from(self.per_packet.is_some()) + u64::from(self.blockers.is_some());
        let added = RuleStore::diff(&before.rules, &after.rules).filter_map(|change| match change {
            RuleChange::Added(rule) => Some(rule),
            RuleChange::Removed(_) => None,
        });
        let bytes = |rule: Rule| indexes * extra_bytes(&rule, &self.names) + server_bytes(&rule);
        // Both versions of a changed set exist until neither a worker nor an entry of the history uses the
        // old one.
        let sets = after.set_bytes_beyond(before);
        added.map(bytes).sum::<u64>() + sets + self.limit_bytes(before, after)
    }

    /// The bytes of the key tables of limits that a change adds or replaces.
    pub(crate) fn limit_bytes(&self, before: &Policy, after: &Policy) -> u64 {
        let settings = after.settings.limits;
        let limit = |rule: Rule| Some((id(&rule), *limit_of(&rule)?));
        if settings != self.limits.settings() {
            return self.limits.extra_bytes(after.rules.iter().filter_map(limit), settings);
        }
        let added = RuleStore::diff(&before.rules, &after.rules).filter_map(|change| match change {
            RuleChange::Added(rule) => limit(rule),
            RuleChange::Removed(_) => None,
        });
        self.limits.extra_bytes(added, settings)
    }
}
