//! Rules on the messages of HTTP/1.x: which are met, and which bytes of a connection they replace.
#![forbid(unsafe_code)]

mod bodies;
mod body;
mod detect;
mod editor;
mod exchange;
mod head_edit;
mod heads;
mod judge;
mod limits;
mod memory;
mod output;
mod plan;
mod rule;
mod state;
mod texts;

pub use editor::{HttpProgress, HttpTools};
pub use exchange::MOST_LIVE_RULES;
pub use memory::HttpMemory;
pub use output::{EditOutput, HttpNote};
pub use rule::{HttpRuleError, HttpRules, MOST_CONSTRAINTS, MOST_REPLACED};
pub use state::{Held, HttpEditor, HttpInput};
