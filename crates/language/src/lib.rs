//! The rule language: text to the values of `mmb-policy`, and back.
//!
//! Text goes through the lexer, the parser (to a syntax tree with spans) and the checker, and comes out as a
//! [`Command`], or as [`Diagnostic`]s for everything that is wrong with it. [`Command::run`] applies a command to a
//! [`Policy`](mmb_policy::Policy), [`parse_policy`] applies all commands of a file; [`Print`] writes values as text again. Fields
//! and settings have their rows in `mmb-policy`, commands in [`verb::COMMANDS`], targets in [`target::TARGETS`]; parser,
//! printer, completion, help and the reference are made from these tables.
#![forbid(unsafe_code)]

mod check;
pub mod command;
pub mod complete;
pub mod diagnostic;
mod element;
pub mod filter;
pub mod help;
mod lexer;
mod nearest;
mod notes;
mod number;
mod parse;
mod parser;
mod phrase;
mod position;
mod print;
pub mod reference;
mod report;
pub mod setting;
mod shadow;
mod silent_edit;
mod syntax;
pub mod target;
mod value;
pub mod verb;

pub use command::{Change, Command, CommandRefusal, Deletion, Replacement};
pub use complete::{Completion, CompletionContext, CompletionKind, complete};
pub use diagnostic::{Diagnostic, Note, RenderStyle, TextSpan};
pub use element::{MAX_ELEMENT_FILE_BYTES, Timeout, read_elements};
pub use help::{HelpLine, help_at};
pub use nearest::nearest;
pub use parse::{
    BatchCommand, FileReader, MAX_BATCH_COMMANDS, NamedFile, parse_batch_with, parse_command,
    parse_command_with, parse_policy, parse_policy_with, with_files,
};
pub use print::file_name::file_name as file_word;
pub use print::{
    Print, SetText, pattern_list, pattern_lists, port_switches, set_difference, set_lines, with_id,
};
pub use shadow::{ShadowedRule, shadowed};
pub use silent_edit::{SilentEdit, silent_edits};

#[cfg(test)]
mod tests;
