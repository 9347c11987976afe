//! The daemon's state: the policy in force, the engine that carries it out, the host that moves the packets.
//!
//! One [`Daemon`] lives as long as the process, behind a mutex that clients' threads take for as long as a
//! change or a look at counters lasts, and never while they talk to a client. Only here a policy is put in
//! force; packets do not wait for it.

use crate::entropy::ReseedTimer;
use crate::host::{Host, UnsupportedRule};
use crate::memory::{self, MemoryShortage};
use mmb_engine::{CONNECTION_BYTES, Engine, PortSpec, PublishError};
use mmb_language::Command;
use mmb_packet::PortId;
use mmb_policy::settings::ConnectionSettings;
use mmb_policy::{Policy, PolicyDiff, RuleChange, RuleId, RuleStore};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// A change of so many rules takes no memory worth a look.
const FEW_RULES: usize = 1 << 12;

/// A change of so many rules leaves much memory to be given back.
const MANY_RULES: usize = 1 << 16;

/// The state that every client looks at and changes, one at a time.
pub struct Daemon {
    engine: Engine,
    /// Shared with answers that are still being sent about it.
    policy: Arc<Policy>,
    host: Box<dyn Host>,
    /// The policy before a large change, while it may still be in use.
    left: Option<Weak<Policy>>,
    reseeding: ReseedTimer,
    /// Something else that was large is freed.
    freed: bool,
    /// RuleStore that came in small changes since memory was looked at.
    unlooked: usize,
}

/// Something to be changed, which is done as a whole or not at all.
#[derive(Debug)]
pub(crate) enum ChangeRequest {
    /// What these commands ask for. Questions among them change nothing.
    Run(Vec<Command>),
    /// To a policy file's policy. Rules that are in force already stay, with their numbers and counters.
    Apply(Box<Policy>),
}

/// A change that was made.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The policy that was in force.
    pub before: Arc<Policy>,
    /// The policy that is.
    pub after: Arc<Policy>,
}

/// Why a change was not made.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// A command does not fit the policy in force.
    #[error("{error}")]
    Command {
        /// The command's number among those given.
        index: usize,
        /// What is wrong.
        error: mmb_language::CommandRefusal,
    },
    /// The engine cannot carry the policy out.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// There is not enough memory to put it in force.
    #[error(transparent)]
    Memory(#[from] MemoryShortage),
    /// There is not enough memory for so many connections.
    #[error("set conn max {max}: {short}; {fits} would fit")]
    Connections {
        /// As many as were asked for.
        max: u64,
        /// As many as fit.
        fits: u64,
        /// What is missing.
        short: MemoryShortage,
    },
    /// It does not fit the host.
    #[error(transparent)]
    Host(#[from] UnsupportedRule),
    /// A fault of ours.
    #[error("an internal error; the daemon's standard error tells more")]
    Lost,
}

impl Daemon {
    /// Puts a policy in force.
    ///
    /// # Errors
    /// What makes the policy impossible here.
    pub fn new(engine: Engine, policy: Policy, host: Box<dyn Host>) -> Result<Daemon, CommitError> {
        let reseeding = ReseedTimer::begin(Instant::now());
        let policy_before = Arc::new(Policy::default());
        // Until something is known of memory.
        engine.bound_connections(0);
        let mut daemon =
            Daemon { engine, policy: policy_before, host, left: None, freed: false, unlooked: 0, reseeding };
        daemon.host.set_poll(policy.settings.poll);
        daemon.publish(Arc::new(policy))?;
        Ok(daemon)
    }

    /// The policy in force.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The control side of the engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The packet side.
    pub fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// One more port of the host's, which commands may name from now on; `None`: the engine has no room for it.
    pub fn add_port(&mut self, port: PortSpec) -> Option<PortId> {
        self.engine.add_port(port)
    }

    /// Gives a port of the host's another name, of which no rule says anything: see [`Engine::rename_port`].
    pub fn rename_port(&mut self, port: PortId, name: &str) {
        self.engine.rename_port(port, name);
    }

    /// Carries out what is wished for, in order. All that can be done comes into force at once; each wish sees what those
    /// before it did.
    pub(crate) fn commit(&mut self, requests: Vec<ChangeRequest>) -> Vec<Result<Committed, CommitError>> {
        let alone = requests.len() == 1;
        let mut next = Arc::clone(&self.policy);
        let mut outcomes = Vec::with_capacity(requests.len());
        for request in requests {
            let fulfilled = self.apply_request(&next, request).and_then(|after| {
                // One that is alone is checked when it is published.
                if !alone {
                    self.host.check(&next, &after)?;
                    self.engine.check(&next, &after)?;
                }
                Ok(Arc::new(after))
            });
            outcomes.push(fulfilled.map(|after| {
                let before = std::mem::replace(&mut next, Arc::clone(&after));
                Committed { before, after }
            }));
        }
        if outcomes.iter().any(Result::is_ok)
            && let Err(refusal) = self.publish(next)
        {
            outcomes.iter_mut().filter(|done| done.is_ok()).for_each(|done| *done = Err(refusal.clone()));
        }
        outcomes
    }

    /// What a policy is with a wish fulfilled.
    fn apply_request(&self, policy: &Policy, request: ChangeRequest) -> Result<Policy, CommitError> {
        let commands = match request {
            ChangeRequest::Apply(mut file) => {
                // Where a port must be enabled, a file that has only rules means the ports that are.
                if file.ports.is_empty() && policy.ports.keys().any(|port| !self.is_enabled(&file, port)) {
                    file.ports.clone_from(&policy.ports);
                }
                return Ok(PolicyDiff::new(policy, *file).policy);
            }
            ChangeRequest::Run(commands) => commands,
        };
        let mut next = Policy::clone(policy);
        let changes = commands.into_iter().enumerate().filter(|(_, command)| is_change(command));
        for (index, command) in changes {
            command.run(&mut next).map_err(|error| CommitError::Command { index, error })?;
        }
        Ok(next)
    }

    /// Whether there is memory for a policy beside the one in force, and how many connections there may be under it. Small changes are
    /// made in any case: so is what makes room.
    fn check_memory(&self, next: &Policy) -> Result<MemoryBounds, CommitError> {
        let (rules, after) = (&self.policy.rules, &next.rules);
        let changed = RuleStore::diff(rules, after).bounds().1.min(after.len());
        let unlooked = self.unlooked + after.len().saturating_sub(rules.len());
        let is_large = changed.max(unlooked) > FEW_RULES;
        let most = self.most_connections();
        let max = u64::from(next.settings.connections.max);
        let bound = self.engine.connection_bound();
        // At the start there may be none yet; and of the default, once it was cut, as many again as memory has become free for.
        if !is_large && max <= most {
            return Ok(MemoryBounds { connections: bound, unlooked });
        }
        let Some(available) = self.host.memory() else {
            return Ok(MemoryBounds { connections: usize::MAX, unlooked: 0 });
        };
        let needed = if is_large { changed as u64 * memory::RULE_BYTES } else { 0 };
        // What connections have taken already is theirs, also when they have ended.
        let there = self.engine.connections().summary().places;
        let connections = if is_default(next) {
            available.check(needed, 0)?;
            let left = available.for_changes() - needed;
            let fits = (there + left / 4 * 3 / CONNECTION_BYTES).max(1);
            if is_large { fits } else { fits.max(bound as u64) }
        } else if max > most {
            let wanted = max.saturating_sub(there) * CONNECTION_BYTES;
            available.check(needed + wanted, 0).map_err(|short| {
                let fits = there + short.bytes.saturating_sub(needed) / CONNECTION_BYTES;
                CommitError::Connections { max, fits, short }
            })?;
            max
        } else {
            available.check(needed, self.kept(most.min(max)))?;
            most
        };
        Ok(MemoryBounds { connections: usize::try_from(connections).unwrap_or(usize::MAX), unlooked: 0 })
    }

    /// Whether there is memory for something of so many bytes.
    ///
    /// # Errors
    /// There is not.
    pub(crate) fn afford(&self, bytes: u64) -> Result<(), MemoryShortage> {
        let kept = if is_default(&self.policy) { 0 } else { self.kept(self.most_connections()) };
        self.host.memory().map_or(Ok(()), |available| available.check(bytes, kept))
    }

    /// As many connections as there may be.
    fn most_connections(&self) -> u64 {
        u64::from(self.policy.settings.connections.max).min(self.engine.connection_bound() as u64)
    }

    /// What connections up to so many may still come to take, in bytes.
    fn kept(&self, most: u64) -> u64 {
        most.saturating_sub(self.engine.connections().summary().places) * CONNECTION_BYTES
    }

    /// Puts a policy in force as a whole.
    fn publish(&mut self, next: Arc<Policy>) -> Result<(), CommitError> {
        let memory = self.check_memory(&next)?;
        self.host.check(&self.policy, &next)?;
        let bound = self.engine.connection_bound();
        self.engine.bound_connections(memory.connections);
        self.engine.publish(&next).inspect_err(|_| self.engine.bound_connections(bound))?;
        self.unlooked = memory.unlooked;
        if next.settings.poll != self.policy.settings.poll {
            self.host.set_poll(next.settings.poll);
        }
        if next.ports != self.policy.ports {
            self.host.set_ports(&next.ports);
        }
        let before = std::mem::replace(&mut self.policy, next);
        if RuleStore::diff(&before.rules, &self.policy.rules).bounds().1 > MANY_RULES {
            self.left = Some(Arc::downgrade(&before));
        }
        Ok(())
    }

    /// Frees what packets and answers use no more, and gives generators fresh entropy; to be called now and then. True once
    /// after a large change, when all of what was before it is freed, and after something else that was large: memory may be given
    /// back to the system then.
    pub fn reclaim(&mut self) -> bool {
        if let Some(fresh) = self.reseeding.fresh(Instant::now()) {
            self.engine.reseed(&fresh);
        }
        let waits = self.engine.reclaim() > 0;
        let left = !waits && self.left.as_ref().is_some_and(|before| before.strong_count() == 0);
        if left {
            self.left = None;
        }
        std::mem::take(&mut self.freed) || left
    }

    /// Has [`Daemon::reclaim`] say that there is memory to be given back.
    pub(crate) fn trim_memory(&mut self) {
        self.freed = true;
    }

    /// Whether the rules of a policy see the packets of a port.
    pub(crate) fn is_enabled(&self, policy: &Policy, port: &str) -> bool {
        let said = policy.ports.get(port).copied();
        said.unwrap_or_else(|| self.engine.ports().is_enabled_by_default(port))
    }

    /// The ports that one policy enables and the other does not, and whether `after` does.
    pub(crate) fn switched_ports(&self, before: &Policy, after: &Policy) -> Vec<(String, bool)> {
        let named: BTreeSet<&String> = before.ports.keys().chain(after.ports.keys()).collect();
        let now = |port: &String| (port.clone(), self.is_enabled(after, port));
        let changed = |(port, enabled): &(String, bool)| self.is_enabled(before, port) != *enabled;
        named.into_iter().map(now).filter(changed).collect()
    }

    /// Whether that rule of a policy is still in force.
    pub(crate) fn in_force(&self, of: &Arc<Policy>, id: RuleId) -> bool {
        Arc::ptr_eq(of, &self.policy) || of.rules.agree(&self.policy.rules, id)
    }
}

/// What memory has room for under a policy.
struct MemoryBounds {
    /// The most connections.
    connections: usize,
    /// See [`Daemon`].
    unlooked: usize,
}

/// Whether a policy leaves it to us how many connections there may be: as many as memory suffices for, up to that number, which makes
/// room for rules. Any other number was asked for: it is had, or the policy is refused.
fn is_default(policy: &Policy) -> bool {
    policy.settings.connections.max == ConnectionSettings::default().max
}

/// Whether a command changes something; the others are questions.
pub(crate) fn is_change(command: &Command) -> bool {
    !matches!(command, Command::List { .. } | Command::Show(_) | Command::Kill(_) | Command::Monitor)
}

impl Committed {
    /// What became of the rules that did not stay, in the order of their numbers. A rule that was replaced by another
    /// under its number went, and then the other came.
    pub fn diff(&self) -> impl Iterator<Item = RuleChange> + '_ {
        RuleStore::diff(&self.before.rules, &self.after.rules)
    }
}
