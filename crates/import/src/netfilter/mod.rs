//! Rule sets of netfilter, in the terms that iptables and nftables share, and their translation.
//!
//! A front end makes a [`Ruleset`]: chains, and the hooks that a packet passes, in order. [`walk`] follows the chains of a hook and
//! makes of them one ordered list of decisions; [`nat`] makes rules that map of the lists of translations; [`policy`] puts the lists
//! of all hooks together. A hook behind the translation of destinations sees other addresses than those that a packet arrives with;
//! [`view`] tells which received packets look so at the hook.

mod nat;
mod policy;
mod report;
mod ruleset;
mod view;
mod walk;

pub(crate) use policy::translate;
pub(crate) use ruleset::bits_in;
pub(crate) use ruleset::{
    Action, Chain, ChainId, Edit, EditRule, Hook, HookKind, Pool, Rate, Reason, Rule, Ruleset, Step,
    Translation,
};
pub use ruleset::{HostAddresses, RulesetError};
