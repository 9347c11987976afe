//! Commands, each of one line of the language, and their execution on a policy.

use mmb_policy::policy::{Policy, PolicyError};
use mmb_policy::rule::{Rule, RuleId};
use mmb_policy::setting_table::Setting;
use mmb_policy::{ConnectionFilter, ElementList, PatternList, SetOperation};

/// One checked command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `add …`, `add-stateless …`, `add-stateful …`
    Add(Box<Rule>),
    /// `del ID`
    Del(RuleId),
    /// `del ID --kill`: the rule's connections end too.
    DelKill(RuleId),
    /// `del ID --keep`: the rule drains.
    DelKeep(RuleId),
    /// `flush`
    Flush,
    /// `list [--terse]`
    List {
        /// Rules only, without counters.
        terse: bool,
    },
    /// `show WHAT`
    Show(Show),
    /// `enable PORT`
    Enable(String),
    /// `disable PORT`
    Disable(String),
    /// `set NAME VALUE`
    Set(Setting),
    /// `patterns LIST FILE`: the list has the patterns that were read from the file.
    Patterns(String, PatternList),
    /// `set NAME {…}`, `set NAME += {…}`, `set NAME -= {…}`, with timeouts in the place of times.
    ChangeSet(String, SetOperation, ElementList),
    /// `del set NAME`
    DelSet(String),
    /// `show set NAME`
    ShowSet(String),
    /// `conn kill FILTER…`
    Kill(ConnectionFilter),
    /// `monitor`
    Monitor,
    /// `clear counters`
    ClearCounters,
}

/// The subjects of `show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Tuples of the classifier.
    Tables,
    /// Ports and their counters.
    Ports,
    /// Drops by reason, and edits that were not applied.
    Errors,
    /// Stages: calls, vectors, packets, cycles.
    Runtime,
    /// Flows that the host forwards by itself, and why others stay with mmb.
    Offload,
    /// Named sets.
    Sets,
    /// Settings in force.
    Settings,
    /// Version and build.
    Version,
    /// What happens in a second: packets of ports, workers, rules, connections, drops.
    Rates,
    /// Connections, one by one.
    Connections {
        /// Selects the connections.
        filter: ConnectionFilter,
        /// Also shows the worker and slot of each.
        verbose: bool,
    },
    /// Streams of connections, one by one.
    Streams {
        /// Selects the connections.
        filter: ConnectionFilter,
        /// Also shows the worker and slot of each, and more counters.
        verbose: bool,
    },
    /// The numbers of streams, by level and state, and what they hold of their limits.
    StreamSummary,
    /// The numbers of connections that exist, were made and were refused.
    ConnSummary,
}

/// The change that a command made to a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A rule was added under this number.
    Added(RuleId),
    /// A rule was deleted.
    Deleted(Box<Rule>),
    /// The rule of this number drains.
    Drains(RuleId),
    /// This number of rules was deleted.
    Flushed(usize),
    /// Rules see the packets of the port; `false`: they did before.
    Enabled(String, bool),
    /// Packets of the port pass untouched; `false`: they did before.
    Disabled(String, bool),
    /// A setting has this value now.
    Set(Setting),
    /// The set of this name has other elements, or is new.
    SetChanged(String),
    /// The set of this name was deleted.
    SetDeleted(String),
    /// The list of this name has other patterns, or is new; `false`: it has had them before.
    Patterns(String, bool),
}

/// The reason why a command is not carried out on a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandRefusal {
    /// The policy refuses the change.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// `list`, `show` and others are about what goes on.
    #[error("`{0}` is about the state of a running mmb and changes no policy")]
    NoChange(&'static str),
}

impl Command {
    /// The command's first word.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Add(rule) if rule.stateful => "add-stateful",
            Command::Add(_) => "add",
            Command::Del(_) | Command::DelKill(_) | Command::DelKeep(_) | Command::DelSet(_) => "del",
            Command::Flush => "flush",
            Command::List { .. } => "list",
            Command::Show(_) | Command::ShowSet(_) => "show",
            Command::Enable(_) => "enable",
            Command::Disable(_) => "disable",
            Command::Set(_) | Command::ChangeSet(..) => "set",
            Command::Patterns(..) => "patterns",
            Command::Kill(_) => "conn",
            Command::Monitor => "monitor",
            Command::ClearCounters => "clear",
        }
    }

    /// Carries the command out on a policy.
    ///
    /// # Errors
    /// The command is refused; the policy is as before.
    pub fn run(self, policy: &mut Policy) -> Result<Change, CommandRefusal> {
        Ok(match self {
            Command::Add(rule) => Change::Added(policy.add(&rule)?),
            // Whoever keeps connections ends those of the rule.
            Command::Del(id) | Command::DelKill(id) => Change::Deleted(Box::new(policy.delete(id)?)),
            Command::DelKeep(id) => {
                policy.drain(id)?;
                Change::Drains(id)
            }
            Command::Flush => Change::Flushed(policy.flush()),
            Command::Enable(port) => {
                let changed = policy.switch_port(&port, true);
                Change::Enabled(port, changed)
            }
            Command::Disable(port) => {
                let changed = policy.switch_port(&port, false);
                Change::Disabled(port, changed)
            }
            Command::Set(setting) => {
                setting.apply(&mut policy.settings);
                Change::Set(setting)
            }
            Command::ChangeSet(name, operation, list) => {
                policy.change_set(&name, operation, list)?;
                Change::SetChanged(name)
            }
            Command::DelSet(name) => {
                policy.delete_set(&name)?;
                Change::SetDeleted(name)
            }
            Command::Patterns(name, list) => {
                let before = policy.set_list(&name, list)?;
                let changed = before.as_ref() != policy.lists.get(&name);
                Change::Patterns(name, changed)
            }
            Command::List { .. }
            | Command::Show(_)
            | Command::ShowSet(_)
            | Command::Kill(_)
            | Command::Monitor
            | Command::ClearCounters => {
                return Err(CommandRefusal::NoChange(self.name()));
            }
        })
    }
}
