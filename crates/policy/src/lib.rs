//! The rule language: fields, grammar, parser, checker, printer.
//!
//! Text goes through the lexer, the parser (to a syntax tree with spans) and the checker, and comes out as a
//! [`Command`], or as [`Diagnostic`]s for everything that is wrong with it. A [`Policy`] runs commands and numbers its
//! rules. What is known about fields, commands and settings stands in one table each ([`FIELDS`],
//! [`verb::COMMANDS`], [`setting::SETTINGS`]); parser, printer, completion, help and the reference are made from them.
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "arbitrary"))]
pub mod arbitrary;
mod check;
pub mod command;
pub mod complete;
pub mod ct;
pub mod diagnostic;
pub mod field;
pub mod filter;
pub mod help;
pub mod intervals;
mod lexer;
mod names;
mod nearest;
mod parser;
mod phrase;
pub mod policy;
pub mod policy_diff;
mod position;
mod print;
pub mod reference;
pub mod rule;
pub mod rules;
pub mod setting;
mod syntax;
mod value;
pub mod verb;

pub use command::{Command, parse_command};
pub use complete::{Completion, CompletionContext, CompletionKind, complete};
pub use ct::{CtState, CtStates};
pub use diagnostic::{Diagnostic, Note, RenderStyle, TextSpan};
pub use field::{FIELDS, Field, FieldId, FieldInfo};
pub use filter::ConnectionFilter;
pub use help::{HelpLine, help_at};
pub use intervals::Intervals;
pub use nearest::nearest;
pub use policy::{Change, Policy, PolicyError};
pub use policy_diff::PolicyDiff;
pub use rule::{Match, Rule, RuleId, Target, Test};
pub use rules::{RuleChange, RuleStore};

#[cfg(test)]
mod tests;
