//! Compiled policies: what the control side makes of a policy, and workers read.
//!
//! Purpose: a [`Rulebook`] compiles the differences between policies and hands out [`Snapshot`]s. A snapshot has the classifier, and by rule
//! slot the rules' actions, edits, stateful parts and counters.
//!
//! Life-cycle and ownership: the rulebook belongs to the control side; snapshots are immutable and shared. Nothing here knows packets,
//! connections or workers.
// A new field, value, place or target must be asked for wherever one is matched.
#![warn(clippy::wildcard_enum_match_arm)]

mod action;
mod route;
mod rulebook;
mod slots;
mod snapshot;
mod stateful;

pub(crate) use action::{Action, EditId, RuleVerdict};
pub use rulebook::PublishError;
pub(crate) use rulebook::Rulebook;
pub(crate) use snapshot::Snapshot;
pub(crate) use stateful::StatefulRule;
