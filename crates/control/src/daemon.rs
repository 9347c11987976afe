//! The daemon's state: the policy in force, the engine that executes it, the host that moves the packets.
//!
//! One [`Daemon`] exists as long as the process, behind a mutex. Clients' threads lock it to change the policy or to read counters, and
//! never while they read from or write to a client. Only the daemon publishes policies; packets do not wait for that.

mod memory_check;

use crate::author::Author;
use crate::change::{
    ChangeOrigin, ChangeRequest, CommitError, Committed, CommittedChange, Submission, UncompiledChanges,
    is_change,
};
use crate::entropy::ReseedTimer;
use crate::history::entry::{Entry, EntryAction, EntryContent};
use crate::history::{History, HistoryLimits, HistoryReader};
use crate::host::{Host, PortLosses, PortStatus};
use crate::unconfirmed::UnconfirmedChange;
use mmb_compile::{CompileBudget, PatternCompiler};
use mmb_engine::{
    Engine, OrderedServer, PacketSelector, PortSpec, PublishError, RuleCount, SavedState, ServerTraffic,
    SetSource, UnknownServer, compile_patterns,
};
use mmb_language::with_id;
use mmb_log::LogHandle;
use mmb_packet::PortId;
use mmb_policy::{PacketFilter, Policy, PolicyDiff, Rule, RuleId, RuleStore, ServerCommand, Test};
use mmb_protocol::answer::UnconfirmedLine;
use mmb_protocol::request::ConnectionFate;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A change of so many rules frees so much memory that it is returned to the system.
const MANY_RULES: usize = 1 << 16;

/// The pause before the daemon tries again to take back a change, or to delete rules that have drained.
const PAUSE: Duration = Duration::from_secs(5);

/// The state that clients read and change, one at a time.
pub struct Daemon {
    engine: Engine,
    /// Shared with answers that are still being sent about it.
    policy: Arc<Policy>,
    host: Box<dyn Host>,
    /// The losses of each port, by name, when the counters were cleared.
    losses_before: HashMap<String, PortLosses>,
    /// The policy before a large change, while it may still be in use.
    superseded: Option<Weak<Policy>>,
    reseed_timer: ReseedTimer,
    /// Something other than a policy was freed, and memory is to be returned to the system.
    trim_due: bool,
    history: History,
    /// The version of the policy in force.
    version: u64,
    unconfirmed: Option<UnconfirmedChange>,
    /// Rules that small changes have added since the last check of memory; rules that take much memory count several times.
    unchecked_rules: usize,
    /// The beginning of the clock by which elements of sets expire.
    clock: Instant,
    /// Compiles patterns while the daemon is not locked.
    compiler: Arc<PatternCompiler>,
    /// Draining rules are not deleted before this time.
    deletion_pause: Option<Instant>,
}

/// The outcome of an attempt to take back an unconfirmed change.
pub(crate) enum Return {
    /// The policy before the change is in force, or it was refused.
    Done(Result<CommittedChange, CommitError>, ConnectionFate),
    /// The patterns of this policy have to be compiled first.
    Uncompiled(Arc<Policy>, ConnectionFate),
}

impl Daemon {
    /// Creates the daemon and publishes its first policy. Patterns are compiled on threads of this process.
    ///
    /// # Errors
    /// The policy cannot be put in force.
    pub fn new(engine: Engine, policy: Policy, host: Box<dyn Host>) -> Result<Daemon, CommitError> {
        Daemon::with_compiler(engine, policy, host, Arc::default())
    }

    /// [`Daemon::new`] with a compiler of patterns.
    ///
    /// # Errors
    /// As [`Daemon::new`].
    pub fn with_compiler(
        mut engine: Engine,
        policy: Policy,
        host: Box<dyn Host>,
        compiler: Arc<PatternCompiler>,
    ) -> Result<Daemon, CommitError> {
        let policy = Arc::new(policy);
        let (sets, of_start) = (Arc::clone(engine.pattern_sets()), Arc::clone(&policy));
        // Keeps the patterns in the cache until the policy is in force.
        let _patterns = compiler.run_once(CompileBudget::START, &|| false, move |runner| {
            compile_patterns(&of_start, SetSource::compiling(&sets, runner))
        })??;
        engine.expect_compiled_patterns();
        let mut daemon = Daemon::unpublished(engine, host, compiler);
        daemon.host.set_poll(policy.settings.poll);
        daemon.publish(policy)?;
        daemon.begin_history("start".to_owned());
        Ok(daemon)
    }

    /// A daemon without a policy.
    fn unpublished(engine: Engine, host: Box<dyn Host>, compiler: Arc<PatternCompiler>) -> Daemon {
        // No connections, until memory was checked.
        engine.bound_connections(0);
        Daemon {
            engine,
            policy: Arc::default(),
            host,
            losses_before: HashMap::new(),
            superseded: None,
            trim_due: false,
            unchecked_rules: 0,
            reseed_timer: ReseedTimer::begin(Instant::now()),
            history: History::in_memory(HistoryLimits::MEMORY),
            version: 0,
            unconfirmed: None,
            clock: Instant::now(),
            compiler,
            deletion_pause: None,
        }
    }

    /// Keeps the history there from now on, instead of in memory; to be called before the first change. `start` tells which policy this is.
    pub fn keep_history(&mut self, history: History, start: String) {
        self.history = history;
        self.begin_history(start);
    }

    /// Has the audit go to the sinks of a log, too.
    pub fn log_audit(&self, log: LogHandle) {
        self.history.log_to(log);
    }

    /// Records the first policy of this run.
    fn begin_history(&mut self, start: String) {
        self.version = self.history.last_version() + 1;
        self.history.record(Entry {
            version: Some(self.version),
            content: EntryContent::Start(Arc::clone(&self.policy)),
            ..Entry::new(Author::daemon(), EntryAction::Start, start)
        });
    }

    /// Returns the history, for questions.
    pub(crate) fn history(&self) -> HistoryReader {
        self.history.reader()
    }

    /// Records something that is no change of the policy.
    pub(crate) fn record(&self, entry: Entry) {
        self.history.record(entry);
    }

    /// Returns the version of the policy in force.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the policy in force.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Returns the time by which elements of sets expire.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the compiler of patterns.
    pub(crate) fn compiler(&self) -> &Arc<PatternCompiler> {
        &self.compiler
    }

    /// Returns the control side of the engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// When the time that workers are given was zero; see [`Host::time_origin`].
    pub(crate) fn time_origin(&self) -> Option<Instant> {
        self.host.time_origin()
    }

    /// Returns the ports by number, as in the engine's port table. Their losses are those since the counters were cleared.
    pub fn ports(&self) -> Vec<PortStatus> {
        let mut ports = self.host.ports();
        for port in &mut ports {
            if let Some(before) = self.losses_before.get(&port.name) {
                port.losses = port.losses.since(*before);
            }
        }
        ports
    }

    /// Lets all counters begin at zero again. The counters of workers and devices go on: what they hold now is subtracted from then on.
    /// `live` are the packets that servers' connections have now.
    pub(crate) fn clear_counters(&mut self, live: &ServerTraffic) {
        self.engine.clear_counters();
        self.engine.clear_server_counters(live);
        self.losses_before = self.host.ports().into_iter().map(|port| (port.name, port.losses)).collect();
    }

    /// Applies what a client says about a server, and returns what it is now in each rule that has it.
    ///
    /// # Errors
    /// There is no such server.
    pub(crate) fn order_server(
        &mut self,
        now_ms: u64,
        command: &ServerCommand,
    ) -> Result<Vec<OrderedServer>, UnknownServer> {
        self.engine.order_server(now_ms, command)
    }

    /// Adds the counters of an earlier run: those of rules to the rules in force with the same ids and texts, those of drops and ports by name.
    pub fn restore_counters(&mut self, earlier: &SavedState) {
        let policy = Arc::clone(&self.policy);
        let counting =
            earlier.rules.iter().filter(|rule| rule.matched.packets > 0 || rule.dropped.packets > 0);
        for rule in counting {
            let is_same = |now: Rule| with_id(&now).to_string() == rule.text;
            let count = RuleCount { matched: rule.matched, dropped: rule.dropped, ..RuleCount::default() };
            if policy.rules.get(rule.id).is_some_and(is_same) {
                self.engine.restore_rule_count(rule.id, count);
            } else {
                self.engine.restore_former_drops(rule.dropped);
            }
        }
        self.engine.restore_counters(&earlier.counters);
    }

    /// Returns the host.
    pub fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// Adds a port of the host, which commands may name from now on; `None`: the engine has too many ports.
    pub fn add_port(&mut self, port: PortSpec) -> Option<PortId> {
        self.engine.add_port(port)
    }

    /// Sets the MTU of a port.
    pub fn set_port_mtu(&mut self, port: PortId, mtu: u32) {
        self.engine.set_port_mtu(port, mtu);
    }

    /// Has all flows that the host forwards decided again: its ports have changed, or a client begins or ends to look at packets.
    pub fn renew_flows(&mut self) {
        self.engine.renew_flows();
    }

    /// Compiles a filter of packets, with the sets as they are now.
    ///
    /// # Errors
    /// It names a port that does not exist, or a set that does not exist or has other elements.
    pub(crate) fn selector(&mut self, filter: &PacketFilter) -> Result<PacketSelector, String> {
        for constraint in &filter.matches {
            if let Test::NamedSet(_, name) = &constraint.test {
                self.policy.set_fits(name, constraint.field).map_err(|error| error.to_string())?;
            }
        }
        self.engine.selector(filter).map_err(|unknown| unknown.to_string())
    }

    /// Has the host forward no flow any more: the workers are about to end.
    pub fn stop_flows(&mut self) {
        self.engine.stop_flows();
    }

    /// Renames a port of the host that no rule names: see [`Engine::rename_port`].
    pub fn rename_port(&mut self, port: PortId, name: &str) {
        self.engine.rename_port(port, name);
    }

    /// Commits the change requests of clients, one group a client, in order. Each request sees the effects of the
    /// requests before it, and the valid requests are published together. If the patterns of a request are not
    /// compiled, it and the later requests of its client are returned.
    pub(crate) fn commit(&mut self, groups: Vec<Vec<Submission>>) -> Vec<Committed> {
        self.commit_as(groups, false)
    }

    /// [`Daemon::commit`]; `takes_back` says that it restores the policy before an unconfirmed change.
    fn commit_as(&mut self, groups: Vec<Vec<Submission>>, takes_back: bool) -> Vec<Committed> {
        let is_only = groups.iter().map(Vec::len).sum::<usize>() == 1;
        let mut trial = Trial {
            next: Arc::clone(&self.policy),
            version: self.version,
            unconfirmed: self.unconfirmed.clone(),
            is_only,
            takes_back,
        };
        let mut all = Vec::with_capacity(groups.len());
        for group in groups {
            let (mut committed, mut tried) = (Committed::default(), Vec::with_capacity(group.len()));
            let mut submissions = group.into_iter();
            while let Some(submission) = submissions.next() {
                match self.try_submission(&mut trial, &submission) {
                    Err(CommitError::Uncompiled(policy)) => {
                        let submissions = std::iter::once(submission).chain(submissions).collect();
                        committed.rest = Some(UncompiledChanges { policy, submissions });
                        break;
                    }
                    outcome => {
                        committed.outcomes.push(outcome);
                        tried.push(submission);
                    }
                }
            }
            all.push((committed, tried));
        }
        let is_ok =
            |(committed, _): &(Committed, Vec<Submission>)| committed.outcomes.iter().any(Result::is_ok);
        if all.iter().any(is_ok) {
            self.publish_trial(trial, &mut all);
        }
        all.into_iter()
            .map(|(committed, tried)| {
                let outcomes = committed.outcomes.iter().zip(tried);
                outcomes.for_each(|(outcome, tried)| self.record_change(outcome, tried.origin));
                committed
            })
            .collect()
    }

    /// Applies a change request to the policy of a trial.
    fn try_submission(
        &self,
        trial: &mut Trial,
        submission: &Submission,
    ) -> Result<CommittedChange, CommitError> {
        trial.unconfirmed.as_ref().map_or(Ok(()), |waiting| Err(waiting.refusal()))?;
        let after = Arc::new(self.apply_request(&trial.next, &submission.request)?);
        // A single request is checked by the publication.
        if !trial.is_only {
            self.host.check(&trial.next, &after)?;
            self.engine.check(&trial.next, &after).map_err(|error| uncompiled(error, &after))?;
        }
        let before = std::mem::replace(&mut trial.next, Arc::clone(&after));
        let stateful = self.engine.stateful_change(&before, &after);
        let before_version = trial.version;
        if before != after || before.notes != after.notes {
            trial.version += 1;
            let (origin, fate) = (&submission.origin, submission.request.fate());
            let patterns = self.engine.patterns();
            trial.unconfirmed = UnconfirmedChange::begin(origin, (&before, before_version), fate, patterns);
        }
        let version = Some(trial.version).filter(|version| *version != before_version);
        Ok(CommittedChange { before, after, stateful, version })
    }

    /// Publishes the policy of a trial. If the policy is refused, all changes of the trial are refused.
    fn publish_trial(&mut self, trial: Trial, all: &mut [(Committed, Vec<Submission>)]) {
        let is_only = trial.is_only;
        // The policy before must fit when the time is over: the bound of connections does not grow until then.
        let max = match trial.unconfirmed {
            Some(_) => self.engine.connection_bound(),
            None => usize::MAX,
        };
        let refusal = match self.publish_as(trial.next, max, trial.takes_back) {
            Ok(()) => {
                (self.version, self.unconfirmed) = (trial.version, trial.unconfirmed);
                return;
            }
            Err(refusal) => refusal,
        };
        for (committed, tried) in all {
            match &refusal {
                CommitError::Uncompiled(policy) if is_only => {
                    committed.outcomes.clear();
                    let (policy, submissions) = (Arc::clone(policy), std::mem::take(tried));
                    committed.rest = Some(UncompiledChanges { policy, submissions });
                }
                refusal => committed
                    .outcomes
                    .iter_mut()
                    .filter(|outcome| outcome.is_ok())
                    .for_each(|outcome| *outcome = Err(refusal.clone())),
            }
        }
    }

    /// Records the outcome of a change request.
    pub(crate) fn record_change(&self, outcome: &Result<CommittedChange, CommitError>, origin: ChangeOrigin) {
        let mut entry = Entry::new(origin.author, origin.action, origin.command);
        match outcome {
            Ok(CommittedChange { version: None, .. }) => {}
            Ok(change) => {
                entry.version = change.version;
                entry.content = EntryContent::Change(Arc::clone(&change.before), Arc::clone(&change.after));
            }
            Err(refusal) => entry.refused = Some(refusal.to_string()),
        }
        self.history.record(entry);
    }

    /// Tells about the change that waits.
    pub(crate) fn unconfirmed(&self) -> Option<UnconfirmedLine> {
        self.unconfirmed.as_ref().map(UnconfirmedChange::line)
    }

    /// Keeps the change that waits; returns its version.
    pub(crate) fn confirm(&mut self, author: Author) -> Option<u64> {
        let UnconfirmedChange { version, .. } = self.unconfirmed.take()?;
        self.history.record(Entry::new(author, EntryAction::Confirm, format!("confirm version {version}")));
        Some(version)
    }

    /// Restores the policy before the unconfirmed change, if `reason` returns a reason for it. Connections whose rules
    /// are removed get `fate`, or without it the fate that the change gave. `None`: no such change waits.
    pub(crate) fn take_back(
        &mut self,
        author: Author,
        fate: Option<ConnectionFate>,
        reason: &dyn Fn(&UnconfirmedChange) -> Option<String>,
    ) -> Option<Return> {
        let reason = reason(self.unconfirmed.as_ref()?)?;
        let waiting = self.unconfirmed.take()?;
        let (policy, version) = &waiting.before;
        let fate = fate.unwrap_or(waiting.fate);
        let request = ChangeRequest::Restore(Box::new(Policy::clone(policy)), fate);
        let command = format!("rollback {version}{reason}");
        let origin = ChangeOrigin { author, action: EntryAction::Rollback, command, confirm: None };
        let groups = vec![vec![Submission { request, origin }]];
        let mut committed = self.commit_as(groups, true).pop().unwrap_or_default();
        if let Some(UncompiledChanges { policy, .. }) = committed.rest {
            self.unconfirmed = Some(waiting);
            return Some(Return::Uncompiled(policy, fate));
        }
        let outcome = committed.outcomes.pop().unwrap_or(Err(CommitError::Internal));
        if outcome.is_err() {
            self.unconfirmed = Some(waiting);
            self.postpone_return();
        }
        Some(Return::Done(outcome, fate))
    }

    /// Extends the deadline of the unconfirmed change, which could not be taken back now.
    pub(crate) fn postpone_return(&mut self) {
        if let Some(waiting) = &mut self.unconfirmed {
            waiting.deadline = waiting.deadline.max(Instant::now() + PAUSE);
        }
    }

    /// Returns the change that a request would make, without committing it. Without `checks_patterns`, patterns that
    /// are not compiled are accepted unchecked.
    ///
    /// # Errors
    /// The change would be refused.
    pub(crate) fn try_request(
        &self,
        request: &ChangeRequest,
        checks_patterns: bool,
    ) -> Result<CommittedChange, CommitError> {
        let before = Arc::clone(&self.policy);
        let after = Arc::new(self.apply_request(&before, request)?);
        match self.engine.check(&before, &after) {
            Err(PublishError::NotCompiled) if !checks_patterns => {}
            checked => checked.map_err(|error| uncompiled(error, &after))?,
        }
        self.check_memory(&after)?;
        self.host.check(&before, &after)?;
        let stateful = self.engine.stateful_change(&before, &after);
        Ok(CommittedChange { before, after, stateful, version: None })
    }

    /// Returns a policy with a change request applied.
    fn apply_request(&self, policy: &Policy, request: &ChangeRequest) -> Result<Policy, CommitError> {
        let commands = match request {
            ChangeRequest::Apply(file, fate) => {
                let mut file = Policy::clone(file);
                file.begin_timeouts(self.now_ms());
                // On hosts whose ports are disabled by default, a file without port switches keeps those in force.
                if file.ports.is_empty() && policy.ports.keys().any(|port| !self.is_enabled(&file, port)) {
                    file.ports.clone_from(&policy.ports);
                }
                let mut next = PolicyDiff::new(policy, file).policy;
                if *fate == ConnectionFate::Keep {
                    next.drain_removed(policy);
                }
                return Ok(next);
            }
            ChangeRequest::Restore(version, fate) => {
                let mut next = PolicyDiff::restoring(policy, Policy::clone(version)).policy;
                if *fate == ConnectionFate::Keep {
                    next.drain_removed(policy);
                }
                return Ok(next);
            }
            ChangeRequest::Run(commands) => commands,
        };
        let mut next = Policy::clone(policy);
        next.now_ms = self.now_ms();
        let changes = commands.iter().enumerate().filter(|(_, command)| is_change(command));
        for (index, command) in changes {
            command.clone().run(&mut next).map_err(|error| CommitError::Command { index, error })?;
        }
        Ok(next)
    }

    /// Publishes a policy as a whole.
    fn publish(&mut self, next: Arc<Policy>) -> Result<(), CommitError> {
        self.publish_as(next, usize::MAX, false)
    }

    /// Publishes a policy as a whole, with at most `max` connections. The memory of one that is taken back is not checked.
    fn publish_as(&mut self, next: Arc<Policy>, max: usize, takes_back: bool) -> Result<(), CommitError> {
        // The check looks up the compiled patterns of streams, which the memory check needs.
        self.engine.check(&self.policy, &next).map_err(|error| uncompiled(error, &next))?;
        let bound = self.engine.connection_bound();
        let memory = if takes_back { self.kept_memory() } else { self.check_memory(&next)? };
        self.host.check(&self.policy, &next)?;
        self.engine.bound_connections(memory.connections.min(max));
        let published = self.engine.publish(&next).inspect_err(|_| self.engine.bound_connections(bound));
        published.map_err(|error| uncompiled(error, &next))?;
        self.unchecked_rules = memory.unchecked_rules;
        if next.settings.poll != self.policy.settings.poll {
            self.host.set_poll(next.settings.poll);
        }
        if next.ports != self.policy.ports {
            self.host.set_ports(&next.ports);
        }
        let before = std::mem::replace(&mut self.policy, next);
        if RuleStore::diff(&before.rules, &self.policy.rules).bounds().1 > MANY_RULES {
            self.superseded = Some(Arc::downgrade(&before));
        }
        Ok(())
    }

    /// Frees what packets and answers no longer use, and reseeds generators; to be called periodically. Returns true once after a large
    /// change, when the policy before it is freed, and after other large memory was freed: it can be returned to the system then.
    pub fn reclaim(&mut self) -> bool {
        if let Some(fresh) = self.reseed_timer.fresh(Instant::now()) {
            self.engine.reseed(&fresh);
        }
        let is_used = self.engine.reclaim() > 0;
        self.expire_elements(self.now_ms());
        let is_freed = !is_used && self.superseded.as_ref().is_some_and(|before| before.strong_count() == 0);
        if is_freed {
            self.superseded = None;
        }
        std::mem::take(&mut self.trim_due) || is_freed
    }

    /// Deletes the draining rules that have no connections left. If the patterns of the resulting policy are not
    /// compiled, deletes nothing and returns that policy.
    pub(crate) fn delete_drained(&mut self) -> Option<Arc<Policy>> {
        if self.deletion_pause.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let drained = self.engine.drained();
        if drained.is_empty() {
            return None;
        }
        let mut next = Policy::clone(&self.policy);
        for id in drained {
            // It is a rule of this policy.
            let _ = next.delete(id);
        }
        // A policy without a rule of the one in force is possible. If there is no memory for it, the rules go later.
        match self.publish(Arc::new(next)) {
            Err(CommitError::Uncompiled(policy)) => Some(policy),
            _ => None,
        }
    }

    /// Postpones the deletion of draining rules, which was refused.
    pub(crate) fn postpone_deletion(&mut self) {
        self.deletion_pause = Some(Instant::now() + PAUSE);
    }

    /// Removes the elements of sets that have expired.
    pub(crate) fn expire_elements(&mut self, now_ms: u64) {
        if self.policy.expires_ms() > now_ms {
            return;
        }
        let mut next = Policy::clone(&self.policy);
        next.expire(now_ms);
        // A policy with fewer elements is possible. If there is no memory for it, they go later.
        let _ = self.publish(Arc::new(next));
    }

    /// Makes the next [`Daemon::reclaim`] return true.
    pub(crate) fn request_trim(&mut self) {
        self.trim_due = true;
    }

    /// Returns whether the rules of a policy see the packets of a port.
    pub(crate) fn is_enabled(&self, policy: &Policy, port: &str) -> bool {
        let switch = policy.ports.get(port).copied();
        switch.unwrap_or_else(|| self.engine.ports().is_enabled_by_default(port))
    }

    /// Returns the ports that one policy enables and the other does not, and whether `after` enables them.
    pub(crate) fn switched_ports(&self, before: &Policy, after: &Policy) -> Vec<(String, bool)> {
        let named: BTreeSet<&String> = before.ports.keys().chain(after.ports.keys()).collect();
        let now = |port: &String| (port.clone(), self.is_enabled(after, port));
        let changed = |(port, enabled): &(String, bool)| self.is_enabled(before, port) != *enabled;
        named.into_iter().map(now).filter(changed).collect()
    }

    /// Returns whether that rule of a policy is still in force.
    pub(crate) fn in_force(&self, of: &Arc<Policy>, id: RuleId) -> bool {
        Arc::ptr_eq(of, &self.policy) || of.rules.agree(&self.policy.rules, id)
    }
}

/// The changes of one commit so far.
struct Trial {
    next: Arc<Policy>,
    version: u64,
    unconfirmed: Option<UnconfirmedChange>,
    /// The commit has a single request.
    is_only: bool,
    /// It restores the policy before an unconfirmed change.
    takes_back: bool,
}

/// The error of a change that the engine refuses. If only its patterns are not compiled yet, the error has the policy.
fn uncompiled(error: PublishError, policy: &Arc<Policy>) -> CommitError {
    match error {
        PublishError::NotCompiled => CommitError::Uncompiled(Arc::clone(policy)),
        other => CommitError::Publish(other),
    }
}
