//! A compiled policy as workers use it: immutable, and shared by all of them.
//!
//! Life-cycle: the control side compiles and publishes a snapshot. Every worker picks it up between two
//! vectors and releases the previous one. The control side keeps a reference to a snapshot until no worker
//! uses it, and then frees it. A snapshot shares unchanged parts with the previous one: classifier, actions
//! and edits are persistent structures, of which a change copies a few pages.

use super::action::{
    ActionTable, CompiledRules, EditId, EditTable, LimitRuleTable, LogRuleTable, StatefulRuleTable,
};
use super::limit_rule::LimitRule;
use super::log_rule::LogRule;
use super::route::{Route, routes};
use super::stateful::StatefulRule;
use super::streams::StreamPatterns;
use crate::cells::RuleCells;
use crate::port::PortTable;
use crate::rate::RateLimit;
use crate::server_cells::ServerCells;
use mmb_base::{Id, prefetch};
use mmb_classify::{Classifier, RuleSlot};
use mmb_nat::RuleVersion;
use mmb_packet::{ParserLimits, PortId};
use mmb_policy::settings::{
    AnswerSettings, ConnectionSettings, FlowCacheUse, LogSettings, Offload, StreamSettings,
};
use mmb_policy::{Policy, RuleId};
use mmb_rewrite::Edit;
use std::sync::Arc;

/// A stateful rule and its successors. The slot alone does not identify them: it may belong to another rule
/// later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleLineage {
    slot: RuleSlot,
    line: RuleVersion,
}

/// A compiled policy.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Grows with every publish.
    pub(crate) generation: u64,
    pub(crate) classifier: Classifier,
    pub(crate) actions: ActionTable,
    edits: EditTable,
    stateful: StatefulRuleTable,
    /// Number of stateful rules.
    pub(crate) stateful_rules: usize,
    per_packet_rules: usize,
    /// Finds the per-packet rules that packets with a cached verdict match. `None` without per-packet rules,
    /// or if verdicts are not cached.
    pub(crate) per_packet: Option<Classifier>,
    /// Number of rules that match on `ct`.
    pub(crate) ct_rules: usize,
    logs: LogRuleTable,
    /// Number of rules with `log`.
    pub(crate) log_rules: usize,
    /// The rate limit of each rule with `log`; `None`: no limit.
    pub(crate) log_limit: Option<RateLimit>,
    limits: LimitRuleTable,
    /// Number of rules with limits.
    pub(crate) limit_rules: usize,
    pub(crate) answers: AnswerSettings,
    pub(crate) connections: ConnectionSettings,
    pub(crate) stream_settings: StreamSettings,
    /// Number of rules on streams.
    pub(crate) stream_rules: usize,
    /// The patterns of the rules on streams.
    pub(crate) streams: Arc<StreamPatterns>,
    pub(crate) parser_limits: ParserLimits,
    /// Whether workers remember which rules the packets of flows matched.
    pub(crate) flow_cache: FlowCacheUse,
    /// Whether flows are offloaded.
    pub(crate) offload: Offload,
    /// Finds packets whose flows must not be offloaded, because rules may decide differently on their
    /// packets. `None` without such rules.
    pub(crate) blockers: Option<Classifier>,
    pub(crate) routes: Box<[Route]>,
    /// The generation of the last snapshot that enabled a port.
    pub(crate) enabled_at: u64,
    /// Rule counters, by worker and slot.
    pub(crate) cells: Box<[RuleCells]>,
    /// Counters of servers, by worker.
    pub(crate) server_cells: Box<[ServerCells]>,
}

impl Snapshot {
    /// A snapshot of a policy's settings and ports, with its compiled rules.
    pub(crate) fn new(
        generation: u64,
        policy: &Policy,
        ports: &PortTable,
        (classifier, per_packet, all_blockers): (Classifier, Option<Classifier>, Option<Classifier>),
        (rules, stream_rules, streams): (CompiledRules, usize, Arc<StreamPatterns>),
        (cells, server_cells): (&[RuleCells], &[ServerCells]),
    ) -> Snapshot {
        let CompiledRules { actions, edits, stateful, stateful_rules, logs, log_rules, .. } = rules;
        let CompiledRules { limits, limit_rules, .. } = rules;
        let CompiledRules { per_packet_rules, blockers, ct_rules, .. } = rules;
        Snapshot {
            generation,
            classifier,
            actions,
            edits,
            stateful,
            stateful_rules,
            per_packet_rules,
            per_packet: per_packet.filter(|_| per_packet_rules > 0),
            ct_rules,
            logs,
            log_rules,
            log_limit: log_limit(&policy.settings.log),
            limits,
            limit_rules,
            answers: policy.settings.answers,
            connections: policy.settings.connections,
            stream_settings: policy.settings.streams,
            stream_rules,
            streams,
            parser_limits: ParserLimits { ip6_headers: policy.settings.ip6_max_headers },
            flow_cache: policy.settings.flow_cache,
            offload: policy.settings.offload,
            blockers: all_blockers.filter(|_| blockers > 0),
            routes: routes(policy, ports),
            enabled_at: 0,
            cells: cells.into(),
            server_cells: server_cells.into(),
        }
    }

    /// Records whether this snapshot enables a port that was disabled in the previous snapshot.
    pub(crate) fn follows(&mut self, before: &Snapshot) {
        let mut both = before.routes.iter().zip(&self.routes);
        let enables = both.any(|(old, new)| new.enabled && !old.enabled);
        self.enabled_at = if enables { self.generation } else { before.enabled_at };
    }

    /// The epoch of the snapshot's flows, for hosts with flow offload. Never 0.
    pub(crate) fn epoch(&self) -> u32 {
        (self.generation % u64::from(u32::MAX)) as u32 + 1
    }

    /// How packets of a port are forwarded.
    #[inline]
    pub(crate) fn route(&self, port: PortId) -> Route {
        self.routes.get(usize::from(port.0)).copied().unwrap_or_else(|| Route::unknown(port))
    }

    /// The MTU of the port on which a packet arrived; `u32::MAX` if it is unknown.
    pub(crate) fn ingress_mtu(&self, port: PortId) -> u32 {
        let peer = self.route(port).egress.map(|(peer, _)| self.route(peer).egress);
        peer.flatten().filter(|(egress, _)| *egress == port).map_or(u32::MAX, |(_, mtu)| mtu)
    }

    /// Whether verdicts may be cached for connections. This requires that per-packet rules can be found for
    /// each packet.
    #[inline]
    pub(crate) fn caches_verdicts(&self) -> bool {
        self.per_packet_rules == 0 || self.per_packet.is_some()
    }

    /// The stateful rule of a slot that was assigned to a stateful rule; `None` if the rule no longer exists.
    #[inline]
    pub(crate) fn stateful(&self, slot: RuleSlot) -> Option<&Arc<StatefulRule>> {
        self.stateful.at(slot.index()).as_ref()
    }

    /// The rule with `log` of a slot that was assigned to one.
    pub(crate) fn log_rule(&self, slot: RuleSlot) -> Option<&Arc<LogRule>> {
        self.logs.at(slot.index()).as_ref()
    }

    /// The limit of a slot that was assigned to a rule with a limit.
    #[inline]
    pub(crate) fn limit_rule(&self, slot: RuleSlot) -> Option<&LimitRule> {
        self.limits.at(slot.index()).as_deref()
    }

    /// Prefetches what [`Snapshot::stateful`] reads.
    #[inline]
    pub(crate) fn prefetch_stateful(&self, slot: RuleSlot) {
        prefetch(self.stateful.at(slot.index()));
    }

    /// The stateful rules by id: their slots and lines.
    pub(crate) fn stateful_lineages(&self) -> impl Iterator<Item = (RuleId, RuleLineage)> + '_ {
        (0..).zip(self.stateful.iter()).filter_map(|(number, rule)| {
            let rule = rule.as_ref()?;
            Some((rule.id, RuleLineage { slot: RuleSlot::new(number)?, line: rule.line }))
        })
    }

    /// The slot of the rule that continues a line, if there is one.
    pub(crate) fn slot_of(&self, RuleLineage { slot, line }: RuleLineage) -> Option<RuleSlot> {
        self.stateful(slot).filter(|now| now.line == line).map(|_| slot)
    }

    /// An edit of a rule.
    #[inline]
    pub(crate) fn edit(&self, id: EditId) -> Option<&Edit> {
        self.edits.at(id.index()).as_deref()
    }
}

/// The rate limit of a rule with `log`; `None`: no limit.
fn log_limit(settings: &LogSettings) -> Option<RateLimit> {
    (settings.rate > 0).then(|| RateLimit::per_second(settings.rate, settings.burst))
}
