//! Compiled policies: the form in which workers read a policy.
//!
//! Purpose: a [`PolicyCompiler`] compiles the differences between policies and creates [`Snapshot`]s. A
//! snapshot has the classifier and, by rule slot, the actions, edits, stateful parts and counters of the
//! rules.
//!
//! Life-cycle and ownership: the compiler belongs to the control side; snapshots are immutable and shared.
//! This module uses no packets, connections or workers.
// No wildcard arms: a new variant must be a compile error wherever it is not handled.
#![warn(clippy::wildcard_enum_match_arm)]

mod action;
mod blocker;
mod compiler;
mod limit_keys;
mod limit_rule;
mod log_rule;
mod publish_error;
mod route;
mod selector;
mod servers;
mod slots;
mod snapshot;
mod stateful;
mod stateful_change;
mod stream_edit;
mod streams;

pub(crate) use action::{Action, ActionMark, EditId, RuleVerdict};
pub(crate) use compiler::PolicyCompiler;
pub use compiler::{CompiledPatterns, compile_patterns};
pub(crate) use limit_rule::LimitedPacket;
pub(crate) use log_rule::{LogAdmission, LogRule};
pub use publish_error::PublishError;
pub(crate) use route::Route;
pub use selector::{PacketSelector, UnknownFilterPort};
pub use servers::UnknownServer;
pub(crate) use snapshot::{RuleLineage, Snapshot};
pub(crate) use stateful::StatefulRule;
pub(crate) use stateful_change::RuleFate;
pub use stateful_change::{AffectedConnections, StatefulChange};
pub(crate) use stream_edit::{MAX_REPLACEMENT_BYTES, StreamEditRule};
pub(crate) use streams::{StreamPatterns, StreamRule};
