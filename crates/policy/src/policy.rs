//! A whole policy: rules under their numbers, settings, and the ports that it leaves alone.
//!
//! A [`Policy`] is a plain value. A file is run against an empty one, a command against a copy of the one in
//! force; only what checked as a whole is handed to the engine.

use crate::rule::{Rule, RuleId};
use std::collections::{BTreeMap, BTreeSet};

/// Rules, settings and port switches.
///
/// Invariant: each rule's `id` is its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The rules by number.
    pub rules: BTreeMap<RuleId, Rule>,
    /// The settings.
    pub settings: Settings,
    /// Names of ports whose packets pass untouched (`disable PORT`).
    pub disabled: BTreeSet<String>,
}

/// What `set NAME VALUE` changes. `crate::setting` holds the table of names and ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `ip6-max-headers`: the most IPv6 extension headers walked in one packet.
    pub ip6_max_headers: u8,
    /// `poll`: how an idle worker waits.
    pub poll: Poll,
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

impl Default for Settings {
    fn default() -> Self {
        Settings { ip6_max_headers: 16, poll: Poll::Adaptive }
    }
}
