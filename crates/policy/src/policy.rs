//! A whole policy: rules under their numbers, settings, and the ports that it leaves alone.
//!
//! A [`Policy`] is a plain value. A file is run against an empty one, a command against a copy of the one in
//! force; only what checked as a whole is handed to the engine.

mod connections;

use crate::command::{Command, CommandIter};
use crate::diagnostic::{Diagnostic, MOST_TOLD, Note, TextSpan};
use crate::rule::{Rule, RuleId, Target};
use crate::rules::{ChunkEntry, RuleStore};
use crate::setting::Setting;
use std::collections::BTreeMap;
use std::fmt::Write as _;

pub use connections::{
    ConnectionSettings, InvalidPackets, NatFiltering, Pickup, PortsPerHost, Timeouts, Zone,
};

/// Rules, settings and port switches. A copy shares the rules, so that it is cheap, and so is a change to it.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The rules by number.
    pub rules: RuleStore,
    /// The settings.
    pub settings: Settings,
    /// What was said last about ports, by name: the rules see their packets (`enable PORT`), or they pass untouched (`disable
    /// PORT`). What holds for the others is the host's matter.
    pub ports: BTreeMap<String, bool>,
    /// The greatest number that a rule has had, so that numbers of deleted rules do not come back.
    last_id: u32,
}

/// What a command did to a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A rule is there now, under this number.
    Added(RuleId),
    /// A rule went.
    Deleted(Box<Rule>),
    /// So many rules went.
    Flushed(usize),
    /// Rules see the packets of the port; `false`: that was said before.
    Enabled(String, bool),
    /// Packets of the port pass untouched; `false`: that was said before.
    Disabled(String, bool),
    /// A setting has this value now.
    Set(Setting),
}

/// Why a command cannot be carried out on a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// `add id N` where N is taken.
    #[error("there is a rule {0} already; delete it first or leave the number to mmb")]
    IdTaken(RuleId),
    /// `del N` without such a rule.
    #[error("there is no rule {0}")]
    NoSuchRule(RuleId),
    /// Every greater number is taken.
    #[error("no number is left above the last rule's; give the rule a free one with `id N`")]
    NoIdLeft,
    /// `list`, `show` and others are about what goes on.
    #[error("`{0}` is about the state of a running mmb and changes no policy")]
    NoChange(&'static str),
}

/// What `set NAME VALUE` changes. `crate::setting` holds the table of names and ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `ip6-max-headers`: the most IPv6 extension headers walked in one packet.
    pub ip6_max_headers: u8,
    /// `poll`: how an idle worker waits.
    pub poll: Poll,
    /// `conn …`, `timeout …`, `nat …`: how connections are kept.
    pub connections: ConnectionSettings,
}

/// How a worker with nothing to do waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Poll {
    /// Sleeps for longer and longer, up to a bound.
    #[default]
    Adaptive,
    /// Never sleeps.
    Spin,
}

impl Poll {
    /// In the order of their words in the table of settings.
    pub const ALL: [Poll; 2] = [Poll::Adaptive, Poll::Spin];
}

impl Policy {
    /// Parses and checks a policy file: one command a line, run one after the other on an empty policy. Of more than 200
    /// notes the first ones are told.
    ///
    /// # Errors
    /// Everything that is wrong with the file, in the order of its lines; of more than 200 errors the first ones.
    pub fn parse(text: &str) -> Result<(Policy, Vec<Note>), Vec<Diagnostic>> {
        let mut policy = Policy::default();
        let mut commands = CommandIter::new(text);
        while let Some((command, span)) = commands.next() {
            if let Some(error) = policy.run_line(command, span, commands.errors.is_empty()) {
                commands.errors.push(error);
            }
        }
        if commands.errors.is_empty() {
            policy.rules.shrink();
            let mut notes = commands.notes.located(text);
            if let Some(last) = notes.get_mut(MOST_TOLD - 1) {
                last.message = format!("too many notes: only the first {} are told", MOST_TOLD - 1);
            }
            return Ok((policy, notes));
        }
        let mut errors = commands.errors.located(text);
        if let Some(last) = errors.get_mut(MOST_TOLD - 1) {
            last.message = format!("too many errors: only the first {} are told", MOST_TOLD - 1);
            (last.expected, last.suggestion) = (None, None);
        }
        Err(errors)
    }

    /// Runs one command of a file. `complete`: no command before had errors, so that the policy is what it would be.
    fn run_line(&mut self, command: Command, span: TextSpan, complete: bool) -> Option<Diagnostic> {
        let info = command.info();
        if !info.in_file {
            let message = format!("`{}` has no place in a policy file: it changes nothing", info.name);
            return Some(Diagnostic::new(span, message));
        }
        if let Command::DelKill(_) = command {
            let message = "`--kill` has no place in a policy file: it ends connections of a running mmb";
            return Some(Diagnostic::new(span, message));
        }
        match self.run(command) {
            Ok(_) => None,
            // The rule may be one that had errors.
            Err(PolicyError::NoSuchRule(_)) if !complete => None,
            Err(error) => Some(Diagnostic::new(span, error.to_string())),
        }
    }

    /// What was said about ports, as commands.
    pub fn switches(&self) -> impl Iterator<Item = String> + '_ {
        self.ports
            .iter()
            .map(|(port, enabled)| format!("{} {port}", if *enabled { "enable" } else { "disable" }))
    }

    /// Carries out one command.
    ///
    /// # Errors
    /// Why it cannot be; the policy is as before.
    pub fn run(&mut self, command: Command) -> Result<Change, PolicyError> {
        Ok(match command {
            Command::Add(rule) => Change::Added(self.add(&rule)?),
            // Who keeps connections ends those of the rule.
            Command::Del(id) | Command::DelKill(id) => {
                let rule = self.rules.remove(id).ok_or(PolicyError::NoSuchRule(id))?;
                Change::Deleted(Box::new(rule))
            }
            Command::Flush => Change::Flushed(std::mem::take(&mut self.rules).len()),
            Command::Enable(port) => {
                let before = self.ports.insert(port.clone(), true);
                Change::Enabled(port, before != Some(true))
            }
            Command::Disable(port) => {
                let before = self.ports.insert(port.clone(), false);
                Change::Disabled(port, before != Some(false))
            }
            Command::Set(setting) => {
                setting.apply(&mut self.settings);
                Change::Set(setting)
            }
            command @ (Command::List { .. } | Command::Show(_) | Command::Kill(_) | Command::Monitor) => {
                return Err(PolicyError::NoChange(command.info().name));
            }
        })
    }

    /// Adds a rule under its number, or under the next one above all that were used.
    ///
    /// # Errors
    /// The number is taken, or none is left.
    pub fn add(&mut self, rule: &Rule) -> Result<RuleId, PolicyError> {
        let id = match rule.id {
            Some(id) if self.rules.contains(id) => return Err(PolicyError::IdTaken(id)),
            Some(id) => id,
            None => RuleId(self.last_id.checked_add(1).ok_or(PolicyError::NoIdLeft)?),
        };
        self.last_id = self.last_id.max(id.0);
        self.rules.insert_numbered(id, rule, rule.id.is_none());
        Ok(id)
    }

    /// The greatest number that a rule has had.
    pub(crate) fn last_id(&self) -> u32 {
        self.last_id
    }

    /// The policy with other numbers for its rules, one for each in their order, all different, none above `last`.
    pub(crate) fn renumbered(self, numbers: &[RuleId], last: u32) -> Policy {
        if self.rules.keys().eq(numbers.iter().copied()) {
            return Policy { last_id: last, ..self };
        }
        let mut entries: Vec<ChunkEntry<'_>> = self.rules.entries().collect();
        entries.iter_mut().zip(numbers).for_each(|(entry, id)| entry.id = *id);
        entries.sort_unstable_by_key(|entry| entry.id);
        Policy { rules: RuleStore::of_entries(entries), last_id: last, ..self }
    }

    /// The policy, with numbers to come above those that `other` used.
    pub(crate) fn above(self, other: &Policy) -> Policy {
        Policy { last_id: self.last_id.max(other.last_id), ..self }
    }

    /// Whether some rule may change a packet.
    pub fn rewrites(&self) -> bool {
        let mut targets = self.rules.iter().flat_map(|rule| rule.targets);
        targets.any(|target| !matches!(target, Target::Drop(_) | Target::Accept))
    }

    /// The policy as a file that parses to the same policy: rules with their numbers, changed settings, what
    /// was said about ports.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for setting in self.settings.changed() {
            let _ = writeln!(text, "set {setting}");
        }
        for line in self.switches() {
            let _ = writeln!(text, "{line}");
        }
        for rule in self.rules.iter() {
            let _ = writeln!(text, "{}", rule.display_with_id());
        }
        text
    }
}

impl PartialEq for Policy {
    /// Whether both do the same under the same numbers; how the numbers came about does not count.
    fn eq(&self, other: &Policy) -> bool {
        self.rules == other.rules && self.settings == other.settings && self.ports == other.ports
    }
}

impl Eq for Policy {}

impl Default for Settings {
    fn default() -> Self {
        Settings { ip6_max_headers: 16, poll: Poll::default(), connections: ConnectionSettings::default() }
    }
}
