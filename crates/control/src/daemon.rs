//! The daemon's state: the policy in force, the engine that carries it out, the host that moves the packets.
//!
//! One [`Daemon`] lives as long as the process, behind a mutex that clients' threads take for as long as a
//! change or a look at counters lasts, and never while they talk to a client. Only here a policy is put in
//! force; packets do not wait for it.

use crate::host::Host;
use mmb_engine::{Engine, PublishError};
use mmb_policy::{Command, Plan, Policy, RuleChange, RuleId, Rules};
use std::sync::Arc;

/// The state that every client looks at and changes, one at a time.
pub struct Daemon {
    engine: Engine,
    /// Shared with answers that are still being sent about it.
    policy: Arc<Policy>,
    host: Box<dyn Host>,
}

/// A change that was made.
#[derive(Clone, Debug)]
pub struct Change {
    /// The policy that was in force.
    pub before: Arc<Policy>,
    /// The policy that is.
    pub after: Arc<Policy>,
}

/// Why a change was not made.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    /// A command does not fit the policy in force.
    #[error("{error}")]
    Command {
        /// The command's number among those given.
        index: usize,
        /// What is wrong.
        error: mmb_policy::PolicyError,
    },
    /// The engine cannot carry the policy out.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

impl Daemon {
    /// Puts a policy in force.
    ///
    /// # Errors
    /// What makes the policy impossible here.
    pub fn new(engine: Engine, policy: Policy, host: Box<dyn Host>) -> Result<Daemon, Refusal> {
        let mut daemon = Daemon { engine, policy: Arc::new(Policy::default()), host };
        daemon.host.set_poll(policy.settings.poll);
        daemon.put(policy)?;
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

    /// Makes the changes that the commands ask for, all or none. Questions among the commands change nothing.
    ///
    /// # Errors
    /// Why none was made.
    pub fn run(&mut self, commands: &[Command]) -> Result<Change, Refusal> {
        let mut next = Policy::clone(&self.policy);
        let changes = commands.iter().enumerate().filter(|(_, command)| is_change(command));
        for (index, command) in changes {
            next.run(command.clone()).map_err(|error| Refusal::Command { index, error })?;
        }
        self.put(next)
    }

    /// Puts a policy file's policy in force. Rules that are in force already stay, with their numbers and
    /// counters.
    ///
    /// # Errors
    /// What makes it impossible here; the policy in force stays.
    pub fn apply(&mut self, file: Policy) -> Result<Change, Refusal> {
        self.put(Plan::new(&self.policy, file).policy)
    }

    /// Puts a policy in force as a whole.
    ///
    /// # Errors
    /// What makes it impossible here; the policy in force stays.
    pub fn put(&mut self, next: Policy) -> Result<Change, Refusal> {
        self.engine.publish(&next)?;
        if next.settings.poll != self.policy.settings.poll {
            self.host.set_poll(next.settings.poll);
        }
        let after = Arc::new(next);
        let before = std::mem::replace(&mut self.policy, Arc::clone(&after));
        Ok(Change { before, after })
    }

    /// Whether that rule of a policy is still in force.
    pub(crate) fn in_force(&self, of: &Arc<Policy>, id: RuleId) -> bool {
        Arc::ptr_eq(of, &self.policy) || of.rules.agree(&self.policy.rules, id)
    }
}

/// Whether a command changes something; the others are questions.
pub(crate) fn is_change(command: &Command) -> bool {
    !matches!(command, Command::List { .. } | Command::Show(_))
}

impl Change {
    /// What became of the rules that did not stay, in the order of their numbers. A rule that was replaced by another
    /// under its number went, and then the other came.
    pub fn fates(&self) -> impl Iterator<Item = RuleChange> + '_ {
        Rules::diff(&self.before.rules, &self.after.rules)
    }
}
