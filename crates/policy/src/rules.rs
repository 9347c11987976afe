//! Rules by number: compact, cheap to copy, and cheap to compare with a copy that was changed.
//!
//! Rules are kept as bytes (`rules/record.rs`) in chunks of neighbours (`rules/chunk.rs`). A copy of the store
//! (`rules/store.rs`) shares all chunks with it; a change replaces the one chunk that holds the rule. [`RuleStore::diff`]
//! (`rules/diff.rs`) passes over the chunks that two stores share, so that everything that follows a change costs what the
//! change does, however many rules there are.

mod chunk;
mod diff;
mod record;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use chunk::ChunkEntry;
pub(crate) use diff::EntryChange;
pub use diff::{RuleChange, RuleDiff};
pub use store::RuleStore;
