//! The rule language: fields, grammar, parser, checker, printer.
#![forbid(unsafe_code)]

pub mod command;
pub mod field;
mod names;
pub mod policy;
pub mod rule;

pub use command::Command;
pub use field::{FIELDS, Field, FieldId, FieldInfo};
pub use policy::Policy;
pub use rule::{Match, Rule, RuleId, Target, Test};
