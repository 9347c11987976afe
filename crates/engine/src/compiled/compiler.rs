//! The current rules on the control side: classifier, actions, edits, slots.
//!
//! A new policy is compared with the current one, and only the differences are applied. The classifier is
//! rebuilt from all rules in two cases: most of the policy differs, or lookups have slowed down, because
//! many rules with new field combinations were added one by one.
//!
//! Life-cycle: belongs to the [`Engine`](crate::Engine). Later changes do not affect the snapshots that it
//! created: classifier, actions and edits share pages with snapshots, and a change copies the pages that it
//! touches.

mod memory;

use super::action::{Action, CompiledRules, EditId, RuleVerdict, marked};
use super::blocker::blocker;
use super::limit_rule::{LimitRules, limit_of};
use super::log_rule::LogRule;
use super::publish_error::{MAX_CONSTRAINTS, PublishError};
use super::selector::{PacketSelector, UnknownFilterPort};
use super::servers::ServerTable;
use super::slots::RuleSlots;
use super::snapshot::Snapshot;
use super::stateful::{StatefulRule, accepts, is_mapping, is_per_packet};
use super::stateful_change::{RuleFate, StatefulChange, Successor};
use super::streams::StreamPatterns;
use crate::counters::{Count, RuleCount};
use crate::drop::DropReason;
use crate::port::PortTable;
use mmb_base::{Id, IdPool, lock};
use mmb_classify::{ClassifierIndex, RuleNames, RuleSlot, TableStats, Tuning, UnknownPort};
use mmb_nat::RuleVersion;
use mmb_packet::PortId;
use mmb_policy::rules::RuleChange;
use mmb_policy::{CtStates, NamedSet, PacketFilter, Policy, Rule, RuleId, RuleStore, Test};
use mmb_random::{Generator, Purpose, SeedTree};
use mmb_rewrite::Edit;
use mmb_scan::{InProcess, SetCache, SetSource};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Up to this many changes are applied one by one, however many rules there are.
const MAX_INCREMENTAL_CHANGES: usize = 4096;

/// The compiled patterns of a policy. The cache keeps them as long as a clone of this value exists.
#[derive(Clone, Debug)]
pub struct CompiledPatterns(#[expect(dead_code, reason = "it is there to be kept")] Arc<StreamPatterns>);

/// Compiles the patterns of a policy into the cache of `sets`. [`Engine::publish`](crate::Engine::publish) of
/// an engine with that cache then finds them. The call takes as long as the compiler of `sets` allows.
///
/// # Errors
/// A rule has patterns that cannot be searched for.
pub fn compile_patterns(policy: &Policy, sets: SetSource<'_>) -> Result<CompiledPatterns, PublishError> {
    let patterns = patterns_of(policy, &StreamPatterns::default(), sets)?;
    Ok(CompiledPatterns(Arc::new(patterns)))
}

fn patterns_of(
    policy: &Policy,
    before: &StreamPatterns,
    sets: SetSource<'_>,
) -> Result<StreamPatterns, PublishError> {
    let mut rules = BTreeMap::new();
    for rule in policy.rules.iter().filter(Rule::is_stream_rule) {
        if rule.stream_matches().count() > MAX_CONSTRAINTS {
            return Err(PublishError::StreamConstraints(id(&rule)));
        }
        rules.insert(id(&rule), RuleSlot::FIRST);
    }
    StreamPatterns::build(policy, &rules, before, sets)
}

/// The current policy in compiled form.
#[derive(Debug)]
pub(crate) struct PolicyCompiler {
    names: RuleNames,
    /// Seeds of classifiers.
    keys: Generator,
    tuning: Tuning,
    policy: Policy,
    index: ClassifierIndex,
    /// The per-packet rules, which `index` has too. `None` until there are stateful rules: a stateless policy
    /// does not need it.
    per_packet: Option<ClassifierIndex>,
    /// Relaxed copies of the rules that may decide differently on packets of one flow. A copy constrains only
    /// what identifies a flow, such as addresses, ports and protocol. Flows of packets that match a copy are
    /// not offloaded. `None` until a host offloads flows.
    blockers: Option<ClassifierIndex>,
    rules: CompiledRules,
    /// The version of the last stateful rule.
    last_version: RuleVersion,
    edits: IdPool<EditId>,
    slots: RuleSlots,
    servers: ServerTable,
    limits: LimitRules,
    /// The rules that drain: they are not in the index.
    draining: BTreeSet<RuleId>,
    /// The rules on streams.
    stream_rules: BTreeMap<RuleId, RuleSlot>,
    /// Some rules on streams changed since `streams` was built.
    streams_changed: bool,
    /// The patterns of the rules on streams.
    streams: Arc<StreamPatterns>,
    /// The patterns of the policy that was checked last, so that the cache keeps them until the change.
    checked: Mutex<Option<StreamPatterns>>,
    /// Compiled sets.
    sets: Arc<SetCache>,
    /// Whether sets that the cache lacks are compiled on the calling thread. If not, they are refused.
    compiles: bool,
}

impl PolicyCompiler {
    /// A compiler with an empty policy.
    pub(crate) fn new(ports: &PortTable, workers: usize, seeds: &SeedTree, tuning: Tuning) -> PolicyCompiler {
        let names = RuleNames::new(ports.0.iter().map(|port| port.name.as_str()));
        let mut keys = Generator::new(seeds.shared(Purpose::Classifier));
        PolicyCompiler {
            index: ClassifierIndex::new(names.clone(), keys.seed()),
            blockers: None,
            names,
            keys,
            tuning,
            per_packet: None,
            policy: Policy::default(),
            rules: CompiledRules::default(),
            last_version: RuleVersion(0),
            edits: IdPool::default(),
            slots: RuleSlots::new(workers),
            servers: ServerTable::new(workers),
            limits: LimitRules::new(seeds.shared(Purpose::LimitKeys)),
            draining: BTreeSet::new(),
            stream_rules: BTreeMap::new(),
            streams_changed: false,
            streams: Arc::default(),
            checked: Mutex::default(),
            sets: Arc::default(),
            compiles: true,
        }
    }

    /// From now on, refuses patterns that the cache lacks.
    pub(crate) fn expect_compiled(&mut self) {
        self.compiles = false;
    }

    /// The cache of compiled sets.
    pub(crate) fn sets(&self) -> &Arc<SetCache> {
        &self.sets
    }

    /// The patterns in force.
    pub(crate) fn patterns(&self) -> CompiledPatterns {
        CompiledPatterns(Arc::clone(&self.streams))
    }

    fn source(&self) -> SetSource<'_> {
        match self.compiles {
            true => SetSource::compiling(&self.sets, &InProcess),
            false => SetSource::known(&self.sets),
        }
    }

    /// Adds a port that rules may name from now on.
    pub(crate) fn push_port(&mut self, name: &str) {
        self.names.push(name.to_owned());
        self.indexes().for_each(|index| index.push_port(name.to_owned()));
    }

    /// Renames a port that no rule names.
    pub(crate) fn rename_port(&mut self, port: PortId, name: &str) {
        self.names.rename(port.0, name);
        self.indexes().for_each(|index| index.rename_port(port.0, name));
    }

    /// Passes the named sets of a policy to the indexes, if they have changed.
    fn put_sets(&mut self, before: &Policy, policy: &Policy) {
        let is_same = |name: &String, set: &Arc<NamedSet>| {
            before.sets.get(name).is_some_and(|before| Arc::ptr_eq(before, set))
        };
        for (name, set) in policy.sets.iter().filter(|(name, set)| !is_same(name, set)) {
            self.names.put_set(name, Arc::clone(set));
            self.indexes().for_each(|index| index.put_set(name, Arc::clone(set)));
        }
    }

    /// Removes the named sets that the current policy no longer has. No rule names them.
    fn remove_sets(&mut self, before: &Policy) {
        let removed = before.sets.keys().filter(|name| !self.policy.sets.contains_key(*name));
        let removed: Vec<_> = removed.collect();
        for name in removed {
            self.names.remove_set(name);
            self.indexes().for_each(|index| index.remove_set(name));
        }
    }

    /// Builds the index of rules that keep flows from being offloaded, and maintains it from now on.
    pub(crate) fn begin_offload(&mut self) {
        self.blockers = self.build(|rule| blocker(&rule));
    }

    fn indexes(&mut self) -> impl Iterator<Item = &mut ClassifierIndex> {
        std::iter::once(&mut self.index).chain(&mut self.per_packet).chain(&mut self.blockers)
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Checks the rules that `after` adds to `before`.
    pub(crate) fn check(
        &self,
        before: &Policy,
        after: &Policy,
        known: &PortTable,
    ) -> Result<(), PublishError> {
        for change in RuleStore::diff(&before.rules, &after.rules) {
            // A draining rule matches no packets, and its ports may be gone.
            if let RuleChange::Added(rule) = &change
                && !rule.draining
            {
                self.check_port_names(rule, known)?;
            }
        }
        if changes_patterns(before, after) {
            self.check_patterns(after)?;
        }
        Ok(())
    }

    /// Passes the patterns of a policy and the number of its rules on streams to a closure. The policy must
    /// have been checked as the successor of the current one.
    pub(crate) fn with_patterns<R>(
        &self,
        policy: &Policy,
        use_patterns: impl FnOnce(&StreamPatterns, usize) -> R,
    ) -> R {
        let mut rules = self.stream_rules.len();
        for change in RuleStore::diff(&self.policy.rules, &policy.rules) {
            match change {
                RuleChange::Removed(rule) => rules = rules.saturating_sub(rule.is_stream_rule().into()),
                RuleChange::Added(rule) => rules += usize::from(rule.is_stream_rule()),
            }
        }
        let checked = lock(&self.checked);
        match checked.as_ref().filter(|_| changes_patterns(&self.policy, policy)) {
            Some(checked) => use_patterns(checked, rules),
            None => use_patterns(&self.streams, rules),
        }
    }

    /// Checks that the patterns of a policy can be searched for. Keeps them for [`PolicyCompiler::change`].
    fn check_patterns(&self, after: &Policy) -> Result<(), PublishError> {
        let mut checked = lock(&self.checked);
        *checked = Some(patterns_of(after, checked.as_ref().unwrap_or(&self.streams), self.source())?);
        Ok(())
    }

    fn check_port_names(&self, rule: &Rule, known: &PortTable) -> Result<(), PublishError> {
        let names = rule.matches.iter().filter_map(|constraint| match &constraint.test {
            Test::Port(_, names) => Some(names),
            Test::Present | Test::Number(..) | Test::NamedSet(..) | Test::Bytes(..) => None,
            Test::Patterns(_) | Test::Header(..) => None,
        });
        names.flatten().try_for_each(|name| match self.names.number(name) {
            Ok(_) => Ok(()),
            Err(unknown) => {
                Err(PublishError::UnknownPort { rule: id(rule), port: unknown.0, known: known.known() })
            }
        })
    }

    /// Applies a checked policy, whose first snapshot will be `generation`. Returns the versions of removed
    /// and replaced stateful rules.
    pub(crate) fn change(&mut self, policy: &Policy, generation: u64) -> Vec<RuleVersion> {
        let mut gone = Vec::new();
        let before = std::mem::replace(&mut self.policy, policy.clone());
        self.put_sets(&before, policy);
        // Removed limits first, so that no new key table is allocated for them.
        self.limits
            .retain(|id, limit| policy.rules.get(id).is_some_and(|rule| limit_of(&rule) == Some(limit)));
        self.configure_limits(policy);
        let diff = || RuleStore::diff(&before.rules, &policy.rules);
        // Even a few scattered changes touch many chunks, so the real differences are counted.
        let max_incremental = MAX_INCREMENTAL_CHANGES.max(policy.rules.len() / 4);
        let (min, max) = diff().bounds();
        let many = min > max_incremental || (max > max_incremental && diff().nth(max_incremental).is_some());
        let mut changes = diff().peekable();
        while let Some(change) = changes.next() {
            match change {
                RuleChange::Removed(old) => match changes.next_if(|next| is_successor(&old, next)) {
                    Some(RuleChange::Added(new)) => gone.extend(self.replace(&old, &new, generation, !many)),
                    _ => gone.extend(self.remove(&old, generation, !many)),
                },
                RuleChange::Added(rule) => self.add(&rule, generation, !many),
            }
        }
        if many {
            self.slots.shrink();
        }
        self.remove_sets(&before);
        self.rebuild(many);
        // The compiled rules on HTTP depend on the settings of HTTP.
        let others = before.lists != policy.lists || before.settings.http != policy.settings.http;
        if std::mem::take(&mut self.streams_changed) || others {
            self.rebuild_patterns();
        }
        gone
    }

    /// Replaces the key tables of limits if their size has changed.
    fn configure_limits(&mut self, policy: &Policy) {
        for (id, rule) in self.limits.configure(policy.settings.limits) {
            let slot = self.slots.get(id);
            slot.into_iter().for_each(|slot| self.rules.limits.set(slot.index(), Some(Arc::clone(&rule))));
        }
    }

    /// Rebuilds the patterns of streams from the cache.
    fn rebuild_patterns(&mut self) {
        // The patterns were checked, so this does not fail.
        let built = StreamPatterns::build(&self.policy, &self.stream_rules, &self.streams, self.source());
        if let Ok(streams) = built {
            self.streams = Arc::new(streams);
        }
        *lock(&self.checked) = None;
    }

    /// The stateful rules in force that a change from `before` to `after` removes or replaces.
    pub(crate) fn stateful_change(&self, before: &Policy, after: &Policy) -> StatefulChange {
        let mut affected = StatefulChange::default();
        let mut changes = RuleStore::diff(&before.rules, &after.rules).peekable();
        while let Some(change) = changes.next() {
            let RuleChange::Removed(old) = change else { continue };
            let successor = changes.next_if(|next| is_successor(&old, next));
            let successor = successor.map(|(RuleChange::Added(new) | RuleChange::Removed(new))| Successor {
                accepts: accepts(&new),
                drains: new.draining,
            });
            let slot = self.slots.get(id(&old)).filter(|_| old.stateful);
            if let Some(rule) = slot.and_then(|slot| self.rules.stateful.at(slot.index()).as_ref()) {
                affected.insert(rule.line, RuleFate { accepts: rule.accepts, successor });
            }
        }
        affected
    }

    fn add(&mut self, rule: &Rule, generation: u64, index: bool) {
        let slot = self.slots.assign(id(rule));
        self.install(slot, rule, None, generation, index);
    }

    /// Removes a rule. Returns its version if it is stateful.
    fn remove(&mut self, rule: &Rule, generation: u64, index: bool) -> Option<RuleVersion> {
        let slot = self.slots.retire(id(rule), generation)?;
        self.servers.remove(id(rule), generation);
        self.withdraw(slot, rule, index).map(|stateful| stateful.version)
    }

    /// Replaces a stateful rule by its successor, which inherits the slot and so the connections. Returns the
    /// version of the old rule.
    fn replace(&mut self, old: &Rule, new: &Rule, generation: u64, index: bool) -> Option<RuleVersion> {
        let slot = self.slots.get(id(old))?;
        let before = self.withdraw(slot, old, index);
        self.slots.restart(slot);
        self.install(slot, new, before.as_deref(), generation, index);
        before.map(|rule| rule.version)
    }

    /// Installs a rule in its slot. `before` is the rule that it replaces; `generation` is the first snapshot
    /// with the new rule.
    fn install(
        &mut self,
        slot: RuleSlot,
        rule: &Rule,
        before: Option<&StatefulRule>,
        generation: u64,
        index: bool,
    ) {
        let mut edited = Cow::Borrowed(&rule.targets[..]);
        if rule.stateful && rule.targets.iter().any(is_mapping) {
            edited.to_mut().retain(|target| !is_mapping(target));
        }
        let edit = Edit::compile(&edited).map(|edit| {
            let id = self.edits.take();
            self.rules.edits.set(id.index(), Some(Arc::new(edit)));
            id
        });
        self.rules.actions.set(slot.index(), Action::new(rule, edit));
        if let Some(limit) = limit_of(rule) {
            self.rules.limits.set(slot.index(), Some(self.limits.install(id(rule), limit)));
            self.rules.limit_rules += 1;
        }
        if rule.draining {
            self.draining.insert(id(rule));
        } else {
            if let Some(log) = LogRule::compile(rule, self.slots.workers()) {
                self.rules.logs.set(slot.index(), Some(Arc::new(log)));
                self.rules.log_rules += 1;
            }
            self.rules.per_packet_rules += usize::from(is_per_packet(rule));
            self.rules.blockers += usize::from(blocker(rule).is_some());
            self.rules.ct_rules += usize::from(matches_ct_state(rule));
        }
        if rule.stateful {
            self.last_version.0 += 1;
            let version = self.last_version;
            let mut stateful = StatefulRule::compile(rule, version, before);
            stateful.servers = self.servers.install(rule, &stateful, generation);
            if stateful.stream.is_some() {
                self.stream_rules.insert(id(rule), slot);
                self.streams_changed = true;
                self.slots.allocate_hits(slot);
            }
            self.rules.stateful.set(slot.index(), Some(Arc::new(stateful)));
            self.rules.stateful_rules += 1;
        }
        if index && !rule.draining {
            // The ports of the rule were checked, so the insertions do not fail.
            let _ = self.index.insert(marked(slot, rule), rule);
            if let Some(index) = self.per_packet.as_mut().filter(|_| is_per_packet(rule)) {
                let _ = index.insert(slot, rule);
            }
            if let (Some(index), Some(blocker)) = (&mut self.blockers, blocker(rule)) {
                let _ = index.insert(slot, &blocker);
            }
        }
    }

    /// Removes a rule from its slot. Returns its compiled form if it is stateful.
    fn withdraw(&mut self, slot: RuleSlot, rule: &Rule, index: bool) -> Option<Arc<StatefulRule>> {
        if index && !rule.draining {
            self.index.remove(slot, rule);
            if let Some(index) = self.per_packet.as_mut().filter(|_| is_per_packet(rule)) {
                index.remove(slot, rule);
            }
            if let (Some(index), Some(blocker)) = (&mut self.blockers, blocker(rule)) {
                index.remove(slot, &blocker);
            }
        }
        if let Some(edit) = self.rules.actions.at(slot.index()).edit() {
            self.rules.edits.set(edit.index(), None);
            self.edits.free(edit);
        }
        if self.rules.actions.at(slot.index()).limits() {
            self.rules.limits.set(slot.index(), None);
            self.rules.limit_rules -= 1;
        }
        if rule.draining {
            self.draining.remove(&id(rule));
        } else {
            if self.rules.actions.at(slot.index()).logs() {
                self.rules.logs.set(slot.index(), None);
                self.rules.log_rules -= 1;
            }
            self.rules.per_packet_rules -= usize::from(is_per_packet(rule));
            self.rules.blockers -= usize::from(blocker(rule).is_some());
            self.rules.ct_rules -= usize::from(matches_ct_state(rule));
        }
        if !rule.stateful {
            return None;
        }
        self.rules.stateful_rules -= 1;
        self.streams_changed |= self.stream_rules.remove(&id(rule)).is_some();
        self.rules.stateful.at_mut(slot.index()).take()
    }

    /// Rebuilds indexes: all of them if most rules have changed (`all`), otherwise those that are missing or
    /// slow after changes.
    fn rebuild(&mut self, all: bool) {
        if (all || self.index.is_scattered())
            && let Some(index) = self.build(Some)
        {
            self.index = index;
        }
        if self.blockers.as_ref().is_some_and(|index| all || index.is_scattered()) {
            self.blockers = match self.rules.blockers {
                0 => Some(ClassifierIndex::new(self.names.clone(), self.keys.seed())),
                _ => self.build(|rule| blocker(&rule)),
            };
        }
        if self.rules.stateful_rules == 0 && all {
            self.per_packet = None;
        } else if self.rules.stateful_rules > 0
            && (all || self.per_packet.as_ref().is_none_or(ClassifierIndex::is_scattered))
        {
            self.per_packet = match self.rules.per_packet_rules {
                0 => Some(ClassifierIndex::new(self.names.clone(), self.keys.seed())),
                _ => self.build(|rule| Some(rule).filter(is_per_packet)),
            };
        }
    }

    /// Builds an index from what `wanted` returns for each rule that does not drain.
    fn build(&mut self, wanted: impl Fn(Rule) -> Option<Rule>) -> Option<ClassifierIndex> {
        let slots = &self.slots;
        let rules = self.policy.rules.iter().filter(|rule| !rule.draining);
        let rules = rules.filter_map(|rule| Some((marked(slots.get(id(&rule))?, &rule), wanted(rule)?)));
        // Ports were checked, so this does not fail.
        ClassifierIndex::build(rules, self.names.clone(), self.keys.seed(), self.tuning).ok()
    }

    /// Compiles a filter of packets; `peers` are the egress ports by ingress port.
    ///
    /// # Errors
    /// The filter names a port that does not exist.
    pub(crate) fn selector(
        &mut self,
        filter: &PacketFilter,
        known: &PortTable,
        peers: &[PortId],
    ) -> Result<PacketSelector, UnknownFilterPort> {
        PacketSelector::new(filter, &self.names, peers, self.keys.seed())
            .map_err(|UnknownPort(port)| UnknownFilterPort { port, known: known.known() })
    }

    /// The draining rules that no connection has.
    pub(crate) fn drained(&self) -> Vec<RuleId> {
        let is_used = |id: &RuleId| {
            let slot = self.slots.get(*id);
            let rule = slot.and_then(|slot| self.rules.stateful.at(slot.index()).as_ref());
            rule.is_some_and(|rule| rule.is_used())
        };
        self.draining.iter().copied().filter(|id| !is_used(id)).collect()
    }

    /// Creates a snapshot of the current policy.
    pub(crate) fn snapshot(&self, generation: u64, ports: &PortTable) -> Snapshot {
        let classifiers = (
            self.index.classifier(),
            self.per_packet.as_ref().map(ClassifierIndex::classifier),
            self.blockers.as_ref().map(ClassifierIndex::classifier),
        );
        let streams = Arc::clone(&self.streams);
        let rules = (self.rules.clone(), self.stream_rules.len(), streams);
        let cells = (self.slots.cells(), self.servers.cells());
        Snapshot::new(generation, &self.policy, ports, classifiers, rules, cells)
    }

    /// Frees the slots that only snapshots before `oldest` used.
    pub(crate) fn reclaim(&mut self, oldest: u64) {
        self.slots.reclaim(oldest);
        self.servers.reclaim(oldest);
    }

    /// The servers of rules with `lb`.
    pub(crate) fn servers(&self) -> &ServerTable {
        &self.servers
    }

    pub(crate) fn servers_mut(&mut self) -> &mut ServerTable {
        &mut self.servers
    }

    /// The counters of a rule of the current policy.
    pub(crate) fn count(&self, id: RuleId) -> RuleCount {
        self.slots.count(id)
    }

    /// The reason for drops by a rule of the current policy.
    pub(crate) fn drop_reason(&self, id: RuleId) -> DropReason {
        let slot = self.slots.get(id);
        let verdict = slot.map(|slot| self.rules.actions.at(slot.index()).rule_verdict());
        verdict.unwrap_or(RuleVerdict::None).drop_reason()
    }

    /// The packets that removed rules dropped.
    pub(crate) fn dropped_before(&self) -> Count {
        self.slots.dropped_before()
    }

    /// Adds packets of an earlier run that removed rules dropped.
    pub(crate) fn restore_dropped_before(&mut self, earlier: Count) {
        self.slots.restore_dropped_before(earlier);
    }

    /// Makes all rules count from zero. Returns the packets that rules dropped since the last call.
    pub(crate) fn clear_counts(&mut self) -> u64 {
        self.slots.clear()
    }

    /// Adds the counters of an earlier run to those of a rule. Returns false if the rule does not exist.
    pub(crate) fn restore_count(&mut self, id: RuleId, earlier: RuleCount) -> bool {
        let slot = self.slots.get(id);
        slot.into_iter().for_each(|slot| self.slots.restore(slot, earlier));
        slot.is_some()
    }

    /// The classifier's tables.
    pub(crate) fn tables(&self) -> Vec<TableStats> {
        self.index.tables()
    }
}

/// Whether the next change adds the successor of a removed rule: both are stateful and have the same id.
/// Within a change, the id identifies the rule that is replaced. A saved state may be older than the policy,
/// and its ids may be those of other rules: see [`mmb_policy::successors`], which also compares the matches.
fn is_successor(old: &Rule, next: &RuleChange) -> bool {
    matches!(next, RuleChange::Added(new) if new.id == old.id && new.stateful && old.stateful)
}

/// Whether a change from one policy to another changes the patterns of streams.
fn changes_patterns(before: &Policy, after: &Policy) -> bool {
    let is_stream_rule = |change: RuleChange| match change {
        RuleChange::Removed(rule) | RuleChange::Added(rule) => rule.is_stream_rule(),
    };
    // The compiled rules on HTTP depend on the settings of HTTP.
    before.lists != after.lists
        || before.settings.http != after.settings.http
        || RuleStore::diff(&before.rules, &after.rules).any(is_stream_rule)
}

/// Whether a rule matches on `ct`.
fn matches_ct_state(rule: &Rule) -> bool {
    rule.ct_states() != CtStates::ALL
}

/// The id of a rule, which every rule of a policy has.
fn id(rule: &Rule) -> RuleId {
    rule.id.unwrap_or(RuleId(0))
}
