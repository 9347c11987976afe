//! Commands, each of one line of the language, and their execution on a policy.

use mmb_policy::policy::{Policy, PolicyError};
use mmb_policy::rule::{Rule, RuleId};
use mmb_policy::setting_table::Setting;
use mmb_policy::{ConnectionFilter, ElementList, PacketFilter, PatternList, ServerCommand, SetOperation};

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
    /// `del name WORD`: every rule of that name.
    DelNamed(String, Deletion),
    /// `replace ID …`
    Replace(Box<Replacement>),
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
    /// `server ORDER VALUE …`
    Server(ServerCommand),
    /// `monitor`
    Monitor,
    /// `trace FILTER…`
    Trace(Box<TraceRequest>),
    /// `capture FILTER…`
    Capture(Box<CaptureRequest>),
    /// `clear counters`
    ClearCounters,
    /// `confirm [N]`
    Confirm(Option<u64>),
    /// `rollback [N]`
    Rollback(Option<u64>, Deletion),
    /// `history [N]`
    History(Option<u64>),
    /// `diff [N [M]]`
    Diff(Option<u64>, Option<u64>),
}

/// The fate of the connections of rules that are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// They lose the rules' targets.
    Plain,
    /// `--kill`: they end.
    Kill,
    /// `--keep`: the rules drain.
    Drain,
}

/// A rule in the place of another one. It is as stateful as that one, which only the policy knows, so that there are two readings of the text;
/// at least one of them is a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The number of both rules.
    pub id: RuleId,
    /// The rule in the place of a stateless one, or the reason why there is none.
    pub stateless: Result<Rule, String>,
    /// The rule in the place of a stateful one, or the reason why there is none.
    pub stateful: Result<Rule, String>,
    /// `--kill`: the connections of the rule end.
    pub kill: bool,
}

/// What `trace` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceRequest {
    /// The packets.
    pub filter: PacketFilter,
    /// How many.
    pub count: Option<u32>,
}

/// What `capture` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureRequest {
    /// The packets.
    pub filter: PacketFilter,
    /// The points of their way; several may be given. None: where they are received and where they are sent, or with a reason where they
    /// are dropped.
    pub points: CapturePoints,
    /// Only packets that are dropped for the reason of this name.
    pub reason: Option<String>,
    /// How many.
    pub count: Option<u32>,
    /// The most bytes of a packet.
    pub snaplen: Option<u32>,
}

/// Points of a packet's way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapturePoints {
    /// Where packets are received.
    pub rx: bool,
    /// Where they are sent.
    pub tx: bool,
    /// Where they are dropped.
    pub drop: bool,
}

impl CaptureRequest {
    /// The points, of which there is one at least.
    pub fn points(&self) -> CapturePoints {
        match self.points {
            CapturePoints { rx: false, tx: false, drop: false } if self.reason.is_some() => {
                CapturePoints { drop: true, ..CapturePoints::default() }
            }
            CapturePoints { rx: false, tx: false, drop: false } => {
                CapturePoints { rx: true, tx: true, drop: false }
            }
            points => points,
        }
    }
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
    /// The sinks of the log.
    Log,
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
    /// The servers of rules that balance.
    Servers {
        /// Without their packets, which connections are asked for.
        terse: bool,
    },
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
    /// So many rules of one name were deleted, or drain.
    DeletedNamed(usize),
    /// A rule, which is this one, was replaced.
    Replaced(Box<Rule>),
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
    /// The text fits no rule that is as stateful as the one that it is to replace.
    #[error("rule {id} is {}stateful, and stays so: {reason}", if *.stateful { "" } else { "not " })]
    OtherKind {
        /// The number of the rule.
        id: RuleId,
        /// The rule in force is stateful.
        stateful: bool,
        /// The error of the text as a rule of this kind.
        reason: String,
    },
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
            Command::Del(_) | Command::DelKill(_) | Command::DelKeep(_) | Command::DelNamed(..) => "del",
            Command::DelSet(_) => "del",
            Command::Replace(_) => "replace",
            Command::Flush => "flush",
            Command::List { .. } => "list",
            Command::Show(_) | Command::ShowSet(_) => "show",
            Command::Enable(_) => "enable",
            Command::Disable(_) => "disable",
            Command::Set(_) | Command::ChangeSet(..) => "set",
            Command::Patterns(..) => "patterns",
            Command::Kill(_) => "conn",
            Command::Server(_) => "server",
            Command::Monitor => "monitor",
            Command::Trace(_) => "trace",
            Command::Capture(_) => "capture",
            Command::ClearCounters => "clear",
            Command::Confirm(_) => "confirm",
            Command::Rollback(..) => "rollback",
            Command::History(_) => "history",
            Command::Diff(..) => "diff",
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
            Command::DelNamed(name, deletion) => Change::DeletedNamed(delete_named(policy, &name, deletion)?),
            Command::Replace(replacement) => Change::Replaced(Box::new(replacement.run(policy)?)),
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
            | Command::Server(_)
            | Command::Monitor
            | Command::Trace(_)
            | Command::Capture(_)
            | Command::ClearCounters
            | Command::Confirm(_)
            | Command::Rollback(..)
            | Command::History(_)
            | Command::Diff(..) => {
                return Err(CommandRefusal::NoChange(self.name()));
            }
        })
    }
}

/// Deletes the rules of a name, or has those of them drain that are stateful; returns how many rules these are.
fn delete_named(policy: &mut Policy, name: &str, deletion: Deletion) -> Result<usize, PolicyError> {
    let ids = policy.named(name);
    if ids.is_empty() {
        return Err(PolicyError::NoSuchName(name.to_owned()));
    }
    for &id in &ids {
        if deletion != Deletion::Drain || policy.drain(id).is_err() {
            policy.delete(id)?;
        }
    }
    Ok(ids.len())
}

impl Replacement {
    /// Either rule, for what both have in common.
    pub fn either(&self) -> Option<&Rule> {
        self.stateless.as_ref().or(self.stateful.as_ref()).ok()
    }

    fn run(self, policy: &mut Policy) -> Result<Rule, CommandRefusal> {
        let Replacement { id, stateless, stateful, .. } = self;
        let before = policy.rules.get(id).ok_or(PolicyError::NoSuchRule(id))?;
        let rule = if before.stateful { stateful } else { stateless };
        let other_kind = |reason| CommandRefusal::OtherKind { id, stateful: before.stateful, reason };
        Ok(policy.replace(id, &rule.map_err(other_kind)?)?)
    }
}
