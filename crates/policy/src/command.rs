//! Commands: what one line of the language asks for.

use crate::policy::Settings;
use crate::rule::{Rule, RuleId};

/// One checked command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `add …`, `add-stateless …`, `add-stateful …`
    Add(Box<Rule>),
    /// `del ID`
    Del(RuleId),
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
}

/// What `show` shows.
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
    /// Settings in force.
    Settings,
    /// Version and build.
    Version,
}

/// One `set`, checked: which setting and its new value, as a change of [`Settings`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `set ip6-max-headers N`
    Ip6MaxHeaders(u8),
    /// `set poll adaptive|spin`
    Poll(crate::policy::Poll),
}

impl Setting {
    /// Makes the change.
    pub fn apply(&self, settings: &mut Settings) {
        match self {
            Setting::Ip6MaxHeaders(n) => settings.ip6_max_headers = *n,
            Setting::Poll(poll) => settings.poll = *poll,
        }
    }
}
