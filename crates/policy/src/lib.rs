//! The policy as data: fields, rules, settings, and how a policy changes.
//!
//! [`FIELDS`] describes every field and [`setting_table::SETTINGS`] every setting, each in one row. A [`Policy`] holds checked
//! [`Rule`]s by id, and [`Settings`]; a [`PolicyDiff`] leads from one policy to another. `mmb-language` parses and prints these
//! values; nothing here reads or writes text.
#![forbid(unsafe_code)]
// No wildcard arms: a new variant must be a compile error wherever it is not handled.
#![warn(clippy::wildcard_enum_match_arm)]

#[cfg(any(test, feature = "arbitrary"))]
pub mod arbitrary;
pub mod ct;
pub mod field;
pub mod filter;
pub mod http;
pub mod intervals;
pub mod limit;
mod names;
mod notes;
pub mod pattern;
pub mod policy;
pub mod policy_diff;
mod policy_sets;
pub mod printable;
pub mod rule;
pub mod rules;
pub mod server;
pub mod sets;
pub mod setting_table;
pub mod settings;
mod stream_part;

pub use ct::{CtState, CtStates};
pub use field::{FIELDS, Field, FieldId, FieldInfo};
pub use filter::{ConnectionFilter, PacketFilter};
pub use http::{HeaderName, Replacement, ReplacementPart};
pub use intervals::Intervals;
pub use limit::{Limit, LimitKey, LimitPeriod, LimitUnit};
pub use notes::{LineNote, NoteKey, PolicyNotes};
pub use pattern::{PatternItem, PatternList};
pub use policy::{Policy, PolicyError};
pub use policy_diff::{PolicyDiff, successors};
pub use rule::{Match, Rule, RuleId, StreamEdit, Target, Test};
pub use rules::{RuleChange, RuleStore};
pub use server::{ServerCommand, ServerName, ServerOrder};
pub use sets::{ElementKind, ElementList, NamedSet, SetOperation};
pub use settings::Settings;
